/* Stacks that lead in circles, nowhere, or away under the walk: what it may take is counted, as
 * time would depend on the machine, and where it must end is known. */
#include "test/check.h"

#include <alloca.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/sys.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/rule_cache.h"
#include "agent/unwind/unwind.h"
#include "test/unwind_reference.h"

enum { PAGE = 4096, MAX = 512, WORDS = 1024 };

/* Of the stack, in one walk (agent/unwind/stack_reader.c). */
enum { STACK_PROBES = 4096 };

static uintptr_t words[WORDS] __attribute__((aligned(4096)));
static uint64_t pcs[MAX];
static uint32_t flags, probes;
/* A return address into code whose frames hang on the frame pointer. */
static uintptr_t code;

static __attribute__((noinline)) void walk_with_frame_pointer(size_t size)
{
    struct frames frames;
    volatile char *room = alloca(size);
    room[0] = 1;
    walk_here(&frames);
    code = (uintptr_t)frames.pcs[0] + 1;
    room[size - 1] = 1;
}

static bool count_probe(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    probes += number == SYS_rt_sigprocmask;
    return false;
}

static void start(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
    volatile size_t size = 100; /* a constant would make a frame of constant size */
    walk_with_frame_pointer(size);
    ck_assert_int_eq(rule_kind(rule_lookup(modules_list->publication, code - 1)), RULE_FP);
    sys_override = count_probe;
}

/* From a call in that code. */
static uint32_t walk(uintptr_t sp, uintptr_t fp)
{
    struct unwind_regs regs = {.r = {0}};
    struct unwind_stack home = test_home;
    uint32_t generation;
    regs.r[UNWIND_PC] = code;
    regs.r[UNWIND_SP] = sp;
    regs.r[UNWIND_FP] = fp;
    probes = 0;
    return unwind_walk(&regs, false, &home, pcs, MAX, &flags, &generation);
}

static void frame_record(size_t at, size_t caller)
{
    words[at] = (uintptr_t)&words[caller];
    words[at + 1] = code;
}

START_TEST(frame_pointers_in_a_circle)
{
    start();
    /* To itself: the caller would have the same stack pointer. */
    frame_record(2, 2);
    ck_assert_uint_eq(walk((uintptr_t)&words[0], (uintptr_t)&words[2]), 2);
    ck_assert_uint_eq(flags, 0);
    /* Up twice, then back. */
    frame_record(2, 6);
    frame_record(6, 10);
    frame_record(10, 2);
    ck_assert_uint_eq(walk((uintptr_t)&words[0], (uintptr_t)&words[2]), 4);
    ck_assert_uint_eq(flags, 0);
    ck_assert_uint_le(probes, 1);
}
END_TEST

/* Every word leads one word up: the longest walk that a stack of that size may have. */
START_TEST(a_chain_through_all_of_a_stack)
{
    start();
    for (size_t i = 0; i + 2 < WORDS; i++)
        words[i] = i % 2 ? code : (uintptr_t)&words[i + 2];
    words[WORDS - 1] = 1; /* 0 would be an end */
    ck_assert_uint_eq(walk((uintptr_t)&words[0], (uintptr_t)&words[2]), (WORDS - 2) / 2);
    ck_assert_uint_eq(flags, 0);
    ck_assert_uint_le(probes, 4);
    /* Twice as long as there is room. */
    static uintptr_t more[4 * MAX];
    for (size_t i = 0; i + 2 < 4 * MAX; i++)
        more[i] = i % 2 ? code : (uintptr_t)&more[i + 2];
    ck_assert_uint_eq(walk((uintptr_t)&more[0], (uintptr_t)&more[2]), MAX);
    ck_assert_uint_eq(flags, UNWIND_CUT);
}
END_TEST

/* Frames of 200 KiB, each page of which is asked for, through 64 MiB. */
START_TEST(probes_are_bounded)
{
    enum { STEP = 200 << 10, SIZE = 64 << 20, COUNT = SIZE / STEP };
    start();
    char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(stack, MAP_FAILED);
    for (size_t i = 0; i + 1 < COUNT; i++) {
        uintptr_t *record = (uintptr_t *)(void *)(stack + i * STEP);
        record[0] = (uintptr_t)(stack + (i + 1) * STEP);
        record[1] = code;
    }
    uint32_t count = walk((uintptr_t)stack, (uintptr_t)stack);
    ck_assert_uint_eq(flags, 0);
    ck_assert_uint_eq(probes, STACK_PROBES);
    ck_assert_uint_le(count, 2 + STACK_PROBES / (STEP / PAGE));
    ck_assert_uint_gt(count, STACK_PROBES / (STEP / PAGE) - 2);
    munmap(stack, SIZE);
}
END_TEST

/* Two pages, of which the second cannot be read. */
static char *edge_make(void)
{
    char *edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(edge, MAP_FAILED);
    memset(edge, 0x11, PAGE); /* not 0, where a stack may end */
    ck_assert_int_eq(mprotect(edge + PAGE, PAGE, PROT_NONE), 0);
    return edge;
}

