#include "agent/thread/presence.h"

#include "agent/base/nap.h"
#include "agent/thread/thread_context.h"

enum { STRIPES = 16 };

static struct {
    uint32_t count;
} __attribute__((aligned(CACHE_LINE))) stripes[STRIPES];

/* Thread-local data and slots lie some hundred bytes or whole pages apart. */
static uint32_t *count_of(const void *key)
{
    uintptr_t bits = (uintptr_t)key;
    return &stripes[(bits >> 6 ^ bits >> 12 ^ bits >> 16) % STRIPES].count;
}

void presence_enter_inside_handler(const void *key)
{
    __atomic_fetch_add(count_of(key), 1, __ATOMIC_SEQ_CST);
}

void presence_leave_inside_handler(const void *key)
{
    __atomic_fetch_sub(count_of(key), 1, __ATOMIC_RELEASE);
}

void presence_enter(void)
{
    thread_tls.entered++;
    presence_enter_inside_handler(&thread_tls);
}

void presence_leave(void)
{
    presence_leave_inside_handler(&thread_tls);
    thread_tls.entered--;
}

static uint32_t inside_now(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < STRIPES; i++)
        sum += __atomic_load_n(&stripes[i].count, __ATOMIC_SEQ_CST);
    return sum;
}

bool presence_wait_others_left(uint64_t deadline_ns)
{
    while (inside_now() != thread_tls.entered)
        if (!nap_before(deadline_ns))
            return false;
    return true;
}

void presence_reset_in_child(void)
{
    for (int i = 0; i < STRIPES; i++)
        stripes[i].count = 0;
    *count_of(&thread_tls) = thread_tls.entered;
}
