/* The futex lock: exclusion, ranks, owners, deadlines, fork. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/sys.h"

static struct lock low = LOCK_INIT(LOCK_THREADS);
static struct lock high = LOCK_INIT(LOCK_UPLOADER);

enum { THREADS = 4, ROUNDS = 20000 };

static long shared_total; /* plain: the lock alone keeps it right */

static void *add_under_lock(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        lock_acquire(&low);
        shared_total++;
        lock_release(&low);
    }
    return unused;
}

static void run_threads(void *(*routine)(void *))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, routine, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(one_thread_at_a_time)
{
    run_threads(add_under_lock);
    ck_assert_int_eq(shared_total, THREADS * ROUNDS);
    ck_assert_uint_eq(low.word, 0);
    ck_assert_uint_eq(low.owner, 0);
}
END_TEST

static bool waits_end_early(long number, const long args[6], long *result)
{
    *result = -EINTR;
    return number == SYS_futex && args[2] != 1 /* not a wake, whose third argument is a count */;
}

START_TEST(a_wait_that_ends_early_gives_no_lock)
{
    sys_override = waits_end_early;
    run_threads(add_under_lock);
    sys_override = NULL;
    ck_assert_int_eq(shared_total, THREADS * ROUNDS);
}
END_TEST

static void *add_under_try(void *unused)
{
    for (int i = 0; i < ROUNDS;) {
        if (!lock_try(&low))
            continue;
        shared_total++;
        i++;
        lock_release(&low);
    }
    return unused;
}

START_TEST(try_excludes_too)
{
    run_threads(add_under_try);
    ck_assert_int_eq(shared_total, THREADS * ROUNDS);
}
END_TEST

/* Tells when a thread is about to sleep in the kernel. */
static sem_t about_to_wait;

static bool announce_waits(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    if (number == SYS_futex)
        sem_post(&about_to_wait);
    return false;
}

static void *acquire_and_release(void *unused)
{
    lock_acquire(&low);
    lock_release(&low);
    return unused;
}

START_TEST(release_wakes_all_waiters_one_after_the_other)
{
    sem_init(&about_to_wait, 0, 0);
    sys_override = announce_waits;
    lock_acquire(&low);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, acquire_and_release, NULL);
    for (int i = 0; i < THREADS; i++)
        sem_wait(&about_to_wait);
    ck_assert_uint_eq(load_relaxed(&low.word), 2);
    lock_release(&low);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL); /* a lost wake-up is the test's timeout */
    sys_override = NULL;
}
END_TEST

static uint64_t attempt_ns;
static int attempt;

static void *attempt_until(void *unused)
{
    uint64_t deadline = clock_monotonic_ns() + attempt_ns;
    attempt = lock_acquire_until(&low, deadline);
    if (attempt == 0)
        lock_release(&low);
    else
        ck_assert_uint_ge(clock_monotonic_ns(), deadline);
    return unused;
}

static void attempt_in_a_thread(uint64_t ns)
{
    pthread_t thread;
    attempt_ns = ns;
    ck_assert_int_eq(pthread_create(&thread, NULL, attempt_until, NULL), 0);
    pthread_join(thread, NULL);
}

START_TEST(a_deadline_is_kept)
{
    lock_acquire(&low);
    attempt_in_a_thread(5 * NS_PER_MS);
    ck_assert_int_eq(attempt, -ETIMEDOUT);
    lock_release(&low);
    attempt_in_a_thread(60 * NS_PER_SEC);
    ck_assert_int_eq(attempt, 0);
    /* The thread that gave up holds no rank: it could take the lock, and so can this one. */
    lock_acquire(&low);
    lock_release(&low);
}
END_TEST

START_TEST(the_owner_is_known)
{
    lock_acquire(&low);
    ck_assert_uint_eq(low.owner, (uint32_t)sys_tid());
    ck_assert(!lock_try(&low));
    lock_release(&low);
    ck_assert_uint_eq(low.owner, 0);
    ck_assert(lock_try(&low));
    lock_release(&low);
}
END_TEST

START_TEST(rising_ranks_and_any_order_of_release)
{
    lock_acquire(&low);
    lock_acquire(&high);
    lock_release(&low);
    lock_release(&high);
    lock_acquire(&high);
    ck_assert(lock_try(&low)); /* cannot wait, so cannot deadlock */
    lock_release(&low);
    lock_release(&high);
    lock_acquire(&low);
    lock_release(&low);
}
END_TEST

START_TEST(a_falling_rank_is_a_defect)
{
    lock_acquire(&high);
    lock_acquire(&low);
}
END_TEST

START_TEST(the_same_rank_is_a_defect)
{
    static struct lock other = LOCK_INIT(LOCK_THREADS);
    lock_acquire(&low);
    lock_acquire(&other);
}
END_TEST

START_TEST(a_release_without_the_lock_is_a_defect)
{
    lock_release(&low);
}
END_TEST

static void *release_foreign(void *unused)
{
    lock_release(&low);
    return unused;
}

START_TEST(a_release_by_another_thread_is_a_defect)
{
    lock_acquire(&low);
    pthread_t thread;
    pthread_create(&thread, NULL, release_foreign, NULL);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_thread_may_release_in_the_fork_child_what_it_held)
{
    lock_acquire(&low);
    pid_t child = fork();
    if (child == 0) {
        lock_release(&low);
        lock_acquire(&low);
        _exit(low.owner == (uint32_t)sys_tid() ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    lock_release(&low);
}
END_TEST

static sem_t held, may_release;

static void *hold(void *unused)
{
    lock_acquire(&low);
    sem_post(&held);
    sem_wait(&may_release);
    lock_release(&low);
    return unused;
}

START_TEST(reset_frees_in_the_child_what_another_thread_held)
{
    sem_init(&held, 0, 0);
    sem_init(&may_release, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL);
    sem_wait(&held);
    pid_t child = fork();
    if (child == 0) {
        lock_reset(&low);
        lock_acquire(&low);
        lock_reset(&low); /* its own: the rank is free as well */
        lock_acquire(&low);
        lock_release(&low);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sem_post(&may_release);
    pthread_join(thread, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("lock");
    TCase *good = tcase_create("good use");
    tcase_set_timeout(good, 30);
    tcase_add_test(good, one_thread_at_a_time);
    tcase_add_test(good, a_wait_that_ends_early_gives_no_lock);
    tcase_add_test(good, try_excludes_too);
    tcase_add_test(good, release_wakes_all_waiters_one_after_the_other);
    tcase_add_test(good, a_deadline_is_kept);
    tcase_add_test(good, the_owner_is_known);
    tcase_add_test(good, rising_ranks_and_any_order_of_release);
    tcase_add_test(good, a_thread_may_release_in_the_fork_child_what_it_held);
    tcase_add_test(good, reset_frees_in_the_child_what_another_thread_held);
    suite_add_tcase(suite, good);
    TCase *defects = tcase_create("defects");
    tcase_add_test_raise_signal(defects, a_falling_rank_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, the_same_rank_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, a_release_without_the_lock_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, a_release_by_another_thread_is_a_defect, SIGABRT);
    suite_add_tcase(suite, defects);
    return suite;
}
