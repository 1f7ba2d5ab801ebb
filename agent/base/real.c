#include "agent/base/real.h"

#include <stdint.h>
#include <string.h>

/* ln 2 in two parts; the high one has 21 trailing zero bits, so its product with a binary
 * exponent (11 bits) is exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW  0x1.a39ef35793c76p-33
#define INV_LN2  0x1.71547652b82fep+0

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Method: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1)/(m + 1), |s| < 0.1716.
 * The first term left out is s^23/23: below 1e-17 of the sum. */
double real_log(double x)
{
    int exponent = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        exponent = -54;
    }
    uint64_t bits = bits_of(x);
    exponent += (int)(bits >> 52) - 1023;
    double m = of_bits((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m >= 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1);
    double q = s * s;
    double sum = 0;
    for (int divisor = 21; divisor >= 3; divisor -= 2)
        sum = (sum + 1.0 / divisor) * q;
    return exponent * LN2_HIGH + (2 * s + (2 * s * sum + exponent * LN2_LOW));
}

/* Method: x = k ln 2 + r with |r| <= ln(2)/2; the Taylor series of expm1(r) up to r^14/14!
 * (the next term is below 1e-19); expm1(x) = 2^k expm1(r) + (2^k - 1). */
double real_expm1(double x)
{
    if (x < -40) /* exp(x) is less than half the last bit of 1 */
        return -1;
    int k = (int)(x * INV_LN2 - 0.5);
    double r = x - k * LN2_HIGH - k * LN2_LOW;
    double sum = 1;
    for (int divisor = 14; divisor >= 2; divisor--)
        sum = 1 + sum * r / divisor;
    double p = r * sum;
    if (k == 0)
        return p;
    double power = of_bits((uint64_t)(1023 + k) << 52);
    return power * p + (power - 1);
}
