/* CFLAGS: -O1 -fsanitize=address -static-libasan */
/* LIBS: -lpthread */
/* prog_gcc_sanitized: has its own malloc, that of the address sanitizer, whose run-time library
 * looks for the functions behind its own, and allocates, before anything is set up. */
#include <pthread.h>
#include <string.h>

#include "test/preload/program.h"

SITE static void burn(void)
{
    spin(500000000);
}

static void *thread_main(void *argument)
{
    burn();
    keep(argument);
    return calloc(1, 1000);
}

int main(void)
{
    pthread_t thread;
    void *block;
    pthread_create(&thread, NULL, thread_main, NULL);
    pthread_join(thread, &block);
    printf("%d\n", memchr(block, 1, 1000) == NULL);
    free(block);
    return 0;
}
