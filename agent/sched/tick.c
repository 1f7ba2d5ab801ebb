#include "agent/sched/tick.h"

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/restarts.h"
#include "agent/sched/thread_timer.h"
#include "agent/thread/moment.h"

/* A thread's clock is read in 0.3 us, and set in as much: of the period, ticks may take this
 * share for it. At 20 Hz that is 500 threads a tick, at 101 Hz 99. */
enum { PERIOD_SHARE = 200, VISIT_NS = 500, VISITS_MIN = 8, VISITS_MAX = 4096 };
/* So many slots of threads that moved are remembered; more come in rotation. */
enum { RECENT_MAX = 64 };
/* Between the reads of the two clocks so much time passes at most, when nothing else does. */
static const int64_t idle_ns = 2000;
/* A tick takes 15 us and more, a thousand in a second 2 % of a processor: more there are not,
 * whatever the options ask for. */
static const uint64_t shortest_ns = NS_PER_MS;
/* The ticks' thread ends when no thread has moved for so long. */
static const uint64_t rest_after_ns = NS_PER_SEC;

uint32_t tick_bell;

static struct {
    struct sched_request request;
    const struct tick_source *source;
    bool arms;
    bool runs;              /* its thread is there: the app's threads wait for ticks */
    uint64_t period_min_ns; /* between two of them */
    uint64_t period_ns;     /* another one may come at any time */
    uint32_t visits_max;    /* of the tick under way */
    uint32_t number;        /* of the tick */
    uint32_t next;          /* slot in rotation */
    int64_t others_ns;
    int stopper;               /* 0: nobody stops it */
    struct thread_slot *guard; /* of no thread; what ticks record is guarded by it */
    uint32_t recent[RECENT_MAX];
    uint32_t recent_count;
} ticks;

static bool is_at_rest(void)
{
    return !load_relaxed(&ticks.runs);
}

/* No thread ticks: the timer is to go on by itself. */
static void on_sample(struct thread_slot *slot, void *ucontext)
{
    if (unlikely(is_at_rest()))
        thread_timer_repeat(slot);
    cpu_sample_inside_handler(slot, ucontext);
    thread_timer_follow(slot, ucontext);
}

static void set_period(uint64_t period_ns)
{
    store_relaxed(&ticks.period_ns, MAX_OF(period_ns, ticks.period_min_ns));
}

/* The kernel looks at the threads' timers at its own ticks: two of ours for each of them, one of
 * which comes at another time than it does, are all that bring samples. */
static uint64_t shortest_period(void)
{
    bool looks = ticks.request.wall || !ticks.arms;
    return looks ? shortest_ns : MAX_OF(shortest_ns, clock_tick_ns() / 2);
}

int tick_start(const struct sched_request *request, const struct tick_source *source, bool arms)
{
    ticks.request = *request;
    ticks.source = source;
    ticks.arms = arms && options.signals;
    ticks.period_min_ns = shortest_period();
    set_period(request->period_ns);
    ticks.others_ns = 0;
    ticks.recent_count = 0;
    store_relaxed(&ticks.stopper, 0);
    store_relaxed(&ticks.runs, false);
    return ticks.arms ? thread_timers_start(request->period_ns, on_sample) : 0;
}

void tick_set_period(uint64_t period_ns)
{
    set_period(period_ns);
    if (ticks.arms)
        thread_timers_set_interval(period_ns);
}

void tick_stop(void)
{
    if (ticks.arms)
        thread_timers_stop();
}

void tick_thread_begin(struct thread_slot *slot)
{
    if (ticks.arms)
        thread_timer_begin(slot, is_at_rest());
}

void tick_reset_in_child(struct thread_slot *own)
{
    thread_timers_reset_in_child();
    ticks.runs = false;
    ticks.stopper = 0;
    ticks.recent_count = 0;
    ticks.others_ns = 0;
    ticks.guard = NULL;
    if (own)
        tick_thread_begin(own);
}

/* A thread that waits all its life is seen by ticks alone. */
bool tick_runs_at_once(void)
{
    return ticks.request.wall || !options.signals;
}

void tick_rest(void)
{
    store_relaxed(&ticks.runs, false);
    full_fence();
    if (ticks.arms)
        thread_timers_arm_all();
}

void tick_ring(void)
{
    __atomic_fetch_add(&tick_bell, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&tick_bell, INT32_MAX);
}

uint64_t tick_period_ns(void)
{
    return load_relaxed(&ticks.period_ns);
}

uint64_t tick_next(uint64_t next_ns, uint64_t now_ns)
{
    uint64_t period = tick_period_ns();
    if (next_ns == 0)
        return now_ns + period;
    return now_ns < next_ns ? next_ns : next_ns + ((now_ns - next_ns) / period + 1) * period;
}

/* ---- one tick ---- */

bool tick_guard_enter(void)
{
    if (!ticks.guard) {
        ticks.guard = thread_adopt(sys_tid());
        if (!ticks.guard)
            return false;
        store_release(&ticks.guard->state, SLOT_OF_TICKS);
    }
    thread_guard_enter(ticks.guard);
    return true;
}

