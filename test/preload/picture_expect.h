/* picture_expect.h: a page, or collapsed stacks, beside the pprof file of the same window.
 * Owns: nothing. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_PICTURE_EXPECT_H
#define LIBAGENT_TEST_PICTURE_EXPECT_H

#include "test/preload/page_reader.h"
#include "test/preload/profile_reader.h"

/* Of a page: for each of its types all sums by function, alone and with what it calls, and by
 * thread and state are exactly those of the profile. */
void picture_expect_page(const struct picture *page, const struct profile *profile);
/* Of collapsed stacks: `value` of the profile, by stack, as far as it is above 0. */
void picture_expect_collapsed(const struct picture *lines, const struct profile *profile,
                              int value);

#endif
