#include "test/life_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "agent/agent_hot.h"
#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/life.h"
#include "agent/start.h"
#include "test/next_libc.h"
#include "test/own_log.h"
#include "test/temp_folder.h"

char life_folder[TEMP_PATH_SIZE];

void life_setup(void)
{
    static char output[TEMP_PATH_SIZE + 32];
    static char log[TEMP_PATH_SIZE + 32];
    static char *environment[] = {output,
                                  log,
                                  "LIBAGENT_PERIOD=0",
                                  "LIBAGENT_COMPRESSION=none",
                                  "LIBAGENT_FREQUENCY=1000",
                                  "LIBAGENT_ALLOC_INTERVAL=1000",
                                  "LIBAGENT_LOG=error",
                                  NULL};
    snprintf(life_folder, sizeof(life_folder), "%s", temp_folder_make());
    snprintf(output, sizeof(output), "LIBAGENT_OUTPUT=%s", life_folder);
    own_log_start();
    snprintf(log, sizeof(log), "LIBAGENT_LOG_FILE=%s", own_log_path());
    next_from_libc();
    start_program(environment, "suite", __builtin_frame_address(0));
    start_main_follows();
    life_begin(true);
}

void life_teardown(void)
{
    temp_folder_remove(life_folder);
    own_log_remove();
}

int start(void)
{
    return life_count_start(NULL, NULL);
}

int stop(void)
{
    return life_count_stop(clock_monotonic_ns() + 20 * NS_PER_SEC);
}

__attribute__((noinline)) void work_until(enum stat_id stat, uint64_t count)
{
    while (stats_get(stat) < count) {
        agent_allocated(life_folder, 100);
        for (volatile int i = 0; i < 1000; i++)
            ;
    }
}

bool refuse_maps(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOMEM;
    return number == SYS_mmap;
}
