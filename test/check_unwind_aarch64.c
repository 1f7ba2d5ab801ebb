/* What aarch64 alone has: a return address in the link register, alone on the stack, or in a frame
 * record anywhere in the frame, and signed. Assembly stops at every place of note (by an undefined
 * instruction); at each stop the walk must find the callers, which are known. */
#if defined(__aarch64__)
#include "test/check.h"

#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/rule_cache.h"
#include "agent/unwind/unwind.h"
#include "test/demand.h"
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

enum { INSTRUCTION = 4, STOPS_MAX = 32 };

static struct frames ours, truth;
static uintptr_t first_link; /* the return address that the code under test was given */
static uint32_t stops;
static enum rule_kind kinds[STOPS_MAX];
static uint32_t slots[STOPS_MAX];

static __attribute__((noinline)) void known_truth(void)
{
    walk_here(&truth);
    KEEP_FRAME();
}

/* frames[from]: the caller of the code under test, whose callers are the truth's from 2 on. */
static void demand_callers(const struct frames *frames, uint32_t from)
{
    demand(frames->flags & UNWIND_COMPLETE);
    demand(frames->count - from == truth.count - 1);
    demand(frames->pcs[from] == first_link - 1);
    demand(memcmp(frames->pcs + from + 1, truth.pcs + 2, (truth.count - 2) * sizeof(uint64_t)) ==
           0);
}

static void on_stop(int number, siginfo_t *info, void *ucontext)
{
    (void)number;
    (void)info;
    ucontext_t *context = ucontext;
    uintptr_t pc = CONTEXT_PC(context);
    if (!stops)
        first_link = context->uc_mcontext.regs[UNWIND_RA];
    agent_walk(context, &ours);
    demand(ours.pcs[0] == pc);
    demand_callers(&ours, 1);
    demand(!(ours.flags & UNWIND_INTERRUPTED));
    uint64_t rule = rule_lookup(modules_list->publication, pc);
    demand(stops < STOPS_MAX);
    kinds[stops] = rule_kind(rule);
    slots[stops++] = rule_slot(rule);
    /* From here the same frames lie behind this one and the kernel's. */
    walk_here(&ours);
    demand(ours.flags & UNWIND_INTERRUPTED);
    demand(ours.count == truth.count + 2);
    demand(ours.pcs[2] == pc);
    demand_callers(&ours, 3);
    CONTEXT_PC(context) += INSTRUCTION;
}

static void start(void)
{
    static const struct sigaction action = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO};
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
    sigaction(SIGILL, &action, NULL);
}

static __attribute__((noinline)) void through(void (*code)(void))
{
    known_truth();
    code();
    KEEP_FRAME();
}

static void expect_rules(uint32_t count, const enum rule_kind *expected_kinds,
                         const uint32_t *expected_slots)
{
    ck_assert_uint_eq(stops, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_msg(kinds[i] == expected_kinds[i] && slots[i] == expected_slots[i],
                      "stop %u: kind %d slot %u", i, kinds[i], slots[i]);
    }
}

#define EXPECT_RULES(expected_kinds, expected_slots)                                               \
    expect_rules(sizeof(expected_slots) / sizeof((expected_slots)[0]), expected_kinds,             \
                 expected_slots)

#define STOP "udf #0\n"
#define FUNCTION(name, body)                                                                       \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", @function\n" #name ":\n"                                             \
            ".cfi_startproc\n" body ".cfi_endproc\n"                                               \
            ".size " #name ", . - " #name "\n"                                                     \
            ".popsection\n");                                                                      \
    void name(void);

/* As gcc has it: the record first, at the bottom; more of the frame below it afterwards. */
FUNCTION(record_at_bottom,
         STOP "stp x29, x30, [sp, #-32]!\n"
              ".cfi_def_cfa_offset 32\n"
              ".cfi_offset x29, -32\n"
              ".cfi_offset x30, -24\n" STOP "mov x29, sp\n" STOP "sub sp, sp, #1024\n"
              ".cfi_def_cfa_offset 1056\n" STOP "add sp, sp, #1024\n"
              ".cfi_def_cfa_offset 32\n"
              "mov x30, #0\n" STOP "ldp x29, x30, [sp], #32\n"
              ".cfi_restore x29\n"
              ".cfi_restore x30\n"
              ".cfi_def_cfa_offset 0\n" STOP "ret\n")

