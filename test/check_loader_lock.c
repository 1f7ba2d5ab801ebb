/* The loader's lock is found, and seen to be held, by the loader's own doing. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/unwind/loader_lock.h"
#include "agent/unwind/modules.h"
#include "test/demand.h"

static sem_t inside, leave;

static int wait_inside(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info;
    (void)size;
    (void)data;
    demand(loader_lock_is_free()); /* for who holds it */
    sem_post(&inside);
    sem_wait(&leave);
    return 1;
}

static void *walk(void *unused)
{
    dl_iterate_phdr(wait_inside, unused);
    return NULL;
}

/* Starts, and has another thread inside dl_iterate_phdr. */
static pthread_t start(void)
{
    pthread_t walker;
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert(loader_lock_is_known());
    ck_assert(loader_lock_is_free());
    sem_init(&inside, 0, 0);
    sem_init(&leave, 0, 0);
    ck_assert_int_eq(pthread_create(&walker, NULL, walk, NULL), 0);
    sem_wait(&inside);
    return walker;
}

START_TEST(a_rescan_does_not_wait_for_a_lock_that_is_held)
{
    pthread_t walker = start();
    ck_assert(!loader_lock_is_free());
    ck_assert_int_eq(modules_rescan(), -ETIMEDOUT);
    ck_assert_uint_eq(modules_stale, 1);
    sem_post(&leave);
    pthread_join(walker, NULL);
    ck_assert(loader_lock_is_free());
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_uint_eq(modules_stale, 0);
}
END_TEST

static uint32_t counted;

static int count_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info;
    (void)size;
    (void)data;
    __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *walk_once(void *unused)
{
    (void)unused;
    dl_iterate_phdr(count_object, NULL);
    return NULL;
}

/* What we hold, dl_iterate_phdr of this thread takes again, and others wait for. */
START_TEST(the_lock_is_taken_and_given)
{
    bool taken, again;
    pthread_t walker = start();
    ck_assert(!loader_lock_try(&taken));
    ck_assert(!taken);
    sem_post(&leave);
    pthread_join(walker, NULL);
    for (int i = 0; i < 20; i++) {
        __atomic_store_n(&counted, 0, __ATOMIC_RELAXED);
        ck_assert(loader_lock_try(&taken));
        ck_assert(taken && loader_lock_is_free() && !loader_lock_is_unheld());
        ck_assert_int_eq(pthread_create(&walker, NULL, walk_once, NULL), 0);
        usleep(1000);
        ck_assert_uint_eq(__atomic_load_n(&counted, __ATOMIC_RELAXED), 0);
        ck_assert(loader_lock_try(&again));
        ck_assert(!again);
        ck_assert_int_eq(modules_rescan(), 0);
        loader_lock_give(again);
        ck_assert(!loader_lock_is_unheld());
        loader_lock_give(taken);
        pthread_join(walker, NULL);
        ck_assert_uint_gt(counted, 0);
        ck_assert(loader_lock_is_unheld());
    }
    loader_lock_forget();
    ck_assert(loader_lock_try(&taken));
    ck_assert(!taken);
}
END_TEST

/* Whoever takes the lock between a look and the call would be waited for. */
static bool is_rescan;

static int hold_in_rescan(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    ck_assert(!is_rescan || (!loader_lock_is_unheld() && loader_lock_is_free()));
    return dl_iterate_phdr(callback, data);
}

START_TEST(a_rescan_has_the_lock_when_it_asks)
{
    ck_assert_int_eq(modules_start(hold_in_rescan), 0);
    ck_assert(loader_lock_is_known());
    is_rescan = true;
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert(loader_lock_is_unheld());
}
END_TEST

/* In the child it stays held; there is no other thread that could give it back. */
START_TEST(a_child_with_a_held_lock_refuses)
{
    pthread_t walker = start();
    modules_lock_for_fork();
    pid_t child = fork();
    if (child == 0) {
        modules_distrust_loader();
        modules_unlock_after_fork();
        _exit(modules_rescan() == -EAGAIN ? 0 : 1);
    }
    modules_unlock_after_fork();
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    sem_post(&leave);
    pthread_join(walker, NULL);
}
END_TEST

struct loader {
    ElfW(Addr) base;
    struct dl_phdr_info info;
};

static int look_at_loader(struct dl_phdr_info *info, size_t size, void *data)
{
    struct loader *loader = data;
    (void)size;
    loader->info = *info;
    return info->dlpi_addr == loader->base;
}

START_TEST(what_is_not_held_inside_a_callback_is_not_it)
{
    struct loader loader = {.base = getauxval(AT_BASE)};
    ck_assert_int_eq(dl_iterate_phdr(look_at_loader, &loader), 1);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert(loader_lock_is_known());
    loader_lock_find(&loader.info); /* outside: nothing there is held */
    ck_assert(!loader_lock_is_known());
    ck_assert(loader_lock_is_free());
    ck_assert_int_eq(modules_rescan(), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("loader_lock");
    TCase *tcase = tcase_create("loader_lock");
    tcase_add_test(tcase, a_rescan_does_not_wait_for_a_lock_that_is_held);
    tcase_add_test(tcase, the_lock_is_taken_and_given);
    tcase_add_test(tcase, a_rescan_has_the_lock_when_it_asks);
    tcase_add_test(tcase, a_child_with_a_held_lock_refuses);
    tcase_add_test(tcase, what_is_not_held_inside_a_callback_is_not_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
