#include "agent/unwind/module_history.h"

#include <errno.h>

#include "agent/base/arena.h"

/* One entry for each executable segment that was ever loaded somewhere: large programs have
 * some hundred. */
enum { HISTORY_MAX = 4096 };

struct entry {
    struct module module;
    uint32_t first, last; /* generations; UINT32_MAX: open */
    uint64_t order;       /* of arrival */
};

static struct {
    struct entry *entries;
    uint32_t count;
    uint64_t arrivals;
} history;

int history_start(void)
{
    if (!history.entries)
        history.entries = arena_reserve(HISTORY_MAX * sizeof(struct entry));
    return history.entries ? 0 : -ENOMEM;
}

static bool overlap(const struct module *a, const struct module *b)
{
    return a->start < b->end && b->start < a->end;
}

static bool same(const struct module *a, const struct module *b)
{
    return a->object == b->object && a->bias == b->bias && a->start == b->start;
}

bool history_conflicts(const struct module *module)
{
    for (uint32_t i = 0; i < history.count; i++) {
        const struct entry *e = &history.entries[i];
        if (e->last == UINT32_MAX && overlap(&e->module, module) && !same(&e->module, module))
            return true;
    }
    return false;
}

static struct entry *take_entry(void)
{
    if (history.count < HISTORY_MAX)
        return &history.entries[history.count++];
    struct entry *oldest = &history.entries[0];
    for (uint32_t i = 1; i < HISTORY_MAX; i++) {
        struct entry *e = &history.entries[i];
        if (e->last < oldest->last || (e->last == oldest->last && e->order < oldest->order))
            oldest = e;
    }
    return oldest;
}

void history_add(const struct module *module, uint32_t generation)
{
    for (uint32_t i = 0; i < history.count; i++) {
        struct entry *e = &history.entries[i];
        if (e->last != UINT32_MAX || !overlap(&e->module, module))
            continue;
        if (same(&e->module, module))
            return;
        e->last = generation - 1;
    }
    *take_entry() = (struct entry){
        .module = *module, .first = generation, .last = UINT32_MAX, .order = history.arrivals++};
}

struct module_address history_resolve(uint32_t generation, uintptr_t pc)
{
    for (uint32_t i = 0; i < history.count; i++) {
        const struct entry *e = &history.entries[i];
        if (pc >= e->module.start && pc < e->module.end && generation >= e->first &&
            generation <= e->last)
            return (struct module_address){e->module.object, pc - e->module.bias};
    }
    return (struct module_address){NULL, 0};
}

#ifdef LIBAGENT_TEST
void history_forget(void)
{
    history.count = 0;
}
#endif
