/* lock.h: a futex mutex that knows its rank and its owner.
 *
 * Ranks are taken in rising order only; a thread that would take a lower or equal one while it
 * holds a higher is a defect, and so is a release by a thread that does not hold it: the test
 * flavour stops there, the product logs it once and goes on. A lock held over fork may be released
 * in the child by the thread that forked. While a thread holds a lock its signals wait (all but
 * glibc's own for setuid): a handler of the app's that came in between could fork, exec or exit,
 * and would then wait for its own thread. Every lock is short: nobody holds one over encoding or
 * I/O except LOCK_FLUSH.
 *
 * Owns: nothing; a lock lives in its module. Context: THR, INIT, TICK, UP; never SIG or HOOK.
 * Locks: the one in hand. */
#ifndef LIBAGENT_LOCK_H
#define LIBAGENT_LOCK_H

#include <stdint.h>

#include "agent/base/compiler.h"

enum lock_rank {
    LOCK_LIFE = 1, /* agent.c: changes of the life cycle */
    LOCK_FLUSH,    /* agent.c: one flush at a time; held over encoding */
    LOCK_MODULES,  /* modules: writers of the module list; held across fork */
    LOCK_UPLOADER, /* uploader: queue */
    LOCK_LOG,      /* log: nothing is taken under it */
};

struct lock {
    uint32_t word;  /* 0 free, 1 held, 2 held and waited for */
    uint32_t owner; /* tid, 0 when free */
    enum lock_rank rank;
};

#define LOCK_INIT(rank_)                                                                           \
    {                                                                                              \
        .rank = (rank_)                                                                            \
    }

void lock_acquire(struct lock *lock);
/* 0 when acquired, -ETIMEDOUT at the CLOCK_MONOTONIC deadline (0: none). */
int lock_acquire_until(struct lock *lock, uint64_t deadline_ns) MUST_USE;
void lock_release(struct lock *lock);
/* The calling thread's signal mask, as it is while it holds no lock. */
uint64_t lock_signal_mask(void);
/* Takes `signals` out of that mask, at once, also while a lock is held. 0 or a negative errno. */
int lock_unblock_signals(uint64_t signals) MUST_USE;
/* In a fork child: free again, whoever held it. */
void lock_reset(struct lock *lock);

#endif
