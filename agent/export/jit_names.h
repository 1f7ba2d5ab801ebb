/* jit_names.h: names of code that lies in no object that the loader knows, by run-time address.
 *
 * First what the program itself says of it (perf_map.h). What has no name then is looked for among
 * the process's mappings, as they are now: `[jit]` for code in memory without a file, or of one
 * that was made for code alone (memfd, deleted); `FILE+0xOFFSET` for a file that the program mapped
 * by itself (the offset is that in the file). What is in no executable mapping has no name.
 *
 * The files of one flush (families, dialects, captures) have much the same addresses: what was
 * found is kept until jit_names_forget. No longer, as addresses are used again for other code.
 *
 * Owns: what was found. Context: INIT, TICK, under LOCK_FLUSH. Locks: none. Memory: some 50 bytes
 * an address and its name, until jit_names_forget; a mapping, freed before it returns. */
#ifndef LIBAGENT_JIT_NAMES_H
#define LIBAGENT_JIT_NAMES_H

#include "agent/export/perf_map.h"

/* Names `count` different addresses, ascending; a name of length 0: there is none. The offsets are
 * in `texts`, which stay until the next call. 0 or -ENOMEM. */
int jit_names_find(const uint64_t *addresses, size_t count, struct symbol_name *names,
                   const char **texts) MUST_USE;
/* At the end of a flush. */
void jit_names_forget(void);
void jit_names_abandon(void); /* as name_cache_abandon */

#endif
