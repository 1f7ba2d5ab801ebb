/* modes.h: the two ways to come to stops, see unwind_differential.c. Each returns once there are
 * `stops`; a program that ends before is started again. */
#ifndef LIBAGENT_TEST_MODES_H
#define LIBAGENT_TEST_MODES_H

#include <stdbool.h>
#include <stdint.h>

/* Runs that a program gets to give its stops. */
enum { RUNS_MAX = 400 };

void step_program(bool from_entry, uint64_t stops, uint64_t stretch, uint64_t gap_us,
                  char *const command[]);
/* command: a program with its arguments, or "-p" and the number of a process. */
void sample_program(uint64_t stops, double hertz, char *const command[]);

#endif
