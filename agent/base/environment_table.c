#include "agent/base/environment_table.h"

extern char **environ;

static void *const no_block = (void *)-1;
AT_START void *const *environment_table = &no_block;

void environment_hold(void)
{
    store_relaxed(&environment_table, (void *const *)&environ);
}
