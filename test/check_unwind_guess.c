/* Code without call frame information: assembly, JIT code, leaf functions. What can be known is
 * guessed (frame records, the word on top of the stack); where nothing can, the walk ends, and
 * does not say that it is complete. */
#include "test/check.h"

#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

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

#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

static struct frames ours, truth;

static void start(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
}

static __attribute__((noinline)) void walk(void)
{
    walk_here(&ours);
    KEEP_FRAME();
}

/* Code without any call frame information: with a frame record, and with nothing at all. */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        "call_with_record:\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "call *%rdi\n"
        "pop %rbp\n"
        "ret\n"
        "call_without_record:\n"
        "push %rbp\n"
        "mov $-1, %rbp\n" /* no frame pointer */
        "call *%rdi\n"
        "pop %rbp\n"
        "ret\n"
        "pc_in_leaf: ret\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".globl call_with_record, call_without_record, pc_in_leaf\n"
        "call_with_record:\n"
        "stp x29, x30, [sp, #-32]!\n"
        "mov x29, sp\n"
        "blr x0\n"
        "ldp x29, x30, [sp], #32\n"
        "ret\n"
        "call_without_record:\n"
        "stp x29, x30, [sp, #-16]!\n"
        "mov x29, #-1\n" /* no frame pointer */
        "blr x0\n"
        "ldp x29, x30, [sp], #16\n"
        "pc_in_leaf: ret\n"
        ".popsection\n");
#endif
void call_with_record(void (*function)(void));
void call_without_record(void (*function)(void));
void pc_in_leaf(void);

static __attribute__((noinline)) void known_truth(void)
{
    walk_here(&truth);
    KEEP_FRAME();
}

static __attribute__((noinline)) void through(void (*call)(void (*)(void)))
{
    known_truth();
    call(walk);
    KEEP_FRAME();
}

START_TEST(assembly_without_rules)
{
    start();
    through(call_with_record);
    /* walk, call_with_record, through, ...; known_truth, through, ... */
    ck_assert_uint_eq(ours.count, truth.count + 1);
    ck_assert_mem_eq(ours.pcs + 3, truth.pcs + 2, (truth.count - 2) * sizeof(uint64_t));
    ck_assert(ours.flags & UNWIND_COMPLETE);
    through(call_without_record);
    ck_assert_uint_eq(ours.count, 2);
    ck_assert_uint_eq(ours.flags, 0);
    /* The code is known, its rules are not: the file is asked for them once. */
    ck_assert_uint_eq(modules_stale, 1);
    ck_assert_int_eq(modules_rescan(), 0);
    through(call_without_record);
    ck_assert_uint_eq(modules_stale, 0);
}
END_TEST

START_TEST(leaf_without_rules)
{
    start();
    struct unwind_regs regs = {.r = {0}};
#if defined(__x86_64__)
    through(call_with_record);
    uintptr_t stack[] = {truth.pcs[1] + 1, 0, 0, 0};
    uintptr_t caller = truth.pcs[1];
#elif defined(__aarch64__)
    uintptr_t stack[] = {0, 0, 0, 0};
    regs.r[UNWIND_RA] = (uintptr_t)known_truth + 1;
    uintptr_t caller = (uintptr_t)known_truth;
#endif
    regs.r[UNWIND_PC] = (uintptr_t)pc_in_leaf;
    regs.r[UNWIND_SP] = (uintptr_t)stack;
    regs.r[UNWIND_FP] = 1;
    struct unwind_stack home = {(uintptr_t)stack, (uintptr_t)(stack + 4)};
    ours.count = unwind_walk(&regs, true, &home, ours.pcs, 2, &ours.flags, &ours.generation);
    ck_assert_uint_eq(ours.count, 2);
    ck_assert_uint_eq(ours.pcs[1], caller);
#if defined(__x86_64__)
    /* Code, but no return address: there is no call before it. */
    stack[0] = (uintptr_t)known_truth + 1;
    regs.r[UNWIND_PC] = (uintptr_t)pc_in_leaf;
    regs.r[UNWIND_SP] = (uintptr_t)stack;
    regs.r[UNWIND_FP] = 1;
    ours.count = unwind_walk(&regs, true, &home, ours.pcs, 2, &ours.flags, &ours.generation);
    ck_assert_uint_eq(ours.count, 1);
    ck_assert_uint_eq(ours.flags, 0);
#endif
}
END_TEST

