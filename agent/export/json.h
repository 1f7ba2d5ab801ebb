/* json.h: JSON that may stand inside a page's <script>: what ends that, or is no text, is escaped.
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: the buffer's. */
#ifndef LIBAGENT_JSON_H
#define LIBAGENT_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"

/* As it stands: brackets, commas, names of members. */
void json_raw(struct buffer *out, const char *text);
void json_number(struct buffer *out, int64_t number);
/* For readers that have doubles alone, as JSON.parse: beyond 2^53, where some would become others,
 * between quotes. */
void json_exact_number(struct buffer *out, int64_t number);
/* Between quotes. The text is valid UTF-8. < > & and control characters (C0, DEL, C1, and the line
 * ends U+2028 and U+2029) become \u escapes. */
void json_text(struct buffer *out, const char *text, size_t length);

#endif
