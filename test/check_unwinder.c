/* The choice of unwinders, in one process: each gives the frames and the flags that cfi gives,
 * where it can; libunwind's places, their end at forks, and libraries that cannot be used. Whole
 * programs are in test/preload/check_unwinders.c. */
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "agent/base/next.h"
#include "agent/base/stats.h"
#include "agent/unwind/libunwind_space.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwinder.h"
#include "test/next_libc.h"
#include "test/own_log.h"
#include "test/unwind_reference.h"

#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

enum { DEPTH = 60 };

static const struct unwinder *const others[] = {&unwinder_frame_pointers, &unwinder_libunwind};
static const struct unwinder *other;
static struct frames by_cfi, by_other;
static uint32_t max = REFERENCE_MAX;

static void start(enum unwinder_id choice)
{
    next_from_libc();
    own_log_start();
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    test_home_set();
    unwinder_start(choice);
}

static void walk(const struct unwinder *way, const struct unwind_regs *regs, bool exact,
                 struct frames *frames)
{
    struct unwind_regs copy = *regs;
    memset(frames, 0, sizeof(*frames));
    frames->count =
        way->walk(&copy, exact, &test_home, frames->pcs, max, &frames->flags, &frames->generation);
}

/* The same stack twice; what is above this function is left out by whoever asks. */
static void walk_both(const struct unwind_regs *regs, bool exact)
{
    /* First, so that both find the home stack's pages known. */
    walk(&unwinder_cfi, regs, exact, &by_cfi);
    walk(other, regs, exact, &by_other);
    walk(&unwinder_cfi, regs, exact, &by_cfi);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    struct unwind_regs regs;
    unwind_regs_from_context(&regs, context);
    walk_both(&regs, true);
}

static void walk_from_handler(void)
{
    raise(SIGUSR1);
}

/* A handler's own frames, with the interrupted ones under them. */
static void on_other_signal(int signal)
{
    (void)signal;
    raise(SIGUSR1);
    KEEP_FRAME();
}

static void walk_under_handler(void)
{
    raise(SIGUSR2);
    KEEP_FRAME();
}

static void walk_from_hook(void)
{
    struct unwind_regs regs;
    unwind_regs_here(&regs);
    walk_both(&regs, false);
    KEEP_FRAME();
}

static __attribute__((noinline)) void recurse(int depth, void (*at_bottom)(void))
{
    if (depth == 0)
        at_bottom();
    else
        recurse(depth - 1, at_bottom);
    KEEP_FRAME();
}

static void set_handlers(void)
{
    sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO},
              NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_other_signal}, NULL);
}

static void expect_alike(void)
{
    if (!same_frames(&by_cfi, &by_other) || by_cfi.flags != by_other.flags) {
        print_frames(stdout, "cfi", &by_cfi);
        print_frames(stdout, other->name, &by_other);
    }
    ck_assert(same_frames(&by_cfi, &by_other));
    ck_assert_uint_eq(by_cfi.flags, by_other.flags);
    ck_assert_uint_eq(by_cfi.generation, by_other.generation);
}

static uint64_t left_to_cfi(void)
{
    return stats_get(STAT_UNWIND_NOT_LIBUNWIND);
}

START_TEST(stacks_are_alike)
{
    start(UNWINDER_LIBUNWIND);
    ck_assert_ptr_eq(unwinder, &unwinder_libunwind);
    other = unwinder;
    set_handlers();
    /* The second time libunwind has the rules. */
    for (int i = 0; i < 2; i++) {
        recurse(DEPTH, walk_from_handler);
        ck_assert_uint_ge(by_cfi.count, DEPTH);
        ck_assert_uint_eq(by_cfi.flags, UNWIND_COMPLETE); /* libc's raise is innermost */
        expect_alike();
        if (!THREAD_SANITIZER) { /* it calls handlers itself, later */
            recurse(DEPTH, walk_under_handler);
            ck_assert_uint_eq(by_cfi.flags, UNWIND_COMPLETE | UNWIND_INTERRUPTED);
            expect_alike();
        }
        recurse(DEPTH, walk_from_hook);
        ck_assert_uint_eq(by_cfi.flags, UNWIND_COMPLETE | UNWIND_CLEAN);
        expect_alike();
    }
    ck_assert_uint_eq(left_to_cfi(), 0);
}
END_TEST

