/* life_fixture.h: the life cycle in a suite, with everything but the hooks; profiles are written to
 * a folder, and the log to own_log.h. */
#ifndef LIBAGENT_TEST_LIFE_FIXTURE_H
#define LIBAGENT_TEST_LIFE_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/stats.h"
#include "test/temp_path.h"

extern char life_folder[TEMP_PATH_SIZE];

/* A checked fixture: not started yet; no period, many samples. */
void life_setup(void);
void life_teardown(void);
int start(void);
int stop(void);
/* Allocates and computes until the figure is so high. */
void work_until(enum stat_id stat, uint64_t count);
/* A sys_override: no memory is mapped. */
bool refuse_maps(long number, const long args[6], long *result);

#endif
