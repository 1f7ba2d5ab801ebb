/* libunwind_space.h: the address space in which libunwind walks, and the place of one walk.
 *
 * A space is this process as far as the agent knows it: objects of the module list with their
 * tables, wherever these are mapped, the registers that a walk begins with, and the stack as
 * stack_reader reads it. Nothing can be written.
 *
 * Owns: the functions of libunwind that are in use. Context: libunwind_make_space INIT; the space's
 * functions SIG, HOOK. Locks: none. */
#ifndef LIBAGENT_LIBUNWIND_SPACE_H
#define LIBAGENT_LIBUNWIND_SPACE_H

#include "agent/unwind/libunwind_api.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

/* 1016 on x86-64 in all versions so far, 4096 on aarch64. */
enum { CURSOR_BYTES = 8 << 10 };

/* All that a walk needs. It stands at the top of its place, above the stack. */
struct place {
    struct libunwind_space *keeping; /* the space that keeps rules, of this publication */
    uint32_t publication;
    struct unwind_regs *regs; /* from which the cursor was made */
    uint64_t valid;           /* registers of these that are known */
    const struct module_list *list;
    struct stack_reader reader;
    const struct module *module; /* of the frame at hand, whose tables are read */
    bool is_found, is_searching;
    uint32_t reads_left;
    uint64_t *pcs;
    uint32_t max, count, known_count, flags, self_frames;
    enum purity purity;
    bool switched; /* stacks */
    bool exact;    /* the pc is an interrupted one */
    uint8_t cursor[CURSOR_BYTES] __attribute__((aligned(16)));
};
_Static_assert(sizeof(struct place) % 16 == 0, "it is where a stack ends");

extern HIDDEN struct libunwind_functions libunwind;

/* A space for walks whose argument is a struct place; NULL: no memory. */
struct libunwind_space *libunwind_make_space(void) MUST_USE;

#endif