START_TEST(stacks_are_cut_alike)
{
    start(UNWINDER_LIBUNWIND);
    set_handlers();
    static const uint32_t limits[] = {1, 2, 5};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        max = limits[i];
        for (size_t k = 0; k < ARRAY_SIZE(others); k++) {
            other = others[k];
            recurse(DEPTH, walk_from_hook);
            ck_assert_uint_eq(by_other.count, max);
            ck_assert_uint_eq(by_other.flags, UNWIND_CUT);
            ck_assert_uint_eq(by_other.pcs[max], 0);
        }
        other = &unwinder_libunwind;
        recurse(DEPTH, walk_under_handler);
        expect_alike();
    }
}
END_TEST

START_TEST(changed_modules_are_seen)
{
    start(UNWINDER_LIBUNWIND);
    other = unwinder;
    recurse(DEPTH, walk_from_hook);
    uint32_t publication = modules_list->publication;
    modules_mark_system((uintptr_t)recurse);
    ck_assert_uint_ne(modules_list->publication, publication);
    recurse(DEPTH, walk_from_hook);
    ck_assert_uint_eq(by_cfi.flags, UNWIND_COMPLETE);
    expect_alike();
}
END_TEST

START_TEST(a_child_of_threads_leaves_libunwind)
{
    start(UNWINDER_LIBUNWIND);
    unwinder_reset_in_child();
    ck_assert_ptr_eq(unwinder, &unwinder_cfi);
    unwinder_start(UNWINDER_FP);
    unwinder_reset_in_child();
    ck_assert_ptr_eq(unwinder, &unwinder_frame_pointers);
}
END_TEST

static struct unwind_regs regs_in_walk;
static uint32_t entered;

/* A step of libunwind's under which the next walk is made, until all places are taken. */
static int (*real_step)(struct libunwind_cursor *cursor);
static int step_and_enter(struct libunwind_cursor *cursor)
{
    if (entered++ < 40 && left_to_cfi() == 0)
        walk(&unwinder_libunwind, &regs_in_walk, false, &by_other);
    return real_step(cursor);
}

START_TEST(where_all_places_are_taken_cfi_walks)
{
    start(UNWINDER_LIBUNWIND);
    other = unwinder;
    unwind_regs_here(&regs_in_walk);
    walk(&unwinder_cfi, &regs_in_walk, false, &by_cfi);
    real_step = libunwind.step;
    libunwind.step = step_and_enter;
    walk(&unwinder_libunwind, &regs_in_walk, false, &by_other);
    ck_assert_uint_eq(left_to_cfi(), 1);
    ck_assert_uint_gt(entered, 10);
    ck_assert_uint_lt(entered, 40 * by_cfi.count);
    expect_alike();
    /* All are given back. */
    libunwind.step = real_step;
    walk(&unwinder_libunwind, &regs_in_walk, false, &by_other);
    ck_assert_uint_eq(left_to_cfi(), 1);
    expect_alike();
}
END_TEST

