#include "agent/thread/left_threads.h"

#include <stddef.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"

static uint32_t count;
static int32_t tids[LEFT_THREADS_NAMED];

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

uint32_t left_threads_there(int pid)
{
    uint32_t there = 0;
    for (size_t i = 0; i < ARRAY_SIZE(tids); i++) {
        int tid = load_relaxed(&tids[i]);
        there += tid && sys_call3(SYS_tgkill, pid, tid, 0) == 0;
    }
    return there;
}