#if defined(__x86_64__)
/* Assembly without rules that has pushed some registers and made rbp something else, called in ways
 * that can be followed (a call, a call by a table, a call of a stub that jumps by a table), and by
 * a register, by functions that hang on rbp. The word that it pushed last is the caller's to
 * choose. */
#define CALLER(name, instruction)                                                                  \
    "call_" name ":\n"                                                                             \
    ".cfi_startproc\n"                                                                             \
    "push %rbp\n"                                                                                  \
    ".cfi_def_cfa_offset 16\n"                                                                     \
    ".cfi_offset rbp, -16\n"                                                                       \
    "mov %rsp, %rbp\n"                                                                             \
    ".cfi_def_cfa_register rbp\n"                                                                  \
    "sub $48, %rsp\n"                                                                              \
    "lea pushes(%rip), %rax\n" instruction "\n"                                                    \
    "leave\n"                                                                                      \
    ".cfi_def_cfa rsp, 8\n"                                                                        \
    "ret\n"                                                                                        \
    ".cfi_endproc\n"
__asm__(".pushsection .text\n"
        "pushes:\n"
        "push %rbx\n"
        "push %rbp\n"
        "push %rdi\n"
        "mov $-1, %rbp\n"
        "int3\n"
        "add $8, %rsp\n"
        "pop %rbp\n"
        "pop %rbx\n"
        "ret\n"
        "pushes_stub:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "jmp *pushes_table(%rip)\n"
        "nop; nop; nop; nop; nop; nop\n"
        ".cfi_endproc\n" CALLER("direct", "call pushes")
            CALLER("by_table", "call *pushes_table(%rip)") CALLER("stub", "call pushes_stub")
                CALLER("by_register", "call *%rax") ".section .data\n"
                                                    "pushes_table: .quad pushes\n"
                                                    ".popsection\n");
void call_direct(uintptr_t last);
void call_by_table(uintptr_t last);
void call_stub(uintptr_t last);
void call_by_register(uintptr_t last);
extern const char pushes[];

static void walk_in_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    agent_walk(context, &ours);
}

static __attribute__((noinline)) void through_pushes(void (*call)(uintptr_t), uintptr_t last)
{
    known_truth();
    call(last);
    KEEP_FRAME();
}

