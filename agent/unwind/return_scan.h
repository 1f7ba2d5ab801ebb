/* return_scan.h: finds where code without rules returns to, by what lies on the stack.
 *
 * Hand-written assembly (libgmp's, nettle's, .init sections) mostly has pushed some registers, no
 * more, and rbp is still its caller's or holds data: a frame record would lead past the caller. So
 * the words from the stack pointer on are looked at: a return address stands behind a call, and
 * that call led here: at once, or by a linker's stub or a pointer in memory, which are followed.
 * Of several the one counts whose call went to the nearest function before. Where the call cannot
 * be followed (by a register, or to a function that jumped here as its last act), the word on top
 * of the stack is believed, if it is behind any call.
 *
 * Objects that have no tables for most of their code (compiled without, Go) are another case: what
 * lies on the stack there is full of old return addresses, and frame pointers are likely. There a
 * frame record comes first (walk_guess.c).
 *
 * A thread that is read from outside has a stack pointer, but no frame pointer, where a frame with
 * tables may hang on it: its two words, what was in the register before and the return address, are
 * found in the same way (return_pairs).
 *
 * Owns: nothing. Context: any, inside a walk. Locks: none. */
#ifndef LIBAGENT_RETURN_SCAN_H
#define LIBAGENT_RETURN_SCAN_H

#include "agent/unwind/modules.h"
#include "agent/unwind/stack_reader.h"

struct returned {
    uintptr_t pc, sp, fp; /* the caller's, once it is found */
    bool fp_known;
};

/* `pc` is in a known object, but no FDE covers it; *caller has stack pointer and frame pointer
 * there. `innermost`: it called nobody, so that the word on top may be what it returns to. False:
 * *caller is of no use. */
bool return_scan(const struct module_list *list, struct stack_reader *reader, uintptr_t pc,
                 bool innermost, struct returned *caller);
/* The same of an interrupted `pc` by the words on top alone, for a function that has not made its
 * frame record yet, or has left it: is one of them a better return address than `back`, by the
 * record that the frame pointer is at? */
bool return_on_top(const struct module_list *list, struct stack_reader *reader, uintptr_t pc,
                   uintptr_t back, struct returned *caller);
/* Whether such code at `pc` can return to `back`: that is behind a call, which is not known to have
 * led elsewhere. */
bool return_is_possible(const struct module_list *list, struct stack_reader *reader, uintptr_t back,
                        uintptr_t pc);
/* Where the frame pointer of a frame can be, of the function that begins at `start` and has `size`
 * bytes: at a pair of the caller's frame pointer and a return address behind a call that led there,
 * `saved` bytes or more above the stack pointer. Where the function's own first instructions put
 * it, if they tell. Else the nearest come first, and last those behind calls of other functions,
 * which may have jumped there as their last act. How many there are. */
enum { RETURN_PAIRS = 16 };
size_t return_pairs(const struct module_list *list, struct stack_reader *stack, uintptr_t sp,
                    uintptr_t start, size_t size, size_t saved, uintptr_t places[RETURN_PAIRS]);
/* Whether what is behind a call that is known to lead elsewhere, or behind none, is said to be what
 * the function with `callee` returns to. */
bool return_is_doubtful(const struct module_list *list, struct stack_reader *stack, uintptr_t back,
                        uintptr_t callee);
/* Whether memory at `back`, which is in no known object, can be read, and is code behind a call. */
bool return_is_behind_call(struct stack_reader *reader, uintptr_t back);

#endif
