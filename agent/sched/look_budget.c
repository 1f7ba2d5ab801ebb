#include "agent/sched/look_budget.h"

#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"

enum { CPU_SHARE = 50 };
static const int64_t left_max_ns = 20 * NS_PER_MS;
/* One that took longer had to wait for a processor. */
static const uint64_t look_max_ns = 200000;
static const uint64_t gap_min_ns = NS_PER_MS, gap_max_ns = 10 * NS_PER_SEC;

static struct {
    int64_t left_ns; /* below 0: nobody is asked */
    uint64_t gap_ns; /* between two looks at the same thread */
    uint64_t now_ns; /* at the end of the last tick; 0: there was none */
    bool was_short;  /* in this tick somebody would have been asked with more */
} budget;

void look_budget_start(void)
{
    budget.left_ns = left_max_ns;
    budget.gap_ns = budget.now_ns = 0;
    budget.was_short = false;
}

bool look_budget_take(uint64_t *looked_ns, uint64_t now_ns)
{
    bool is_early = *looked_ns && now_ns - *looked_ns < budget.gap_ns;
    bool is_spent = *looked_ns && !is_early && budget.left_ns < 0;
    budget.was_short = budget.was_short || is_spent;
    if (is_early || is_spent) {
        stats_add(STAT_LOOKS_PUT_OFF, 1);
        return false;
    }
    *looked_ns = now_ns;
    return true;
}

void look_budget_spent(uint64_t ns)
{
    budget.left_ns = MAX_OF(budget.left_ns - (int64_t)MIN_OF(ns, look_max_ns), -left_max_ns);
}

/* In so much time. */
static int64_t earned_ns(uint64_t ns)
{
    return (int64_t)((double)ns / CPU_SHARE * MIN_OF(options.overhead, 1.0));
}

void look_budget_renew(uint64_t now_ns)
{
    if (budget.now_ns && now_ns > budget.now_ns) {
        int64_t left = budget.left_ns + earned_ns(now_ns - budget.now_ns);
        budget.left_ns = MIN_OF(left, left_max_ns);
        if (budget.was_short)
            budget.gap_ns = MIN_OF(MAX_OF(budget.gap_ns * 9 / 8, gap_min_ns), gap_max_ns);
        else if (budget.left_ns > left_max_ns / 2)
            budget.gap_ns = budget.gap_ns > gap_min_ns ? budget.gap_ns * 15 / 16 : 0;
    }
    budget.was_short = false;
    budget.now_ns = now_ns;
}
