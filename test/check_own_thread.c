/* The agent's own threads: what they keep away from the app. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/raw_thread.h"
#include "agent/thread/thread_context.h"
#include "test/next_libc.h"

/* What the thread found out about itself. */
static struct {
    uint64_t mask;
    char name[16];
    struct thread_tls tls;
    bool stack_is_guarded;
    int errno_before;
    int open_descriptors;
    int made_descriptor;
} found;
static uint32_t is_there, never;

static void wait_for(const uint32_t *word)
{
    while (!load_acquire(word))
        sys_futex_wait(word, 0, 0);
}

/* A page that nobody may touch lies below, nearer than any mapping that is not this stack. */
static bool is_guarded(uintptr_t address)
{
    uintptr_t lowest = address - 300 * 1024;
    while (address > lowest && sys_readable(address))
        address -= 4096;
    return address > lowest;
}

static void *look_around(void *unused)
{
    own_thread_enter("libagent-test");
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &found.mask, sizeof(found.mask));
    prctl(PR_GET_NAME, found.name);
    found.tls = thread_tls;
    found.stack_is_guarded = is_guarded((uintptr_t)__builtin_frame_address(0));
    found.errno_before = errno;
    errno = ERANGE;
    for (int fd = 0; fd < 1024; fd++)
        found.open_descriptors += fcntl(fd, F_GETFD) >= 0;
    found.made_descriptor = sys_open("/dev/null", O_RDONLY, 0);
    store_release(&is_there, 1);
    sys_futex_wake(&is_there, 1);
    wait_for(&never); /* the end of the process */
    return unused;
}

static void start_and_wait(void)
{
    next_from_libc();
    thread_tls.bytes_until_sample = 12345;
    errno = EDOM;
    ck_assert_int_eq(own_thread_create(look_around), 0);
    wait_for(&is_there);
    ck_assert_int_eq(errno, EDOM);
}

START_TEST(it_is_marked_and_named)
{
    start_and_wait();
    ck_assert_uint_ne(found.tls.internal, 0);
    ck_assert_uint_ne(found.tls.inside, 0);
    ck_assert_ptr_null(found.tls.slot);
    ck_assert_str_eq(found.name, "libagent-test");
    ck_assert_int_eq(found.tls.bytes_until_sample, 0);
    ck_assert_int_eq(found.errno_before, 0);
    ck_assert(found.stack_is_guarded);
    ck_assert_uint_eq(thread_tls.internal, 0);
    ck_assert_uint_eq(thread_tls.inside, 0);
}
END_TEST

START_TEST(it_blocks_all_signals_but_those_that_libc_sends_it)
{
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    start_and_wait();
    /* Two signals cannot be blocked; an emulator has fewer than 64. */
    uint64_t all = ~0ull, own, can_be;
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &own, sizeof(all));
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &own, &can_be, sizeof(own));
    ck_assert_int_ge(__builtin_popcountll(can_be), 60);
    const uint64_t of_libc = 1ull << (32 - 1) | 1ull << (33 - 1);
    uint64_t sent_by_libc = own_thread_uses_libc() ? of_libc : 0;
    ck_assert_uint_eq(found.mask, can_be & ~sent_by_libc);
    /* The creator's own mask is what it was. */
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int i = 1; i < 32; i++)
        ck_assert_int_eq(sigismember(&after, i), i == SIGUSR2);
}
END_TEST

START_TEST(setuid_is_not_held_up)
{
    start_and_wait();
    /* libc signals every thread that it knows and waits for each. */
    ck_assert_int_eq(setuid(getuid()), 0);
}
END_TEST

START_TEST(it_has_descriptors_of_its_own)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    start_and_wait();
    ck_assert_int_eq(found.open_descriptors, 0);
    /* Its first one has a number that is taken here, and stands for another file. */
    ck_assert_int_eq(found.made_descriptor, 0);
    ck_assert_int_ge(fcntl(0, F_GETFD), 0);
    ck_assert_int_ge(fcntl(2, F_GETFD), 0);
    /* It keeps no end open: the reader sees the end of the file. */
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0);
}
END_TEST

static bool lacks_close_range(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOSYS;
    return number == 436; /* close_range */
}

/* Before Linux 5.9: by unshare, and the list of /proc. Many, so that it takes several looks. */
START_TEST(it_has_descriptors_of_its_own_on_an_old_kernel)
{
    int ends[2], others[200];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        ck_assert_int_ge(others[i] = dup(ends[1]), 0);
    sys_override = lacks_close_range;
    start_and_wait();
    ck_assert_int_eq(found.open_descriptors, 0);
    ck_assert_int_eq(found.made_descriptor, 0);
    ck_assert_int_ge(fcntl(2, F_GETFD), 0);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        ck_assert_int_eq(close(others[i]), 0);
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0);
}
END_TEST

