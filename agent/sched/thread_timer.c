#include "agent/sched/thread_timer.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/nap.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/sched/restarts.h"

/* Member of struct sigevent for SIGEV_THREAD_ID; glibc names it only so. */
#define SIGEVENT_TID _sigev_un._tid

static uint64_t interval_ns, tick_ns; /* the kernel looks at timers each `tick_ns` */
/* A timer that was set and has not gone off in so much CPU time of its thread is set again: its
 * signal may be blocked, or lost. */
enum { PATIENCE_TICKS = 4 };
static uint32_t refused;
static uint32_t stopped;
/* Each timer takes one of RLIMIT_SIGPENDING, which timers and queued signals of all the user's
 * processes share: half of what this one may have is left to the app. */
static uint32_t timers, timers_limit;
static const struct thread_slot *asked;

bool cpu_timers_are_fatal(void)
{
    uint64_t soft_and_hard[2];
    return sys_call4(SYS_prlimit64, 0, RLIMIT_RTTIME, NULL, soft_and_hard) == 0 &&
           (soft_and_hard[0] == 0 || soft_and_hard[1] == 0);
}

static uint32_t limit_of_timers(void)
{
    uint64_t soft_and_hard[2];
    if (cpu_timers_are_fatal())
        return 0;
    if (sys_call4(SYS_prlimit64, 0, RLIMIT_SIGPENDING, NULL, soft_and_hard) != 0)
        return UINT32_MAX;
    return (uint32_t)MIN_OF(soft_and_hard[0] / 2, (uint64_t)UINT32_MAX);
}

static bool take_timer(void)
{
    if (add_relaxed(&timers, 1) < timers_limit)
        return true;
    add_relaxed(&timers, (uint32_t)-1);
    return false;
}

static void delete_timer(int timer)
{
    sys_call1(SYS_timer_delete, timer);
    add_relaxed(&timers, (uint32_t)-1);
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_SEC), (long)(ns % NS_PER_SEC)};
}

/* `first` 0: it is disarmed. */
static long set_timer(int timer, uint64_t first_ns, uint64_t then_ns)
{
    struct itimerspec times = {.it_interval = to_timespec(then_ns),
                               .it_value = to_timespec(first_ns)};
    return sys_call4(SYS_timer_settime, timer, 0, &times, NULL);
}

static void set_own(const struct thread_slot *slot, bool is_due)
{
    int timer = load_acquire(&slot->timer);
    uint64_t interval = (uint64_t)slot->interval_us * 1000;
    if (timer >= 0)
        set_timer(timer, is_due ? interval : 0, interval);
}

static uint64_t random_phase(uint64_t interval)
{
    struct rng rng;
    rng_split(&rng);
    return 1 + rng_next(&rng) % interval;
}

/* The look for one that was found came at a random instant itself. Of others each of the kernel's
 * ticks is to be the first sample with equal chance: as it comes half a tick behind the timer's
 * time, that one is half a tick earlier. */
static uint64_t first_phase(const struct thread_slot *slot, uint64_t interval)
{
    bool was_found = !slot->start_routine && !load_relaxed(&slot->cpu_last_ns);
    uint64_t phase = random_phase(interval);
    return was_found || phase <= tick_ns / 2 ? 1 : phase - tick_ns / 2;
}

void thread_timers_set_interval(uint64_t interval)
{
    store_relaxed(&interval_ns, interval);
}

int thread_timers_start(uint64_t interval, sampling_handler handler)
{
    thread_timers_set_interval(interval);
    tick_ns = clock_tick_ns();
    timers_limit = limit_of_timers();
    store_relaxed(&stopped, 0);
    return sampling_signal_start(handler);
}

/* Until no tick uses what the calling thread changed in its slot. */
static void wait_unasked(const struct thread_slot *slot)
{
    full_fence();
    while (unlikely(__atomic_load_n(&asked, __ATOMIC_SEQ_CST) == slot))
        (void)!nap_before(UINT64_MAX);
}

static void give_up_timer(struct thread_slot *slot, enum no_timer instead)
{
    int timer = exchange_acq_rel(&slot->timer, (int)instead);
    if (timer < 0)
        return;
    wait_unasked(slot);
    delete_timer(timer);
}

void thread_timer_end(struct thread_slot *slot)
{
    give_up_timer(slot, TIMER_NONE);
}

void thread_timers_stop(void)
{
    __atomic_store_n(&stopped, 1, __ATOMIC_SEQ_CST);
    sampling_signal_stop();
    full_fence();
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        if (load_relaxed(&slot->timer) >= 0)
            give_up_timer(slot, TIMER_STOPPED);
    }
}

