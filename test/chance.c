#include "test/chance.h"

#include <math.h>

static double divergence(double x, double p)
{
    return (x > 0 ? x * log(x / p) : 0) + (x < 1 ? (1 - x) * log((1 - x) / (1 - p)) : 0);
}

bool chance_share_is_above(double part, double count, double limit)
{
    return part > limit * count && count * divergence(part / count, limit) > CHANCE_LOG_ALARM;
}