static bool lacks_unshare(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EPERM;
    return number == 436 || number == SYS_unshare;
}

/* A filter of system calls, say. */
START_TEST(what_cannot_be_unshared_stays_shared)
{
    sys_override = lacks_unshare;
    start_and_wait();
    ck_assert_int_gt(found.open_descriptors, 0);
    ck_assert_int_ge(fcntl(found.made_descriptor, F_GETFD), 0);
}
END_TEST

static long policy;
static long policy_set; /* -1: none */

static bool has_policy(long number, const long args[6], long *result)
{
    *result = number == SYS_sched_getscheduler ? policy : 0;
    if (number == SYS_sched_setscheduler) {
        ck_assert_int_eq(args[0], 0);
        ck_assert_int_eq(((const struct sched_param *)args[2])->sched_priority, 0);
        policy_set = args[1];
    }
    return number == SYS_sched_getscheduler || number == SYS_sched_setscheduler;
}

static const struct {
    long policy, set;
} policies[] = {{SCHED_FIFO, SCHED_OTHER}, {SCHED_RR, SCHED_OTHER}, {SCHED_OTHER, -1},
                {SCHED_BATCH, -1},         {SCHED_IDLE, -1},        {-ENOSYS, -1}};

START_TEST(it_is_not_realtime)
{
    policy = policies[_i].policy;
    policy_set = -1;
    sys_override = has_policy;
    start_and_wait();
    ck_assert_int_eq(policy_set, policies[_i].set);
}
END_TEST

/* ---- a processor soon ---- */

struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

START_TEST(prompt_it_asks_for_little_at_once_and_keeps_the_rest)
{
    const struct sched_param none = {0};
    struct sched_attributes now = {0};
    struct utsname kernel;
    int major = 0, minor = 0, niceness = nice(3);
    ck_assert_int_eq(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    own_thread_be_prompt();
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0), 0);
    ck_assert_int_eq(now.nice, niceness);
    ck_assert_uint_eq(now.policy, SCHED_BATCH);
    ck_assert_int_eq(uname(&kernel), 0);
    ck_assert_int_eq(sscanf(kernel.release, "%d.%d", &major, &minor), 2);
    if ((major > 6 || (major == 6 && minor >= 12)) && prctl(PR_GET_SECCOMP) == 0)
        ck_assert_uint_eq(now.runtime_ns, 100000);
}
END_TEST

static bool is_filtered(long number, const long args[6], long *result)
{
    *result = SECCOMP_MODE_FILTER;
    ck_assert_int_ne(number, SYS_sched_setattr);
    return number == SYS_prctl && args[0] == PR_GET_SECCOMP;
}

START_TEST(under_a_filter_it_asks_for_nothing)
{
    sys_override = is_filtered;
    own_thread_be_prompt();
}
END_TEST

/* ---- failure ---- */

static int refuse(void *thread, const void *attributes, void *(*routine)(void *), void *argument)
{
    (void)thread;
    (void)attributes;
    (void)routine;
    (void)argument;
    ck_assert_uint_eq(thread_tls.inside, 1);
    return EAGAIN;
}

static bool refuse_clone(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EAGAIN;
    if (number == SYS_clone)
        ck_assert_uint_eq(thread_tls.inside, 1);
    return number == SYS_clone;
}

START_TEST(a_refused_thread_is_an_error)
{
    sigset_t before, after;
    next_from_libc();
    next.pthread_create = refuse;
    sys_override = refuse_clone;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    ck_assert_int_eq(own_thread_create(look_around), -EAGAIN);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    ck_assert_mem_eq(&before, &after, sizeof(uint64_t));
    ck_assert_uint_eq(thread_tls.inside, 0);
    /* It leaves nothing behind that stands in the way of the next. */
    sys_override = NULL;
    next_from_libc();
    start_and_wait();
}
END_TEST

START_TEST(without_functions_of_libc_there_is_no_thread)
{
    next_from_libc();
    static const size_t needed[] = {offsetof(struct next_functions, pthread_create),
                                    offsetof(struct next_functions, pthread_attr_init),
                                    offsetof(struct next_functions, pthread_attr_setstacksize),
                                    offsetof(struct next_functions, pthread_attr_setdetachstate)};
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        void **member = (void **)(void *)((char *)&next + needed[i]);
        void *saved = *member;
        *member = NULL;
        ck_assert_int_eq(own_thread_create(look_around), -ENOSYS);
        *member = saved;
    }
}
END_TEST

