/* The walk on real stacks of many kinds, against libunwind or known truth; its flags; the rule
 * cache. (check_unwind_step.c stops at every instruction, check_unwind_guess.c has code without
 * rules, check_unwind_broken.c stacks that make no sense.) */
#include "test/check.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/rule_cache.h"
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

static struct frames ours, theirs;
static void (*at_bottom)(void);

#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

static void start(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
}

/* Both unwinders from the same registers. */
static __attribute__((noinline)) void walk_both(void)
{
    ucontext_t context;
    getcontext(&context);
    agent_walk(&context, &ours);
    reference_walk(&context, &theirs);
    KEEP_FRAME();
}

static void check_same(void)
{
    if (!same_frames(&ours, &theirs)) {
        print_frames(stdout, "ours", &ours);
        print_frames(stdout, "libunwind's", &theirs);
    }
    ck_assert(same_frames(&ours, &theirs));
}

static size_t frame_size = 1;

static __attribute__((noinline)) void recurse(int depth)
{
    char *pad = __builtin_alloca(frame_size);
    memset(pad, 0, frame_size);
    __asm__ volatile("" : : "r"(pad) : "memory");
    if (depth == 0)
        at_bottom();
    else
        recurse(depth - 1);
    KEEP_FRAME();
}

START_TEST(recursion_of_200)
{
    start();
    at_bottom = walk_both;
    recurse(200);
    check_same();
    ck_assert_uint_gt(ours.count, 200);
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_CLEAN);
}
END_TEST

static int walk_in_qsort(const void *a, const void *b)
{
    walk_both();
    return *(const int *)a - *(const int *)b;
}

START_TEST(callback_of_libc_is_not_clean)
{
    start();
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof(int), walk_in_qsort);
    check_same();
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE);
}
END_TEST

static void *thread_main(void *depth)
{
    test_home_set();
    recurse((int)(intptr_t)depth);
    return NULL;
}

START_TEST(thread_from_its_start)
{
    start();
    at_bottom = walk_both;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, thread_main, (void *)30), 0);
    pthread_join(thread, NULL);
    check_same();
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_CLEAN);
}
END_TEST

static void walk_in_handler(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    if (number == SIGUSR1)
        raise(SIGUSR2); /* a handler in a handler */
    else
        walk_both();
    KEEP_FRAME();
}

static void raise_usr1(void)
{
    raise(SIGUSR1);
    KEEP_FRAME();
}

static void handlers(int flags)
{
    struct sigaction action = {.sa_sigaction = walk_in_handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    at_bottom = raise_usr1;
    recurse(10);
}

START_TEST(through_nested_handlers)
{
    start();
    handlers(0);
    check_same();
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_INTERRUPTED);
}
END_TEST

START_TEST(from_sigaltstack)
{
    start();
    static char memory[1 << 16];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    sigaltstack(&stack, NULL);
    /* Known is only the top page; most of the frames that were interrupted lie below. */
    frame_size = 1000;
    uintptr_t low = test_home.low = (test_home.high - 1) & ~4095ul;
    handlers(SA_ONSTACK);
    check_same();
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_INTERRUPTED);
    /* A walk that changed stacks proves nothing of the pages. */
    ck_assert_uint_eq(test_home.low, low);
}
END_TEST

static ucontext_t main_context, coroutine;

static void coroutine_main(void)
{
    recurse(20);
    swapcontext(&coroutine, &main_context);
}

START_TEST(from_a_coroutine)
{
    start();
    uintptr_t low = test_home.low;
    size_t size = 1 << 18;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at_bottom = walk_both;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = size;
    makecontext(&coroutine, coroutine_main, 0);
    swapcontext(&main_context, &coroutine);
#if defined(__aarch64__)
    /* libunwind does not see the end, and gives the outermost frame again. */
    ck_assert_uint_eq(theirs.count, ours.count + 1);
    theirs.count--;
#endif
    check_same();
    ck_assert_uint_gt(ours.count, 20);
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE); /* __start_context is all there is */
    ck_assert_uint_eq(test_home.low, low);
}
END_TEST

