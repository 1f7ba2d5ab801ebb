/* spool_head.h: the head of a file of the spool, as text and back.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_SPOOL_HEAD_H
#define LIBAGENT_SPOOL_HEAD_H

#include <stddef.h>

#include "agent/base/compiler.h"
#include "uploader/spool.h"

enum { SPOOL_HEAD_SIZE = 4096 };

/* Writes the head of the entry, with a sum over it and the body. The length. */
size_t spool_head_make(const struct spool_entry *entry, char out[SPOOL_HEAD_SIZE]);
/* The head at the begin of a file of `size` bytes: fills all of `entry` but body and name. Its
 * length; 0: the file is torn or none of ours. */
size_t spool_head_parse(const char *file, size_t size, struct spool_entry *entry) MUST_USE;

#endif