/* ---- threads that libc does not know ---- */

/* glibc 2.32 and later. */
extern char single_threaded __asm__("__libc_single_threaded") __attribute__((weak));

START_TEST(libc_takes_the_process_for_single_threaded)
{
    ck_assert(!&single_threaded || single_threaded);
    start_and_wait();
    ck_assert(!&single_threaded || single_threaded);
}
END_TEST

static uintptr_t stack_of_last;

static void *end_at_once(void *unused)
{
    char here;
    store_release(&stack_of_last, (uintptr_t)&here);
    return unused;
}

START_TEST(memory_is_used_again_when_a_thread_has_ended)
{
    uintptr_t first = 0;
    next_from_libc();
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(own_thread_create(end_at_once), 0);
        raw_threads_wait_ended();
        if (i == 0)
            first = stack_of_last;
        ck_assert_uint_eq(stack_of_last, first);
    }
    /* With three alive there is no memory for a fourth. */
    start_and_wait();
    ck_assert_int_eq(own_thread_create(look_around), 0);
    ck_assert_int_eq(own_thread_create(look_around), 0);
    ck_assert_int_eq(own_thread_create(look_around), -EAGAIN);
}
END_TEST

static int child_error, children;
static uint32_t is_told;

static int count_create(void *thread, const void *attributes, void *(*routine)(void *), void *data)
{
    (void)thread, (void)attributes, (void)routine, (void)data;
    return children++, EAGAIN;
}

static void *make_another(void *unused)
{
    own_thread_enter("libagent-test");
    own_thread_use_libc(true);
    child_error = own_thread_create(look_around);
    store_release(&is_told, 1);
    sys_futex_wake(&is_told, 1);
    return unused;
}

/* It may hold no lock of libc's, and its malloc takes none where the program has one thread. */
START_TEST(one_that_libc_does_not_know_calls_no_pthread_create)
{
    next_from_libc();
    next.pthread_create = count_create;
    ck_assert_int_eq(own_thread_create(make_another), 0);
    wait_for(&is_told);
    wait_for(&is_there);
    ck_assert_int_eq(child_error, 0);
    ck_assert_int_eq(children, 0);
    ck_assert_uint_eq(own_threads_of_libc_there(), 0);
    ck_assert_int_eq(own_thread_create(look_around), -EAGAIN); /* another thread's are pthreads */
    ck_assert_int_eq(children, 1);
}
END_TEST

START_TEST(a_fork_child_has_room_for_threads_of_its_own)
{
    start_and_wait();
    ck_assert_int_eq(own_thread_create(look_around), 0);
    pid_t child = fork();
    if (child == 0) {
        is_there = 0;
        for (int i = 0; i < 2; i++)
            if (own_thread_create(look_around) != 0)
                _exit(1);
        wait_for(&is_there);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("own_thread");
    TCase *threads = tcase_create("threads");
    tcase_set_timeout(threads, 60);
    tcase_add_test(threads, it_is_marked_and_named);
    tcase_add_test(threads, it_blocks_all_signals_but_those_that_libc_sends_it);
    tcase_add_test(threads, setuid_is_not_held_up);
    tcase_add_test(threads, it_has_descriptors_of_its_own);
    tcase_add_test(threads, it_has_descriptors_of_its_own_on_an_old_kernel);
    tcase_add_test(threads, what_cannot_be_unshared_stays_shared);
    tcase_add_test(threads, prompt_it_asks_for_little_at_once_and_keeps_the_rest);
    tcase_add_test(threads, under_a_filter_it_asks_for_nothing);
    tcase_add_loop_test(threads, it_is_not_realtime, 0, ARRAY_SIZE(policies));
    tcase_add_test(threads, a_refused_thread_is_an_error);
    if (own_thread_uses_libc()) {
        tcase_add_test(threads, without_functions_of_libc_there_is_no_thread);
    } else {
        tcase_add_test(threads, libc_takes_the_process_for_single_threaded);
        tcase_add_test(threads, memory_is_used_again_when_a_thread_has_ended);
        tcase_add_test(threads, one_that_libc_does_not_know_calls_no_pthread_create);
        tcase_add_test(threads, a_fork_child_has_room_for_threads_of_its_own);
    }
    suite_add_tcase(suite, threads);
    return suite;
}
