/* look_budget.h: how often threads may be asked what they do, which takes some 20 us of a processor
 * each time.
 *
 * Method: these looks may take a fiftieth of a processor, whatever the program uses (what a few
 * hundredths of its CPU time would pay for shows nothing of a thousand threads that wake up now and
 * then), or twice LIBAGENT_OVERHEAD percent, where that is less. What is not spent adds up to a
 * small burst; where more is spent, nobody is asked until it is earned, and the time from one
 * question to the next of the same thread grows, so that each is asked as often as the others;
 * where little is spent it shrinks. A thread that was never asked is asked at once: that costs less
 * than to make it. Who is put off loses nothing: the next answer has all of the time to tell of.
 *
 * Owns: the budget. Context: TICK; start INIT. Locks: none. */
#ifndef LIBAGENT_LOOK_BUDGET_H
#define LIBAGENT_LOOK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

void look_budget_start(void);
/* May the thread that was last asked at *looked_ns (0: never) be asked at `now_ns`, which
 * *looked_ns becomes then? */
bool look_budget_take(uint64_t *looked_ns, uint64_t now_ns) MUST_USE;
/* So long did that take. */
void look_budget_spent(uint64_t ns);
/* At the end of a tick. */
void look_budget_renew(uint64_t now_ns);

#endif
