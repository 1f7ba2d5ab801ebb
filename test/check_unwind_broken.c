/* Stacks and registers that make no sense: the walk must not fault, must end soon, must write
 * only its frames, and must not say that it is complete where it cannot know. */
#include "test/check.h"

#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "agent/base/rng.h"
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

enum { MAX = 256, WORDS = 4096, ROUNDS = 100000 };

static struct rng rng;
static uintptr_t words[WORDS] __attribute__((aligned(4096)));
/* Two pages, of which the second cannot be read. */
static char *edge;
static struct frames real;

static void start(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
    rng.state = 42;
    edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    walk_here(&real);
}

static uint32_t walk(struct unwind_regs *regs, struct unwind_stack *home, uint32_t *flags)
{
    static uint64_t pcs[MAX + 1];
    uint32_t generation;
    pcs[MAX] = 77;
    uint32_t count = unwind_walk(regs, rng_next(&rng) & 1, home, pcs, MAX, flags, &generation);
    ck_assert_uint_le(count, MAX);
    ck_assert_uint_eq(pcs[MAX], 77);
    return count;
}

static uintptr_t some_code(void)
{
    uint64_t draw = rng_next(&rng);
    const struct module *m = &modules_list->modules[draw % modules_list->count];
    return m->start + (draw >> 16) % (m->end - m->start);
}

/* Something of each kind that may stand in a register or on a stack. */
static uintptr_t some_value(void)
{
    uint64_t draw = rng_next(&rng);
    uintptr_t small = draw >> 40;
    switch (draw % 12) {
    case 0:
        return small % 64;
    case 1:
        return draw;
    case 2:
        return draw >> 17; /* below 2^47 */
    case 3:
        return (uintptr_t)words + small % sizeof(words);
    case 4:
        return (uintptr_t)words + small % WORDS * 8;
    case 5:
        return (uintptr_t)edge + 4096 - small % 64;
    case 6:
        return UINTPTR_MAX - small % 64;
    case 7:
        return test_home.low + small % (test_home.high - test_home.low);
    case 8:
        return test_home.high - small % 128;
    case 9:
        return (uintptr_t)real.pcs[small % real.count] + 1;
    default:
        return some_code();
    }
}

static uint32_t probes, lookups;

static bool count_probe(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    probes += number == SYS_rt_sigprocmask;
    return false;
}

static void count_lookup(uint32_t publication, uintptr_t pc, uint64_t rule)
{
    (void)publication, (void)pc, (void)rule;
    lookups++;
}

/* What a walk may take, counted: time depends on the machine. It is done at most twice. A frame
 * takes a place in `pcs` (or is one of 64 of our own) and asks the cache twice at most; probes are
 * the 4,096 of the stack, one for a pc in no object, and two where machine code is read. */
enum {
    FRAMES_MAX = MAX + 64,
    LOOKUPS_MAX = 2 * 2 * FRAMES_MAX,
    PROBES_MAX = 2 * (4096 + 3 * FRAMES_MAX)
};

START_TEST(random_registers_and_stacks)
{
    start();
    uint64_t frames = 0, misses = stats_get(STAT_UNWIND_CACHE_MISSES);
    uint32_t most_probes = 0, most_lookups = 0;
    sys_override = count_probe;
    rule_watch = count_lookup;
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 64 == 0)
            for (int i = 0; i < WORDS; i++)
                words[i] = some_value();
        struct unwind_regs regs;
        for (int i = 0; i < UNWIND_REGS; i++)
            regs.r[i] = some_value();
        if (round % 4)
            regs.r[UNWIND_PC] = some_code();
        if (round % 3)
            regs.r[UNWIND_SP] = (uintptr_t)words + rng_next(&rng) % WORDS * 8;
        struct unwind_stack home = test_home;
        uint32_t flags;
        probes = lookups = 0;
        frames += walk(&regs, &home, &flags);
        most_probes = MAX_OF(most_probes, probes);
        most_lookups = MAX_OF(most_lookups, lookups);
        ck_assert_uint_eq(home.high, test_home.high);
    }
    sys_override = NULL;
    rule_watch = NULL;
    misses = stats_get(STAT_UNWIND_CACHE_MISSES) - misses;
    printf("%llu frames, %llu misses; of a walk at most %u probes, %u hits\n",
           (unsigned long long)frames, (unsigned long long)misses, most_probes, most_lookups);
    ck_assert_uint_le(most_probes, PROBES_MAX);
    ck_assert_uint_le(most_lookups, LOOKUPS_MAX);
    ck_assert_uint_le(misses, frames + ROUNDS);
    ck_assert_uint_gt(most_probes, 0);
    ck_assert_uint_gt(most_lookups, 0);
}
END_TEST

