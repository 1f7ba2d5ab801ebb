/* pace.h: prog_paces, a program that works a little until it is told to end: for what happens by
 * and by, while the suite waits for it.
 *
 * Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_PACE_H
#define LIBAGENT_TEST_PACE_H

#include "test/preload/run_program.h"

/* With a window each second. */
void pace_start(struct run *run, const char *const *environment);
/* It ends by itself then: run_wait. */
void pace_end(const struct run *run);

#endif
