/* unwind.h: from registers to program counters.
 *
 * Method: call frame information (.eh_frame through .eh_frame_hdr), interpreted on a miss, with
 * one process-wide, two-way cache of 16,384 rules in single 64-bit words in front (cfi.c,
 * rule_cache.c; the study behind it is the project's). No loader call, no lock, no malloc,
 * nothing per thread, no system call except the probe of stack pages seen for the first time (and
 * one in the process's first walk, which prefaults the cache).
 *
 * Code without rules (assembly, JIT code) is followed by frame records (rbp, x29) or, at the
 * innermost frame, by the word on top of the stack (x86-64) or the link register (aarch64), but
 * only where that leads into known code; else the walk ends there, and is not complete. Where
 * code of the app calls code of no known object, the list of objects may be brought up to date,
 * without waiting, and the walk begun anew (catch_up.h).
 *
 * Owns: the rule cache. Context: SIG, HOOK, all others; inside a thread guard. Stack: 1.4 KiB.
 * Locks: none. */
#ifndef LIBAGENT_UNWIND_H
#define LIBAGENT_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/unwind/modules.h"

#if defined(__x86_64__)
/* DWARF numbering: 0 rax, 1 rdx, 2 rcx, 3 rbx, 4 rsi, 5 rdi, 6 rbp, 7 rsp, 8..15 r8..r15, 16 rip */
enum { UNWIND_REGS = 17, UNWIND_FP = 6, UNWIND_SP = 7, UNWIND_PC = 16, UNWIND_RA = 16 };
/* Lower bits of a code address that say nothing. */
enum { UNWIND_PC_SPARE_BITS = 0 };
#elif defined(__aarch64__)
/* DWARF numbering: 0..30 x0..x30, 31 sp. The pc has no number; 32 is nothing. */
enum { UNWIND_REGS = 34, UNWIND_FP = 29, UNWIND_SP = 31, UNWIND_PC = 33, UNWIND_RA = 30 };
/* Instructions have 4 bytes: of an interrupted pc the lower two bits are 0, and of a return
 * address - 1 they are 3. */
enum { UNWIND_PC_SPARE_BITS = 1 };
#endif

struct unwind_regs {
    uintptr_t r[UNWIND_REGS];
};

/* The part of the thread's own stack that is known to be readable, [low, high). `high` is fixed
 * when the thread is attached (thread pointer, or argv for the main thread), where `low` may be
 * equal to it; `low` moves down when a walk from deeper pages, each probed, comes to the thread's
 * first frame without a change of stacks. Stacks elsewhere (sigaltstack, coroutines) are probed
 * anew in each walk. */
struct unwind_stack {
    uintptr_t low, high;
};

/* A stack that is read by copies: of a thread of `pid`, which may be the caller's own process.
 * Copies go to data[0, size), size being at least two pages; most stacks fit into four. Reading
 * another process takes the right to trace it, and the module list in force must be of its objects.
 */
struct stack_copy {
    int pid;
    void *data;
    size_t size;
};

enum unwind_flags {
    UNWIND_COMPLETE = 1,     /* reached main's or a thread's first frame */
    UNWIND_CUT = 2,          /* max frames were not enough */
    UNWIND_LEAF_SELF = 4,    /* the innermost frame is libagent's own (left out) */
    UNWIND_INTERRUPTED = 16, /* a signal handler is among the frames */
    UNWIND_GUESSED = 32, /* of a copy: a frame pointer was not known, and was found on the stack */
    UNWIND_CLEAN = 8,    /* complete, on the home stack, and no frame of a system object but the
                            outermost ones: no lock of libc, loader or allocator can be held */
};

/* 0 or a negative errno; makes the cache. INIT. */
int unwind_start(void) MUST_USE;
/* Walks from `regs` (changed). Writes up to `max` program counters, innermost first, frames of
 * libagent.so left out: the interrupted pc itself where `regs` come from a signal context, and
 * past a signal frame; return address - 1 everywhere else. `exact` tells that regs' own pc is
 * an interrupted one. Returns the number written; *flags gets unwind_flags, *generation that of
 * the module list used. Afterwards `regs` are those of the frame where the walk ended: of the first
 * that there was no room for, where it is UNWIND_CUT. */
uint32_t unwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home, uint64_t *pcs,
                     uint32_t max, uint32_t *flags, uint32_t *generation);
/* The same for a stack that is not the caller's: a thread that is blocked or stopped. `valid` has a
 * bit for each register that is known; pc and stack pointer must be. A frame pointer that is needed
 * is looked for on the stack (UNWIND_GUESSED). Frames that need another register end the walk, as
 * memory does that is gone; both show by the missing UNWIND_COMPLETE. Never
 * UNWIND_CLEAN. A thread that runs meanwhile gives rubbish, whose pcs lie in known code all the
 * same: the caller looks before and after whether it stood still. */
uint32_t unwind_walk_copy(struct unwind_regs *regs, uint64_t valid, bool exact,
                          const struct stack_copy *copy, uint64_t *pcs, uint32_t max,
                          uint32_t *flags, uint32_t *generation);
/* Where `regs` are what a frame record gave (frame pointer, return address): puts the stack pointer
 * right, which on aarch64 no record tells. */
void unwind_behind_record(struct unwind_regs *regs);
/* The registers of a handler's third argument. */
void unwind_regs_from_context(struct unwind_regs *regs, const void *ucontext);
/* Where the interrupted code is a handler of the app's of which no instruction has run (its signal
 * came together with ours, and libc keeps ours out of every mask): the context of what that one
 * interrupts, to which the time until now belongs. Else `ucontext`. SIG. */
const void *unwind_before_handlers(const void *ucontext);
/* The caller's own registers, as after this inline function. */
static inline __attribute__((always_inline)) void unwind_regs_here(struct unwind_regs *regs)
{
#if defined(__x86_64__)
    __asm__ volatile("movq %%rbx, 24(%0)\n\t"
                     "movq %%rbp, 48(%0)\n\t"
                     "movq %%rsp, 56(%0)\n\t"
                     "movq %%r12, 96(%0)\n\t"
                     "movq %%r13, 104(%0)\n\t"
                     "movq %%r14, 112(%0)\n\t"
                     "movq %%r15, 120(%0)\n\t"
                     "leaq 0f(%%rip), %%rax\n\t"
                     "movq %%rax, 128(%0)\n"
                     "0:"
                     :
                     : "r"(regs->r)
                     : "rax", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("stp x19, x20, [%0, #152]\n\t"
                     "stp x21, x22, [%0, #168]\n\t"
                     "stp x23, x24, [%0, #184]\n\t"
                     "stp x25, x26, [%0, #200]\n\t"
                     "stp x27, x28, [%0, #216]\n\t"
                     "stp x29, x30, [%0, #232]\n\t"
                     "mov x9, sp\n\t"
                     "str x9, [%0, #248]\n\t"
                     "adr x9, 0f\n\t"
                     "str x9, [%0, #264]\n"
                     "0:"
                     :
                     : "r"(regs->r)
                     : "x9", "memory");
#endif
}

#endif
