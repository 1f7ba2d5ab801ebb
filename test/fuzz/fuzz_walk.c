/* The walks, by call frame information and by frame pointers, over the true objects of this
 * process, from registers and a stack of any content.
 *
 * Input: words that may stand in either (see word_of); the first is whether the pc is exact,
 * whether the stack is known, and which walk; then the registers, then the stack, which ends where
 * memory does. */
#include "test/fuzz/fuzz_input.h"

#include <link.h>
#include <signal.h>

#include "agent/base/sys.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"
#include "agent/unwind/unwinder.h"

enum {
    STACK_MAX = 64 << 10,
    FRAMES = 128,
    /* Of one walk: 4096 of its stack, once more where it starts anew, and some for each frame; by
     * frame pointers that twice, and the stack a third time. */
    PROBES_MAX = 2 * (2 * 4096 + 4 * FRAMES) + 4096,
};

static struct fuzz_region stack;
static uintptr_t real[FRAMES]; /* return addresses */
static uint32_t real_count;
static uintptr_t trampoline;
static uint32_t probes;

/* Readable is what the walk may read: the stack, and code. */
static bool answer_probe(long number, const long args[6], long *result)
{
    if (number != SYS_rt_sigprocmask)
        return false;
    uintptr_t address = (uintptr_t)args[1];
    probes++;
    bool good = fuzz_region_holds(&stack, address) || modules_find(modules_list, address);
    *result = good ? -22 : -14;
    return true;
}

static void start(void)
{
    static uint64_t pcs[FRAMES];
    struct unwind_stack home;
    struct unwind_regs regs;
    uint32_t flags, generation;
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } action;
    stack = fuzz_region_make(STACK_MAX);
    EXPECT(modules_start(dl_iterate_phdr) == 0 && unwind_start() == 0);
    unwind_regs_here(&regs);
    home.low = home.high = (uintptr_t)__builtin_frame_address(0);
    real_count = unwind_walk(&regs, true, &home, pcs, FRAMES, &flags, &generation);
    EXPECT(real_count > 3);
    for (uint32_t i = 0; i < real_count; i++)
        real[i] = (uintptr_t)pcs[i] + 1;
    /* libc's, as the kernel has it: code that a signal frame is above. */
    signal(SIGUSR2, SIG_IGN);
    EXPECT(sys_raw6(SYS_rt_sigaction, SIGUSR2, 0, (long)&action, 8, 0, 0) == 0);
    trampoline = (uintptr_t)action.restorer;
    sys_override = answer_probe;
}

/* The upper byte says what the others are, so that an input means the same wherever objects are
 * loaded. */
static uintptr_t word_of(uint64_t code)
{
    uint64_t low = code & 0xffffffffffff;
    const struct module *m = &modules_list->modules[(code >> 48 & 0xff) % modules_list->count];
    switch (code >> 56 & 7) {
    case 0:
        return low;
    case 1:
        return m->start + low % (m->end - m->start);
    case 2:
        return (uintptr_t)stack.end - (low & 0xffff);
    case 3:
        return (uintptr_t)stack.end - (low & 0x1fff) * 8;
    case 4:
        return real[low % real_count];
    case 5:
        return trampoline;
    case 6:
        return UINTPTR_MAX - low;
    default:
        return code << 8;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!stack.base)
        start();
    struct fuzz_input input = {data, size};
    uint64_t word;
    struct unwind_regs regs;
    fuzz_take(&input, &word, sizeof(word));
    bool exact = word & 1, at_home = word & 2, by_frame_pointers = word & 4;
    for (int i = 0; i < UNWIND_REGS; i++) {
        uint64_t code;
        fuzz_take(&input, &code, sizeof(code));
        regs.r[i] = word_of(code);
    }
    size_t words = MIN_OF(input.left, (size_t)STACK_MAX) / 8;
    uintptr_t *low = (uintptr_t *)(void *)stack.end - words;
    for (size_t i = 0; i < words; i++) {
        fuzz_take(&input, &word, sizeof(word));
        low[i] = word_of(word);
    }
    struct unwind_stack home = {at_home ? (uintptr_t)low : (uintptr_t)stack.end,
                                (uintptr_t)stack.end};
    static uint64_t pcs[FRAMES + 1];
    uint32_t flags, generation;
    pcs[FRAMES] = 77;
    probes = 0;
    modules_stale = 1; /* no asking for a rescan at each unknown pc */
    uint32_t count = (by_frame_pointers ? unwinder_frame_pointers.walk : unwind_walk)(
        &regs, exact, &home, pcs, FRAMES, &flags, &generation);
    EXPECT(count > 0 && count <= FRAMES && pcs[FRAMES] == 77);
    EXPECT(!(flags & UNWIND_COMPLETE) || !(flags & UNWIND_CUT));
    EXPECT(home.high == (uintptr_t)stack.end && home.low >= (uintptr_t)stack.base);
    EXPECT(probes <= PROBES_MAX);
    return 0;
}
