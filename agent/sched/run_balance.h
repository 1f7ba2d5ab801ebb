/* run_balance.h: how much of a thread's time it ran, or was ready to run.
 *
 * Method: a look at one instant says "running" or not, and where all time up to it goes there, a
 * thread that is seen running half of the times is said to run half of the time. That holds only
 * for instants which have nothing to do with what the thread does, and ticks have: the kernel lets
 * waits end together with other timers, up to 50 us early (timer slack), so that a tick meets
 * threads that were just woken up; and who waits for a time that fits the ticks' is always seen at
 * the same place. (Threads that waited each 2 ms and ran for 0.3 ms were shown running for 0.07 to
 * 0.19 of their life, which was 0.13.) So what was given is held against the kernel's account of
 * the thread, which is exact: its CPU clock, and how long it was ready without a processor
 * (/proc/self/task/TID/schedstat). The difference to that is given out look by look, whatever is
 * seen there.
 *
 * Owns: nothing; an account belongs to its user. Context: TICK. Locks: none. */
#ifndef LIBAGENT_RUN_BALANCE_H
#define LIBAGENT_RUN_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

struct run_balance {
    uint64_t given_ns;   /* and all that it ran before the first look; 0: there was none yet */
    uint64_t delayed_ns; /* as last read */
};

/* A thread is looked at whose last `passed_ns` are to be given, and whose CPU clock is `cpu_ns`.
 * `runs`: it is seen running. Of that time so much it ran. Where the kernel tells nothing, and at a
 * thread's first look, all or nothing of it. */
uint64_t run_balance_take(struct run_balance *balance, int tid, uint64_t cpu_ns, uint64_t passed_ns,
                          bool runs);
/* So much more is given. */
static inline void run_balance_give(struct run_balance *balance, uint64_t ns)
{
    if (balance->given_ns)
        balance->given_ns += ns;
}

#endif
