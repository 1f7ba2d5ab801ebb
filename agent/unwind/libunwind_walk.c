/* The walk by libunwind, in any context, although libunwind is not made for that.
 *
 *  1. The library is opened at the start, for itself (RTLD_LOCAL: it exports _Unwind_* and
 *     backtrace, which would take over the app's exceptions) and at once (RTLD_NOW: no binding in a
 *     sample). A walk there makes what it makes at its first call, and must give what cfi gives.
 *  2. It walks an address space of ours: it looks for procedures, reads memory and registers by
 *     functions of this file alone. So it never asks the loader, keeps nothing for a thread, makes
 *     no probe of its own, and reads tables within their bounds (where the registry has them) and
 *     the stack as cfi does (stack_reader). It keeps no rules: its cache takes an interrupted
 *     instruction for a return address of the same value.
 *  3. For each frame it takes and gives back a buffer under a mutex, with signals blocked: all but
 *     those that libc keeps, of which the agent's is one. So only one thread is in it at a time,
 *     with that one blocked too; whoever finds it taken is walked by cfi, counted. Nobody waits.
 *  4. A fork waits until it is free, or its mutex could be held in the child for ever; where that
 *     takes too long, the child does without it.
 *  5. It runs on a stack of its own, as it needs about 6 KiB.
 *
 * What remains: tables that lie (it takes the number of some registers from them unchecked, so cfi
 * reads each row first), and a program that puts its own sigprocmask or pthread_mutex_lock in front
 * of libc's has them called in samples. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/scratch_stack.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/libunwind_api.h"
#include "agent/unwind/stack_purity.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwinder.h"

enum {
    STACK_BYTES = 64 << 10,
    CURSOR_BYTES = 8 << 10, /* 1016 on x86-64 in all versions so far, 4096 on aarch64 */
    /* Reads in one walk: 1,024 frames of the longest programs seen take a fifth. What circles in a
     * broken table ends after some ms. */
    READS_MAX = 1 << 20,
    SELF_TEST_FRAMES = 64,
    SELF_FRAMES_MAX = 64, /* of libagent.so in one walk */
};

/* Where an object's index is, for libunwind: no address of a process. */
static const uintptr_t index_address = (uintptr_t)0xf << 60;
/* A fork waits so long at most for a walk of another thread, which takes less than that by far,
 * unless the kernel gives that thread no time. */
static const uint64_t fork_wait_ns = 20 * NS_PER_MS;

/* All that a walk needs, for one walk at a time. */
static struct {
    struct unwind_regs *regs;
    const struct module_list *list;
    struct stack_reader reader;
    const struct module *module; /* whose tables are read */
    bool is_found, is_searching;
    uint32_t reads_left;
    uint64_t *pcs;
    uint32_t max, count, known_count, flags, self_frames;
    enum purity purity;
    bool switched; /* stacks */
    bool exact;
    uint8_t cursor[CURSOR_BYTES] __attribute__((aligned(16)));
} walk;

static struct libunwind_functions functions;
static struct libunwind_space *space;
static uint8_t *stack;
static uint32_t busy;
static bool held_for_fork, lost;

/* ---- the address space ---- */

/* The aligned word at `address`, as far as it lies in `table` at `start`; zero beyond. */
static bool table_word(const uint8_t *data, size_t size, uintptr_t start, uintptr_t address,
                       uintptr_t *value)
{
    uintptr_t offset = address - start;
    *value = 0;
    if (likely(offset < size && size - offset >= sizeof(*value))) {
        memcpy(value, data + offset, sizeof(*value));
        return true;
    }
    bool any = false;
    for (size_t i = 0; i < sizeof(*value); i++) {
        if (offset + i >= size)
            continue;
        *value |= (uintptr_t)data[offset + i] << 8 * i;
        any = true;
    }
    return any;
}

static int access_memory(struct libunwind_space *unused_space, uintptr_t address, uintptr_t *value,
                         int write, void *unused)
{
    (void)unused_space;
    (void)unused;
    if (write || walk.reads_left == 0)
        return -LIBUNWIND_INVALID;
    walk.reads_left--;
    if (walk.module) {
        const struct object *object = walk.module->object;
        if (table_word(object->eh_frame.data, object->eh_frame.size,
                       walk.module->bias + object->eh_frame.vaddr, address, value))
            return 0;
        if (walk.is_searching && table_word(object->fde_index, (size_t)object->fde_count * 8,
                                            index_address, address, value))
            return 0;
    }
    /* Of all else that a table may point at (what handles an exception) nothing is needed. */
    if (walk.is_searching) {
        *value = 0;
        return 0;
    }
    return stack_read(&walk.reader, address, value) ? 0 : -LIBUNWIND_INVALID;
}

