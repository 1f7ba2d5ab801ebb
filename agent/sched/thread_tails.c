#include "agent/sched/thread_tails.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/nap.h"

/* Programs have few kinds of short threads; others are told of at once. */
enum { KINDS_MAX = 64 };

static struct {
    struct thread_label label; /* its name; they are several threads */
    uint64_t routine;
    uint64_t sum_ns;
} kinds[KINDS_MAX];
static uint32_t count;
static uint32_t is_busy;

void thread_tails_start(void)
{
    count = 0;
    is_busy = 0;
}

static uint32_t kind_of(const struct thread_slot *slot)
{
    uint32_t i = 0;
    while (i < count &&
           (kinds[i].routine != slot->start_routine ||
            memcmp(kinds[i].label.name, slot->label.name, sizeof(slot->label.name)) != 0))
        i++;
    return i;
}

static void begin(uint32_t kind, const struct thread_slot *slot)
{
    memcpy(kinds[kind].label.name, slot->label.name, sizeof(slot->label.name));
    kinds[kind].routine = slot->start_routine;
    kinds[kind].sum_ns = 0;
    store_relaxed(&count, count + 1);
}

bool thread_tails_add(const struct thread_slot *slot, uint64_t amount_ns)
{
    if (exchange_acq_rel(&is_busy, 1))
        return false;
    uint32_t kind = kind_of(slot);
    bool has_place = kind < KINDS_MAX;
    if (has_place && kind == count)
        begin(kind, slot);
    if (has_place)
        kinds[kind].sum_ns += amount_ns;
    store_release(&is_busy, 0);
    return has_place;
}

uint64_t thread_tails_take(const struct thread_slot *slot, uint64_t most_ns)
{
    uint64_t taken = 0;
    if (load_relaxed(&count) == 0 || exchange_acq_rel(&is_busy, 1))
        return 0;
    uint32_t kind = kind_of(slot);
    if (kind < count) {
        taken = MIN_OF(most_ns, kinds[kind].sum_ns);
        kinds[kind].sum_ns -= taken;
    }
    store_release(&is_busy, 0);
    return taken;
}

void thread_tails_tell(void (*tell)(const struct thread_label *label, uint64_t routine,
                                    uint64_t amount_ns))
{
    uint64_t deadline_ns = clock_monotonic_ns() + NS_PER_SEC;
    while (exchange_acq_rel(&is_busy, 1))
        if (!nap_before(deadline_ns)) /* a handler that ends the process: the next window has it */
            return;
    for (uint32_t i = 0; i < count; i++)
        tell(&kinds[i].label, kinds[i].routine, kinds[i].sum_ns);
    store_relaxed(&count, 0);
    store_release(&is_busy, 0);
}
