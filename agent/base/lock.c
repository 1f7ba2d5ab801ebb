#include "agent/base/lock.h"

#include <errno.h>
#include <signal.h>
#ifdef LIBAGENT_TEST
#include <stdlib.h>
#endif

#include "agent/base/log.h"
#include "agent/base/signal_sets.h"
#include "agent/base/sys.h"

enum { FREE, HELD, WAITED };

/* One bit for each rank that the thread holds. It is the owner check too, instead of the thread
 * id: a fork child has another id, but the locks of the thread that forked. */
static __thread uint32_t ranks_held INITIAL_EXEC;

/* The thread's signal mask before it took its first lock. */
static __thread uint64_t mask_before INITIAL_EXEC;

static const uint64_t signals_that_wait = ALL_SIGNALS_BUT_LIBCS;

static uint32_t rank_bit(const struct lock *lock)
{
    return 1u << lock->rank;
}

static COLD void violation(const struct lock *lock, const char *what)
{
#ifdef LIBAGENT_TEST
    (void)lock;
    (void)what;
    abort();
#else
    static bool said;
    /* With the log's own lock held a line would wait for itself. */
    if (ranks_held & 1u << LOCK_LOG || __atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        return;
    log_error("defect: lock of rank %u %s; ranks held %x, its owner %u", (unsigned)lock->rank, what,
              ranks_held, load_relaxed(&lock->owner));
#endif
}

static bool swap_free_to_held(struct lock *lock)
{
    uint32_t expected = FREE;
    return __atomic_compare_exchange_n(&lock->word, &expected, HELD, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Before the first lock. The mask is kept apart until then: a handler may come in between. */
static void hold_signals(void)
{
    uint64_t mask;
    if (ranks_held)
        return;
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &signals_that_wait, &mask, sizeof(mask));
    mask_before = mask;
}

/* After the last lock. */
static void let_signals_go(void)
{
    uint64_t mask = mask_before;
    if (!ranks_held)
        sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

uint64_t lock_signal_mask(void)
{
    uint64_t mask = 0;
    if (ranks_held)
        return mask_before;
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask));
    return mask;
}

int lock_unblock_signals(uint64_t signals)
{
    if (ranks_held)
        mask_before &= ~signals;
    return (int)sys_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, &signals, NULL, sizeof(signals));
}

static void note_held(struct lock *lock)
{
    ranks_held |= rank_bit(lock);
    store_relaxed(&lock->owner, (uint32_t)sys_tid());
}

int lock_acquire_until(struct lock *lock, uint64_t deadline_ns)
{
    if (unlikely(ranks_held >> lock->rank != 0))
        violation(lock, "taken out of order");
    hold_signals();
    if (!swap_free_to_held(lock)) {
        /* Who has waited takes it as WAITED: there may be others, whom its release must wake. */
        while (__atomic_exchange_n(&lock->word, WAITED, __ATOMIC_ACQUIRE) != FREE)
            if (sys_futex_wait(&lock->word, WAITED, deadline_ns) == -ETIMEDOUT) {
                let_signals_go();
                return -ETIMEDOUT;
            }
    }
    note_held(lock);
    return 0;
}

void lock_acquire(struct lock *lock)
{
    int forever = lock_acquire_until(lock, 0);
    (void)forever;
}

void lock_release(struct lock *lock)
{
    if (unlikely(!(ranks_held & rank_bit(lock))))
        violation(lock, "released by a thread that does not hold it");
    ranks_held &= ~rank_bit(lock);
    store_relaxed(&lock->owner, 0);
    if (__atomic_exchange_n(&lock->word, FREE, __ATOMIC_RELEASE) == WAITED)
        sys_futex_wake(&lock->word, 1);
    let_signals_go();
}

void lock_reset(struct lock *lock)
{
    bool was_held = ranks_held & rank_bit(lock);
    ranks_held &= ~rank_bit(lock);
    store_relaxed(&lock->owner, 0);
    store_release(&lock->word, FREE);
    if (was_held)
        let_signals_go();
}
