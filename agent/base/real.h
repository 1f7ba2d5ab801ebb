/* real.h: log and expm1 of our own, since libm would be one more NEEDED library.
 * Relative error below 1e-12 over the ranges named.
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_REAL_H
#define LIBAGENT_REAL_H

/* Natural logarithm, x positive and finite. */
double real_log(double x);
/* exp(x) - 1, -745 <= x <= 0 (below: -1). */
double real_expm1(double x);

#endif