/* A frame whose CFA hangs on rbx, as the loader's lazy binding has: not one of the registers
 * that a quick walk follows. (x19 on aarch64.) */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".type call_on_rbx, @function\n"
        "call_on_rbx:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register rbx\n"
        "and $-256, %rsp\n"
        "call *%rdi\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_on_rbx, . - call_on_rbx\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".type call_on_rbx, @function\n"
        "call_on_rbx:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset x29, -32\n"
        ".cfi_offset x30, -24\n"
        "str x19, [sp, #16]\n"
        ".cfi_offset x19, -16\n"
        "mov x19, sp\n"
        ".cfi_def_cfa_register x19\n"
        "sub x9, sp, #64\n"
        "and sp, x9, #-256\n"
        "mov x29, #0\n"
        "blr x0\n"
        "mov sp, x19\n"
        ".cfi_def_cfa_register sp\n"
        "ldr x19, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_def_cfa_offset 0\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_on_rbx, . - call_on_rbx\n"
        ".popsection\n");
#endif
void call_on_rbx(void (*function)(void));

static void walk_on_rbx(void)
{
    call_on_rbx(walk_both);
    KEEP_FRAME();
}

START_TEST(cfa_on_another_register)
{
    start();
    at_bottom = walk_on_rbx;
    recurse(10);
    check_same();
    ck_assert(ours.flags & UNWIND_COMPLETE);
}
END_TEST

#if defined(__x86_64__)
/* A frame realigned as gcc does it: its CFA is a word below rbp. */
__asm__(".pushsection .text\n"
        ".type call_realigned, @function\n"
        "call_realigned:\n"
        ".cfi_startproc\n"
        "lea 8(%rsp), %r10\n"
        ".cfi_def_cfa r10, 0\n"
        "and $-64, %rsp\n"
        "push -8(%r10)\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        ".cfi_escape 0x10, 6, 2, 0x76, 0\n"
        "push %r10\n"
        ".cfi_escape 0x0f, 3, 0x76, 0x78, 6\n"
        "sub $8, %rsp\n"
        "call *%rdi\n"
        "mov -8(%rbp), %r10\n"
        ".cfi_def_cfa r10, 0\n"
        "leave\n"
        "lea -8(%r10), %rsp\n"
        ".cfi_def_cfa rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_realigned, . - call_realigned\n"
        ".popsection\n");
void call_realigned(void (*function)(void));

static void walk_realigned(void)
{
    call_realigned(walk_both);
    KEEP_FRAME();
}

START_TEST(realigned_frame)
{
    start();
    at_bottom = walk_realigned;
    recurse(10);
    check_same();
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_CLEAN);
    uint64_t rule = rule_lookup(modules_list->publication, ours.pcs[1]);
    ck_assert_int_eq(rule_kind(rule), RULE_FP_DEREF);
    ck_assert_int_eq(rule_offset(rule), -8);
}
END_TEST
#endif

/* Stands for libagent's code: a section of its own. */
__attribute__((section("self_code"), noinline)) static void self_leaf(void)
{
    walk_both();
    KEEP_FRAME();
}

__attribute__((section("self_code"), noinline)) static void self_middle(void (*function)(void))
{
    function();
    KEEP_FRAME();
}

/* NOLINTNEXTLINE(bugprone-reserved-identifier): the names that the linker gives */
extern const char __start_self_code[], __stop_self_code[];

static void self_middle_leaf(void)
{
    self_middle(walk_both);
    KEEP_FRAME();
}

START_TEST(frames_of_our_own_are_left_out)
{
    start();
    self_middle_leaf();
    uint32_t whole = ours.count;
    modules_self_start = (uintptr_t)__start_self_code;
    modules_self_end = (uintptr_t)__stop_self_code;
    self_middle_leaf();
    ck_assert_uint_eq(ours.count, whole - 1);
    ck_assert(!(ours.flags & UNWIND_LEAF_SELF));

    struct unwind_regs regs;
    ucontext_t context;
    getcontext(&context);
    unwind_regs_from_context(&regs, &context);
    modules_self_start = regs.r[UNWIND_PC];
    modules_self_end = regs.r[UNWIND_PC] + 1;
    whole = unwind_walk(&regs, true, &test_home, ours.pcs, REFERENCE_MAX, &ours.flags,
                        &ours.generation);
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE | UNWIND_LEAF_SELF | UNWIND_CLEAN);
    ck_assert_uint_ne(ours.pcs[0], CONTEXT_PC(&context));
    modules_self_start = modules_self_end = 0;
    self_leaf();
    ck_assert_uint_eq(ours.count, whole + 3);
}
END_TEST

