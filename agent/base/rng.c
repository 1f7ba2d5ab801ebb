#include "agent/base/rng.h"

#include <stdbool.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/real.h"
#include "agent/base/sys.h"

#define GOLDEN_GAMMA 0x9e3779b97f4a7c15ull
/* GRND_NONBLOCK of linux/random.h (libc's header is younger than the libc to be supported):
 * early in the boot the kernel would wait. */
#define RANDOM_NONBLOCK 1

/* The finalizer of splitmix64 (variant 13 of Stafford's mixers). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void rng_seed(struct rng *rng, uint64_t salt)
{
    uint64_t seed = 0;
    if (sys_call3(SYS_getrandom, &seed, sizeof(seed), RANDOM_NONBLOCK) != (long)sizeof(seed))
        seed = clock_monotonic_ns();
    rng->state = seed ^ mix(salt + GOLDEN_GAMMA);
}

static uint64_t root;

void rng_split(struct rng *rng)
{
    if (load_relaxed(&root) == 0) {
        struct rng seed;
        uint64_t none = 0;
        rng_seed(&seed, (uintptr_t)rng);
        __atomic_compare_exchange_n(&root, &none, seed.state, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
    rng->state = mix(add_relaxed(&root, GOLDEN_GAMMA));
}

void rng_reset_in_child(void)
{
    root = 0;
}

uint64_t rng_next(struct rng *rng)
{
    rng->state += GOLDEN_GAMMA;
    return mix(rng->state);
}

double rng_unit(struct rng *rng)
{
    /* 53 bits, the whole precision of a double; + 1 leaves 0 out, whose logarithm is infinite. */
    return (double)((rng_next(rng) >> 11) + 1) * 0x1p-53;
}

int64_t rng_exponential(struct rng *rng, double mean)
{
    double value = -real_log(rng_unit(rng)) * mean;
    if (!(value > 1))
        return 1;
    if (value >= 0x1p62)
        return INT64_C(1) << 62;
    int64_t whole = (int64_t)value;
    return whole + ((double)whole < value);
}
