/* CFLAGS: -O2 -rdynamic */
/* LIBS: -ldl */
/* prog_own_dlsym: an executable whose dlsym (in front of libc's for everybody) allocates before
 * it answers. */
#include <dlfcn.h>
#include <string.h>

#include "test/preload/program.h"

static int calls;

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    char *copy = malloc(strlen(name) + 100);
    void *other = calloc(3, 50);
    strcpy(copy, name);
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    calls++;
    void *found = next(handle, copy);
    free(copy);
    free(other);
    return found;
}

int main(void)
{
    size_t (*length)(const char *) = (size_t(*)(const char *))dlsym(RTLD_DEFAULT, "strlen");
    for (int i = 0; i < 1000; i++)
        free(malloc(100 + (size_t)i));
    printf("%zu %d\n", length("text"), calls > 0);
    return 0;
}
