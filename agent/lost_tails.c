#include "agent/lost_tails.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/sched/cpu_sample.h"

/* Programs have few such routines; the time of those that have no place stays nobody's. */
enum { ROUTINES_MAX = 64 };

/* One would do, but for programs that share a processor with others, which have most of its ticks:
 * threads of 20 ms at 1 kHz used 2.6 ticks after their last sample there, on average. Threads that
 * were found by a look have others beside them that were not, whose time is not to be theirs. */
enum { TICKS_OF_CLONED = 4, TICKS_OF_FOUND = 1 };

static struct {
    struct thread_label label; /* its name; they are several threads */
    uint64_t from[OUTERMOST];
    uint64_t most_ns;
} tails[ROUTINES_MAX];
static uint32_t count;
static uint64_t sum_ns; /* of all `most_ns` */
static uint32_t is_busy;

void lost_tails_start(void)
{
    count = 0;
    sum_ns = 0;
    is_busy = 0;
}

static void add(const struct thread_slot *slot, const uint64_t from[OUTERMOST], uint64_t most_ns)
{
    uint32_t i = 0;
    while (i < count &&
           (memcmp(tails[i].from, from, sizeof(tails[i].from)) != 0 ||
            memcmp(tails[i].label.name, slot->label.name, sizeof(slot->label.name)) != 0))
        i++;
    if (i == ROUTINES_MAX)
        return;
    if (i == count) {
        count++;
        memcpy(tails[i].from, from, sizeof(tails[i].from));
        memcpy(tails[i].label.name, slot->label.name, sizeof(slot->label.name));
        tails[i].most_ns = 0;
    }
    tails[i].most_ns += most_ns;
    sum_ns += most_ns;
}

void lost_tails_add(const struct thread_slot *slot)
{
    uint64_t from[OUTERMOST];
    cpu_sample_outermost(slot, from);
    uint64_t interval = (uint64_t)load_relaxed(&slot->interval_us) * 1000;
    /* One that was found, and never sampled; one that never had a timer. */
    if (from[0] == 0 || interval == 0 || exchange_acq_rel(&is_busy, 1))
        return;
    uint64_t ticks = slot->start_routine ? TICKS_OF_CLONED : TICKS_OF_FOUND;
    add(slot, from, interval + ticks * clock_tick_ns());
    store_release(&is_busy, 0);
}

uint64_t lost_tails_tell(uint64_t unseen_ns)
{
    if (exchange_acq_rel(&is_busy, 1))
        return unseen_ns;
    uint64_t left = MIN_OF(unseen_ns, sum_ns);
    unseen_ns -= left;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t amount = (uint64_t)((unsigned __int128)left * tails[i].most_ns / sum_ns);
        cpu_sample_add_lost_tail(&tails[i].label, tails[i].from, amount);
        sum_ns -= tails[i].most_ns;
        left -= amount;
    }
    count = 0;
    store_release(&is_busy, 0);
    return unseen_ns;
}
