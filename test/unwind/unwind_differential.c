/* unwind_differential: the agent's walk beside libunwind's, from outside, on the same registers and
 * memory of another process.
 *
 *     unwind_differential step NAME STOPS STRETCH GAP_US PROGRAM [ARGUMENT...]
 *     unwind_differential load ...
 *     unwind_differential sample NAME STOPS HERTZ PROGRAM [ARGUMENT...]
 *     unwind_differential sample NAME STOPS HERTZ -p PID
 *
 * step, load: from the program's entry, or from the loader's, the main thread is stepped for
 * STRETCH instructions and judged at each, runs on for a random time of GAP_US microseconds at
 * most, is stepped again, until there are STOPS; a program that ends before is started again. A
 * shadow stack is the third judge.
 *
 * sample: threads are stopped at random moments, at HERTZ on the average, each alone.
 *
 * Prints a line of the table and every kind of difference; status 1 when it is not as it must be,
 * 2 when it could not be found out. */
#include <stdlib.h>
#include <string.h>

#include "test/unwind/differences.h"
#include "test/unwind/modes.h"
#include "test/unwind/walkers.h"

int main(int argc, char **argv)
{
    if (argc < 6)
        die("see the top of unwind_differential.c");
    bool steps = strcmp(argv[1], "step") == 0, loads = strcmp(argv[1], "load") == 0;
    uint64_t stops = strtoull(argv[3], NULL, 10);
    differences_load("test/unwind/known_differences.txt");
    walkers_start();
    if ((steps || loads) && argc > 6) {
        step_program(steps, stops, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10),
                     argv + 6);
    } else if (strcmp(argv[1], "sample") == 0) {
        sample_program(stops, strtod(argv[4], NULL), argv + 5);
    } else {
        die("no mode %s", argv[1]);
    }
    return differences_report(argv[2], !steps && !loads) ? 0 : 1;
}
