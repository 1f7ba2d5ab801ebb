/* compress.h: bytes into gzip or zstd; the only user of zlib and zstd.
 *
 * Equal input gives equal output (the gzip header's time is 0), and both formats carry a
 * checksum, so a torn file is told by gzip -t and zstd -t. Neither library ever reaches malloc:
 * their memory is mapped, and given back before the call returns.
 *
 * Owns: nothing. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_COMPRESS_H
#define LIBAGENT_COMPRESS_H

#include <stddef.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/base/options.h"

/* Appends the compressed form of `size` bytes of `data` to `out`. 0, or -ENOMEM (-EIO: the
 * library refused, which would be a defect here); then `out` is freed and empty. */
int compress_bytes(enum compression compression, const void *data, size_t size,
                   struct buffer *out) MUST_USE;

#endif
