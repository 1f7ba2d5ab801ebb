/* name_limit.h: names of C++ and Rust that fit a line: what stands in brackets, template arguments
 * and parameters, becomes "..." from the inside out, as deep as is needed:
 * std::map<std::string, std::vector<...> >::find(...).
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_NAME_LIMIT_H
#define LIBAGENT_NAME_LIMIT_H

#include <stddef.h>

enum { NAME_LIMIT_MIN = 8 };

/* Copies `text` (ends with 0) so that it has `limit` bytes at most (NAME_LIMIT_MIN or more), and a
 * 0 behind them. Where brackets are not enough the end becomes "...", at a character's border. The
 * length.
 */
size_t name_limit_copy(char *out, const char *text, size_t limit);

#endif