START_TEST(home_ranges_that_are_none)
{
    start();
    const struct unwind_stack homes[] = {
        {0, 0}, {0x1000, 0x1000}, {UINTPTR_MAX, UINTPTR_MAX}, {test_home.high, test_home.high}};
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++) {
        struct unwind_stack home = homes[i];
        struct unwind_regs regs;
        uint64_t pcs[MAX];
        uint32_t flags, generation;
        unwind_regs_here(&regs);
        uint32_t count = unwind_walk(&regs, true, &home, pcs, MAX, &flags, &generation);
        ck_assert_uint_gt(count, 3);
        ck_assert(flags & UNWIND_COMPLETE);
    }
}
END_TEST

START_TEST(pcs_and_stack_pointers_out_of_range)
{
    start();
    const uintptr_t pcs[] = {0, 1, 1ul << 46, 1ul << 47, 1ul << 63, UINTPTR_MAX};
    /* Which has its memory then, and does not take what is given back here. */
    ck_assert_int_eq(modules_rescan(), 0);
    char *gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 4096);
    const uintptr_t stacks[] = {0,
                                1,
                                (uintptr_t)gone,
                                (uintptr_t)edge + 4095,
                                (uintptr_t)edge + 4096,
                                1ul << 47,
                                UINTPTR_MAX - 7,
                                UINTPTR_MAX};
    for (size_t i = 0; i < sizeof(pcs) / sizeof(pcs[0]); i++) {
        for (size_t j = 0; j < sizeof(stacks) / sizeof(stacks[0]); j++) {
            struct unwind_regs regs = {.r = {0}};
            uint32_t flags;
            regs.r[UNWIND_PC] = pcs[i];
            regs.r[UNWIND_SP] = regs.r[UNWIND_FP] = stacks[j];
            ck_assert_uint_eq(walk(&regs, &test_home, &flags), 1);
            ck_assert_uint_eq(flags, 0);
        }
        /* Known code on a stack that cannot be read: that frame alone. */
        struct unwind_regs regs = {.r = {0}};
        uint32_t flags;
        regs.r[UNWIND_PC] = (uintptr_t)memcpy;
        regs.r[UNWIND_SP] = stacks[i];
        ck_assert_uint_eq(walk(&regs, &test_home, &flags), 1);
        ck_assert_uint_eq(flags, 0);
    }
}
END_TEST

START_TEST(frame_records_in_a_circle)
{
    start();
    char *jit = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t outside = (uintptr_t)jit + 16;
    for (int to = 0; to < 2; to++) {
        /* Record 2 leads to 4, that to itself or back to 2. */
        words[2] = (uintptr_t)&words[4];
        words[3] = outside;
        words[4] = (uintptr_t)&words[to ? 2 : 4];
        words[5] = outside;
        struct unwind_regs regs = {.r = {0}};
        uint32_t flags;
        regs.r[UNWIND_PC] = outside;
        regs.r[UNWIND_SP] = (uintptr_t)&words[0];
        regs.r[UNWIND_FP] = (uintptr_t)&words[2];
        /* Nothing of it ever comes to known code: only the first is believed. */
        ck_assert_uint_eq(walk(&regs, &test_home, &flags), 1);
        ck_assert_uint_eq(flags, 0);
    }
}
END_TEST

static uintptr_t trampoline; /* where handlers return to */

static void note_trampoline(int signal)
{
    (void)signal;
    trampoline = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
}

