/* differences.h: counts how stops were judged, and keeps each kind of difference with an example.
 *
 * A kind is: who was wrong, in which situation, and the function whose rule led astray. Kinds that
 * are understood stand in a file with the reason (known_differences.txt); all others count against
 * the bound. */
#ifndef LIBAGENT_TEST_DIFFERENCES_H
#define LIBAGENT_TEST_DIFFERENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "test/unwind_reference.h"

enum verdict {
    SAME,            /* both alike, and the shadow stack too where it is known */
    OURS_WRONG,      /* libunwind's is the shadow stack */
    LIBUNWIND_WRONG, /* ours is */
    BOTH_WRONG,      /* the shadow stack differs from both */
    UNCLEAR,         /* they differ, and the shadow stack is lost */
    VERDICTS,
};

void differences_load(const char *path);
/* What is particular to a stop, beyond its stacks. */
enum situation {
    ORDINARY,
    JUMPING,     /* the code's rules tell of the context that it goes to (longjmp) */
    SWITCHING,   /* the stack pointer was changed to another stack's, in this function */
    OVERWRITTEN, /* a return address in memory is not that which a call put there */
    CACHED,      /* with its cache emptied libunwind gives what ours does */
};

/* `truth` is NULL where nothing but the two walks is known. */
enum verdict differences_judge(const struct frames *ours, const struct frames *theirs,
                               const struct frames *truth, enum situation situation);
/* A jump landed; `foretold`: where ours had said. */
void differences_landing(bool foretold);
/* Prints a line of the table, and every kind. True when at least 99.99 % of the stops are the same
 * or differ as is known, and every jump landed as ours foretold; `rules` asks that at most 0.1 % of
 * them met code without rules, too. */
bool differences_report(const char *name, bool rules);
uint64_t differences_stops(void);

#endif