/* The program may be in libunwind itself there. */
START_TEST(where_all_signals_are_blocked_cfi_walks)
{
    ucontext_t context = {0};
    start(UNWINDER_LIBUNWIND);
    ck_assert_ptr_eq(unwinder_inside_handler(&context), &unwinder_libunwind);
    sigfillset(&context.uc_sigmask);
    /* The kernel keeps no mark for these two. */
    sigdelset(&context.uc_sigmask, SIGKILL);
    sigdelset(&context.uc_sigmask, SIGSTOP);
    ck_assert_ptr_eq(unwinder_inside_handler(&context), &unwinder_cfi);
    ck_assert_uint_eq(left_to_cfi(), 1);
    sigdelset(&context.uc_sigmask, SIGCHLD);
    ck_assert_ptr_eq(unwinder_inside_handler(&context), &unwinder_libunwind);
    ck_assert_uint_eq(left_to_cfi(), 1);
    sigaddset(&context.uc_sigmask, SIGCHLD);
    unwinder_start(UNWINDER_FP);
    ck_assert_ptr_eq(unwinder_inside_handler(&context), &unwinder_frame_pointers);
}
END_TEST

START_TEST(errno_and_signals_are_kept)
{
    start(UNWINDER_LIBUNWIND);
    other = unwinder;
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = 4711;
    recurse(DEPTH, walk_from_hook);
    ck_assert_int_eq(errno, 4711);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++)
        ck_assert_int_eq(sigismember(&after, i), i == SIGUSR2);
}
END_TEST

/* ---- libraries that cannot be used ---- */

static void *no_library(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

static void *(*real_dlsym)(void *handle, const char *name);

static void *dlsym_without_step(void *handle, const char *name)
{
    return strstr(name, "_step") ? NULL : real_dlsym(handle, name);
}

static int step_nowhere(void *cursor)
{
    (void)cursor;
    return 0;
}

static void *dlsym_with_other_step(void *handle, const char *name)
{
    return strstr(name, "_step") ? (void *)step_nowhere : real_dlsym(handle, name);
}

static void expect_fallen_back(const char *line)
{
    unwinder_start(UNWINDER_LIBUNWIND);
    ck_assert_ptr_eq(unwinder, &unwinder_cfi);
    ck_assert_int_eq(own_log_lines(line), 1);
    ck_assert_int_eq(own_log_lines(""), 1);
    ck_assert_ptr_null(dlerror());
}

START_TEST(no_libunwind)
{
    start(UNWINDER_AUTO);
    ck_assert_ptr_eq(unwinder, &unwinder_cfi);
    next.dlopen = no_library;
    expect_fallen_back("is not installed");
}
END_TEST

START_TEST(no_loader)
{
    start(UNWINDER_CFI);
    next.dlopen = NULL;
    expect_fallen_back("is not installed");
}
END_TEST

START_TEST(a_function_is_missing)
{
    start(UNWINDER_CFI);
    real_dlsym = next.dlsym;
    next.dlsym = dlsym_without_step;
    expect_fallen_back("is not installed");
}
END_TEST

START_TEST(it_walks_otherwise)
{
    start(UNWINDER_CFI);
    real_dlsym = next.dlsym;
    next.dlsym = dlsym_with_other_step;
    expect_fallen_back("cannot be used");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("unwinder");
    TCase *walks = tcase_create("walks");
    tcase_add_checked_fixture(walks, NULL, own_log_remove);
    tcase_add_test(walks, stacks_are_alike);
    tcase_add_test(walks, stacks_are_cut_alike);
    tcase_add_test(walks, changed_modules_are_seen);
    tcase_add_test(walks, a_child_of_threads_leaves_libunwind);
    tcase_add_test(walks, where_all_places_are_taken_cfi_walks);
    tcase_add_test(walks, where_all_signals_are_blocked_cfi_walks);
    tcase_add_test(walks, errno_and_signals_are_kept);
    suite_add_tcase(suite, walks);
    TCase *refused = tcase_create("refused");
    tcase_add_checked_fixture(refused, NULL, own_log_remove);
    tcase_add_test(refused, no_libunwind);
    tcase_add_test(refused, no_loader);
    tcase_add_test(refused, a_function_is_missing);
    tcase_add_test(refused, it_walks_otherwise);
    suite_add_tcase(suite, refused);
    return suite;
}
