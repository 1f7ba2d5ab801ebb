/* own_threads_fixture.h: the agent's two threads in a suite: counted, refused, and held up. */
#ifndef LIBAGENT_TEST_OWN_THREADS_FIXTURE_H
#define LIBAGENT_TEST_OWN_THREADS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/thread/thread_context.h"

struct own_threads {
    uint32_t made;
    int create_error; /* what making one fails with; 0: it does not */
    uint32_t hangs;   /* their writes into files wait while this is set (the log is not theirs) */
    uint32_t hanging; /* one does */
};
extern struct own_threads own;

/* A checked fixture: the flush fixture, a period of an hour, the calling thread attached. */
void own_threads_setup(void);
void own_threads_teardown(void);
/* What sys_override is; for suites that put one of theirs before it. */
bool own_answer(long number, const long args[6], long *result);
void own_on_thread(struct thread_slot *slot);

/* CLOCK_MONOTONIC time so far from now. */
uint64_t own_in_ms(uint64_t ms);
/* Sum of what is in files now, without writing anything. */
int64_t own_written(void);
/* Waits for that much; fails where it becomes more. */
void own_wait_for_total(int64_t total);

#endif
