#include "agent/unwind/catch_up.h"

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "agent/unwind/loader_lock.h"
#include "agent/unwind/modules.h"

enum {
    /* What a rescan and the making of an index take, four times. */
    STACK_ROOM = 16384,
    /* That are probed: 0.1 us each. */
    PAGES_MAX = 256,
};

static const uint64_t next_try_ns = 10 * NS_PER_MS;
static uint64_t next_ns;

static bool has_room(const struct unwind_stack *home)
{
    uintptr_t page = (uintptr_t)__builtin_frame_address(0) - STACK_ROOM;
    if (page >= home->high)
        return false;
    for (int i = 0; i < PAGES_MAX && page < home->high; i++, page += PAGE_SIZE_MIN) {
        if (page >= home->low)
            return true;
        if (!sys_readable(page))
            return false;
    }
    return page >= home->high;
}

static bool rescan(void)
{
    const struct module_list *before = load_relaxed(&modules_list);
    return modules_rescan_within(0) == 0 && load_relaxed(&modules_list) != before;
}

bool catch_up(const struct unwind_stack *home)
{
    uint64_t now = clock_monotonic_ns();
    if (now < load_relaxed(&next_ns))
        return false;
    /* Of a thread that is not libc's nobody knows a home, and the loader's lock is not for it. */
    bool is_new = home->high && loader_lock_is_unheld() && has_room(home) && rescan();
    if (!is_new)
        store_relaxed(&next_ns, now + next_try_ns);
    return is_new;
}
