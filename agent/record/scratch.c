#include "agent/record/scratch.h"

#include <errno.h>

#include "agent/base/arena.h"

static uint8_t *pool;
static size_t stride;
static uint32_t claimed[SCRATCH_BUFFERS];

int scratch_start(uint32_t max_frames)
{
    stride = sizeof(struct record_stack) + (max_frames + 1) * sizeof(uint64_t);
    stride = ALIGN_UP(stride, CACHE_LINE);
    pool = arena_reserve(stride * SCRATCH_BUFFERS);
    return pool ? 0 : -ENOMEM;
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
        claimed[i] = 0;
}
