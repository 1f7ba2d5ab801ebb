/* storm.h: what prog_storm's parts share: the allocations that are counted, and the plugins.
 *
 * Every allocation of a storm is one of STORM_SIZES sizes, made in a function of its own for each
 * way of allocating, and counted by the thread that made it; so the suite knows the truth for each
 * size, and with it the variance of what sampling says.
 *
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_STORM_H
#define LIBAGENT_TEST_STORM_H

#include <stdint.h>

/* Half of all allocations are of the first size, a quarter of the second, ...: 700 bytes in the
 * mean, and the largest makes half of the bytes. */
enum { STORM_SIZES = 9 };
static const uint64_t storm_sizes[STORM_SIZES] = {16,   32,    100,   300,   1000,
                                                  4000, 10000, 20000, 100000};

/* Functions of prog_storm that allocate, each by the call that it is named for. */
#define STORM_WAYS(X) X(malloc) X(calloc) X(realloc) X(aligned) X(new)
enum storm_way {
#define X(name) STORM_##name,
    STORM_WAYS(X)
#undef X
        STORM_WAYS_COUNT
};

/* Frames that an exception goes through; in each an object is destroyed. */
enum { STORM_THROW_FRAMES = 11 };

/* How a child ends, and the exit status that is expected of it. */
enum storm_end { STORM_EXIT, STORM_EXIT_AT_ONCE, STORM_EXEC, STORM_ENDS };

/* Of prog_storm_plugin, by dlsym: allocates, and throws and catches; 1 when all was right. */
typedef int storm_plugin_work_fn(unsigned long seed);

#endif
