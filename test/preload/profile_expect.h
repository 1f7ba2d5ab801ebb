/* profile_expect.h: what suites expect of the profile of a program that people run.
 * Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_PROFILE_EXPECT_H
#define LIBAGENT_TEST_PROFILE_EXPECT_H

#include "test/preload/profile_reader.h"

/* The function is in stacks with at least that share of CPU time, or of allocated bytes. */
struct expectation {
    const char *function;
    double share;
};

/* Of the windows of `family` in a folder, of process `pid` (0: all): they are valid, all
 * expectations hold (a row with no function is the last), and at least `whole` of what is the
 * program's own is in stacks that reach main or a thread's start. Fails the test, and prints the
 * stacks that tell why. */
void profile_expect(const char *folder, const char *family, int pid, double whole,
                    const struct expectation *expectations);

#endif
