/* Logarithm and exponential against libm in long double; the generator against its published
 * numbers and its distributions.
 *
 * Statistical tests draw a new seed in each run (printed on failure). Each raises a false alarm
 * with a probability of at most 1e-8; there are fewer than 20. */
#include "test/check.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/real.h"
#include "agent/base/rng.h"
#include "agent/base/sys.h"

/* What the method reaches (two roundings), far below the 1e-12 that the header promises. */
#define BOUND 1e-15L

static void check_relative(double got, long double want, double at)
{
    long double error = fabsl((long double)got - want);
    if (!(error <= BOUND * fabsl(want)))
        ck_abort_msg("at %a: got %a, want %La", at, got, want);
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

START_TEST(log_of_numbers_of_every_size)
{
    struct rng rng = {.state = 1};
    for (int i = 0; i < 300000; i++) {
        /* Positive and finite, subnormals too. */
        double x = from_bits(rng_next(&rng) % UINT64_C(0x7ff0000000000000));
        if (x > 0)
            check_relative(real_log(x), logl((long double)x), x);
    }
}
END_TEST

START_TEST(log_near_one)
{
    struct rng rng = {.state = 2};
    for (int i = 0; i < 300000; i++) {
        double distance = ldexp(rng_unit(&rng), -(int)(rng_next(&rng) % 53));
        check_relative(real_log(1 + distance), logl(1 + (long double)(1 + distance - 1)), distance);
        check_relative(real_log(1 - distance / 2), logl((long double)(1 - distance / 2)), distance);
    }
    ck_assert(real_log(1) == 0);
}
END_TEST

START_TEST(log_at_the_borders)
{
    static const double values[] = {0x1p-1074,
                                    0x1.fffffffffffffp-1023,
                                    0x1p-1022,
                                    0x1p-53,
                                    0.5,
                                    0x1.6a09e667f3bccp-1,
                                    0x1.6a09e667f3bcdp-1,
                                    0x1.6a09e667f3bccp+0,
                                    0x1.6a09e667f3bcdp+0,
                                    2,
                                    0x1.fffffffffffffp-1,
                                    0x1.0000000000001p+0,
                                    10,
                                    0x1.fffffffffffffp+1023};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        check_relative(real_log(values[i]), logl((long double)values[i]), values[i]);
}
END_TEST

START_TEST(expm1_over_its_range)
{
    struct rng rng = {.state = 3};
    for (int i = 0; i < 300000; i++) {
        double x = -745 * rng_unit(&rng);
        check_relative(real_expm1(x), expm1l((long double)x), x);
        x = -50 * rng_unit(&rng);
        check_relative(real_expm1(x), expm1l((long double)x), x);
        /* Down to the subnormals: a tiny allocation under a huge interval. */
        x = -ldexp(rng_unit(&rng), -(int)(rng_next(&rng) % 1000));
        check_relative(real_expm1(x), expm1l((long double)x), x);
    }
}
END_TEST

START_TEST(expm1_at_the_borders)
{
    static const double values[] = {-0x1p-1022,
                                    -0x1p-60,
                                    -0.34657359027997264,
                                    -0.34657359027997270,
                                    -0.5,
                                    -0.6931471805599453,
                                    -1,
                                    -39.999999,
                                    -40.000001,
                                    -700,
                                    -745};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        check_relative(real_expm1(values[i]), expm1l((long double)values[i]), values[i]);
    ck_assert(real_expm1(0) == 0);
    ck_assert(real_expm1(-1e300) == -1);
}
END_TEST

START_TEST(the_generator_is_splitmix64)
{
    /* The first numbers of the authors' generator from this seed. */
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u, 4593380528125082431u,
                                    16408922859458223821u};
    struct rng rng = {.state = 1234567};
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        ck_assert_uint_eq(rng_next(&rng), want[i]);
}
END_TEST

static uint64_t state_for_one;

static bool getrandom_is_constant(long number, const long args[6], long *result)
{
    if (number != SYS_getrandom)
        return false;
    memset((void *)args[0], 7, (size_t)args[1]);
    *result = args[1];
    return true;
}

static bool getrandom_is_refused(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOSYS;
    return number == SYS_getrandom;
}

START_TEST(seeds_differ_by_call_and_by_salt)
{
    struct rng a, b;
    rng_seed(&a, 1);
    rng_seed(&b, 1);
    ck_assert_uint_ne(a.state, b.state);
    sys_override = getrandom_is_constant;
    rng_seed(&a, 1);
    rng_seed(&b, 2);
    ck_assert_uint_ne(a.state, b.state);
    rng_seed(&b, 1);
    ck_assert_uint_eq(a.state, b.state);
    sys_override = getrandom_is_refused;
    rng_seed(&a, 1);
    rng_seed(&b, 1); /* later: the clock has moved on */
    ck_assert_uint_ne(a.state, b.state);
    sys_override = NULL;
}
END_TEST

START_TEST(split_generators_differ_and_need_one_system_call)
{
    struct rng a, b, c;
    sys_override = getrandom_is_constant;
    rng_reset_in_child();
    rng_split(&a);
    sys_override = getrandom_is_refused; /* not asked again */
    rng_split(&b);
    sys_override = getrandom_is_constant;
    rng_reset_in_child();
    rng_split(&c);
    sys_override = NULL;
    ck_assert_uint_ne(a.state, b.state);
    ck_assert_uint_ne(rng_next(&a), rng_next(&b));
    /* Same seed, but for the address that it is mixed with. */
    ck_assert_uint_ne(c.state, a.state);
    rng_reset_in_child();
    rng_split(&b);
    ck_assert_uint_ne(b.state, c.state);
}
END_TEST

