/* perf_map.h: names of code that a program makes at run time, from the map that it writes for perf:
 * /tmp/perf-PID.map, lines of `START SIZE name`, both in hexadecimal. node (--perf-basic-prof),
 * python 3.12 (-X perf), and Java with an agent for it write one.
 *
 * The file is appended to as code is made, and addresses are used again: of several lines that hold
 * an address the last one counts. So it is read from its end, and only as far as there are
 * addresses without a name, PERF_MAP_READ_MAX bytes at most. A last line without an end is being
 * written, and does not count.
 *
 * PID is the process's own number, and /tmp its own, in whatever namespace it lives: it is the
 * process itself that writes the file and reads it here. A file of another user (not of the
 * effective or real one), a link, or what is no regular file, is left alone: /tmp is everybody's.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: one mapping, freed before it returns. */
#ifndef LIBAGENT_PERF_MAP_H
#define LIBAGENT_PERF_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/symbol_table.h"

/* A window: 0.06 s, and a million functions of node. */
enum { PERF_MAP_READ_MAX = 64 << 20 };

/* Names those of `count` run-time addresses (ascending) that have none yet, appending the texts.
 * 0; -ENOENT when there is no such file, -EPERM when it is another's, -ENOMEM, or what reading
 * gave. Names found before an error stay. */
int perf_map_find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                  struct buffer *texts) MUST_USE;

#endif
