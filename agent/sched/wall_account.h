/* wall_account.h: a thread's account of wall time, and who may write it (wall.h, step 4).
 *
 * Owns: nothing. Context: those of wall.h. Locks: none; claims are as said there. */
#ifndef LIBAGENT_WALL_ACCOUNT_H
#define LIBAGENT_WALL_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/nap.h"
#include "agent/sched/run_balance.h"

/* What a directed signal came to. */
enum answer { ANSWER_NONE, ANSWER_AWAITED, ANSWER_GIVEN };

struct account {
    uint32_t claimed;
    int32_t tid;         /* of the thread, 0: none; below 0: it has ended */
    uint64_t last_ns;    /* time is in a window, or put by, up to here; CLOCK_MONOTONIC */
    uint64_t seen_ns;    /* when it was last seen at `kept` */
    uint64_t cpu_ns;     /* its CPU clock there */
    uint64_t running_ns; /* put by for the next CPU sample */
    uint64_t looked_ns;  /* when it was last asked what it does; 0: never */
    uint32_t kept;       /* the number of the stack that it stands at, 0: none */
    uint32_t waited;     /* that of the last one that it stood at */
    uint32_t sampled;    /* that of its last CPU sample; where wall_keeps */
    uint32_t answer;
    uint32_t awaited; /* ticks since the signal that it answers */
    struct run_balance balance;
} __attribute__((aligned(CACHE_LINE)));

/* Nobody holds an account for longer than it takes to walk a stack, unless it loses its processor
 * with it: a thread's end is not held up for that, but loses its last samples. */
static const uint64_t claim_limit_ns = 20 * NS_PER_MS;

static inline bool claim(struct account *account)
{
    uint32_t free = 0;
    return __atomic_compare_exchange_n(&account->claimed, &free, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static inline void release(struct account *account)
{
    store_release(&account->claimed, 0);
}

static inline bool claim_in_time(struct account *account)
{
    uint64_t deadline = 0;
    while (!claim(account)) {
        if (!deadline)
            deadline = clock_monotonic_ns() + claim_limit_ns;
        if (!nap_before(deadline))
            return false;
    }
    return true;
}

#endif