static int access_register(struct libunwind_space *unused_space, int number, uintptr_t *value,
                           int write, void *unused)
{
    (void)unused_space;
    (void)unused;
    if (write)
        return -LIBUNWIND_BAD_REGISTER;
    if (number < 0 || number > LIBUNWIND_PC)
        return -LIBUNWIND_BAD_REGISTER;
    /* Up to the stack pointer, and further on x86-64, both count as DWARF does. */
    *value = walk.regs->r[number == LIBUNWIND_PC ? UNWIND_PC : number];
    return 0;
}

static int access_float(struct libunwind_space *unused_space, int number, void *value, int write,
                        void *unused)
{
    (void)unused_space;
    (void)number;
    (void)value;
    (void)write;
    (void)unused;
    return -LIBUNWIND_BAD_REGISTER;
}

/* Does cfi understand the row? */
static bool is_sound(const struct object *object, uint64_t vaddr)
{
    struct cfi_row row;
    if (!object->fde_count || cfi_row_at(object, vaddr, &row) != 0)
        return false;
    for (int i = 0; i < UNWIND_REGS; i++)
        if (row.kind[i] == CFI_REGISTER && (row.value[i] < 0 || row.value[i] >= UNWIND_REGS))
            return false;
    return true;
}

static int find_procedure(struct libunwind_space *own, uintptr_t pc,
                          struct libunwind_procedure *procedure, int needs_tables, void *argument)
{
    const struct module *module = modules_find(walk.list, pc);
    walk.module = module;
    walk.is_found = false;
    if (!module || !is_sound(module->object, pc - module->bias))
        return -LIBUNWIND_NO_INFO;
    const struct object *object = module->object;
    struct libunwind_table table = {
        .start = module->start,
        .end = module->end,
        .format = LIBUNWIND_REMOTE_TABLE,
        .base = module->bias + object->eh_frame_hdr.vaddr,
        .words = object->fde_count,
        .data = index_address,
    };
    walk.is_searching = true;
    int error =
        functions.dwarf_search_unwind_table(own, pc, &table, procedure, needs_tables, argument);
    walk.is_searching = false;
    walk.is_found = error >= 0;
    return error;
}

static void put_procedure(struct libunwind_space *unused_space,
                          struct libunwind_procedure *procedure, void *unused)
{
    (void)unused_space;
    (void)procedure;
    (void)unused;
}

static int find_dynamic_list(struct libunwind_space *unused_space, uintptr_t *address, void *unused)
{
    (void)unused_space;
    (void)address;
    (void)unused;
    return -LIBUNWIND_NO_INFO;
}

/* ---- the walk ---- */

static struct libunwind_cursor *cursor(void)
{
    return (struct libunwind_cursor *)(void *)walk.cursor;
}

static uintptr_t register_now(int number)
{
    uintptr_t value = 0;
    return functions.get_reg(cursor(), number, &value) < 0 ? 0 : value;
}

/* Writes the frame down; false: the walk ends here. */
static bool record(uintptr_t pc, const struct module *module, bool innermost)
{
    if (pc - modules_self_start < modules_self_end - modules_self_start) {
        if (innermost)
            walk.flags |= UNWIND_LEAF_SELF;
        return walk.self_frames++ < SELF_FRAMES_MAX;
    }
    if (module) {
        walk.known_count = 0;
    } else if (!innermost) {
        /* At least memory, and not the stack; and it must lead to known code in the end. */
        if (pc - walk.reader.low < walk.reader.high - walk.reader.low || !sys_readable(pc))
            return false;
        if (!walk.known_count)
            walk.known_count = walk.count;
    }
    if (walk.count == walk.max) {
        walk.flags |= UNWIND_CUT;
        return false;
    }
    walk.purity = purity_after(walk.purity, module && module->object->is_system, module != NULL,
                               walk.count == 0);
    walk.pcs[walk.count++] = pc;
    return true;
}

/* Goes to the caller; false where the walk ends. */
static bool step(uintptr_t sp, const struct module *module)
{
    uintptr_t fp = register_now(LIBUNWIND_FP);
    int result = functions.step(cursor());
    if (result > 0 && register_now(LIBUNWIND_PC) != 0) {
        walk.exact = functions.is_signal_frame(cursor()) > 0;
        if (walk.exact) {
            walk.flags |= UNWIND_INTERRUPTED;
            walk.purity = IMPURE;
        }
        walk.switched |= register_now(LIBUNWIND_SP) <= sp;
        return true;
    }
    /* Told by a rule, or, in the loader's entry code, which has none, by a frame pointer of 0. */
    if (result >= 0 && (walk.is_found || (module && fp == 0)))
        walk.flags |= UNWIND_COMPLETE;
    return false;
}

static void walk_frames(void *unused)
{
    (void)unused;
    if (functions.init_remote(cursor(), space, NULL) < 0)
        return;
    for (bool innermost = true;; innermost = false) {
        uintptr_t pc = register_now(LIBUNWIND_PC) - !walk.exact;
        const struct module *module = modules_find(walk.list, pc);
        /* The pc must be an address at all, before libunwind reads code there. */
        if (!record(pc, module, innermost) || !step(register_now(LIBUNWIND_SP), module))
            return;
    }
}