void thread_timer_begin(struct thread_slot *slot, bool armed)
{
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD_ID,
        .sigev_signo = SAMPLING_SIGNAL,
        .sigev_value.sival_ptr = slot,
    };
    event.SIGEVENT_TID = slot->tid;
    int timer;
    uint64_t interval = load_relaxed(&interval_ns);
    store_relaxed(&slot->interval_us, (uint32_t)(interval / 1000));
    store_relaxed(&slot->asked_ns, 0);
    long error = -EAGAIN; /* as the kernel has it for this limit */
    if (take_timer()) {
        error = sys_call3(SYS_timer_create, clock_id_of_thread(slot->tid), &event, &timer);
        if (error)
            add_relaxed(&timers, (uint32_t)-1);
    }
    if (error == 0 && armed) {
        error = set_timer(timer, first_phase(slot, interval), interval);
        if (error)
            delete_timer(timer);
    }
    if ((error == -EINVAL || error == -ESRCH) && clock_thread_cpu_of_ns(slot->tid) == 0)
        return; /* one that was found has ended meanwhile */
    if (error) {
        store_release(&slot->timer, TIMER_REFUSED);
        stats_add(STAT_TIMERS_REFUSED, 1);
        if (!exchange_acq_rel(&refused, 1))
            log_warn(
                "threads are not sampled, their CPU time is [not sampled]: timers are refused "
                "(errno %d): half of RLIMIT_SIGPENDING is in use, RLIMIT_RTTIME is 0, or a seccomp "
                "filter",
                (int)-error);
        return;
    }
    store_release(&slot->timer, timer);
    full_fence();
    if (unlikely(__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)))
        give_up_timer(slot, TIMER_STOPPED);
}

void thread_timer_repeat(struct thread_slot *slot)
{
    set_own(slot, true);
}

/* A function of its own: inlined, TLS could be read before it is known to be there. */
static __attribute__((noinline)) bool is_current(const struct thread_slot *slot)
{
    return thread_current() == slot;
}

static bool is_own(struct thread_slot *slot)
{
    bool has_tls = load_relaxed(&slot->thread) == SLOT_OF_OURS && thread_has_tls(slot);
    return has_tls ? is_current(slot) : thread_owns_without_tls(slot);
}

void thread_timer_follow(struct thread_slot *slot, const void *ucontext)
{
    if (!is_own(slot)) /* a late signal */
        return;
    store_relaxed(&slot->asked_ns, 0);
    restarts_at_sample(slot, ucontext);
    uint64_t interval = restarts_interval_ns(slot, load_relaxed(&interval_ns));
    if (likely(load_relaxed(&slot->interval_us) == (uint32_t)(interval / 1000)))
        return;
    store_relaxed(&slot->interval_us, (uint32_t)(interval / 1000));
    if (!slot->held)
        set_own(slot, true);
}

static void set_of_other(const struct thread_slot *slot, uint64_t first_ns, uint64_t then_ns)
{
    __atomic_store_n(&asked, slot, __ATOMIC_SEQ_CST);
    full_fence();
    int timer = load_acquire(&slot->timer);
    if (timer >= 0 && !load_acquire(&slot->held))
        set_timer(timer, first_ns, then_ns);
    store_release(&asked, NULL);
}

void thread_timer_ask(struct thread_slot *slot, uint64_t cpu_ns)
{
    uint64_t asked_ns = load_relaxed(&slot->asked_ns);
    if (asked_ns && cpu_ns - asked_ns < PATIENCE_TICKS * tick_ns)
        return;
    store_relaxed(&slot->asked_ns, cpu_ns);
    /* From now on, and not by a time that may be past: the kernel would signal at once. */
    set_of_other(slot, 1, 0);
}

void thread_timers_arm_all(void)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        uint64_t interval = (uint64_t)load_relaxed(&slot->interval_us) * 1000;
        if (load_relaxed(&slot->timer) >= 0)
            set_of_other(slot, random_phase(interval), interval);
    }
}

void thread_timer_hold(struct thread_slot *slot)
{
    store_release(&slot->held, 1);
    wait_unasked(slot);
    set_own(slot, false);
}

void thread_timer_go_on(struct thread_slot *slot)
{
    set_own(slot, true);
    store_relaxed(&slot->asked_ns, 0);
    store_release(&slot->held, 0);
}

void thread_timers_reset_in_child(void)
{
    refused = 0;
    timers = 0;
    asked = NULL;
}
