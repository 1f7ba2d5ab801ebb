/* flush_comments.h: what each file of a window says of the agent itself: its own figures, and what
 * it took of the process's CPU time, since the window before.
 *
 * Owns: the texts, until the next ones are made. Context: INIT, TICK, under LOCK_FLUSH. Locks:
 * none.
 */
#ifndef LIBAGENT_FLUSH_COMMENTS_H
#define LIBAGENT_FLUSH_COMMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/record/time_recorder.h"

/* All figures count from here, which were reset to 0, and CPU time from `cpu_ns` of the process's
 * clock. */
void flush_comments_start(uint64_t cpu_ns);
/* `has_live`: the window's files have the live heap. */
void flush_comments_make(const struct window *window, bool has_live);
/* Those that were made last; NULL at the end. */
const char *const *flush_comments(void);

#endif
