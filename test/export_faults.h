/* export_faults.h: a window is written whole, or not at all.
 *
 * Owns: sys_override while it runs. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_EXPORT_FAULTS_H
#define LIBAGENT_TEST_EXPORT_FAULTS_H

#include "agent/export/export.h"

/* Writes the window with each mapping in turn refused: all the same bytes, or -ENOMEM and nothing;
 * no memory and no descriptor is left. The window has to be so large that more than 25 of the
 * refusals make it fail. */
void expect_whole_or_nothing(const struct window *window, const struct export_request *request);

#endif