static uint32_t walk_alone(struct unwind_regs *regs, bool exact, struct unwind_stack *home,
                           uint64_t *pcs, uint32_t max, uint32_t *flags, uint32_t *generation)
{
    walk.regs = regs;
    walk.list = load_acquire(&modules_list);
    walk.module = NULL;
    walk.reads_left = READS_MAX;
    walk.pcs = pcs;
    walk.max = max;
    walk.count = walk.known_count = walk.flags = walk.self_frames = 0;
    walk.purity = PURE_APP;
    walk.switched = false;
    walk.exact = exact;
    stack_reader_start(&walk.reader, home, regs->r[UNWIND_SP]);
    void *mark;
    scratch_stack_call(walk_frames, NULL, stack + STACK_BYTES, &mark);
    if (walk.known_count)
        walk.count = walk.known_count;
    bool whole = walk.flags & UNWIND_COMPLETE && !(walk.flags & UNWIND_INTERRUPTED);
    if (whole && !walk.switched && stack_reader_adopt(&walk.reader) && walk.purity != IMPURE &&
        walk.count)
        walk.flags |= UNWIND_CLEAN;
    *flags = walk.flags;
    *generation = walk.list->generation;
    return walk.count;
}

static bool enter(void)
{
    uint32_t is_free = 0;
    return __atomic_compare_exchange_n(&busy, &is_free, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* As during the agent's handler: faults are still shown to the app's handlers, and libc's signal
 * 33 changes the user id. */
#define SIGNAL_BIT(number) ((uint64_t)1 << ((number)-1))
static const uint64_t signals_that_wait =
    ~(SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) |
      SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGSYS) | SIGNAL_BIT(33));

static uint32_t libunwind_walk(struct unwind_regs *regs, bool exact, struct unwind_stack *home,
                               uint64_t *pcs, uint32_t max, uint32_t *flags, uint32_t *generation)
{
    uint64_t mask;
    uint32_t count;
    /* Before it is taken: a handler of the app's that comes in between may never come back. */
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &signals_that_wait, &mask, sizeof(mask));
    if (!lost && enter()) {
        int kept_errno = errno;
        count = walk_alone(regs, exact, home, pcs, max, flags, generation);
        errno = kept_errno;
        store_release(&busy, 0);
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
        functions.name = (type(*) parameters)next.dlsym(handle, "_U" LIBUNWIND_TARGET "_" #name);  \
        all = functions.name != NULL;                                                              \
    }
    LIBUNWIND_FUNCTIONS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
    /* The app is not to find our failure in dlerror. */
    if (!all && next.dlerror)
        next.dlerror();
    return all ? 0 : -ENOENT;
}

static int make_stack(void)
{
    stack = arena_reserve(STACK_BYTES);
    if (!stack)
        return -ENOMEM;
    return (int)sys_call3(SYS_mprotect, stack, PAGE_SIZE_MIN, PROT_NONE);
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
    uint32_t count = walk_alone(&same, false, &home, theirs, SELF_TEST_FRAMES, &flags, &generation);
    return count == our_count && memcmp(ours, theirs, count * sizeof(ours[0])) == 0 ? 0 : -EPROTO;
}

static int libunwind_start(void)
{
    static struct libunwind_accessors accessors = {
        .find_procedure = find_procedure,
        .put_procedure = put_procedure,
        .find_dynamic_list = find_dynamic_list,
        .access_memory = access_memory,
        .access_register = access_register,
        .access_float = access_float,
    };
    int error = find_functions();
    if (error) {
        log_warn("libunwind-" LIBUNWIND_TARGET ".so.8 is not installed: stacks are walked by cfi");
        return error;
    }
    error = make_stack();
    space = error ? NULL : functions.create_addr_space(&accessors, 0);
    if (!error && !space)
        error = -ENOMEM;
    if (!error) {
        /* Its own objects, so that the list is as the loader's. */
        (void)!modules_rescan();
        error = test_self();
    }
    if (error)
        log_warn("this version of libunwind cannot be used (error %d): stacks are walked by cfi",
                 -error);
    return error;
}

/* ---- fork ---- */

static void before_fork(void)
{
    static const struct timespec pause = {0, 50000};
    uint64_t deadline = clock_monotonic_ns() + fork_wait_ns;
    while (!(held_for_fork = enter()) && clock_monotonic_ns() < deadline)
        sys_call2(SYS_nanosleep, &pause, NULL);
}

static void after_fork(bool in_child)
{
    if (held_for_fork)
        store_release(&busy, 0);
    else if (in_child)
        lost = true;
}

const struct unwinder unwinder_libunwind = {
    .name = "libunwind",
    .start = libunwind_start,
    .walk = libunwind_walk,
    .before_fork = before_fork,
    .after_fork = after_fork,
};