void tick_guard_leave(void)
{
    thread_guard_leave(ticks.guard);
}

/* Without a signal: the time that passed is known, and nothing else. */
static void account(struct thread_slot *slot, uint64_t cpu_ns)
{
    if (tick_guard_enter()) {
        cpu_sample_unreached(slot, cpu_ns);
        tick_guard_leave();
    }
}

/* Kept from the last tick that found any: threads that move for an instant at each tick add up. */
static bool has_moved(void)
{
    int64_t others = (int64_t)clock_process_cpu_ns();
    others -= (int64_t)clock_thread_cpu_ns();
    if (others - ticks.others_ns < idle_ns)
        return false;
    ticks.others_ns = others;
    return true;
}

void tick_visit_again(void)
{
    ticks.others_ns = 0;
}

/* True: a clock was read. */
static bool visit(uint32_t index, uint64_t now_ns)
{
    struct thread_slot *slot = thread_slot_at(index);
    int tid = load_relaxed(&slot->tid);
    if (load_acquire(&slot->state) != SLOT_USED || tid == 0 || slot->tick == ticks.number)
        return false;
    slot->tick = ticks.number;
    uint64_t cpu_ns = clock_thread_cpu_of_ns(tid);
    if (cpu_ns == 0) /* it has ended */
        return true;
    const struct tick_visitor *wall = ticks.request.wall;
    if (cpu_ns == slot->tick_cpu_ns) {
        if (wall)
            wall->still(slot, now_ns, cpu_ns);
        return true;
    }
    slot->tick_cpu_ns = cpu_ns;
    if (ticks.recent_count < RECENT_MAX)
        ticks.recent[ticks.recent_count++] = index;
    if (ticks.arms && restarts_allow(slot, ticks.number))
        thread_timer_ask(slot, cpu_ns);
    else if (!options.signals && ticks.request.cpu)
        account(slot, cpu_ns);
    if (wall)
        wall->moved(slot, now_ns, cpu_ns);
    return true;
}

static uint32_t visit_recent(uint64_t now_ns)
{
    uint32_t last = ticks.recent_count, visits = 0;
    /* A visit puts the slot back at a place that was looked at. */
    ticks.recent_count = 0;
    /* The others have a quarter of all visits in any case. */
    for (uint32_t i = 0; i < last && visits < ticks.visits_max - ticks.visits_max / 4; i++)
        visits += visit(ticks.recent[i], now_ns);
    return visits;
}

bool tick_visit(uint64_t now_ns)
{
    uint32_t visits = 0;
    uint32_t count = thread_slot_count();
    stats_add(STAT_TICKS, 1);
    uint64_t most = tick_period_ns() / PERIOD_SHARE / VISIT_NS;
    ticks.visits_max = (uint32_t)MIN_OF(MAX_OF(most, (uint64_t)VISITS_MIN), (uint64_t)VISITS_MAX);
    /* The process's clock is added up from those of all threads, 0.1 us each: where they are many
     * that takes longer than the visits, and is asked only whether the ticks' thread may rest. */
    bool are_many = count > ticks.visits_max;
    bool moved = are_many || has_moved();
    if (moved) {
        ticks.number++;
        visits = visit_recent(now_ns);
        for (uint32_t i = 0; i < count && visits < ticks.visits_max; i++) {
            ticks.next = ticks.next + 1 < count ? ticks.next + 1 : 0;
            visits += visit(ticks.next, now_ns);
        }
    }
    if (are_many && !ticks.request.wall)
        moved = ticks.recent_count > 0 || has_moved();
    if (ticks.request.wall && ticks.request.wall->done)
        ticks.request.wall->done(now_ns, visits);
    return moved;
}

/* What the stopper does is the stop. */
static void visit_last(void)
{
    int stopper = load_acquire(&ticks.stopper);
    const struct tick_visitor *wall = ticks.request.wall;
    if (!stopper || !wall)
        return;
    if (wall->last)
        wall->last();
    ticks.number++;
    uint64_t now_ns = clock_monotonic_ns();
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        if (load_relaxed(&thread_slot_at(i)->tid) != stopper)
            (void)visit(i, now_ns);
}

/* ---- the thread ---- */

void tick_run_ends(int stopper)
{
    store_release(&ticks.stopper, stopper);
}

void tick_run(bool (*goes_on)(void))
{
    uint64_t next_ns = 0;
    uint64_t moved_ns = clock_monotonic_ns();
    bool may_rest = ticks.source->may_rest && ticks.arms && !ticks.request.wall;
    store_relaxed(&ticks.runs, true);
    for (;;) {
        uint32_t bell = load_acquire(&tick_bell);
        if (!goes_on()) {
            visit_last();
            return;
        }
        if (!ticks.source->wait(bell, &next_ns))
            continue;
        uint64_t now_ns = clock_monotonic_ns();
        if (!options.signals) /* no sample passes one */
            moment_pass(false);
        if (tick_visit(now_ns)) {
            moved_ns = now_ns;
        } else if (may_rest && now_ns - moved_ns >= rest_after_ns) {
            tick_rest();
            return;
        }
    }
}
