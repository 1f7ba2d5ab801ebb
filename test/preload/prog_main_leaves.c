/* prog_main_leaves MS: main ends by pthread_exit, and a thread works for MS of CPU time after it.
 */
/* LIBS: -lpthread */
#include <pthread.h>

#include "test/preload/program.h"

static void *work(void *ms)
{
    spin(*(const uint64_t *)ms * 1000000u);
    puts("done");
    return NULL;
}

int main(int argc, char **argv)
{
    static uint64_t ms;
    pthread_t thread;
    ms = number_argument(argc, argv, 1, 100);
    pthread_create(&thread, NULL, work, &ms);
    pthread_exit(NULL);
}