/* A page that was there, between two that stay, so that nothing larger comes to its place. */
static char *gone_make(void)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(pages, MAP_FAILED);
    munmap(pages + PAGE, PAGE);
    return pages + PAGE;
}

static uintptr_t signal_return; /* where handlers return to */

static void note_return(int signal)
{
    (void)signal;
    signal_return = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
}

/* What rt_sigreturn's trampoline is: its row reads far up the stack. */
static uintptr_t trampoline(void)
{
    struct sigaction action = {.sa_handler = note_return};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return signal_return;
}

START_TEST(stack_pointers_anywhere)
{
    start();
    char *edge = edge_make(), *gone = gone_make();
    const uintptr_t nowhere[] = {
        0,
        1,
        PAGE - 1,
        (uintptr_t)gone,
        (uintptr_t)gone + PAGE - 8,
        (uintptr_t)edge + PAGE,     /* not readable */
        (uintptr_t)edge + PAGE - 4, /* half of a word is not */
        (uintptr_t)edge + PAGE - 1,
        0x7ffffffff040,     /* the last page of the lower half is never mapped */
        0x800000000000,     /* no address at all */
        0xffff800000000000, /* the kernel's */
        0xffffffff81000000,
        0xffffffffff600000, /* vsyscall, which can be executed, on some kernels be read */
        UINTPTR_MAX - PAGE,
        UINTPTR_MAX - 15,
        UINTPTR_MAX - 7,
        UINTPTR_MAX,
    };
    /* Code whose caller hangs on the stack pointer, on the frame pointer, and on all. */
    const uintptr_t places[] = {(uintptr_t)memcpy, code - 1, trampoline()};
    const struct unwind_stack homes[] = {test_home,
                                         {(uintptr_t)edge, (uintptr_t)edge + PAGE},
                                         {(uintptr_t)edge, (uintptr_t)edge},
                                         {0, 0}};
    uint32_t walks = 0;
    for (size_t i = 0; i < ARRAY_SIZE(nowhere); i++)
        for (size_t p = 0; p < ARRAY_SIZE(places); p++)
            for (size_t h = 0; h < ARRAY_SIZE(homes); h++)
                for (uintptr_t distance = 0; distance < 24; distance++) {
                    struct unwind_regs regs = {.r = {0}};
                    struct unwind_stack home = homes[h];
                    uint32_t generation;
                    /* The words at CFA - 8, CFA - 16, and 8 further ones that the row may want. */
                    regs.r[UNWIND_PC] = places[p];
                    regs.r[UNWIND_SP] = regs.r[UNWIND_FP] = nowhere[i] - distance;
                    probes = 0;
                    uint32_t count = unwind_walk(&regs, true, &home, pcs, MAX, &flags, &generation);
                    ck_assert_uint_ge(count, 1);
                    ck_assert_uint_le(count, 2);
                    ck_assert_msg(!(flags & UNWIND_COMPLETE) || count == 2, "sp %zx, code %zu",
                                  nowhere[i] - distance, p);
                    /* Behind code of no object, as an emulator's trampoline, new ones are looked
                     * for. */
                    if (modules_find(modules_list, places[p]))
                        ck_assert_uint_le(probes, 8);
                    walks++;
                }
    ck_assert_uint_eq(walks, ARRAY_SIZE(nowhere) * ARRAY_SIZE(places) * ARRAY_SIZE(homes) * 24);
}
END_TEST

START_TEST(return_addresses_anywhere)
{
    start();
    char *edge = edge_make(), *gone = gone_make();
    const uintptr_t nowhere[] = {1,
                                 PAGE,
                                 (uintptr_t)gone + 8,
                                 (uintptr_t)edge + PAGE + 8,
                                 0x7ffffffff040,
                                 0x800000000000,
                                 0xffff800000000000,
                                 0xffffffffff600400,
                                 UINTPTR_MAX,
                                 (uintptr_t)&words[7]}; /* the stack itself */
    for (size_t i = 0; i < ARRAY_SIZE(nowhere); i++) {
        frame_record(2, 6);
        words[6] = (uintptr_t)&words[10];
        words[7] = nowhere[i];
        /* The frame that has it is the last one. */
        uint32_t count = walk((uintptr_t)&words[0], (uintptr_t)&words[2]);
        ck_assert_msg(count == 2, "%u frames from %zx", count, nowhere[i]);
        ck_assert_uint_eq(flags, 0);
        ck_assert_uint_le(probes, 4);
    }
}
END_TEST

/* The program may have taken away pages of its own stack that it has left, and a damaged frame
 * pointer may point there. */
START_TEST(pages_below_the_stack_pointer_may_be_gone)
{
    start();
    char *stack = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stack, MAP_FAILED);
    ck_assert_int_eq(mprotect(stack, PAGE, PROT_NONE), 0);
    test_home = (struct unwind_stack){(uintptr_t)stack, (uintptr_t)stack + 4 * PAGE};
    const uintptr_t gone = test_home.low + 64, in_use = test_home.low + 2 * PAGE;
    ck_assert_uint_eq(walk(in_use, gone), 1);
    ck_assert_uint_le(probes, 1);
    /* From an alternate stack. */
    ck_assert_uint_eq(walk((uintptr_t)words, gone), 1);
    ck_assert_uint_le(probes, 1);
    munmap(stack, 4 * PAGE);
}
END_TEST

