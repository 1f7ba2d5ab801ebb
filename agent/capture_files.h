/* capture_files.h: a window's captures (agent/thread/captures.h), each as a file a family of its
 * own.
 *
 * A capture's file has the rows of the window that were recorded in it, and tells the part of the
 * slice that lies in the window: who wants all of one that reaches over a window's end adds its
 * files up. Only files are written, since backends add up all profiles that they get.
 *
 * Owns: nothing that lasts. Context: TICK, INIT, under LOCK_FLUSH. Locks: none of its own. */
#ifndef LIBAGENT_CAPTURE_FILES_H
#define LIBAGENT_CAPTURE_FILES_H

#include "agent/base/compiler.h"
#include "agent/export/export.h"
#include "agent/record/time_recorder.h"

/* `request`: as for the window's own file, which began at `window->start_monotonic_ns`; its
 * families are those that are profiled. `told_ns`: up to then all time is in the window, so that a
 * capture that ended before ends there. `submit` takes one family of one: how many files were
 * submitted, or a negative errno. Returns their sum, or the last error. */
int capture_files_submit(const struct window *window, const struct export_request *request,
                         uint64_t told_ns,
                         int (*submit)(const struct window *,
                                       const struct export_request *)) MUST_USE;

#endif
