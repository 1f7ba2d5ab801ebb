#include "agent/thread/own_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/base/float_mode.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/sys.h"
#include "agent/thread/raw_thread.h"
#include "agent/thread/thread_context.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
enum { CLOSE_RANGE_UNSHARE_FLAG = 2 };

/* Encoding keeps its tables in mappings; zlib, zstd and the demanglers stay under 64 KiB. */
enum { OWN_STACK_SIZE = 256 * 1024, LARGE_STACK_SIZE = 8192 * 1024, DETACHED = 1 };

/* Kernel signal set: all but 32 and 33, glibc's SIGCANCEL and SIGSETXID. */
static const uint64_t all_but_internal = ~(uint64_t)(3ull << 31);

static const uint64_t all_signals = ~(uint64_t)0;

static int create_raw(void *(*routine)(void *))
{
    uint64_t mask;
    thread_tls.inside++;
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all_signals, &mask, sizeof(mask));
    int error = raw_thread_create(routine, OWN_STACK_SIZE);
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    thread_tls.inside--;
    return error;
}

#ifdef LIBAGENT_TEST
/* Of every sanitizer's run-time library: suites are compiled for it, and their memcpy is its own,
 * which wants to know the calling thread. */
extern void of_sanitizer(void) __asm__("__sanitizer_print_stack_trace") __attribute__((weak));

static bool raw_is_possible(void)
{
    return !of_sanitizer;
}
#else
static bool raw_is_possible(void)
{
    return true;
}
#endif

/* thread_tls.internal */
enum { OWN_IS_RAW = 1, OWN_IS_OF_LIBC };

static bool uses_libc;
static int32_t of_libc[3]; /* ids; 0: none */

void own_thread_use_libc(bool uses)
{
    store_release(&uses_libc, uses);
}

bool own_thread_uses_libc(void)
{
    return load_acquire(&uses_libc) || !raw_is_possible();
}

bool own_thread_is_known_to_libc(void)
{
    return thread_tls.internal == OWN_IS_OF_LIBC;
}

