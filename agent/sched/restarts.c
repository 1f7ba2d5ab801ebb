#include "agent/sched/restarts.h"

#include <string.h>
#include <sys/resource.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"
#include "agent/unwind/unwind.h"

enum {
    PATIENCE = 2,     /* by chance a thread that gets on is met twice at the same place */
    STRETCH_BITS = 9, /* 512 times: 5 s at the default rate */
};

/* The kernel steps back to the instruction when the call is to begin anew, with the call's number
 * where the instruction takes it from. In a loop that is met twice at the same place there is
 * rarely so small a number; only then is memory asked for. */
static bool is_system_call(const struct unwind_regs *regs)
{
    enum { NUMBERS_END = 1024 }; /* no kernel has more calls */
    uintptr_t pc = regs->r[UNWIND_PC];
#if defined(__x86_64__)
    static const uint8_t instruction[] = {0x0f, 0x05};
    enum { NUMBER = 0, X32 = 0x40000000 };
    uint32_t number = (uint32_t)regs->r[NUMBER] & ~(uint32_t)X32;
#elif defined(__aarch64__)
    static const uint8_t instruction[] = {0x01, 0x00, 0x00, 0xd4};
    enum { NUMBER = 8 };
    uint32_t number = (uint32_t)regs->r[NUMBER];
#endif
    if (number >= NUMBERS_END || !sys_readable(pc))
        return false;
    uintptr_t last = pc + sizeof(instruction) - 1;
    return (last % PAGE_SIZE_MIN >= sizeof(instruction) - 1 || sys_readable(last)) &&
           memcmp((const void *)pc, instruction, sizeof(instruction)) == 0;
}

/* How often the calling thread gave up its processor to wait. */
static uint16_t waits(void)
{
    struct rusage usage = {0};
    sys_call2(SYS_getrusage, RUSAGE_THREAD, &usage);
    return (uint16_t)usage.ru_nvcsw;
}

void restarts_at_sample(struct thread_slot *slot, const void *ucontext)
{
    struct unwind_regs regs;
    unwind_regs_from_context(&regs, ucontext);
    uintptr_t pc = regs.r[UNWIND_PC];
    if (likely((uint32_t)pc != slot->last_pc)) {
        slot->last_pc = (uint32_t)pc;
        store_relaxed(&slot->restarts, 0);
        return;
    }
    uint16_t waited = is_system_call(&regs) ? waits() : (uint16_t)~slot->last_waits;
    if (waited != slot->last_waits)
        store_relaxed(&slot->restarts, 0);
    else if (slot->restarts < PATIENCE + STRETCH_BITS)
        store_relaxed(&slot->restarts, (uint8_t)(slot->restarts + 1));
    slot->last_waits = waited;
}

/* How many times rarer the thread is sampled, as a power of two. */
static uint32_t stretch_bits(const struct thread_slot *slot)
{
    uint32_t restarts = load_relaxed(&slot->restarts);
    return restarts > PATIENCE ? restarts - PATIENCE : 0;
}

uint64_t restarts_interval_ns(const struct thread_slot *slot, uint64_t interval_ns)
{
    return interval_ns << stretch_bits(slot);
}

bool restarts_allow(const struct thread_slot *slot, uint32_t number)
{
    return number % (1u << stretch_bits(slot)) == 0;
}