START_TEST(assembly_that_pushes)
{
    start();
    struct sigaction action = {.sa_sigaction = walk_in_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    through_pushes(call_direct, 0);
    /* Data, code, a return address of a call to elsewhere. */
    const uintptr_t pushed[] = {12, (uintptr_t)known_truth + 1, truth.pcs[1] + 1};
    void (*const ways[])(uintptr_t) = {call_direct, call_by_table, call_stub};
    for (size_t i = 0; i < 9; i++) {
        through_pushes(ways[i / 3], pushed[i % 3]);
        /* pushes, its caller, through_pushes, ...; known_truth, through_pushes, ... */
        ck_assert_uint_eq(ours.count, truth.count + 1);
        ck_assert_uint_lt(ours.pcs[0] - (uintptr_t)pushes, 24);
        ck_assert_mem_eq(ours.pcs + 3, truth.pcs + 2, (truth.count - 2) * sizeof(uint64_t));
        ck_assert(ours.flags & UNWIND_COMPLETE);
    }
    /* What cannot be followed ends there, and says so. */
    through_pushes(call_by_register, 12);
    ck_assert_uint_eq(ours.count, 1);
    ck_assert_uint_eq(ours.flags, 0);
}
END_TEST
#endif

/* Code that no object holds; its calls end at byte CALL_AT. */
#if defined(__x86_64__)
enum { CALL_AT = 5, CALL_WITHOUT_AT = 4 };
/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const uint8_t jit_call[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push rbp; mov rbp, rsp; mov rdi, rsi; call rdx; pop rbp; ret */
static const uint8_t jit_outer[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89,
                                    0xf7, 0xff, 0xd2, 0x5d, 0xc3};
/* push rbp; xor ebp, ebp; call rdi; pop rbp; ret */
static const uint8_t jit_no_record[] = {0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3};
#elif defined(__aarch64__)
enum { CALL_AT = 11, CALL_WITHOUT_AT = 11 };
/* stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret */
static const uint32_t jit_call[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
/* The same with mov x0, x1; blr x2 */
static const uint32_t jit_outer[] = {0xa9bf7bfd, 0x910003fd, 0xaa0103e0,
                                     0xd63f0040, 0xa8c17bfd, 0xd65f03c0};
/* The same with mov x29, xzr; blr x0 */
static const uint32_t jit_no_record[] = {0xa9bf7bfd, 0xaa1f03fd, 0xd63f0000, 0xa8c17bfd,
                                         0xd65f03c0};
#endif
static uint8_t *jit;

static void make_jit(void)
{
    jit = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(jit, jit_call, sizeof(jit_call));
    memcpy(jit + 64, jit_outer, sizeof(jit_outer));
    memcpy(jit + 128, jit_no_record, sizeof(jit_no_record));
    __builtin___clear_cache((char *)jit, (char *)jit + 4096);
}

static __attribute__((noinline)) void through_jit(void)
{
    known_truth();
    ((void (*)(void *, void (*)(void), void *))(jit + 64))(NULL, walk, jit);
    KEEP_FRAME();
}

START_TEST(jit_code_with_frame_records)
{
    start();
    make_jit();
    through_jit();
    /* walk, two of the JIT, through_jit, ... */
    ck_assert_uint_eq(ours.count, truth.count + 2);
    ck_assert_uint_eq(ours.pcs[1], (uintptr_t)jit + CALL_AT);
    ck_assert_mem_eq(ours.pcs + 4, truth.pcs + 2, (truth.count - 2) * sizeof(uint64_t));
    ck_assert_uint_eq(ours.flags, UNWIND_COMPLETE); /* whose code it is cannot be known */
    ck_assert_uint_eq(modules_stale, 0);            /* the loader was asked, and did not know it */
}
END_TEST

#if defined(__x86_64__)
/* A return address off a wrong stack that points at memory, which holds no code: not believed where
 * tables led to it. Frame records of made code are: an interpreter pushes where it goes on. */
START_TEST(memory_is_not_code)
{
    start();
    make_jit();
    uintptr_t stack[8] = {0};
    struct unwind_stack home = {(uintptr_t)stack, (uintptr_t)(stack + 8)};
    through(call_with_record);
    for (int made = 0; made < 2; made++) {
        for (int is_behind_call = 0; is_behind_call < 2; is_behind_call++) {
            struct unwind_regs regs = {.r = {0}};
            uintptr_t back = (uintptr_t)jit + (is_behind_call ? CALL_AT + 1 : 1024);
            /* At a function's first byte, or by a record; from there by one into known code. */
            uintptr_t *record = stack + !made;
            regs.r[UNWIND_PC] = made ? (uintptr_t)jit + 8 : (uintptr_t)through;
            regs.r[UNWIND_SP] = (uintptr_t)stack;
            regs.r[UNWIND_FP] = (uintptr_t)record;
            stack[0] = made ? (uintptr_t)(stack + 4) : back;
            stack[1] = made ? back : (uintptr_t)(stack + 4);
            stack[2] = stack[5] = truth.pcs[1] + 1;
            ours.count =
                unwind_walk(&regs, true, &home, ours.pcs, 3, &ours.flags, &ours.generation);
            ck_assert_uint_eq(ours.count, made || is_behind_call ? 3 : 1);
        }
    }
}
END_TEST
#endif

START_TEST(jit_code_without_frame_records)
{
    start();
    make_jit();
    ((void (*)(void (*)(void)))(jit + 128))(walk);
    ck_assert_uint_eq(ours.count, 2);
    ck_assert_uint_eq(ours.pcs[1], (uintptr_t)jit + 128 + CALL_WITHOUT_AT);
    ck_assert_uint_eq(ours.flags, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_guess");
    TCase *t = tcase_create("unwind_guess");
    tcase_add_test(t, assembly_without_rules);
    tcase_add_test(t, leaf_without_rules);
#if defined(__x86_64__)
    /* ThreadSanitizer calls handlers itself, when it likes. */
    if (!THREAD_SANITIZER)
        tcase_add_test(t, assembly_that_pushes);
#endif
    tcase_add_test(t, jit_code_with_frame_records);
    tcase_add_test(t, jit_code_without_frame_records);
#if defined(__x86_64__)
    tcase_add_test(t, memory_is_not_code);
#endif
    suite_add_tcase(s, t);
    return s;
}
