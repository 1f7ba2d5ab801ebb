#include "agent/unwind/module_history.h"

#include <errno.h>
#ifdef LIBAGENT_TEST
#include <string.h>
#endif

#include "agent/base/arena.h"

enum {
    /* One for each executable segment that was ever loaded somewhere: large programs have some
     * hundred. */
    OPEN_MAX = 4096,
    /* One for each time that addresses were used again. */
    CLOSED_MAX = 2048,
};

struct entry {
    struct module module;
    uint32_t first, last; /* generations */
    uint64_t order;       /* of arrival */
};

struct table {
    struct entry open[OPEN_MAX];     /* `last` is not used */
    struct entry closed[CLOSED_MAX]; /* a ring */
};

static struct {
    struct table *table;
    uint32_t open_count;
    uint64_t closed_count; /* ever */
    uint64_t arrivals;
} history;

int history_start(void)
{
    if (!history.table)
        history.table = arena_reserve(sizeof(struct table));
    return history.table ? 0 : -ENOMEM;
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
    for (uint32_t i = 0; i < history.open_count; i++) {
        const struct module *m = &history.table->open[i].module;
        if (overlap(m, module) && !same(m, module))
            return true;
    }
    return false;
}

static void remove_open(uint32_t index)
{
    history.table->open[index] = history.table->open[--history.open_count];
}

static void forget_oldest(void)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < history.open_count; i++)
        if (history.table->open[i].order < history.table->open[oldest].order)
            oldest = i;
    remove_open(oldest);
}

void history_add(const struct module *module, uint32_t generation)
{
    struct table *table = history.table;
    for (uint32_t i = 0; i < history.open_count;) {
        struct entry *e = &table->open[i];
        if (!overlap(&e->module, module)) {
            i++;
            continue;
        }
        if (same(&e->module, module))
            return;
        e->last = generation - 1;
        table->closed[history.closed_count++ % CLOSED_MAX] = *e;
        remove_open(i);
    }
    if (history.open_count == OPEN_MAX)
        forget_oldest();
    table->open[history.open_count++] =
        (struct entry){.module = *module, .first = generation, .order = history.arrivals++};
}

static bool answers(const struct entry *e, uint32_t generation, uintptr_t pc)
{
    return pc >= e->module.start && pc < e->module.end && generation >= e->first;
}

struct module_address history_resolve(uint32_t generation, uintptr_t pc)
{
    const struct table *table = history.table;
    const struct entry *found = NULL;
    for (uint32_t i = 0; i < history.open_count && !found; i++)
        if (answers(&table->open[i], generation, pc))
            found = &table->open[i];
    uint64_t closed = MIN_OF(history.closed_count, (uint64_t)CLOSED_MAX);
    for (uint32_t i = 0; i < closed && !found; i++)
        if (answers(&table->closed[i], generation, pc) && generation <= table->closed[i].last)
            found = &table->closed[i];
    return found ? (struct module_address){found->module.object, pc - found->module.bias}
                 : (struct module_address){NULL, 0};
}

#ifdef LIBAGENT_TEST
void history_forget(void)
{
    struct table *table = history.table;
    memset(&history, 0, sizeof(history));
    history.table = table;
}
#endif