static void note_of_libc(int tid)
{
    (void)own_threads_of_libc_there(); /* the kernel may have their ids for others now */
    for (size_t i = 0; i < ARRAY_SIZE(of_libc); i++) {
        int32_t none = 0;
        if (__atomic_compare_exchange_n(&of_libc[i], &none, tid, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

uint32_t own_threads_of_libc_there(void)
{
    uint32_t there = 0;
    for (size_t i = 0; i < ARRAY_SIZE(of_libc); i++) {
        int32_t tid = load_acquire(&of_libc[i]);
        if (!tid)
            continue;
        if (sys_call3(SYS_tgkill, sys_pid(), tid, 0) == 0)
            there++;
        else
            __atomic_compare_exchange_n(&of_libc[i], &tid, 0, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED);
    }
    return there;
}

bool own_thread_is_of_libc(int tid)
{
    for (size_t i = 0; i < ARRAY_SIZE(of_libc); i++)
        if (load_acquire(&of_libc[i]) == tid)
            return true;
    return false;
}

int own_thread_create(void *(*routine)(void *))
{
    /* On one that libc does not know nothing of libc's may run, pthread_create neither. */
    if (thread_tls.internal == OWN_IS_RAW || !own_thread_uses_libc())
        return create_raw(routine);
    if (!next.pthread_create || !next.pthread_attr_init || !next.pthread_attr_setstacksize ||
        !next.pthread_attr_setdetachstate)
        return -ENOSYS;
    uint64_t attributes[16]; /* pthread_attr_t has 56 bytes, 64 on aarch64 */
    uint64_t thread;
    uint64_t mask;
    thread_tls.inside++;
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all_but_internal, &mask, sizeof(mask));
    next.pthread_attr_init(attributes);
    next.pthread_attr_setstacksize(attributes, OWN_STACK_SIZE);
    next.pthread_attr_setdetachstate(attributes, DETACHED);
    int error = next.pthread_create(&thread, attributes, routine, NULL);
    if (error == EINVAL) { /* the program's thread-local data needs more */
        next.pthread_attr_setstacksize(attributes, LARGE_STACK_SIZE);
        error = next.pthread_create(&thread, attributes, routine, NULL);
    }
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    thread_tls.inside--;
    return -error;
}

static uint32_t pauses;

void own_threads_pause(void)
{
    __atomic_fetch_add(&pauses, 1, __ATOMIC_SEQ_CST);
}

bool own_threads_go_on(void)
{
    return __atomic_sub_fetch(&pauses, 1, __ATOMIC_SEQ_CST) == 0;
}

bool own_threads_are_paused(void)
{
    return __atomic_load_n(&pauses, __ATOMIC_SEQ_CST) != 0;
}

void own_threads_reset_in_child(void)
{
    pauses = 0;
    memset(of_libc, 0, sizeof(of_libc));
}

void own_thread_is_none(uint32_t *state)
{
    store_release(state, OWN_THREAD_NONE);
    sys_futex_wake(state, INT32_MAX);
}

bool own_thread_is_there(const uint32_t *state)
{
    return __atomic_load_n(state, __ATOMIC_SEQ_CST) != OWN_THREAD_NONE;
}

bool own_thread_wait_none(const uint32_t *state, uint64_t deadline_ns)
{
    uint32_t seen;
    while ((seen = __atomic_load_n(state, __ATOMIC_SEQ_CST)) != OWN_THREAD_NONE)
        if (sys_futex_wait(state, seen, deadline_ns) == -ETIMEDOUT)
            return false;
    return true;
}

static bool begins(uint32_t *state, bool (*stays_away)(void))
{
    uint32_t none = OWN_THREAD_NONE;
    if (!__atomic_compare_exchange_n(state, &none, OWN_THREAD_STARTING, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_RELAXED))
        return false;
    if (!stays_away())
        return true;
    own_thread_is_none(state);
    return false;
}

int own_thread_need(uint32_t *state, void *(*routine)(void *), bool (*stays_away)(void))
{
    /* A handler in between that wants it away would wait for the frame under it. */
    uint64_t mask;
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all_signals, &mask, sizeof(mask));
    int error = 0;
    if (begins(state, stays_away)) {
        error = own_thread_create(routine);
        if (error)
            own_thread_is_none(state);
    } else if (stays_away()) {
        error = -EBUSY;
    }
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    return error;
}

/* All that the listing has. */
static void close_listed(void)
{
    char path[64], buffer[1024] __attribute__((aligned(8)));
    format(path, sizeof(path), "/proc/self/task/%d/fd", sys_tid());
    int list = sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    long size;
    while (list >= 0 && (size = sys_call3(SYS_getdents64, list, buffer, sizeof(buffer))) > 0) {
        /* struct linux_dirent64: the entry's size behind 16 bytes, its name behind 19. */
        for (long at = 0; at < size; at += *(const uint16_t *)(buffer + at + 16)) {
            int fd = 0;
            const char *name = buffer + at + 19;
            bool is_number = *name >= '0' && *name <= '9';
            for (; *name >= '0' && *name <= '9'; name++)
                fd = fd * 10 + (*name - '0');
            if (is_number && fd != list)
                sys_close(fd);
        }
    }
    if (list >= 0)
        sys_close(list);
}

/* False: the table stays the program's. */
static bool take_descriptors(void)
{
    if (sys_call3(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE_FLAG) == 0)
        return true;
    /* Before Linux 5.9. Where nothing lists them all stay open, but no number is the program's. */
    if (sys_call1(SYS_unshare, CLONE_FILES) != 0)
        return false;
    close_listed();
    return true;
}

/* A realtime thread that makes one of ours hands its policy down, and what we do would hold such
 * threads up. All else stays as it came: niceness, and the processors that the program chose.
 * (SCHED_DEADLINE is not handed down.) */
static void leave_realtime(void)
{
    const struct sched_param none = {0};
    long policy = sys_call1(SYS_sched_getscheduler, 0);
    if (policy == SCHED_FIFO || policy == SCHED_RR)
        (void)sys_call3(SYS_sched_setscheduler, 0, SCHED_OTHER, &none);
}

void own_thread_enter(const char *name)
{
    thread_tls.internal = raw_thread_is_current() ? OWN_IS_RAW : OWN_IS_OF_LIBC;
    thread_tls.inside = 1;
    if (own_thread_is_known_to_libc())
        note_of_libc(sys_tid());
    leave_realtime();
    (void)float_mode_enter(); /* not the one of the thread that made this one */
    sys_call2(SYS_prctl, PR_SET_NAME, name);
    if (take_descriptors())
        log_thread_is_detached();
}

/* As the kernel first had it; libc's header cannot be had beside <sched.h>. */
struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void own_thread_be_prompt(void)
{
    static const uint64_t least_ns = 100000;
    struct sched_attributes own = {.size = sizeof(own)};
    /* There are filters that kill for this one. */
    if (sys_call2(SYS_prctl, PR_GET_SECCOMP, 0) != 0 ||
        sys_call4(SYS_sched_getattr, 0, &own, sizeof(own), 0) != 0)
        return;
    own.runtime_ns = least_ns;
    (void)!sys_call3(SYS_sched_setattr, 0, &own, 0);
}
