#include "agent/thread/left_threads.h"

#include <stddef.h>

#include "agent/base/compiler.h"

static uint32_t count;
static int32_t tids[64];

void left_threads_add(int tid)
{
    store_relaxed(&tids[add_relaxed(&count, 1) % ARRAY_SIZE(tids)], tid);
}

uint32_t left_threads_count(void)
{
    return load_relaxed(&count);
}

bool left_threads_has(int tid)
{
    for (size_t i = 0; i < ARRAY_SIZE(tids); i++)
        if (load_relaxed(&tids[i]) == tid)
            return true;
    return false;
}
