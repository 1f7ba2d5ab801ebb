/* run_pair.h: a program twice, under the agent and without it, each in a folder of its own; and
 * scripts to be run so.
 * Owns: both runs, until run_pair_free. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_RUN_PAIR_H
#define LIBAGENT_TEST_RUN_PAIR_H

#include "test/preload/run_program.h"

struct run_pair {
    struct run with, without;
};

/* Both at a time, until both have ended; fails the test unless output, error output and status
 * are alike. */
void run_pair(struct run_pair *pair, const struct run_request *request);
void run_pair_free(struct run_pair *pair);

/* Absolute path of test/preload/NAME; suites are run in the root of the repository. */
void run_script_path(const char *name, char path[PATH_MAX]);
/* bash, perl or python3, by the end of the name. */
const char *run_script_interpreter(const char *name);

#endif
