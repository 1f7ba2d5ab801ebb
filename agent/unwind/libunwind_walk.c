/* The walk by libunwind, in any context, although libunwind is not made for that.
 *
 *  1. The library is opened at the start, for itself (RTLD_LOCAL: it exports _Unwind_* and
 *     backtrace, which would take over the app's exceptions) and at once (RTLD_NOW: no binding in a
 *     sample). A walk there makes what it makes at its first call, and must give what cfi gives.
 *  2. It walks address spaces of ours (libunwind_space.c), whose functions look for procedures and
 *     read memory and registers. So it never asks the loader, keeps nothing for a thread, makes no
 *     probe of its own, and reads tables within their bounds (where the registry has them) and the
 *     stack as cfi does (stack_reader).
 *  3. There are a few places to walk in, each with a stack (it needs about 6 KiB) and a space whose
 *     cache of rules nobody else uses. A walk takes one, with all signals blocked, the agent's too;
 *     where all are taken, as where the kernel gives the threads in them no time, the stack is
 *     walked by cfi, and counted.
 *  4. For each new rule it takes and gives back a buffer under a mutex, which another thread may
 *     hold for some instructions. No thread that was interrupted can hold it: in a walk of ours all
 *     signals are blocked, and where the program itself uses this library, a sample that finds all
 *     signals blocked is walked by cfi (unwinder_choose). So it is free as soon as its holder runs.
 *  5. In a fork's child that mutex could be held for ever, by a thread that is gone: the child of a
 *     process with threads is walked by cfi (unwinder_reset_in_child).
 *  6. Its cache takes an interrupted instruction for a return address of the same value. So
 *     interrupted ones are stepped out of in a space that keeps no rules, and what comes behind is
 *     given to the other as the address before the return address: no instruction begins there.
 *
 * What remains: tables that lie (it takes the number of some registers from them unchecked, so cfi
 * reads each row first); a program that puts its own sigprocmask or pthread_mutex_lock in front of
 * libc's has them called in samples; and one that uses a libunwind which was built not to block
 * signals could be interrupted with that mutex held. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/arena.h"
#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/scratch_stack.h"
#include "agent/base/signal_sets.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/libunwind_space.h"
#include "agent/unwind/unwinder.h"

enum {
    /* Threads that are in a walk at an instant, most of them without a processor: of 50 that all
     * want one, and spend a tenth of their time in walks, 5 are. Each costs 40 KiB. */
    PLACES = 16,
    PLACE_BYTES = 64 << 10,
    /* Reads in one walk: 1,024 frames of the longest programs seen take a fifth. What circles in a
     * broken table ends after some ms. */
    READS_MAX = 1 << 20,
    SELF_TEST_FRAMES = 64,
    SELF_FRAMES_MAX = 64, /* of libagent.so in one walk */
};

static struct libunwind_space *forgetting; /* keeps no rules; all use it */
static struct libunwind_space *keeping[PLACES];
static uint8_t *places;
static uint32_t taken; /* a bit a place */

static struct place *place_at(uint32_t index)
{
    return (struct place *)(void *)(places + (size_t)(index + 1) * PLACE_BYTES -
                                    sizeof(struct place));
}

/* ---- the walk ---- */

static struct libunwind_cursor *cursor(struct place *p)
{
    return (struct libunwind_cursor *)(void *)p->cursor;
}

/* 0: not known. */
static uintptr_t register_now(struct place *p, int number)
{
    uintptr_t value = 0;
    return libunwind.get_reg(cursor(p), number, &value) < 0 ? 0 : value;
}

/* Makes the cursor anew, in another space, where it is. */
static bool change_space(struct place *p, struct libunwind_space *space)
{
    struct unwind_regs now; /* apart: one may be where another was */
    uint64_t valid = 1ull << UNWIND_PC;
    for (int i = 0; i < LIBUNWIND_PC; i++)
        if (libunwind.get_reg(cursor(p), i, &now.r[i]) >= 0)
            valid |= 1ull << i;
    now.r[UNWIND_PC] = register_now(p, LIBUNWIND_PC) - !p->exact;
    *p->regs = now;
    p->valid = valid;
    return libunwind.init_remote(cursor(p), space, p) >= 0;
}

/* Writes the frame down; false: the walk ends here. */
static bool record(struct place *p, uintptr_t pc, bool innermost)
{
    const struct module *module = p->module;
    if (pc - modules_self_start < modules_self_end - modules_self_start) {
        if (innermost)
            p->flags |= UNWIND_LEAF_SELF;
        return p->self_frames++ < SELF_FRAMES_MAX;
    }
    if (module) {
        p->known_count = 0;
    } else if (!innermost) {
        /* At least memory, and not the stack; and it must lead to known code in the end. */
        if (pc - p->reader.low < p->reader.high - p->reader.low || !sys_readable(pc))
            return false;
        if (!p->known_count)
            p->known_count = p->count;
    }
    if (p->count == p->max) {
        p->flags |= UNWIND_CUT;
        return false;
    }
    p->purity =
        purity_after(p->purity, module && module->object->is_system, module != NULL, p->count == 0);
    p->pcs[p->count++] = pc;
    return true;
}