START_TEST(records_at_the_bottom)
{
    start();
    through(record_at_bottom);
    EXPECT_RULES(
        ((enum rule_kind[]){RULE_SP_ONLY, RULE_SP, RULE_SP, RULE_SP, RULE_SP, RULE_SP_ONLY}),
        ((uint32_t[]){0, 0, 0, 4, 0, 0}));
}
END_TEST

/* A frame larger than a slot can say, as gcc has it with and without alloca. */
FUNCTION(large_frame,
         STOP "sub sp, sp, #2048\n"
              ".cfi_def_cfa_offset 2048\n" STOP "stp x29, x30, [sp]\n"
              ".cfi_offset x29, -2048\n"
              ".cfi_offset x30, -2040\n" STOP "mov x29, sp\n"
              "mov x30, #0\n"
              ".cfi_def_cfa_register x29\n" STOP "sub sp, sp, #64\n" STOP "mov sp, x29\n"
              ".cfi_def_cfa_register sp\n"
              "ldp x29, x30, [sp]\n"
              ".cfi_restore x29\n"
              ".cfi_restore x30\n"
              "add sp, sp, #2048\n"
              ".cfi_def_cfa_offset 0\n" STOP "ret\n")

START_TEST(large_frames)
{
    start();
    through(large_frame);
    EXPECT_RULES(
        ((enum rule_kind[]){RULE_SP_ONLY, RULE_SP_ONLY, RULE_SP, RULE_FP, RULE_FP, RULE_SP_ONLY}),
        ((uint32_t[]){0, 0, 0, 0, 0, 0}));
}
END_TEST

/* As clang has it: the record on top, the CFA on x29. */
FUNCTION(record_on_top, STOP "sub sp, sp, #96\n"
                             ".cfi_def_cfa_offset 96\n"
                             "stp x29, x30, [sp, #80]\n"
                             ".cfi_offset x29, -16\n"
                             ".cfi_offset x30, -8\n" STOP "add x29, sp, #80\n"
                             "mov x30, #0\n"
                             ".cfi_def_cfa x29, 16\n" STOP "ldp x29, x30, [sp, #80]\n"
                             ".cfi_def_cfa sp, 96\n"
                             ".cfi_restore x29\n"
                             ".cfi_restore x30\n"
                             "add sp, sp, #96\n"
                             ".cfi_def_cfa_offset 0\n"
                             "ret\n")

START_TEST(records_on_top)
{
    start();
    through(record_on_top);
    EXPECT_RULES(((enum rule_kind[]){RULE_SP_ONLY, RULE_SP, RULE_FP}), ((uint32_t[]){0, 2, 0}));
}
END_TEST

/* Without a frame pointer; and with one that is saved apart from the return address, which a rule
 * cannot say. */
FUNCTION(link_alone, STOP "stp x30, x19, [sp, #-32]!\n"
                          ".cfi_def_cfa_offset 32\n"
                          ".cfi_offset x30, -32\n"
                          ".cfi_offset x19, -24\n"
                          "mov x30, #0\n" STOP "str x29, [sp, #24]\n"
                          ".cfi_offset x29, -8\n"
                          "mov x29, #-1\n" STOP "ldr x29, [sp, #24]\n"
                          "ldp x30, x19, [sp], #32\n"
                          ".cfi_restore x30\n"
                          ".cfi_restore x19\n"
                          ".cfi_restore x29\n"
                          ".cfi_def_cfa_offset 0\n"
                          "ret\n")

START_TEST(return_address_alone)
{
    start();
    through(link_alone);
    EXPECT_RULES(((enum rule_kind[]){RULE_SP_ONLY, RULE_SP_ONLY, RULE_FULL}),
                 ((uint32_t[]){0, 4, 0}));
}
END_TEST

/* Signed, from its first instruction on. */
FUNCTION(signed_code, STOP "hint #25\n" /* paciasp */
                           ".cfi_negate_ra_state\n" STOP "stp x29, x30, [sp, #-16]!\n"
                           ".cfi_def_cfa_offset 16\n"
                           ".cfi_offset x29, -16\n"
                           ".cfi_offset x30, -8\n"
                           "mov x29, sp\n" STOP "ldp x29, x30, [sp], #16\n"
                           ".cfi_restore x29\n"
                           ".cfi_restore x30\n"
                           ".cfi_def_cfa_offset 0\n" STOP "hint #29\n" /* autiasp */
                           ".cfi_negate_ra_state\n" STOP "ret\n")

