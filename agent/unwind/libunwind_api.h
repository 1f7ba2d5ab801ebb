/* libunwind_api.h: what is used of libunwind, declared here: it is opened at run time, and its
 * headers are not needed to build the agent. Checked by a walk at the start, as its layouts have
 * changed between versions of the same name (all that call themselves .so.8).
 *
 * The functions are those of the library that unwinds any address space (libunwind-x86_64.so.8):
 * in libunwind.so.8 itself such a space cannot be made.
 *
 * Owns: nothing. Context: as libunwind_walk.c says. Locks: none. */
#ifndef LIBAGENT_LIBUNWIND_API_H
#define LIBAGENT_LIBUNWIND_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define LIBUNWIND_TARGET "x86_64"
enum { LIBUNWIND_FP = 6, LIBUNWIND_SP = 7, LIBUNWIND_PC = 16 };
#elif defined(__aarch64__)
#define LIBUNWIND_TARGET "aarch64"
enum { LIBUNWIND_FP = 29, LIBUNWIND_SP = 31, LIBUNWIND_PC = 32 };
#endif

enum libunwind_error { LIBUNWIND_BAD_REGISTER = 3, LIBUNWIND_INVALID = 8, LIBUNWIND_NO_INFO = 10 };

struct libunwind_space;
struct libunwind_cursor;
/* Filled and read by libunwind alone. */
struct libunwind_procedure;

/* A space keeps the rules of 128 addresses, under a mutex of its own. One that was just made keeps
 * none. */
enum { LIBUNWIND_CACHE_OF_SPACE = 1 };

/* The functions that a space is made of. Versions since 1.7 look at more members: they are NULL,
 * which stands for what cannot be done. */
struct libunwind_accessors {
    int (*find_procedure)(struct libunwind_space *space, uintptr_t pc,
                          struct libunwind_procedure *procedure, int needs_tables, void *argument);
    void (*put_procedure)(struct libunwind_space *space, struct libunwind_procedure *procedure,
                          void *argument);
    int (*find_dynamic_list)(struct libunwind_space *space, uintptr_t *address, void *argument);
    int (*access_memory)(struct libunwind_space *space, uintptr_t address, uintptr_t *value,
                         int write, void *argument);
    int (*access_register)(struct libunwind_space *space, int number, uintptr_t *value, int write,
                           void *argument);
    int (*access_float)(struct libunwind_space *space, int number, void *value, int write,
                        void *argument);
    int (*resume)(struct libunwind_space *space, struct libunwind_cursor *cursor, void *argument);
    int (*find_name)(struct libunwind_space *space, uintptr_t pc, char *out, size_t size,
                     uintptr_t *offset, void *argument);
    void *further[8];
};

/* A table of pairs of int32, start of a procedure and its FDE, both relative to `base`. */
enum { LIBUNWIND_REMOTE_TABLE = 2 };
struct libunwind_table {
    void *links[2];
    uintptr_t start, end; /* of the addresses that it is for */
    uintptr_t global_pointer;
    int32_t format;
    int32_t padding;
    uintptr_t load_offset;
    uintptr_t name, base, words, data;
};

/* Return type, name, parameters. An error is a negative enum libunwind_error. */
#define LIBUNWIND_FUNCTIONS(X)                                                                     \
    X(struct libunwind_space *, create_addr_space,                                                 \
      (struct libunwind_accessors * accessors, int byte_order))                                    \
    X(int, set_caching_policy, (struct libunwind_space * space, int policy))                       \
    X(void, flush_cache, (struct libunwind_space * space, uintptr_t low, uintptr_t high))          \
    X(int, init_remote,                                                                            \
      (struct libunwind_cursor * cursor, struct libunwind_space * space, void *argument))          \
    X(int, step, (struct libunwind_cursor * cursor))                                               \
    X(int, get_reg, (struct libunwind_cursor * cursor, int number, uintptr_t *value))              \
    X(int, is_signal_frame, (struct libunwind_cursor * cursor))                                    \
    X(int, dwarf_search_unwind_table,                                                              \
      (struct libunwind_space * space, uintptr_t pc, struct libunwind_table * table,               \
       struct libunwind_procedure * procedure, int needs_tables, void *argument))

struct libunwind_functions {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration can have none */
#define X(type, name, parameters) type(*name) parameters;
    LIBUNWIND_FUNCTIONS(X)
#undef X
};

#endif
