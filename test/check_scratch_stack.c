/* Calls on another stack: where they run, how they end, and that the caller's registers are as
 * before. */
#include "test/check.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/scratch_stack.h"

enum { STACK_SIZE = 64 << 10 };

static uint8_t stack[STACK_SIZE] __attribute__((aligned(16)));
static void *mark;
static int calls;

static void *top(void)
{
    return stack + sizeof(stack);
}

static bool is_here(const void *address)
{
    return (uintptr_t)address - (uintptr_t)stack < sizeof(stack);
}

/* Alignment of the frame as the ABI wants it: a local of 16 bytes used by vector code. */
static void note(void *argument)
{
    struct {
        uint8_t bytes[32];
    } local __attribute__((aligned(16)));
    memset(&local, 1, sizeof(local));
    *(bool *)argument = is_here(__builtin_frame_address(0)) &&
                        (uintptr_t)__builtin_frame_address(0) % 16 == 0 && local.bytes[7] == 1;
    calls++;
}

START_TEST(a_call_comes_back)
{
    bool good = false;
    ck_assert_int_eq(scratch_stack_call(note, &good, top(), &mark), 0);
    ck_assert(good);
    ck_assert(!is_here(__builtin_frame_address(0)));
    ck_assert_int_eq(calls, 1);
}
END_TEST

static __attribute__((noinline)) int leave_at(int depth)
{
    static volatile bool leaves = true; /* else the compiler sees that it never returns */
    volatile int here = depth;
    if (depth == 0) {
        if (leaves)
            scratch_stack_leave(mark);
        return 0;
    }
    return leave_at(depth - 1) + here;
}

static void leave(void *argument)
{
    calls++;
    leave_at(*(int *)argument);
    calls += 1000;
}

START_TEST(a_call_is_left_from_any_depth)
{
    for (int depth = 0; depth < 300; depth++) {
        int wanted = depth;
        ck_assert_int_eq(scratch_stack_call(leave, &wanted, top(), &mark), 1);
        ck_assert_int_eq(calls, depth + 1);
    }
}
END_TEST

static void spoil_and_leave(void *argument)
{
#if defined(__x86_64__)
    __asm__ volatile("xorl %%ebx, %%ebx\n\t"
                     "xorl %%r12d, %%r12d\n\t"
                     "xorl %%r13d, %%r13d\n\t"
                     "xorl %%r14d, %%r14d\n\t"
                     "xorl %%r15d, %%r15d" ::
                         : "rbx", "r12", "r13", "r14", "r15");
#elif defined(__aarch64__)
    __asm__ volatile("mov x19, #0\n\tmov x20, #0\n\tmov x21, #0\n\tmov x22, #0\n\t"
                     "mov x23, #0\n\tmov x24, #0\n\tmov x25, #0\n\tmov x26, #0\n\t"
                     "mov x27, #0\n\tmov x28, #0" ::
                         : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28");
#endif
    if (argument)
        scratch_stack_leave(mark);
}

/* Is every register that a callee must keep as before? (More values than registers, all alive
 * over the call: some are in each.) */
static __attribute__((noinline)) bool keeps_registers(void *argument, int64_t seed)
{
#if defined(__x86_64__)
    register int64_t a __asm__("rbx") = seed + 1;
    register int64_t b __asm__("r12") = seed + 2;
    register int64_t c __asm__("r13") = seed + 3;
    register int64_t d __asm__("r14") = seed + 4;
    register int64_t e __asm__("r15") = seed + 5;
#elif defined(__aarch64__)
    register int64_t a __asm__("x19") = seed + 1;
    register int64_t b __asm__("x22") = seed + 2;
    register int64_t c __asm__("x24") = seed + 3;
    register int64_t d __asm__("x26") = seed + 4;
    register int64_t e __asm__("x28") = seed + 5;
#endif
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
    int left = scratch_stack_call(spoil_and_leave, argument, top(), &mark);
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
    return left == (argument != NULL) && a == seed + 1 && b == seed + 2 && c == seed + 3 &&
           d == seed + 4 && e == seed + 5;
}

START_TEST(registers_are_kept)
{
    ck_assert(keeps_registers(NULL, 1000));
    ck_assert(keeps_registers(&calls, 2000));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("scratch_stack");
    TCase *calls_of_it = tcase_create("calls");
    tcase_add_test(calls_of_it, a_call_comes_back);
    tcase_add_test(calls_of_it, a_call_is_left_from_any_depth);
    tcase_add_test(calls_of_it, registers_are_kept);
    suite_add_tcase(suite, calls_of_it);
    return suite;
}
