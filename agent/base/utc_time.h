/* utc_time.h: a time as people and backends read it: ISO 8601 in UTC, without libc's tables.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_UTC_TIME_H
#define LIBAGENT_UTC_TIME_H

#include <stdint.h>

enum { UTC_TIME_SIZE = 32 };

/* Nanoseconds since 1970 as `2026-11-30T16:42:31`; fractions are the caller's. */
void utc_time(char out[UTC_TIME_SIZE], uint64_t unix_ns);

#endif
