#include "agent/unseen_threads.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/lost_tails.h"
#include "agent/thread/left_threads.h"
#include "agent/thread/thread_context.h"

/* A look is a system call and a word of each slot, 3 us with 256 of them: so few hundred
 * thousandths of a processor, however many threads there are. */
static const uint64_t look_every_ns = 100 * NS_PER_MS;
enum { SLOTS_A_LOOK = 256 };

/* What the ends of some threads take, behind the hook by which they are seen, is not worth a row.
 */
static const int64_t least_time_ns = NS_PER_MS;

/* The kernel may know threads for so long that have left their slots, where many end at once. */
static const uint64_t leaving_ns = NS_PER_SEC;

/* Where a look finds nobody, as those are gone again, or cannot be taken on, the next one is twice
 * as far: 6.4 s at most. */
enum { FRUITLESS_MAX = 6 };

/* Each clock is a system call of 0.3 us: as many as these take, in that time, a few hundred
 * thousandths of a processor again. */
static const uint64_t check_every_ns = 100 * NS_PER_MS;
enum { CLOCKS_A_CHECK = 8, CHECKED_MAX = 256 };
/* Of the process's time unseen threads have this part then, and not only what others use at their
 * very end. */
enum { UNSEEN_SHARE = 8 };
static const int64_t unseen_least_ns = 20 * NS_PER_MS;

/* A watch lasts for so long after the last thread that it found. Its looks come as often as the
 * kernel looks at timers, as a thread is sampled at the next such tick once it is found; they take
 * so small a part of a processor at most. */
static const uint64_t watch_ns = NS_PER_SEC;
enum { WATCH_SHARE = 200 };

static uint64_t next_ns = UINT64_MAX;
static uint32_t fruitless; /* looks that were wanted in a row */
static uint64_t check_ns = UINT64_MAX;
static uint32_t vain;                          /* watches without a find, in a row */
static int64_t checked_process_ns, checked_ns; /* what all, and what unseen ones had used then */
static uint64_t watch_next_ns = UINT64_MAX;    /* no watch */
static uint64_t watch_end_ns;                  /* the agent's thread's */
static uint32_t watch_wanted;                  /* it is to last from the next look on */
static uint64_t marked_ns;
static uint32_t left_marked[2]; /* threads that had left then, and one or more seconds before */
static int64_t past_ns;         /* see the header, as the next two */
static int64_t before_ns;
static int64_t told_ns; /* LOCK_FLUSH */

/* ---- time ---- */

static uint64_t now_ns_of(const struct thread_slot *slot, int tid)
{
    uint64_t now = clock_thread_cpu_of_ns(tid);
    return now ? now : load_relaxed(&slot->cpu_last_ns);
}

/* At a start each clock has just been read, for its slot. */
static uint64_t started_ns_of(const struct thread_slot *slot, int tid)
{
    (void)tid;
    return load_relaxed(&slot->cpu_last_ns);
}

static int64_t known_threads_ns(uint64_t (*ns_of)(const struct thread_slot *slot, int tid))
{
    uint64_t sum = flush_own_threads_cpu_ns();
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        const struct thread_slot *slot = thread_slot_at(i);
        int tid = load_relaxed(&slot->tid);
        if (load_acquire(&slot->state) == SLOT_USED && tid != 0)
            sum += ns_of(slot, tid);
    }
    return (int64_t)sum;
}

void unseen_threads_one_known(uint64_t cpu_ns)
{
    add_relaxed(&past_ns, -(int64_t)cpu_ns);
}

void unseen_threads_one_left(uint64_t cpu_ns)
{
    add_relaxed(&past_ns, (int64_t)cpu_ns);
}

/* What they have used since the start, of `process_ns`, which was read before: what goes on
 * meanwhile makes it less. */
static int64_t all_unseen_ns(int64_t process_ns)
{
    int64_t known = known_threads_ns(now_ns_of);
    full_fence();
    return process_ns - known - load_relaxed(&past_ns) - load_relaxed(&before_ns);
}

static int64_t unseen_ns(void)
{
    return all_unseen_ns((int64_t)clock_process_cpu_ns()) - load_relaxed(&told_ns);
}

bool unseen_threads_have_time(void)
{
    /* A fork child that execs at once has not used so much itself: no other clock is read. */
    return (int64_t)clock_process_cpu_ns() >= least_time_ns && unseen_ns() >= least_time_ns;
}

uint64_t unseen_threads_take_time(void)
{
    int64_t unseen = unseen_ns();
    if (unseen < least_time_ns)
        return 0;
    add_relaxed(&told_ns, unseen);
    return (uint64_t)unseen;
}

/* ---- looks ---- */

