#include "test/preload/pace.h"

#include <stdio.h>

#include "test/check.h"

enum { VARIABLES = 24 };

void pace_start(struct run *run, const char *const *environment)
{
    /* Samples enough in each window, though it works but a tenth of the time. */
    const char *variables[VARIABLES] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_FREQUENCY=500"};
    for (size_t i = 0; environment[i]; i++) {
        ck_assert_uint_lt(i + 3, VARIABLES);
        variables[i + 2] = environment[i];
    }
    run_start(run,
              &(struct run_request){.program = "paces", .environment = variables, .seconds = 90});
}

void pace_end(const struct run *run)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/end", run->folder);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
}
