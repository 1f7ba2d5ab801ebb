/* demand.h: an assertion for handlers and for loops of many threads. Check's own writes to a pipe
 * each time that it holds: slow, and not for a signal's handler. This one does so on failure only.
 */
#ifndef LIBAGENT_TEST_DEMAND_H
#define LIBAGENT_TEST_DEMAND_H

#include "test/check.h"

#define demand(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("demand failed: %s", #condition);                                         \
    } while (0)

#endif
