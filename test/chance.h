/* chance.h: shares that are sampled, held against a limit with room for chance.
 *
 * A share of at most q is refused when a run whose true share is q would show so much with a
 * probability of at most 1e-9 (Chernoff: n KL(x / n || q) > log 1e9). A test run asks some thousand
 * times, so it is wrong once in a million runs. The room is small where there are many samples.
 *
 * Owns: nothing. Context: suites. Locks: none. */
#ifndef LIBAGENT_TEST_CHANCE_H
#define LIBAGENT_TEST_CHANCE_H

#include <stdbool.h>

#define CHANCE_LOG_ALARM 20.7 /* log 1e9 */

/* Whether `part` of `count` samples is too many for a share of `limit`. */
bool chance_share_is_above(double part, double count, double limit);

#endif
