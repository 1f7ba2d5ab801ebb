/* heap_bound.h: how far a profile's sum of bytes may be from the truth.
 *
 * A block of s bytes is in it with probability p = 1 - exp(-s / interval), each for itself, and
 * then adds s / p. So a sum is one of independent variables of mean s, variance s^2 (1 - p) / p,
 * each at most `largest`; Bernstein's inequality bounds it: P(|X - truth| >= t) <= 2 exp(-t^2 / 2 /
 * (variance + largest t / 3)). heap_bound is that t for a probability 2 exp(-log_alarm): suites say
 * what it is, and how often they ask.
 *
 * Owns: nothing. Context: suites. Locks: none. */
#ifndef LIBAGENT_TEST_HEAP_BOUND_H
#define LIBAGENT_TEST_HEAP_BOUND_H

#include <math.h>

static inline double heap_bound(double variance, double largest, double log_alarm)
{
    double third = log_alarm * largest / 3;
    return third + sqrt(third * third + 2 * log_alarm * variance);
}

#endif
