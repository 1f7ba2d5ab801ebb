#include "test/next_libc.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>

struct next_functions next;
void *next_first_malloc;
bool next_is_sanitized;

/* The table's parameter types are those that all versions of libc share. */
#define FROM_LIBC(name) next.name = (__typeof__(next.name))(void *)name

void next_from_libc(void)
{
    FROM_LIBC(malloc);
    FROM_LIBC(pthread_create);
    FROM_LIBC(pthread_attr_init);
    FROM_LIBC(pthread_attr_setstacksize);
    FROM_LIBC(pthread_attr_setdetachstate);
    FROM_LIBC(pthread_key_create);
    FROM_LIBC(pthread_setspecific);
    FROM_LIBC(dlopen);
    FROM_LIBC(dlsym);
    FROM_LIBC(dlerror);
    FROM_LIBC(dl_iterate_phdr);
    FROM_LIBC(sigaction);
}
