/* blocked.h: the stack of a thread that waits, read from outside.
 *
 * Method: /proc/self/task/TID/syscall tells whether the thread waits, in which system call, and its
 * stack pointer and program counter; its stack is copied (process_vm_readv, which never faults, of
 * that thread's number, as the process's is main's, which may have ended) and walked like any
 * other. Its CPU clock, which must be the same before and afterwards, tells that it did not run in
 * between; what a clock of the tick would miss, the system call and its arguments show.
 *
 * A process that has changed its user may not read that file (it is not dumpable; the folder is
 * root's then), and a filter may refuse the copy.
 *
 * Owns: the memory of the copies. Context: TICK, one thread, inside a guard. Locks: none. */
#ifndef LIBAGENT_BLOCKED_H
#define LIBAGENT_BLOCKED_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/record/time_recorder.h"

enum blocked {
    BLOCKED_READ,    /* it waits: *stack is filled */
    BLOCKED_NOT,     /* it runs, or would where a processor was free */
    BLOCKED_MOVED,   /* it went on while it was read: nothing is known */
    BLOCKED_REFUSED, /* what it does is not told here */
    BLOCKED_GONE,
};

/* 0 or -ENOMEM. INIT, and again in a fork child. */
int blocked_start(void) MUST_USE;
/* `cpu_ns`: the thread's CPU clock, as just read. BLOCKED_READ: the stack, with its state, and the
 * number of its frames. */
enum blocked blocked_read(int tid, uint64_t cpu_ns, struct record_stack *stack, uint32_t *count);
/* Where that is refused: does the thread run? `otherwise` where not even that is told. */
bool blocked_runs(int tid, bool otherwise);
/* Its CPU clock is as it was. */
bool blocked_stands(int tid, uint64_t cpu_ns);
/* How long in all it was ready to run, without a processor. UINT64_MAX: the kernel does not tell.
 */
uint64_t blocked_delay_ns(int tid);

#endif
