/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_loader_waits: a thread waits, inside dl_iterate_phdr, for a mutex; who has that goes on for
 * two seconds meanwhile, also in code that no object has, and then gives it back. */
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include "test/preload/made_code.h"
#include "test/preload/program.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];

static int wait_inside(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    if (write(ends[1], "1", 1) != 1)
        abort();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return 7;
}

static void *walk(void *data)
{
    printf("walked %d\n", dl_iterate_phdr(wait_inside, data));
    return NULL;
}

SITE static void work(made_code *made)
{
    use_made_code(made);
}

int main(void)
{
    pthread_t thread;
    char byte;
    pthread_mutex_lock(&mutex);
    if (pipe(ends) != 0 || pthread_create(&thread, NULL, walk, NULL) != 0 ||
        read(ends[0], &byte, 1) != 1)
        return 1;
    work(make_code());
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    return 0;
}
