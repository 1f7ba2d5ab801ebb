#include "agent/base/nap.h"

#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"

bool nap_before(uint64_t deadline_ns)
{
    static const struct timespec nap = {0, 50000};
    if (clock_monotonic_ns() >= deadline_ns)
        return false;
    sys_call2(SYS_nanosleep, &nap, NULL);
    return true;
}
