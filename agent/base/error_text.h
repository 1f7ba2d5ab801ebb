/* error_text.h: errno values as words, since strerror may allocate and reads the locale.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_ERROR_TEXT_H
#define LIBAGENT_ERROR_TEXT_H

/* `code` is an errno, negative or positive. Never NULL: for a value that the table does not
 * know the text is "unexpected error", so callers print the number beside it. */
const char *error_text(int code);

#endif
