/* next_libc.h: the table of next definitions for suites, which have no shim: libc's functions. */
#ifndef LIBAGENT_TEST_NEXT_LIBC_H
#define LIBAGENT_TEST_NEXT_LIBC_H

#include "agent/base/next.h"

/* Fills what the agent itself calls; the hooks' part stays NULL. */
void next_from_libc(void);

#endif
