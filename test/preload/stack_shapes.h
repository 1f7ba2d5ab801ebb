/* stack_shapes.h: stacks of known shape (prog_recursion): 200 frames of recursion, above them
 * whatever the work is, below them main or a thread's start. No statistics: every sample must be
 * right.
 * Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_STACK_SHAPES_H
#define LIBAGENT_TEST_STACK_SHAPES_H

#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

enum { SHAPE_DEPTH = 200, SHAPE_COUNT = 7 };

struct shape {
    const char *leaf;
    double in_libc;   /* share of the leaves that must be in libc, at least */
    uint32_t between; /* frames of step and descend: all of SHAPE_DEPTH, or 0: up to them */
    double overhead;  /* share of samples in the agent's own code, at most */
};

extern const struct shape shapes[SHAPE_COUNT];

/* Runs `program` (recursion, or the same built otherwise) for `ms` of its CPU time; `where` is main
 * or thread. */
void shape_start(struct run *run, const char *program, const char *leaf, unsigned ms,
                 const char *where, const char *const *environment);
/* Of each sample. Fails the test, and prints stacks that are not right. */
void shape_expect(const struct profile *profile, const struct shape *shape, int value,
                  const char *where);
/* Runs both places at once, and expects CPU samples of that shape, walked by `unwinder`. */
void shape_expect_cpu(const char *program, const struct shape *shape, unsigned ms,
                      const char *unwinder);

#endif