void unseen_threads_start(uint64_t now_ns)
{
    lost_tails_start();
    store_relaxed(&fruitless, 0);
    for (size_t i = 0; i < ARRAY_SIZE(left_marked); i++)
        store_relaxed(&left_marked[i], left_threads_count());
    store_relaxed(&next_ns, now_ns + look_every_ns);
    store_relaxed(&vain, 0);
    store_relaxed(&watch_wanted, 0);
    store_relaxed(&watch_next_ns, UINT64_MAX);
    store_relaxed(&past_ns, 0);
    store_relaxed(&told_ns, 0);
    int64_t known = known_threads_ns(started_ns_of), process = (int64_t)clock_process_cpu_ns();
    store_relaxed(&before_ns, process - known);
    store_relaxed(&checked_process_ns, process);
    store_relaxed(&checked_ns, 0);
    store_relaxed(&check_ns, now_ns + check_every_ns);
}

static uint32_t threads_known(void)
{
    uint32_t known = flush_own_threads_there();
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        known += load_relaxed(&thread_slot_at(i)->state) == SLOT_USED;
    return known;
}

/* Of threads that have left, so many may still be there. */
static uint32_t threads_leaving(void)
{
    uint32_t left = left_threads_count();
    uint32_t lately = left - load_relaxed(&left_marked[1]);
    uint64_t now = clock_monotonic_ns(), marked = load_relaxed(&marked_ns);
    if (now - marked >= leaving_ns &&
        __atomic_compare_exchange_n(&marked_ns, &marked, now, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        store_relaxed(&left_marked[1], exchange_acq_rel(&left_marked[0], left));
    uint32_t unnamed = lately > LEFT_THREADS_NAMED ? lately - LEFT_THREADS_NAMED : 0;
    return left_threads_there(thread_pid()) + unnamed;
}

static void want_watch(void)
{
    store_relaxed(&watch_wanted, 1);
    store_release(&watch_next_ns, 0);
}

/* `is_last`: those that are gone without a word are of interest, too. */
static void look(bool is_last)
{
    struct stat task;
    /* The folder has a link for each thread, and two of its own. */
    if (sys_call4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &task, 0) != 0)
        return;
    uint64_t known = threads_known() + 2;
    bool are_more = task.st_nlink > known && task.st_nlink > known + threads_leaving();
    if (are_more) {
        add_relaxed(&fruitless, 1);
        want_watch();
    }
    if (are_more || (is_last && task.st_nlink < known))
        agent_thread_want_look(LOOK_FOR_THREADS);
}

void unseen_threads_look_now(void)
{
    look(true);
}

/* Of what the process has used since the last check. */
static bool have_share(void)
{
    int64_t process = (int64_t)clock_process_cpu_ns(), unseen = all_unseen_ns(process);
    int64_t all = process - load_relaxed(&checked_process_ns);
    int64_t theirs = unseen - load_relaxed(&checked_ns);
    store_relaxed(&checked_process_ns, process);
    store_relaxed(&checked_ns, unseen);
    return theirs >= unseen_least_ns && theirs >= all / UNSEEN_SHARE;
}

bool unseen_threads_check(void)
{
    bool have = have_share();
    if (have) {
        add_relaxed(&vain, 1);
        want_watch();
    }
    return have;
}

static uint64_t times(uint64_t ns, uint32_t *in_vain)
{
    return ns << MIN_OF(load_relaxed(in_vain), (uint32_t)FRUITLESS_MAX);
}

/* True: it was due, and is the caller's; the next one is in `every_ns`. */
static bool claim(uint64_t *due_ns, uint64_t now_ns, uint64_t every_ns)
{
    uint64_t due = load_relaxed(due_ns);
    return unlikely(now_ns >= due) &&
           __atomic_compare_exchange_n(due_ns, &due, now_ns + every_ns, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

void unseen_threads_look(uint64_t now_ns)
{
    uint32_t count = thread_slot_count();
    if (claim(&next_ns, now_ns, times(look_every_ns * (1 + count / SLOTS_A_LOOK), &fruitless)))
        look(false);
    if (claim(&check_ns, now_ns, times(check_every_ns * (1 + count / CLOCKS_A_CHECK), &vain)) &&
        count <= CHECKED_MAX && unseen_threads_check())
        agent_thread_want_look(LOOK_FOR_THREADS);
}

void unseen_threads_found(void)
{
    store_relaxed(&fruitless, 0);
    store_relaxed(&vain, 0);
    want_watch();
}

/* ---- the watch ---- */

uint64_t unseen_threads_due_ns(void)
{
    return load_relaxed(&watch_next_ns);
}

void unseen_threads_watch(uint64_t now_ns, void (*scan)(void))
{
    if (now_ns < unseen_threads_due_ns())
        return;
    uint64_t begin = clock_thread_cpu_ns();
    scan(); /* numbers alone do not tell: others may have gone without a word */
    uint64_t cost = clock_thread_cpu_ns() - begin;
    if (exchange_acq_rel(&watch_wanted, 0))
        watch_end_ns = now_ns + watch_ns;
    uint64_t every = MAX_OF(clock_tick_ns(), cost * WATCH_SHARE);
    store_relaxed(&watch_next_ns, now_ns < watch_end_ns ? now_ns + every : UINT64_MAX);
    full_fence();
    if (load_relaxed(&watch_wanted))
        store_relaxed(&watch_next_ns, 0);
}
