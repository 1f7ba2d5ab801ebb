/* metrics.h: /healthz and /metrics (Prometheus' text format) of libagent-uploader; the only user of
 * libmicrohttpd.
 *
 * Owns: the server and its thread, until the process ends. Context: the main thread. Locks: none.
 */
#ifndef LIBAGENT_METRICS_H
#define LIBAGENT_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* 0, or a negative errno. */
int metrics_start(uint16_t port) MUST_USE;
/* May the spool be used, and how many profiles in it has none of the destinations? */
void metrics_note_spool(bool is_usable, uint64_t for_others);
/* So many profiles in it cannot be read. */
void metrics_note_untaken(uint64_t count);

#endif
