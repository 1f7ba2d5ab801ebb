/* format.h: a bounded formatter and the string functions that run where libc may not.
 * Knows %s %.*s %c %d %u %ld %lu %lld %llu %zu %x %lx %llx %p %% and zero-padded widths (%04u).
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_FORMAT_H
#define LIBAGENT_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* Writes at most size bytes with the final 0; returns the length that stands there (cut, never
 * "would have been"). */
size_t format(char *out, size_t size, const char *pattern, ...) PRINTF_LIKE(3, 4);
size_t format_list(char *out, size_t size, const char *pattern, va_list list);
/* Glob with * and ?, whole string. */
bool glob_match(const char *pattern, const char *text);
/* Copies `in` to `out` (size bytes with the 0), each byte that is not part of valid UTF-8 made
 * U+FFFD, cut at a character's border. Returns the length. */
size_t utf8_copy(char *out, size_t size, const char *in, size_t length);
/* Each control character of `text`, and each byte that is not part of valid UTF-8, becomes '?'.
 * Returns the length, which may be less. */
size_t make_printable(char *text, size_t length);
/* The part after the last '/'. */
const char *base_name(const char *path);

#endif