START_TEST(signal_frames_in_a_circle)
{
    start();
    /* The context that a trampoline restores is one at the same trampoline and the same stack. */
    struct sigaction action = {.sa_handler = note_trampoline};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
#if defined(__x86_64__)
    ucontext_t *context = (ucontext_t *)words;
#elif defined(__aarch64__)
    ucontext_t *context = (ucontext_t *)((uintptr_t)words + sizeof(siginfo_t));
#endif
    memset(words, 0, sizeof(words));
    CONTEXT_PC(context) = (__typeof__(CONTEXT_PC(context)))trampoline;
    CONTEXT_SP(context) = (__typeof__(CONTEXT_SP(context)))words;
    struct unwind_regs regs = {.r = {0}};
    uint32_t flags;
    regs.r[UNWIND_PC] = trampoline;
    regs.r[UNWIND_SP] = (uintptr_t)words;
    uint32_t count = walk(&regs, &test_home, &flags);
    ck_assert_uint_gt(count, 1);
    ck_assert_uint_le(count, 32);
    ck_assert(!(flags & UNWIND_COMPLETE));
}
END_TEST

static struct frames smashed;
static uintptr_t smash_with;

static __attribute__((noinline)) void smash_and_walk(void)
{
    /* Its frame record: of the code here, built with one. */
    uintptr_t *record = __builtin_frame_address(0);
    uintptr_t right = record[1];
    record[1] = smash_with;
    walk_here(&smashed);
    record[1] = right;
    __asm__ volatile("" ::: "memory");
}

START_TEST(smashed_return_addresses)
{
    start();
    const uintptr_t values[] = {1,           0x1234,           1ul << 46,
                                UINTPTR_MAX, (uintptr_t)words, test_home.low + 16};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        smash_with = values[i];
        smash_and_walk();
        ck_assert_uint_ge(smashed.count, 1);
        /* `words` is memory, so it might be JIT code, called from code with frame records. */
        if (values[i] == (uintptr_t)words)
            continue;
        ck_assert_uint_eq(smashed.count, 1);
        ck_assert(!(smashed.flags & UNWIND_COMPLETE));
    }
}
END_TEST

enum { PAINT = 0xa5, PAINTED = 1 << 16 };
/* With the 100 of makecontext and of the function that walks. aarch64 has twice the registers. */
#if defined(__x86_64__)
enum { STACK_MAX = 1408 };
#elif defined(__aarch64__)
enum { STACK_MAX = 1664 };
#endif

static ucontext_t outside, inside;
static struct unwind_regs painted_regs;

static void walk_painted(void)
{
    uint32_t flags, generation;
    (void)unwind_walk(&painted_regs, true, &test_home, real.pcs, REFERENCE_MAX, &flags,
                      &generation);
}

/* Bytes of stack that a walk takes, with a signal frame, misses and a row of all registers. */
static size_t stack_of_walk(const ucontext_t *context)
{
    static char stack[PAINTED] __attribute__((aligned(64)));
    memset(stack, PAINT, sizeof(stack));
    unwind_regs_from_context(&painted_regs, context);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof(stack);
    inside.uc_link = &outside;
    makecontext(&inside, walk_painted, 0);
    swapcontext(&outside, &inside);
    size_t untouched = 0;
    while (stack[untouched] == (char)PAINT)
        untouched++;
    return sizeof(stack) - untouched;
}

static size_t used;

static void measure_in_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
    ucontext_t here;
    getcontext(&here);
    modules_mark_system((uintptr_t)start); /* a new publication: all rules are misses */
    size_t bytes = stack_of_walk(&here);
    if (bytes > used)
        used = bytes;
}

START_TEST(stack_of_the_walk_itself)
{
    start();
    struct sigaction action = {.sa_sigaction = measure_in_handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("a walk takes %zu bytes of stack\n", used);
    ck_assert_uint_gt(used, 300);
    if (!ADDRESS_SANITIZER && !THREAD_SANITIZER)
        ck_assert_uint_le(used, STACK_MAX);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_broken");
    TCase *t = tcase_create("unwind_broken");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, random_registers_and_stacks);
    tcase_add_test(t, home_ranges_that_are_none);
    tcase_add_test(t, pcs_and_stack_pointers_out_of_range);
    tcase_add_test(t, frame_records_in_a_circle);
    /* ThreadSanitizer calls handlers itself: they return to no trampoline. */
    if (!THREAD_SANITIZER)
        tcase_add_test(t, signal_frames_in_a_circle);
    tcase_add_test(t, smashed_return_addresses);
    tcase_add_test(t, stack_of_the_walk_itself);
    suite_add_tcase(s, t);
    return s;
}
