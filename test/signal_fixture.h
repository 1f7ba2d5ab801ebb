/* signal_fixture.h: the sampling signal, started for a suite. */
#ifndef LIBAGENT_TEST_SIGNAL_FIXTURE_H
#define LIBAGENT_TEST_SIGNAL_FIXTURE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/sched/sampling_signal.h"

extern struct thread_slot *signal_own;   /* the main thread's */
extern volatile uint32_t signal_samples; /* of ours, for that slot */

/* Attaches the main thread and starts; the result is sampling_signal_start's. */
int signal_fixture_try(void);
void signal_fixture_start(void);
/* Sends what a timer of ours sends, to the calling thread. */
void signal_tick(struct thread_slot *slot);
/* ThreadSanitizer keeps a signal until a function that it knows is called: this one does that. */
void signals_come(void);

#endif
