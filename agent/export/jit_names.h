/* jit_names.h: names of code that lies in no object that the loader knows, by run-time address.
 *
 * First what the program itself says of it (perf_map.h). What has no name then is looked for among
 * the process's mappings, as they are now: `[jit]` for code in memory without a file, or of one
 * that was made for code alone (memfd, deleted); `FILE+0xOFFSET` for a file that the program mapped
 * by itself (the offset is that in the file). What is in no executable mapping has no name.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: one mapping, freed before it returns. */
#ifndef LIBAGENT_JIT_NAMES_H
#define LIBAGENT_JIT_NAMES_H

#include "agent/export/perf_map.h"

/* Names `count` addresses, ascending; each text stands once but for those of files. 0 or -ENOMEM.
 */
int jit_names_find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                   struct buffer *texts) MUST_USE;

#endif
