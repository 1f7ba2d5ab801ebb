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

static uint64_t next_ns = UINT64_MAX;
static uint32_t fruitless; /* looks that were wanted in a row */
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

/* In this order: what goes on meanwhile makes it less. */
static int64_t unseen_ns(void)
{
    int64_t process = (int64_t)clock_process_cpu_ns();
    int64_t known = known_threads_ns(now_ns_of);
    full_fence();
    return process - known - load_relaxed(&past_ns) - load_relaxed(&before_ns) -
           load_relaxed(&told_ns);
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
    store_relaxed(&past_ns, 0);
    store_relaxed(&told_ns, 0);
    int64_t known = known_threads_ns(started_ns_of);
    store_relaxed(&before_ns, (int64_t)clock_process_cpu_ns() - known);
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

/* `is_last`: those that are gone without a word are of interest, too. */
static void look(bool is_last)
{
    struct stat task;
    /* The folder has a link for each thread, and two of its own. */
    if (sys_call4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &task, 0) != 0)
        return;
    uint64_t known = threads_known() + 2;
    bool are_more = task.st_nlink > known && task.st_nlink > known + threads_leaving();
    add_relaxed(&fruitless, (uint32_t)are_more);
    if (are_more || (is_last && task.st_nlink < known))
        agent_thread_want_look(LOOK_FOR_THREADS);
}

void unseen_threads_look(uint64_t now_ns)
{
    uint64_t due = load_relaxed(&next_ns);
    if (likely(now_ns < due))
        return;
    uint64_t every = look_every_ns * (1 + thread_slot_count() / SLOTS_A_LOOK);
    uint64_t next = now_ns + (every << MIN_OF(load_relaxed(&fruitless), (uint32_t)FRUITLESS_MAX));
    if (__atomic_compare_exchange_n(&next_ns, &due, next, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        look(false);
}

void unseen_threads_look_now(void)
{
    look(true);
}

void unseen_threads_found(void)
{
    store_relaxed(&fruitless, 0);
}
