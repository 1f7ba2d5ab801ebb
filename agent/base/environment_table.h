/* environment_table.h: the program's environment while a thread of ours may read it.
 *
 * libcurl, the libraries that it brings (p11-kit, GnuTLS, OpenSSL) and libc itself (the resolver,
 * newlocale, tzset, messages) call getenv in the thread that sends, and most of these calls cannot
 * be met from outside of libc. Meanwhile a program that has no other thread, or a lock of its own,
 * may well change its environment. A name that is added moves the table, by realloc, in libc's
 * setenv and putenv before glibc 2.41 as in programs that keep `environ` themselves (perl); the
 * reader then walks along freed memory. So realloc's hook leaves the old table behind: it is not
 * freed, and what a reader finds in it is what was there. Names that are changed or removed are
 * changed in place, and libc frees no text, so this is all that libc does to a reader.
 *
 * Left: who frees a table or a text himself (clearenv; putenv's texts), who has a realloc of his
 * own before ours, and bash, whose getenv is its own and looks at its variables.
 *
 * Owns: `environment_table`. Context: environment_is HOOK; environment_hold INIT. Locks: none. */
#ifndef LIBAGENT_ENVIRONMENT_TABLE_H
#define LIBAGENT_ENVIRONMENT_TABLE_H

#include <stdbool.h>

#include "agent/base/compiler.h"

/* The variable that has the table's address; before environment_hold, one that has no block's: so
 * a hook need not ask whether. */
extern HIDDEN void *const *environment_table;

static inline __attribute__((always_inline)) bool environment_is(const void *block)
{
    return block == load_relaxed(load_relaxed(&environment_table));
}

/* From now on tables that realloc moves are left behind. */
void environment_hold(void);

#endif
