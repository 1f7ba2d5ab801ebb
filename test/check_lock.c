/* The futex lock: exclusion, ranks, owners, deadlines, fork, signals. */
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

static struct lock low = LOCK_INIT(LOCK_FLUSH);
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
    lock_release(&low);
    ck_assert_uint_eq(low.owner, 0);
}
END_TEST

START_TEST(rising_ranks_and_any_order_of_release)
{
    lock_acquire(&low);
    lock_acquire(&high);
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
    static struct lock other = LOCK_INIT(LOCK_FLUSH);
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

/* ---- signals ---- */

static uint64_t bit(int signal)
{
    return (uint64_t)1 << (signal - 1);
}

/* As the kernel has it: libc's functions hide the signals that libc keeps for itself. */
static uint64_t kernel_mask(void)
{
    uint64_t mask = 0;
    ck_assert_int_eq(sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask)), 0);
    return mask;
}

static void set_kernel_mask(uint64_t mask)
{
    ck_assert_int_eq(sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask)), 0);
}

/* What stays of a mask: two signals cannot be blocked; an emulator has fewer than 64. */
static uint64_t kept_of(uint64_t mask)
{
    uint64_t before = kernel_mask();
    set_kernel_mask(mask);
    uint64_t kept = kernel_mask();
    set_kernel_mask(before);
    return kept;
}

/* By 33 glibc changes the user id in every thread. */
static uint64_t mask_while_held(uint64_t before)
{
    return before | (kept_of(~0ull) & ~bit(33));
}

/* None, some, all that can be blocked, 33 among them. */
static const uint64_t masks[] = {0, (uint64_t)1 << (SIGUSR1 - 1) | (uint64_t)1 << 33,
                                 (uint64_t)1 << 32,
                                 ~((uint64_t)1 << (SIGKILL - 1) | (uint64_t)1 << (SIGSTOP - 1))};
enum { MASKS = sizeof(masks) / sizeof(masks[0]) };

START_TEST(signals_wait_while_a_lock_is_held)
{
    const uint64_t before = kept_of(masks[_i]), while_held = mask_while_held(before);
    set_kernel_mask(before);
    lock_acquire(&low);
    ck_assert_uint_eq(kernel_mask(), while_held);
    lock_release(&low);
    ck_assert_uint_eq(kernel_mask(), before);

    lock_acquire(&low);
    lock_acquire(&high);
    ck_assert_uint_eq(kernel_mask(), while_held);
    lock_release(&high);
    ck_assert_uint_eq(kernel_mask(), while_held);
    lock_release(&low);
    ck_assert_uint_eq(kernel_mask(), before);

    lock_acquire(&low);
    lock_acquire(&high);
    lock_release(&low);
    ck_assert_uint_eq(kernel_mask(), while_held);
    lock_release(&high);
    ck_assert_uint_eq(kernel_mask(), before);
}
END_TEST

static volatile sig_atomic_t signals_seen;

static void see_signal(int signal)
{
    (void)signal;
    signals_seen = signals_seen + 1;
}

START_TEST(a_signal_comes_after_the_last_release)
{
    sigset_t pending;
    signal(SIGUSR1, see_signal);
    lock_acquire(&low);
    lock_acquire(&high);
    raise(SIGUSR1);
    lock_release(&low);
    sigpending(&pending);
    ck_assert(sigismember(&pending, SIGUSR1));
    ck_assert_int_eq(signals_seen, 0);
    lock_release(&high);
    sigpending(&pending);
    ck_assert(!sigismember(&pending, SIGUSR1));
    ck_assert_int_eq(signals_seen, 1);
}
END_TEST

/* A handler that comes just before signals are blocked takes and releases a lock itself, and leaves
 * the mask that is to be restored as it was. */
static void take_a_lock(int signal)
{
    see_signal(signal);
    lock_acquire(&low);
    lock_release(&low);
}

static bool raise_after_blocking(long number, const long args[6], long *result)
{
    if (number != SYS_rt_sigprocmask || args[0] != SIG_BLOCK || signals_seen)
        return false;
    raise(SIGUSR1);
    *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    return true;
}

