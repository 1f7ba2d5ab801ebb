/* option_pairs.h: options that come as "key=value" texts: those of libagent_start, separated by
 * commas, and those of a file, one a line. All of them are right, or none is taken.
 *
 * Owns: nothing; a struct is its user's. Context: THR, TICK. Locks: none. */
#ifndef LIBAGENT_OPTION_PAIRS_H
#define LIBAGENT_OPTION_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/compiler.h"

enum { OPTION_PAIRS_MAX = 64, OPTION_PAIRS_BYTES = 16384 };

struct option_pairs {
    char *
        list[OPTION_PAIRS_MAX + 1]; /* "NAME=VALUE", NULL at the end: as options_overlay takes it */
    char texts[OPTION_PAIRS_BYTES];
    size_t count, used;
};

/* "key=value,key=value": what has no `=` belongs to the value before it ("profiles=cpu,alloc"). 0,
 * or -EINVAL and a line in the log for the first that is wrong. */
int option_pairs_from_list(struct option_pairs *pairs, const char *text) MUST_USE;
/* Lines KEY=value; empty ones and those that begin with # say nothing. The same, with the number of
 * the line in `file`. */
int option_pairs_from_lines(struct option_pairs *pairs, const char *text,
                            const char *file) MUST_USE;
/* The value of a name, the last one where it stands twice; NULL: not there. */
const char *option_pairs_get(const struct option_pairs *pairs, const char *name);
bool option_pairs_equal(const struct option_pairs *a, const struct option_pairs *b);

#endif