/* ---- A stack that another thread takes away ---- */

static struct {
    char *from;
    size_t size;
    uint32_t after; /* so many probes */
} unmapping;

static bool unmap_at_probe(long number, const long args[6], long *result)
{
    if (number != SYS_rt_sigprocmask)
        return false;
    if (probes++ == unmapping.after)
        munmap(unmapping.from, unmapping.size);
    (void)args, (void)result;
    return false;
}

/* A chain with two records a page, through 16 pages; that behind them cannot be read. */
static char *chain_make(void)
{
    char *stack = mmap(NULL, 17 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stack, MAP_FAILED);
    ck_assert_int_eq(mprotect(stack + 16 * PAGE, PAGE, PROT_NONE), 0);
    for (size_t at = 0; at < 16 * PAGE; at += PAGE / 2) {
        uintptr_t *record = (uintptr_t *)(void *)(stack + at);
        record[0] = (uintptr_t)(stack + at + PAGE / 2);
        record[1] = code;
    }
    return stack;
}

START_TEST(a_stack_that_goes_away_while_it_is_walked)
{
    start();
    char *stack = chain_make();
    uintptr_t low = (uintptr_t)stack;
    ck_assert_uint_eq(walk(low, low), 1 + 2 * 16);
    ck_assert_uint_eq(probes, 16 + 1);
    munmap(stack, 17 * PAGE);
    /* Nothing of it is believed in the next walk. */
    ck_assert_uint_eq(walk(low, low), 1);
    /* It goes when page N is asked for: then that one, and all behind, are not there. */
    for (uint32_t n = 0; n < 16; n++) {
        sys_override = NULL;
        stack = chain_make();
        low = (uintptr_t)stack;
        unmapping.from = stack + n * PAGE;
        unmapping.size = (16 - n) * PAGE;
        unmapping.after = n;
        sys_override = unmap_at_probe;
        ck_assert_uint_eq(walk(low, low), 1 + 2 * n);
        ck_assert_uint_eq(flags, 0);
        ck_assert_uint_eq(probes, n + 1);
        sys_override = NULL;
        munmap(stack, n * PAGE);
        munmap(stack + 16 * PAGE, PAGE);
    }
}
END_TEST

/* ---- Memory that may go at any instant: of another stack, of code that nobody knows ---- */

static uint32_t copies;
static bool is_refused;
static char *fleeting;

/* The page goes right behind the probe that has found it. */
static bool take_away_behind_probe(long number, const long args[6], long *result)
{
    if (number == SYS_process_vm_readv) {
        copies++;
        *result = -EPERM;
        return is_refused;
    }
    if (number != SYS_rt_sigprocmask || (uintptr_t)args[1] - (uintptr_t)fleeting >= PAGE)
        return false;
    probes++;
    *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    if (!is_refused)
        munmap(fleeting, PAGE);
    return true;
}

START_TEST(what_is_on_no_stack_in_use_is_copied)
{
    start();
    sys_override = take_away_behind_probe;
    for (int is_code = 0; is_code < 2; is_code++) {
        fleeting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(fleeting, MAP_FAILED);
        uintptr_t *record = (uintptr_t *)(void *)(fleeting + PAGE / 2);
        record[0] = (uintptr_t)&words[10];
        record[1] = code;
        words[2] = (uintptr_t)(is_code ? &words[6] : record);
        words[3] = is_code ? (uintptr_t)record : code;
        words[6] = words[10] = words[11] = 0;
        words[7] = code;
        for (is_refused = false;; is_refused = true) {
            copies = 0;
            /* Before the made-up return address no call stands; behind the record the walk is back
             * on the stack, below where it was. */
            uint32_t count = walk((uintptr_t)&words[0], (uintptr_t)&words[2]);
            ck_assert_uint_eq(count, is_code ? 1 : 3);
            ck_assert_uint_gt(copies, 0);
            ck_assert_int_eq(probes > 0, is_refused);
            if (is_refused)
                break;
        }
        munmap(fleeting, PAGE);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_bounds");
    TCase *t = tcase_create("unwind_bounds");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, frame_pointers_in_a_circle);
    tcase_add_test(t, a_chain_through_all_of_a_stack);
    tcase_add_test(t, probes_are_bounded);
    tcase_add_test(t, stack_pointers_anywhere);
    tcase_add_test(t, return_addresses_anywhere);
    tcase_add_test(t, pages_below_the_stack_pointer_may_be_gone);
    tcase_add_test(t, a_stack_that_goes_away_while_it_is_walked);
    tcase_add_test(t, what_is_on_no_stack_in_use_is_copied);
    suite_add_tcase(s, t);
    return s;
}
