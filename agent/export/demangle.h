/* demangle.h: C++ (Itanium) and Rust (legacy and v0) names as people write them, by libiberty.
 *
 * libiberty is given its heap (demangle_heap.h) and a stack of its own (scratch_stack.h): it
 * recurses up to 2,048 deep and takes arrays from the stack, and a flush at exit runs on
 * whatever thread of the app calls exit. A name whose text grows without end (substitutions
 * double it at each step) runs into the heap's end and is given up there; names that would keep
 * it busy without writing text are told by their letters and never handed over.
 *
 * Owns: the state of the demangling that runs, one for the process. Context: INIT, TICK, under
 * LOCK_FLUSH. Locks: none. Memory: one mapping a demangler, mostly untouched. */
#ifndef LIBAGENT_DEMANGLE_H
#define LIBAGENT_DEMANGLE_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

enum {
    DEMANGLE_TEXT_MAX = 1024,                                     /* the greatest limit */
    DEMANGLE_OUTPUT_MAX = DEMANGLE_TEXT_MAX + sizeof("@plt") - 1, /* which stays behind them */
    DEMANGLE_CXX_INPUT_MAX = 1024,  /* libiberty's own limit (DEMANGLE_RECURSION_LIMIT / 2) */
    DEMANGLE_RUST_INPUT_MAX = 4096, /* v0 spells out all generics; libiberty has no limit */
};

struct demangler {
    uint8_t *memory; /* NULL: names stay as they are */
    size_t limit;    /* of the bytes of a readable name: name_limit.h */
};

/* `limit`: NAME_LIMIT_MIN (name_limit.h) to DEMANGLE_TEXT_MAX, which any other stands for. Without
 * memory for it, demangle finds nothing. */
void demangle_start(struct demangler *demangler, size_t limit);
void demangle_stop(struct demangler *demangler);
/* The readable form of `name` (ends with 0) in `out` (DEMANGLE_OUTPUT_MAX + 1 bytes, ends with
 * 0); its length, or 0 when the name is no mangled one, or not readable within the limits. Of a
 * name that ends in "@plt" what is before that. */
size_t demangle(const struct demangler *demangler, const char *name, char *out);

#endif