/* Goes to the caller; false where the walk ends. */
static bool step(struct place *p)
{
    uintptr_t fp = register_now(p, LIBUNWIND_FP), sp = register_now(p, LIBUNWIND_SP);
    p->is_found = true; /* unless it is looked for, and is not */
    int result = libunwind.step(cursor(p));
    if (result > 0 && register_now(p, LIBUNWIND_PC) != 0) {
        p->exact = libunwind.is_signal_frame(cursor(p)) > 0;
        if (p->exact) {
            p->flags |= UNWIND_INTERRUPTED;
            p->purity = IMPURE;
        }
        p->switched |= register_now(p, LIBUNWIND_SP) <= sp;
        return true;
    }
    /* Told by a rule, or, in the loader's entry code, which has none, by a frame pointer of 0. */
    if (result >= 0 && (p->is_found || (p->module && fp == 0)))
        p->flags |= UNWIND_COMPLETE;
    return false;
}

static void walk_frames(void *data)
{
    struct place *p = data;
    uintptr_t pc = p->regs->r[UNWIND_PC] - !p->exact;
    p->regs->r[UNWIND_PC] = pc;
    if (libunwind.init_remote(cursor(p), p->exact ? forgetting : p->keeping, p) < 0)
        return;
    for (bool innermost = true;; innermost = false) {
        bool was_exact = p->exact;
        p->module = modules_find(p->list, pc);
        if (!p->module)
            modules_want_rescan();
        if (!record(p, pc, innermost) || !step(p))
            return;
        pc = register_now(p, LIBUNWIND_PC) - !p->exact;
        if (was_exact != p->exact && !change_space(p, p->exact ? forgetting : p->keeping))
            return;
    }
}

static uint32_t walk_in(struct place *p, struct unwind_regs *regs, bool exact,
                        struct unwind_stack *home, uint64_t *pcs, uint32_t max, uint32_t *flags,
                        uint32_t *generation)
{
    p->regs = regs;
    p->valid = (1ull << UNWIND_REGS) - 1;
    p->list = load_acquire(&modules_list);
    p->reads_left = READS_MAX;
    p->pcs = pcs;
    p->max = max;
    p->count = p->known_count = p->flags = p->self_frames = 0;
    p->purity = PURE_APP;
    p->switched = p->is_searching = false;
    p->exact = exact;
    if (p->publication != p->list->publication) {
        p->publication = p->list->publication;
        libunwind.flush_cache(p->keeping, 0, 0);
    }
    stack_reader_start(&p->reader, home, regs->r[UNWIND_SP]);
    void *mark;
    scratch_stack_call(walk_frames, p, p, &mark);
    if (p->known_count)
        p->count = p->known_count;
    p->flags |= purity_flag(p->purity, p->flags, p->count, p->switched ? NULL : &p->reader);
    *flags = p->flags;
    *generation = p->list->generation;
    return p->count;
}

/* The number of a place that was free, or PLACES. */
static uint32_t take_place(void)
{
    uint32_t now = load_relaxed(&taken);
    uint32_t index;
    do {
        index = (uint32_t)__builtin_ctz(~now);
        if (index >= PLACES)
            return PLACES;
    } while (!__atomic_compare_exchange_n(&taken, &now, now | 1u << index, true, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED));
    return index;
}

static void give_place(uint32_t index)
{
    __atomic_fetch_and(&taken, ~(1u << index), __ATOMIC_RELEASE);
}

static const uint64_t signals_that_wait = SIGNALS_THAT_WAIT;

static uint32_t libunwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home,
                               uint64_t *pcs, uint32_t max, uint32_t *flags, uint32_t *generation)
{
    uint64_t mask;
    uint32_t count;
    /* Before one is taken: a handler of the app's that comes in between may never come back. */
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &signals_that_wait, &mask, sizeof(mask));
    uint32_t index = take_place();
    if (index < PLACES) {
        int kept_errno = errno;
        count = walk_in(place_at(index), regs, exact, home, pcs, max, flags, generation);
        errno = kept_errno;
        give_place(index);
    } else {
        stats_add(STAT_UNWIND_NOT_LIBUNWIND, 1);
        count = unwind_walk(regs, exact, home, pcs, max, flags, generation);
    }
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    return count;
}

/* ---- start ---- */

