/* stack_reader.h: reads words of a stack without ever faulting.
 *
 * A reader holds one range that is known to be readable. It starts as the thread's home range
 * where the stack pointer is in that; elsewhere (deeper than any walk before, sigaltstack,
 * coroutines) it begins at the stack pointer, each page is probed at its first touch, and the range
 * grows upwards until it meets the home range. Only a walk that came down to the thread's first
 * frame that way proves that the pages below belong to the thread's own stack; then they become
 * home (stack_reader_adopt) and are not probed again.
 *
 * Words anywhere else (a frame pointer that is none, a stack that was left) are copied one by one
 * by the kernel, as another thread may unmap them at any instant; so is code that dlclose can
 * unload. A kernel that refuses that (a container's filter) leaves a probe, and a plain read behind
 * it.
 *
 * A stack that is not ours to dereference (of another thread that may end meanwhile, of another
 * process) is read by copies: the range is then a window of it that process_vm_readv brought into
 * the caller's memory, and `shift` leads from an address to its copy; it is 0 where nothing is
 * copied. A word outside of the window brings the next one. What is not mapped any more is not
 * readable, no fault.
 *
 * What remains: memory right above a stack that is not home, where nothing is between them. A stack
 * in use is not unmapped.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_STACK_READER_H
#define LIBAGENT_STACK_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/unwind/unwind.h"

struct stack_reader {
    uintptr_t low, high;       /* readable now */
    uintptr_t words;           /* as many addresses from low on are of whole words in that range */
    uintptr_t shift;           /* data of an address is at address + shift */
    uintptr_t sp;              /* on a stack that is in use */
    struct unwind_stack *home; /* or a copied_stack */
    uint32_t calls_left;       /* probes or copies */
};

/* In two registers: a value by reference would go through memory in each step of a walk. */
struct stack_value {
    uintptr_t value;
    bool good;
};

/* What stands for the home stack of a walk by copies: one that ends before it begins, as none does.
 * So there is one walk for both, whose stack is counted. */
struct copied_stack {
    struct unwind_stack mark; /* low above high */
    const struct stack_copy *copy;
    uint64_t valid;
    struct frame_choice *choice; /* see walk_state.h */
};

static inline const struct copied_stack *copied_stack(const struct unwind_stack *home)
{
    return unlikely(home->low > home->high) ? (const struct copied_stack *)home : NULL;
}

void stack_reader_start(struct stack_reader *reader, struct unwind_stack *home, uintptr_t sp);
/* What `reader` copies, or NULL. */
static inline const struct stack_copy *stack_reader_copy(const struct stack_reader *reader)
{
    const struct copied_stack *copied = copied_stack(reader->home);
    return copied ? copied->copy : NULL;
}

/* Whether the byte at `address` can be read, wherever it is. */
bool stack_reader_can_read(const struct stack_reader *reader, uintptr_t address);
/* The walk came to another stack in use, by a signal's frame. */
void stack_reader_change_stack(struct stack_reader *reader, uintptr_t sp);
/* Copies what a stack_copy is of; NULL: the calling process. False when not all of it can be read.
 */
bool stack_copy_bytes(const struct stack_copy *copy, uintptr_t address, void *data, size_t size);
struct stack_value stack_read_slow(struct stack_reader *reader, uintptr_t address);
/* The walk ended at the thread's first frame and never changed stacks: true when it ended on the
 * home stack. */
bool stack_reader_adopt(struct stack_reader *reader);

/* Sanitizers would complain of the reads of other functions' frames, which this is about. */
#define READS_ANY_STACK __attribute__((no_sanitize("address"), no_sanitize("thread")))

struct stack_word {
    uintptr_t value;
} __attribute__((packed, may_alias));

READS_ANY_STACK static inline bool stack_read(struct stack_reader *reader, uintptr_t address,
                                              uintptr_t *value)
{
    if (unlikely(address - reader->low >= reader->words)) {
        struct stack_value slow = stack_read_slow(reader, address);
        *value = slow.value;
        return slow.good;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an address in the range is not 0 */
    *value = ((const struct stack_word *)(address + reader->shift))->value;
    return true;
}

#endif
