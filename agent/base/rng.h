/* rng.h: a 64-bit splitmix generator, and exponential variates.
 * Method: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
 * Owns: the generator that others are split off; else the state is the caller's. Context: any.
 * Locks: none. */
#ifndef LIBAGENT_RNG_H
#define LIBAGENT_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

/* Seeds from the kernel (getrandom), mixed with `salt`; from salt and clock where refused. */
void rng_seed(struct rng *rng, uint64_t salt);
/* A generator of its own without a system call: split off one of the process, which the first
 * call seeds. */
void rng_split(struct rng *rng);
/* In a fork child, so that it does not draw what its parent draws. */
void rng_reset_in_child(void);
uint64_t rng_next(struct rng *rng);
/* Uniform in (0, 1]. */
double rng_unit(struct rng *rng);
/* Exponential variate of the given mean, rounded up to an integer of at least 1: then
 * P(result <= n) is exactly 1 - exp(-n / mean) for each n, as the weights of samples assume. */
int64_t rng_exponential(struct rng *rng, double mean);

#endif