/* How far a mean of `count` values of standard deviation `sigma` may be from the truth:
 * P(|z| > 5.9) < 4e-9; the counts below are large enough for the normal law to hold there. */
static double bound_of_mean(double sigma, double count)
{
    return 5.9 * sigma / sqrt(count);
}

static struct rng fresh(void)
{
    struct rng rng;
    rng_seed(&rng, 0);
    state_for_one = rng.state;
    return rng;
}

START_TEST(unit_is_uniform_and_never_zero)
{
    enum { COUNT = 1000000 };
    struct rng rng = fresh();
    double sum = 0, products = 0, last = 0.5;
    for (int i = 0; i < COUNT; i++) {
        double x = rng_unit(&rng);
        if (!(x > 0 && x <= 1))
            ck_abort_msg("%a", x);
        sum += x - 0.5;
        products += (x - 0.5) * (last - 0.5);
        last = x;
    }
    ck_assert_msg(fabs(sum / COUNT) < bound_of_mean(sqrt(1 / 12.0), COUNT), "state %lx",
                  state_for_one);
    /* Neighbours are independent: the product's mean is 0, its deviation 1/12. */
    ck_assert_msg(fabs(products / COUNT) < bound_of_mean(1 / 12.0, COUNT), "state %lx",
                  state_for_one);
    /* The smallest and the greatest: states whose next number is known (mix(0) is 0). */
    struct rng least = {.state = 0 - UINT64_C(0x9e3779b97f4a7c15)};
    ck_assert(rng_unit(&least) == 0x1p-53);
}
END_TEST

static int compare_values(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The distance between the empirical distribution and 1 - exp(-n / mean), at each integer.
 * Dvoretzky-Kiefer-Wolfowitz, with Massart's constant: P(distance > e) <= 2 exp(-2 count e^2),
 * for any distribution; e is chosen for 1e-8. */
static void check_exponential(double mean)
{
    enum { COUNT = 400000 };
    int64_t *values = malloc(COUNT * sizeof(*values));
    struct rng rng = fresh();
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        values[i] = rng_exponential(&rng, mean);
        if (values[i] < 1)
            ck_abort_msg("%ld", values[i]);
        sum += (double)values[i];
    }
    qsort(values, COUNT, sizeof(*values), compare_values);
    double distance = 0;
    for (int i = 0; i < COUNT; i++) {
        if (i + 1 < COUNT && values[i + 1] == values[i])
            continue;
        double truth = -expm1(-(double)values[i] / mean);
        double truth_before = -expm1(-(double)(values[i] - 1) / mean);
        int first = i;
        while (first > 0 && values[first - 1] == values[i])
            first--;
        distance = fmax(distance, fabs((i + 1.0) / COUNT - truth));
        distance = fmax(distance, fabs((double)first / COUNT - truth_before));
    }
    free(values);
    double allowed = sqrt(log(2 / 1e-8) / (2.0 * COUNT));
    ck_assert_msg(distance <= allowed, "mean %g: %g > %g, state %lx", mean, distance, allowed,
                  state_for_one);
    /* Rounded up, it is geometric: mean 1/p and variance (1-p)/p^2 with p = 1 - exp(-1/mean). */
    double p = -expm1(-1 / mean);
    ck_assert_msg(fabs(sum / COUNT - 1 / p) <= bound_of_mean(sqrt(1 - p) / p, COUNT),
                  "mean %g: %g, state %lx", mean, sum / COUNT, state_for_one);
}

START_TEST(exponential_has_its_distribution)
{
    static const double means[] = {0.5, 1, 1.5, 4, 100, 524288, 1e12};
    for (size_t i = 0; i < ARRAY_SIZE(means); i++)
        check_exponential(means[i]);
}
END_TEST

START_TEST(exponential_stays_in_bounds)
{
    struct rng rng = fresh();
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(rng_exponential(&rng, 0), 1);
        ck_assert_int_eq(rng_exponential(&rng, -5), 1);
        ck_assert_int_eq(rng_exponential(&rng, (double)NAN), 1);
        ck_assert_int_eq(rng_exponential(&rng, 1e300), INT64_C(1) << 62);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("real");
    TCase *functions = tcase_create("functions");
    tcase_set_timeout(functions, 60); /* long double under a sanitizer */
    tcase_add_test(functions, log_of_numbers_of_every_size);
    tcase_add_test(functions, log_near_one);
    tcase_add_test(functions, log_at_the_borders);
    tcase_add_test(functions, expm1_over_its_range);
    tcase_add_test(functions, expm1_at_the_borders);
    suite_add_tcase(suite, functions);
    TCase *generator = tcase_create("generator");
    tcase_set_timeout(generator, 60);
    tcase_add_test(generator, the_generator_is_splitmix64);
    tcase_add_test(generator, seeds_differ_by_call_and_by_salt);
    tcase_add_test(generator, split_generators_differ_and_need_one_system_call);
    tcase_add_test(generator, unit_is_uniform_and_never_zero);
    tcase_add_test(generator, exponential_has_its_distribution);
    tcase_add_test(generator, exponential_stays_in_bounds);
    suite_add_tcase(suite, generator);
    return suite;
}