START_TEST(signed_return_addresses)
{
    start();
    through(signed_code);
    EXPECT_RULES(
        ((enum rule_kind[]){RULE_SP_ONLY, RULE_SP_ONLY, RULE_SP, RULE_SP_ONLY, RULE_SP_ONLY}),
        ((uint32_t[]){0, 0, 0, 0, 0}));
}
END_TEST

/* Calls through frames that are all signed. */
static bool one_is_signed;

__attribute__((target("branch-protection=pac-ret"), noinline)) static void signed_frames(int depth)
{
    const uintptr_t *record = __builtin_frame_address(0);
    one_is_signed |= record[1] >> 48 != 0;
    if (depth == 0)
        walk_here(&ours);
    else
        signed_frames(depth - 1);
    KEEP_FRAME();
}

START_TEST(a_chain_of_signed_frames)
{
    enum { DEPTH = 30 };
    start();
    known_truth();
    signed_frames(DEPTH);
    ck_assert_uint_eq(ours.count, truth.count + DEPTH);
    ck_assert_mem_eq(ours.pcs + DEPTH + 2, truth.pcs + 2, (truth.count - 2) * sizeof(uint64_t));
    ck_assert(ours.flags & UNWIND_CLEAN);
    /* A signature has 7 bits at least: that all are 0 comes once in 2^210. */
    ck_assert_int_eq(one_is_signed, (getauxval(AT_HWCAP) & HWCAP_PACA) != 0);
}
END_TEST

/* As the first PLT stub, of which no table tells. */
__asm__(".pushsection .text\n"
        ".globl plt_stub\n"
        "plt_stub:\n" STOP "stp x16, x30, [sp, #-16]!\n" STOP "nop\n"
        "nop\n" STOP "ldp x16, x30, [sp], #16\n"
        "ret\n"
        ".popsection\n");
void plt_stub(void);

START_TEST(stub_of_the_plt)
{
    start();
    through(plt_stub);
    EXPECT_RULES(((enum rule_kind[]){RULE_NO_FDE, RULE_NO_FDE, RULE_NO_FDE}),
                 ((uint32_t[]){0, 0, 0}));
}
END_TEST

/* As glibc's lazy resolver, which lies above what the first PLT stub has pushed, and whose rows do
 * not say so. */
FUNCTION(lazy_resolver, "stp x16, x30, [sp, #-16]!\n"
                        ".cfi_offset x30, 8\n" STOP "stp x8, x9, [sp, #-208]!\n"
                        ".cfi_def_cfa_offset 208\n"
                        "mov x30, #0\n" STOP "ldp x8, x9, [sp], #208\n"
                        ".cfi_def_cfa_offset 0\n" STOP "ldp x16, x30, [sp], #16\n"
                        "ret\n")

START_TEST(resolver_behind_the_stub)
{
    start();
    through(lazy_resolver);
    EXPECT_RULES(((enum rule_kind[]){RULE_FULL, RULE_FULL, RULE_FULL}), ((uint32_t[]){0, 0, 0}));
}
END_TEST

/* Code of no object: before it has pushed its record, behind it, and after its own call, when the
 * link register points into that code. */
static const uint32_t made_code[] = {
    0x00000000, /* udf #0 */
    0xa9be7bfd, /* stp x29, x30, [sp, #-32]! */
    0x910003fd, /* mov x29, sp */
    0x00000000, /* udf #0 */
    0x94000004, /* bl . + 16 */
    0x00000000, /* udf #0 */
    0xa8c27bfd, /* ldp x29, x30, [sp], #32 */
    0xd65f03c0, /* ret */
    0xd65f03c0, /* ret */
};

START_TEST(made_code_with_and_without_a_record)
{
    start();
    uint8_t *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, made_code, sizeof(made_code));
    __builtin___clear_cache((char *)code, (char *)code + sizeof(made_code));
    through((void (*)(void))code);
    ck_assert_uint_eq(stops, 3);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_aarch64");
    TCase *t = tcase_create("unwind_aarch64");
    tcase_add_test(t, records_at_the_bottom);
    tcase_add_test(t, large_frames);
    tcase_add_test(t, records_on_top);
    tcase_add_test(t, return_address_alone);
    tcase_add_test(t, signed_return_addresses);
    tcase_add_test(t, a_chain_of_signed_frames);
    tcase_add_test(t, stub_of_the_plt);
    tcase_add_test(t, resolver_behind_the_stub);
    tcase_add_test(t, made_code_with_and_without_a_record);
    suite_add_tcase(s, t);
    return s;
}
#endif