static void walk_five(void)
{
    struct unwind_regs regs;
    unwind_regs_here(&regs);
    ours.pcs[5] = 77;
    ours.count = unwind_walk(&regs, true, &test_home, ours.pcs, 5, &ours.flags, &ours.generation);
}

START_TEST(cut_at_the_limit)
{
    start();
    at_bottom = walk_five;
    recurse(10);
    ck_assert_uint_eq(ours.count, 5);
    ck_assert_uint_eq(ours.flags, UNWIND_CUT);
    ck_assert_uint_eq(ours.pcs[5], 77);
}
END_TEST

static uint64_t misses(void)
{
    return stats_get(STAT_UNWIND_CACHE_MISSES);
}

START_TEST(rules_are_cached_until_the_modules_change)
{
    start();
    struct frames first;
    at_bottom = walk_both;
    uint64_t before = misses();
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            before = misses();
        recurse(50);
        if (i == 0)
            first = ours;
    }
    /* Only the frame of this function differs between the two calls. */
    ck_assert_uint_le(misses() - before, 1);
    uint32_t publication = modules_list->publication;
    uint64_t pc = ours.pcs[2];
    /* A wrong rule of this publication is believed: so what is tested is really used. */
    rule_store(publication, pc, rule_make(RULE_END, 0, 0));
    recurse(50);
    ck_assert_uint_eq(ours.count, 3);
    /* One stored late, under an older publication, is not. */
    modules_mark_system((uintptr_t)recurse);
    ck_assert_uint_eq(modules_list->publication, publication + 1);
    before = misses();
    recurse(50);
    ck_assert_uint_gt(misses() - before, 3);
    ck_assert_uint_eq(ours.count, first.count);
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE); /* "recurse" is a system's now: not clean */
    rule_store(publication, pc, rule_make(RULE_END, 0, 0));
    recurse(50);
    ck_assert_uint_eq(ours.count, first.count);
}
END_TEST

static uint32_t probes;

static bool count_probes(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    probes += number == SYS_rt_sigprocmask;
    return false;
}

START_TEST(pages_of_the_home_stack_are_probed_once)
{
    start();
    /* Forgotten: as if the thread had been attached with only its top known. */
    test_home.low = test_home.high;
    frame_size = 1000;
    sys_override = count_probes;
    at_bottom = walk_both;
    recurse(1);
    ck_assert(ours.flags & UNWIND_CLEAN);
    uint32_t first = probes;
    uintptr_t low = test_home.low;
    ck_assert_uint_gt(first, 0);
    ck_assert_uint_le(first, (test_home.high - low) / 4096 + 2);
    recurse(1);
    ck_assert_uint_eq(probes, first);
    recurse(150); /* deeper by some pages */
    ck_assert_uint_gt(probes, first);
    ck_assert_uint_le(probes - first, (low - test_home.low) / 4096 + 2);
    ck_assert_uint_lt(test_home.low, low);
    first = probes;
    recurse(150);
    ck_assert_uint_eq(probes, first);
    sys_override = NULL;
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind");
    TCase *t = tcase_create("unwind");
    tcase_add_test(t, recursion_of_200);
    tcase_add_test(t, callback_of_libc_is_not_clean);
    tcase_add_test(t, thread_from_its_start);
    /* ThreadSanitizer calls handlers itself, when it likes: then there is no signal frame. */
    if (!THREAD_SANITIZER) {
        tcase_add_test(t, through_nested_handlers);
        tcase_add_test(t, from_sigaltstack);
    }
    tcase_add_test(t, from_a_coroutine);
    tcase_add_test(t, cfa_on_another_register);
#if defined(__x86_64__)
    tcase_add_test(t, realigned_frame);
#endif
    tcase_add_test(t, frames_of_our_own_are_left_out);
    tcase_add_test(t, cut_at_the_limit);
    tcase_add_test(t, rules_are_cached_until_the_modules_change);
    tcase_add_test(t, pages_of_the_home_stack_are_probed_once);
    suite_add_tcase(s, t);
    return s;
}
