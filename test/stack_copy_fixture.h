/* stack_copy_fixture.h: walks of stacks by copies, for the suites of them.
 * It is defined here: a suite includes this, and thread_context is not linked then.
 * Owns: nothing. Context: suites. Locks: none. */
#ifndef LIBAGENT_TEST_STACK_COPY_FIXTURE_H
#define LIBAGENT_TEST_STACK_COPY_FIXTURE_H

#include <link.h>
#include <string.h>

#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"
#include "test/check.h"
#include "test/unwind_reference.h"

/* Stands in for thread_context: nobody holds a list while a test rescans. */
void thread_grace_begin(struct thread_grace *grace)
{
    (void)grace;
}

bool thread_grace_over(struct thread_grace *grace)
{
    (void)grace;
    return true;
}

enum { PAGE = 4096, WINDOW = 4 * PAGE };

#define ALL_VALID    ((1ull << UNWIND_REGS) - 1)
#define PC_AND_SP    (1ull << UNWIND_PC | 1ull << UNWIND_SP)
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

static char window[WINDOW + 1];
static struct frames copied;
/* A suite's assembly names it. */
void (*at_bottom)(void) __asm__("at_bottom");

static void start(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
}

static void walk_copied(struct unwind_regs *regs, uint64_t valid, bool exact,
                        const struct stack_copy *copy)
{
    copied.count = unwind_walk_copy(regs, valid, exact, copy, copied.pcs, REFERENCE_MAX,
                                    &copied.flags, &copied.generation);
}

static __attribute__((noinline)) void recurse(int depth)
{
    char pad[500];
    memset(pad, 0, sizeof(pad));
    __asm__ volatile("" : : "r"(pad) : "memory");
    if (depth == 0)
        at_bottom();
    else
        recurse(depth - 1);
    KEEP_FRAME();
}

#endif
