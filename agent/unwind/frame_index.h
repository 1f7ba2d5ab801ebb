/* frame_index.h: a table sorted by address for a section of call frame information that has none.
 *
 * What cannot be right is left out: FDEs of no length, of functions that the linker discarded (they
 * begin at 0), and of code that is in no executable segment. Of FDEs that overlap, the one that
 * begins later counts where it is; the other one counts before it and behind it. A terminator
 * inside a section is passed over where the section's size is known.
 *
 * Memory: 8 bytes for each FDE from the arena, and four times as much while it is made. Time: two
 * reads of the section and a radix sort, some 130 ns for each FDE; both bounded by
 * FRAME_INDEX_MAX FDEs (libLLVM has 95,000), of which no more are found in one section: some 40 ms,
 * once, in a thread of the app.
 *
 * Owns: nothing; what is built is its caller's. Context: INIT, THR, TICK. Locks: none. */
#ifndef LIBAGENT_FRAME_INDEX_H
#define LIBAGENT_FRAME_INDEX_H

#include "agent/unwind/cfi_entry.h"

enum { FRAME_INDEX_MAX = 1 << 18 };

/* Builds the table of `section` (its table and bases are given) into its `index`, in memory of
 * the arena, `count` pairs. `is_whole`: the table is all of the section and nothing more.
 * 0, -ENOENT when it has no FDE that counts, or -ENOMEM. */
int frame_index_build(const struct object *object, bool is_whole,
                      struct cfi_section *section) MUST_USE;

#endif
