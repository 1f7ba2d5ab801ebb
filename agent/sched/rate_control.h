/* rate_control.h: how far sampling must be stretched, so that it costs no more than its budget.
 *
 * Method: what one sample costs is an exponential moving average over windows of a second or 100
 * samples, whichever ends first. From it, and from the samples that came in the window, follows the
 * stretch (of the period between samples, in 1/256) at which the budget would have been met. Where
 * that is more than the stretch in force it is taken at once, else the stretch goes a quarter of
 * the way back. A window counts in the average for as many samples as it has, and for no more than
 * COST_STEP times the average so far: one sample that took 100 ms is forgotten within seconds, a
 * real change is followed within some windows. Where no sample comes at all the stretch is halved
 * each second, so that sampling always comes back. A sample counts for `price_ns` at least, which
 * bounds how many there are in a second of CPU time, however little each of them takes.
 *
 * Time and totals are arguments; nothing is read here. Totals that go backwards (a fork child)
 * begin a new window.
 *
 * Owns: nothing. Context: any; one caller at a time for each struct. Locks: none. */
#ifndef LIBAGENT_RATE_CONTROL_H
#define LIBAGENT_RATE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

enum { RATE_STRETCH_ONE = 256 };

/* Totals since some beginning. */
struct rate_totals {
    uint64_t now_ns;   /* CLOCK_MONOTONIC */
    uint64_t cpu_ns;   /* of the process */
    uint64_t spent_ns; /* on samples, part of cpu_ns */
    uint64_t samples;
};

struct rate_control {
    struct rate_totals begin; /* of the window */
    uint64_t cost;            /* ns of a sample, in 1/256, averaged; 0: none yet */
    uint32_t stretch;         /* in 1/256, at least RATE_STRETCH_ONE */
    uint32_t stretch_max;
    uint64_t price_ns;
};

/* Sampling begins without a stretch: the first event after a start is sampled as any other. */
void rate_control_start(struct rate_control *control, const struct rate_totals *totals,
                        uint32_t stretch_max, uint64_t price_ns);
/* Has the window ended? */
bool rate_control_is_due(const struct rate_control *control, uint64_t now_ns, uint64_t samples);
/* Ends the window: returns the stretch that is in force from here on. `budget_ppm`: share of the
 * process's CPU time, in millionths, at least 1. */
uint32_t rate_control_update(struct rate_control *control, const struct rate_totals *totals,
                             uint32_t budget_ppm);

#endif
