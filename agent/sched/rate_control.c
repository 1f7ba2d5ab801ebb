#include "agent/sched/rate_control.h"

#include "agent/base/clock.h"
#include "agent/base/compiler.h"

enum { WINDOW_SAMPLES = 100, COST_STEP = 8, STRETCH_STEP = 16, SHARE_BACK = 4 };
/* A full window counts in the average by a quarter. */
enum { WINDOWS_AVERAGED = 4 };
/* The first window has no average to be held against; no sample is taken to cost more. */
static const uint64_t first_cost_max_ns = 200000;

void rate_control_start(struct rate_control *control, const struct rate_totals *totals,
                        uint32_t stretch_max, uint64_t price_ns)
{
    *control = (struct rate_control){
        .begin = *totals,
        .stretch = RATE_STRETCH_ONE,
        .stretch_max = stretch_max,
        .price_ns = price_ns,
    };
}

bool rate_control_is_due(const struct rate_control *control, uint64_t now_ns, uint64_t samples)
{
    return now_ns - control->begin.now_ns >= NS_PER_SEC ||
           samples - control->begin.samples >= WINDOW_SAMPLES;
}

static void note_cost(struct rate_control *control, uint64_t spent_ns, uint64_t samples)
{
    uint64_t cost = MIN_OF(spent_ns / samples, NS_PER_SEC) * 256;
    if (control->cost == 0) {
        control->cost = MAX_OF(MIN_OF(cost, first_cost_max_ns * 256), (uint64_t)1);
        return;
    }
    cost = MIN_OF(cost, control->cost * COST_STEP);
    int64_t change = (int64_t)(cost - control->cost) * (int64_t)MIN_OF(samples, 100ul);
    control->cost += (uint64_t)(change / (int64_t)(WINDOWS_AVERAGED * WINDOW_SAMPLES));
    control->cost = MAX_OF(control->cost, (uint64_t)1);
}

/* The stretch at which these samples would have cost the budget. */
static uint32_t needed_stretch(const struct rate_control *control, uint64_t samples,
                               uint64_t cpu_ns, uint32_t budget_ppm)
{
    /* cost and stretch are in 1/256 each: one of the two has to go. */
    uint64_t cost = MAX_OF(control->cost, control->price_ns * 256);
    unsigned __int128 spent = (unsigned __int128)samples * cost * control->stretch / 256;
    unsigned __int128 allowed = (unsigned __int128)cpu_ns * budget_ppm / 1000000;
    unsigned __int128 stretch = allowed ? spent / allowed : control->stretch_max;
    return (uint32_t)MIN_OF(stretch, (unsigned __int128)control->stretch_max);
}

static bool is_forward(const struct rate_totals *from, const struct rate_totals *to)
{
    return to->now_ns >= from->now_ns && to->cpu_ns >= from->cpu_ns &&
           to->spent_ns >= from->spent_ns && to->samples >= from->samples;
}

uint32_t rate_control_update(struct rate_control *control, const struct rate_totals *totals,
                             uint32_t budget_ppm)
{
    struct rate_totals begin = control->begin;
    control->begin = *totals;
    if (!is_forward(&begin, totals))
        return control->stretch;
    uint64_t samples = totals->samples - begin.samples;
    uint32_t needed = control->stretch / 2;
    if (samples) {
        note_cost(control, totals->spent_ns - begin.spent_ns, samples);
        needed = needed_stretch(control, samples, totals->cpu_ns - begin.cpu_ns, budget_ppm);
        if (needed < control->stretch)
            needed = control->stretch - (control->stretch - needed + SHARE_BACK - 1) / SHARE_BACK;
        else
            needed = MIN_OF(needed, control->stretch * STRETCH_STEP);
    }
    control->stretch = MAX_OF(needed, (uint32_t)RATE_STRETCH_ONE);
    return control->stretch;
}
