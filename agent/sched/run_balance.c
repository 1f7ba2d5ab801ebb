#include "agent/sched/run_balance.h"

#include "agent/base/compiler.h"
#include "agent/sched/blocked.h"

uint64_t run_balance_take(struct run_balance *balance, int tid, uint64_t cpu_ns, uint64_t passed_ns,
                          bool runs)
{
    uint64_t otherwise = runs ? passed_ns : 0;
    bool is_first = balance->given_ns == 0;
    /* One that waits has had a processor since it was ready, but for an instant now and then. */
    uint64_t delayed_ns = runs || is_first ? blocked_delay_ns(tid) : balance->delayed_ns;
    if (delayed_ns == UINT64_MAX)
        return otherwise;
    balance->delayed_ns = delayed_ns;
    uint64_t ran_ns = cpu_ns + delayed_ns;
    if (is_first) {
        balance->given_ns = ran_ns;
        return otherwise;
    }
    if (ran_ns <= balance->given_ns)
        return 0;
    uint64_t share = MIN_OF(ran_ns - balance->given_ns, passed_ns);
    balance->given_ns += share;
    return share;
}
