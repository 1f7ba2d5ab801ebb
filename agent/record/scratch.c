#include "agent/record/scratch.h"

#include <errno.h>

#include "agent/base/arena.h"

static uint8_t *pool;
static size_t stride;
static uint32_t claimed[SCRATCH_BUFFERS];

int scratch_start(uint32_t max_frames)
{
    size_t wanted = sizeof(struct record_stack) + (max_frames + 1) * sizeof(uint64_t);
    wanted = ALIGN_UP(wanted, CACHE_LINE);
    if (wanted != stride || !pool) {
        uint8_t *made = arena_reserve(wanted * SCRATCH_BUFFERS);
        if (!made)
            return -ENOMEM;
        arena_release(pool, stride * SCRATCH_BUFFERS);
        pool = made;
        stride = wanted;
    }
    scratch_reset_in_child();
    return 0;
}

struct record_stack *scratch_claim(void)
{
    /* From the first on: the buffers in use stay few, and warm. */
    for (size_t i = 0; i < SCRATCH_BUFFERS; i++) {
        if (!load_relaxed(&claimed[i]) && !exchange_acq_rel(&claimed[i], 1))
            return (struct record_stack *)(void *)(pool + i * stride);
    }
    return NULL;
}

void scratch_give(struct record_stack *stack)
{
    store_release(&claimed[(size_t)((uint8_t *)stack - pool) / stride], 0);
}

void scratch_reset_in_child(void)
{
    for (size_t i = 0; i < SCRATCH_BUFFERS; i++)
        store_relaxed(&claimed[i], 0);
}
