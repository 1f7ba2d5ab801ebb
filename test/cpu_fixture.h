/* cpu_fixture.h: CPU sampling, started for a suite, and a thread's account closed. */
#ifndef LIBAGENT_TEST_CPU_FIXTURE_H
#define LIBAGENT_TEST_CPU_FIXTURE_H

#include <stdint.h>

#include "agent/record/time_recorder.h"

/* Tables, a list of modules that is empty, of this generation, and the timers' scheduler. */
enum { CPU_LIST_GENERATION = 9 };
void cpu_fixture_start(uint64_t period_ns);
/* Closes the account of the calling thread: its timer goes, tail and overhead are recorded.
 * Returns what its clock says at that moment. */
uint64_t cpu_settle(struct thread_slot *slot);
/* Turns the window, and checks that it holds `amount_ns` in as many samples as were counted. */
struct window *cpu_check_total(uint64_t amount_ns);
/* A little CPU time. ThreadSanitizer lets signals through here. */
void cpu_burn(void);

#endif
