/* The walk against libunwind at every instruction: code of libc, the loader's lazy binding, PLT
 * stubs, libz and callbacks is executed by single steps (the processor's trap flag), and at each
 * stop both unwind the same registers.
 *
 * Under a sanitizer this is left out: libunwind reads the frames of functions that AddressSanitizer
 * guards, from inside a handler of a sanitizer's runtime that is itself being stepped. */
#include "test/check.h"

#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"
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

enum { TRAP_FLAG = 0x100, KINDS_MAX = 64, STEPS_WANTED = 200000 };

static struct frames ours, theirs, truth;

/* Differences by interrupted address, with one example each. */
static struct difference {
    uint64_t pc, times;
    struct frames ours, theirs;
} differences[KINDS_MAX];
static uint32_t difference_kinds;
static uint64_t steps, different, wrong;

static void note_difference(uint64_t pc)
{
    different++;
    uint32_t i = 0;
    while (i < difference_kinds && differences[i].pc != pc)
        i++;
    if (i == KINDS_MAX)
        return;
    if (i == difference_kinds) {
        difference_kinds++;
        differences[i].pc = pc;
        differences[i].ours = ours;
        differences[i].theirs = theirs;
    }
    differences[i].times++;
}

/* Whatever is being stepped, the test function's callers are the outermost frames. */
static bool ends_in_truth(void)
{
    uint32_t callers = truth.count - 1;
    return (ours.flags & UNWIND_COMPLETE) && ours.count > callers &&
           memcmp(ours.pcs + ours.count - callers, truth.pcs + 1, callers * sizeof(uint64_t)) == 0;
}

/* int3 switches stepping on and off. */
static void on_trap(int signal, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    (void)signal;
    if (info->si_code == SI_KERNEL) {
        uc->uc_mcontext.gregs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    steps++;
    agent_walk(uc, &ours);
    reference_walk(uc, &theirs);
    if (!ends_in_truth())
        wrong++;
    if (!ends_in_truth() || !same_frames(&ours, &theirs))
        note_difference((uint64_t)uc->uc_mcontext.gregs[REG_RIP]);
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static jmp_buf jump;

static __attribute__((noinline)) void jump_back(int value)
{
    longjmp(jump, value);
}

/* A frame that gcc realigns although it needs its arguments on the stack: its CFA is given by an
 * expression. */
static __attribute__((noinline)) void realigned(char *out, size_t size, ...)
{
    char wide[256] __attribute__((aligned(64)));
    va_list list;
    va_start(list, size);
    char *more = __builtin_alloca(size);
    memset(more, 1, size);
    vsnprintf(wide, sizeof(wide), "%d %s", list);
    va_end(list);
    memcpy(out, wide, size);
    memcpy(out, more, 1);
}

static __attribute__((noinline)) void work(int round)
{
    static char text[4096], copy[4096];
    static int numbers[200];
    for (size_t size = 1; size < sizeof(copy); size = size * 5 / 3 + 1)
        memcpy(copy, text, size);
    snprintf(text, sizeof(text), "%d %s %.12f %e %lx", round, "words", 1.0 / (round + 3), 1e100,
             0xfeedul);
    volatile double value = strtod("3.14159265358979e-7", NULL) + strtod("0x1.8p3", NULL);
    (void)value;
    void *blocks[24];
    for (size_t i = 0; i < 24; i++)
        blocks[i] = malloc(16 + i * i * 700 % 150000);
    for (size_t i = 0; i < 24; i++)
        free(blocks[i * 7 % 24]);
    for (size_t i = 0; i < 200; i++)
        numbers[i] = (int)(i * 7919 % 211);
    qsort(numbers, 200, sizeof(int), compare);
    /* Bound lazily, so the first call goes through the loader. */
    uLongf size = sizeof(copy);
    if (round == 0)
        compress((Bytef *)copy, &size, (const Bytef *)text, 300);
    crc32(0, (const Bytef *)text, 64);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    realigned(text, 100, round, "words");
    if (setjmp(jump) == 0)
        jump_back(1);
}

static __attribute__((noinline)) void deep(int depth, int round)
{
    char pad[100];
    memset(pad, depth, sizeof(pad));
    if (depth == 0)
        work(round);
    else
        deep(depth - 1, round);
    __asm__ volatile("" : : "r"(pad) : "memory"); /* keeps the frame, and no tail call */
}

START_TEST(every_instruction_as_libunwind)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &action, NULL);
    walk_here(&truth);
    for (int round = 0; round < 8 && steps < STEPS_WANTED; round++) {
        __asm__ volatile("int3");
        deep(10, round);
        __asm__ volatile("int3");
    }
    printf("%llu instructions, %llu stacks differ, %llu of ours do not reach the first frame\n",
           (unsigned long long)steps, (unsigned long long)different, (unsigned long long)wrong);
    for (uint32_t i = 0; i < difference_kinds; i++) {
        printf("%llu times at ", (unsigned long long)differences[i].times);
        print_address(stdout, differences[i].pc);
        printf("\n");
        print_frames(stdout, "ours", &differences[i].ours);
        print_frames(stdout, "libunwind's", &differences[i].theirs);
    }
    ck_assert_uint_gt(steps, 100000);
    ck_assert_uint_le(different * 1000, steps);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_step");
    TCase *t = tcase_create("unwind_step");
    tcase_set_timeout(t, 240);
    if (!ADDRESS_SANITIZER && !THREAD_SANITIZER)
        tcase_add_test(t, every_instruction_as_libunwind);
    suite_add_tcase(s, t);
    return s;
}
