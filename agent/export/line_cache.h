/* line_cache.h: the files, lines and inlined functions that were found (lines.h), kept for later
 * windows, by object and address. Objects are never freed (modules.h).
 *
 * That there are none is kept as well, and forgotten with all else after LINE_CACHE_RETRY profiles
 * in which there were such: debugging information may have been installed meanwhile. What was put
 * off is not kept: the next profile asks again. Where the cache has grown beyond its share of
 * LIBAGENT_SYMBOL_LIMIT, all is forgotten at the beginning of the next profile.
 *
 * Owns: the cache, one for the process. Context: INIT, TICK, under LOCK_FLUSH. Locks: none.
 * Memory: a quarter of LIBAGENT_SYMBOL_LIMIT, and what one profile adds. */
#ifndef LIBAGENT_LINE_CACHE_H
#define LIBAGENT_LINE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/export/demangle.h"
#include "agent/export/lines.h"
#include "agent/export/name_cache.h"

enum { LINE_CACHE_RETRY = 32 /* profiles; with the defaults a quarter of an hour */ };

/* What is known of an address: `count` frames from number `first` on; 0: it has none. */
struct known_lines {
    uint32_t first, count;
};

/* A frame; texts end with 0 and stay until the next line_cache_begin. */
struct known_frame {
    struct known_name name; /* `system` NULL: not known */
    const char *file;       /* NULL: not known */
    uint32_t file_length;
    uint32_t line, start_line; /* 0: not known */
};

/* Before the lines of a profile; `most`: bytes that it may have grown to. */
void line_cache_begin(size_t most);
bool line_cache_get(const struct object *object, uint64_t address, struct known_lines *lines);
struct known_frame line_cache_frame(uint32_t number);
/* Keeps what lines_find gave, but for what was put off. 0 or -ENOMEM. */
int line_cache_add(const struct object *object, const uint64_t *addresses, size_t count,
                   const struct line_answer *answers, const struct buffer *frames,
                   const struct buffer *texts, const struct demangler *demangler) MUST_USE;
void line_cache_clear(void);
void line_cache_abandon(void); /* as name_cache_abandon */
/* Bytes in use. */
size_t line_cache_size(void);

#endif