static void *open_library(void)
{
    /* The second name is that of a folder with the header files, too. */
    static const char *const names[] = {"libunwind-" LIBUNWIND_TARGET ".so.8",
                                        "libunwind-" LIBUNWIND_TARGET ".so"};
    void *handle = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !handle; i++)
        handle = next.dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static int find_functions(void)
{
    if (!next.dlopen || !next.dlsym)
        return -ENOSYS;
    void *handle = open_library();
    bool all = handle != NULL;
/* NOLINTBEGIN(bugprone-macro-parentheses): a type can have none */
#define X(type, name, parameters)                                                                  \
    if (all) {                                                                                     \
        libunwind.name = (type(*) parameters)next.dlsym(handle, "_U" LIBUNWIND_TARGET "_" #name);  \
        all = libunwind.name != NULL;                                                              \
    }
    LIBUNWIND_FUNCTIONS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
    /* The app is not to find our failure in dlerror. */
    if (!all && next.dlerror)
        next.dlerror();
    return all ? 0 : -ENOENT;
}

static int make_places(void)
{
    places = arena_reserve((size_t)PLACES * PLACE_BYTES);
    forgetting = libunwind_make_space();
    if (!places || !forgetting)
        return -ENOMEM;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct place *p = place_at(i);
        p->keeping = keeping[i] = libunwind_make_space();
        if (!p->keeping)
            return -ENOMEM;
        libunwind.set_caching_policy(p->keeping, LIBUNWIND_CACHE_OF_SPACE);
        sys_call3(SYS_mprotect, places + (size_t)i * PLACE_BYTES, PAGE_SIZE_MIN, PROT_NONE);
    }
    return 0;
}

/* Some versions open a pipe at their first walk, for the probes that are not made here. It would
 * have the program's numbers, for good; so it gets none (shim/pipe_hooks.c). A program that walks
 * by this library itself gets one then: a closed pipe is opened anew at each probe. */
static int pipe_refused_to;

bool unwinder_refuses_pipe(void)
{
    int tid = load_relaxed(&pipe_refused_to);
    return unlikely(tid != 0) && tid == sys_tid();
}

/* Walks from here by both. */
static __attribute__((noinline)) int test_self(void)
{
    uint64_t ours[SELF_TEST_FRAMES], theirs[SELF_TEST_FRAMES];
    uint32_t flags, generation;
    struct unwind_regs regs;
    uintptr_t top = ALIGN_UP((uintptr_t)__builtin_frame_address(0), (uintptr_t)PAGE_SIZE_MIN);
    struct unwind_stack home = {top, top};
    unwind_regs_here(&regs);
    struct unwind_regs same = regs;
    uint32_t our_count =
        unwind_walk(&regs, false, &home, ours, SELF_TEST_FRAMES, &flags, &generation);
    home.low = home.high = top;
    uint32_t count =
        walk_in(place_at(0), &same, false, &home, theirs, SELF_TEST_FRAMES, &flags, &generation);
    return count == our_count && memcmp(ours, theirs, count * sizeof(ours[0])) == 0 ? 0 : -EPROTO;
}

static int start_once(void)
{
    int error = find_functions();
    if (error) {
        log_warn("LIBAGENT_UNWINDER=libunwind: libunwind-" LIBUNWIND_TARGET
                 ".so.8 is not installed (Debian: libunwind8): stacks are walked by cfi");
        return error;
    }
    store_relaxed(&pipe_refused_to, sys_tid());
    error = make_places();
    if (!error) {
        /* Its own objects, so that the list is as the loader's. */
        (void)!modules_rescan();
        error = test_self();
    }
    store_relaxed(&pipe_refused_to, 0);
    if (error == -ENOENT)
        log_warn("LIBAGENT_UNWINDER=libunwind cannot be used: libunwind-" LIBUNWIND_TARGET ".so.8 "
                 "is not there, or lacks a function: stacks are walked by cfi");
    else if (error == -EPROTO)
        log_warn("LIBAGENT_UNWINDER=libunwind: this version of libunwind cannot be used, its walk "
                 "differs from the agent's own: stacks are walked by cfi");
    else if (error)
        log_warn(
            "LIBAGENT_UNWINDER=libunwind cannot be used: %s (errno %d): stacks are walked by cfi",
            error_text(error), -error);
    return error;
}

/* The agent may start again, with the library open and its places made; and it may start in a
 * thread of its own, which cannot call the loader. */
static int libunwind_start(void)
{
    static bool was_tried;
    static int outcome;
    if (!was_tried && thread_tls.internal) {
        log_warn_once(
            "LIBAGENT_UNWINDER=libunwind takes a start by the program, or with it: stacks are "
            "walked by cfi");
        return -EBUSY;
    }
    if (!was_tried)
        outcome = start_once();
    was_tried = true;
    return outcome;
}

const struct unwinder unwinder_libunwind = {
    .name = "libunwind",
    .start = libunwind_start,
    .walk = libunwind_walk,
};
