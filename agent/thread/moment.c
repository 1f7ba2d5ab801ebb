#include "agent/thread/moment.h"

#include "agent/base/clock.h"
#include "agent/base/compiler.h"

uint64_t moment_due_ns = UINT64_MAX;
void (*moment_work)(bool clean);
void (*moment_look)(uint64_t now_ns);

void moment_pass_at(uint64_t now_ns, bool clean)
{
    /* Loaded once: another thread may be at the end of the process, where it becomes NULL. */
    void (*work)(bool) = load_acquire(&moment_work);
    void (*look)(uint64_t) = load_acquire(&moment_look);
    if (look)
        look(now_ns);
    if (work && unlikely(now_ns >= load_relaxed(&moment_due_ns)))
        work(clean);
}

void moment_pass(bool clean)
{
    moment_pass_at(clock_monotonic_ns(), clean);
}

void moment_set_due_now(void)
{
    store_relaxed(&moment_due_ns, 0);
}
