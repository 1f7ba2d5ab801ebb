/* Main ends by pthread_exit; after it one thread waits, and one calls code that no object has, for
 * two seconds. */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#include <pthread.h>

#include "test/preload/made_code.h"

SITE static void *wait_here(void *unused)
{
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    keep(unused);
    return unused;
}

SITE static void *work(void *unused)
{
    use_made_code(make_code());
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_here, NULL) == 0 &&
        pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_exit(NULL);
    return 1;
}
