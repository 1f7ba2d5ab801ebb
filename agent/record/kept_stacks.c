#include "agent/record/kept_stacks.h"

#include "agent/base/arena.h"
#include "agent/record/intern_table.h"

/* Of LIBAGENT_MEMORY: 2 MiB of the default, 9,000 stacks of 25 frames. */
enum { SHARE = 32, STACK_BYTES = 128 };

static struct intern_table stacks;
static uint32_t is_closed;

int kept_stacks_start(void)
{
    size_t bytes = arena_budget() / SHARE;
    uint32_t index_size = PAGE_SIZE_MIN / sizeof(uint64_t);
    while (index_size < bytes / STACK_BYTES)
        index_size *= 2;
    intern_destroy(&stacks); /* of an earlier start */
    is_closed = 0;
    return intern_create(&stacks, bytes, index_size);
}

void kept_stacks_destroy(void)
{
    intern_destroy(&stacks);
}

uint32_t kept_stack(const struct record_stack *stack, uint32_t count)
{
    if (__atomic_load_n(&is_closed, __ATOMIC_SEQ_CST))
        return 0;
    const struct intern_entry *entry = intern(&stacks, &stack->generation, count + 1, 0);
    return entry ? intern_ref(&stacks, entry) : 0;
}

const struct record_stack *kept_stack_at(uint32_t number, uint32_t *count)
{
    const struct intern_entry *entry = intern_at(&stacks, number);
    *count = entry->words - 1u;
    return (const struct record_stack *)(const void *)entry->data;
}

bool kept_stacks_are_many(void)
{
    return load_relaxed(&stacks.arena.used) > stacks.arena.size / 2 ||
           load_relaxed(&stacks.entries) > stacks.index_mask / 2;
}

void kept_stacks_close(void)
{
    __atomic_store_n(&is_closed, 1, __ATOMIC_SEQ_CST);
}

void kept_stacks_open(void)
{
    intern_clear(&stacks);
    store_release(&is_closed, 0);
}
