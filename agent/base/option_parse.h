/* option_parse.h: from the text of an option to its value, and what is accepted in words.
 * Numbers are decimal digits with nothing around them; a sign, a blank or an overflow is refused.
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_OPTION_PARSE_H
#define LIBAGENT_OPTION_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* True when the whole text was understood; bounds are the caller's. */
bool parse_count(const char *text, uint64_t *value) MUST_USE;
/* Bytes: a count with B, KiB, MiB, GiB or nothing behind it, in any case. */
bool parse_size(const char *text, uint64_t *bytes) MUST_USE;
/* Nanoseconds: a count with ms, s, m, h behind it; nothing: seconds. */
bool parse_duration(const char *text, uint64_t *ns) MUST_USE;
/* A number such as 2, 0.25 or .5. */
bool parse_decimal(const char *text, double *number) MUST_USE;
/* 0, 1, true, false, yes, no, on, off. */
bool parse_bool(const char *text, bool *value) MUST_USE;
/* The index in `words` (NULL at its end). */
bool parse_word(const char *text, const char *const *words, uint32_t *index) MUST_USE;
/* A signal that programs may handle, by name (with SIG or without, in any case; RTMIN+n, RTMAX-n)
 * or number; none: 0. Not those of faults, nor libc's own. */
bool parse_signal(const char *text, uint32_t *number) MUST_USE;
/* A comma-separated list of `words` (blanks around them allowed): one bit for each. */
bool parse_word_set(const char *text, const char *const *words, uint32_t *bits) MUST_USE;
/* True when one of the comma-separated globs matches `text`. */
bool glob_list_match(const char *globs, const char *text);

/* Writes 524288 as 512KiB, as parse_size reads it; 3600e9 as 1h. Return the length. */
size_t show_size(char *out, size_t size, uint64_t bytes);
size_t show_duration(char *out, size_t size, uint64_t ns);

/* Of `length` bytes each. */
bool same_in_any_case(const char *a, const char *b, size_t length);
/* The Levenshtein distance of two names, each cut at 63 bytes. */
unsigned edit_distance(const char *a, const char *b);

#endif
