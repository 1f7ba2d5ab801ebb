#include "agent/base/stats.h"

uint64_t stats_values[STAT_COUNT];

static const char *const texts[STAT_COUNT] = {
#define X(name, text) [STAT_##name] = (text),
    STATS_LIST(X)
#undef X
};

const char *stats_text(enum stat_id stat)
{
    return texts[stat];
}

void stats_reset(void)
{
    for (unsigned i = 0; i < STAT_COUNT; i++)
        store_relaxed(&stats_values[i], 0);
}