START_TEST(a_handler_just_before_may_take_locks)
{
    const uint64_t before = bit(SIGUSR2);
    signal(SIGUSR1, take_a_lock);
    set_kernel_mask(before);
    sys_override = raise_after_blocking;
    lock_acquire(&low);
    sys_override = NULL;
    ck_assert_int_eq(signals_seen, 1);
    ck_assert_uint_eq(kernel_mask(), mask_while_held(before));
    lock_release(&low);
    ck_assert_uint_eq(kernel_mask(), before);
}
END_TEST

START_TEST(a_lock_not_had_leaves_the_mask)
{
    const uint64_t before = kept_of(masks[_i]), while_held = mask_while_held(before);
    static struct lock lowest = LOCK_INIT(LOCK_LIFE);
    sem_init(&held, 0, 0);
    sem_init(&may_release, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL);
    sem_wait(&held);
    set_kernel_mask(before);
    ck_assert_int_eq(lock_acquire_until(&low, clock_monotonic_ns() + NS_PER_MS), -ETIMEDOUT);
    ck_assert_uint_eq(kernel_mask(), before);

    lock_acquire(&lowest);
    ck_assert_int_eq(lock_acquire_until(&low, clock_monotonic_ns() + NS_PER_MS), -ETIMEDOUT);
    ck_assert_uint_eq(kernel_mask(), while_held);
    lock_release(&lowest);
    ck_assert_uint_eq(kernel_mask(), before);
    sem_post(&may_release);
    pthread_join(thread, NULL);
}
END_TEST

/* The child's status: 0, or the number of the first mask that is wrong. */
static int masks_in_child(uint64_t before)
{
    const uint64_t while_held = mask_while_held(before);
    if (kernel_mask() != while_held)
        return 1;
    lock_reset(&high);
    if (kernel_mask() != while_held)
        return 2;
    lock_reset(&low);
    if (kernel_mask() != before)
        return 3;
    set_kernel_mask(before ^ bit(SIGUSR2));
    lock_reset(&low); /* not held: no mask of an earlier time comes back */
    return kernel_mask() == (before ^ bit(SIGUSR2)) ? 0 : 4;
}

START_TEST(reset_in_the_child_restores_the_mask)
{
    const uint64_t before = kept_of(masks[_i]);
    set_kernel_mask(before);
    lock_acquire(&low);
    lock_acquire(&high);
    pid_t child = fork();
    if (child == 0)
        _exit(masks_in_child(before));
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    lock_release(&high);
    ck_assert_uint_eq(kernel_mask(), mask_while_held(before));
    lock_release(&low);
    ck_assert_uint_eq(kernel_mask(), before);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("lock");
    TCase *good = tcase_create("good use");
    tcase_set_timeout(good, 30);
    tcase_add_test(good, one_thread_at_a_time);
    tcase_add_test(good, a_wait_that_ends_early_gives_no_lock);
    tcase_add_test(good, release_wakes_all_waiters_one_after_the_other);
    tcase_add_test(good, a_deadline_is_kept);
    tcase_add_test(good, the_owner_is_known);
    tcase_add_test(good, rising_ranks_and_any_order_of_release);
    tcase_add_test(good, a_thread_may_release_in_the_fork_child_what_it_held);
    tcase_add_test(good, reset_frees_in_the_child_what_another_thread_held);
    suite_add_tcase(suite, good);
    TCase *signals = tcase_create("signals");
    tcase_add_loop_test(signals, signals_wait_while_a_lock_is_held, 0, MASKS);
    tcase_add_test(signals, a_signal_comes_after_the_last_release);
    tcase_add_test(signals, a_handler_just_before_may_take_locks);
    tcase_add_loop_test(signals, a_lock_not_had_leaves_the_mask, 0, MASKS);
    tcase_add_loop_test(signals, reset_in_the_child_restores_the_mask, 0, MASKS);
    suite_add_tcase(suite, signals);
    TCase *defects = tcase_create("defects");
    tcase_add_test_raise_signal(defects, a_falling_rank_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, the_same_rank_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, a_release_without_the_lock_is_a_defect, SIGABRT);
    tcase_add_test_raise_signal(defects, a_release_by_another_thread_is_a_defect, SIGABRT);
    suite_add_tcase(suite, defects);
    return suite;
}
