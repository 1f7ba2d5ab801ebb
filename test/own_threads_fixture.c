#include "test/own_threads_fixture.h"

#include <time.h>
#include <unistd.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "test/demand.h"
#include "test/flush_fixture.h"
#include "test/next_libc.h"
#include "test/temp_folder.h"

struct own_threads own;

static int (*libc_create)(void *, const void *, void *(*)(void *), void *);

static int count_create(void *thread, const void *attributes, void *(*routine)(void *),
                        void *argument)
{
    if (own.create_error)
        return own.create_error;
    add_relaxed(&own.made, 1);
    return libc_create(thread, attributes, routine, argument);
}

void own_on_thread(struct thread_slot *slot)
{
    (void)slot;
}

static void hang(void)
{
    const struct timespec pause = {0, NS_PER_MS};
    store_release(&own.hanging, 1);
    while (load_acquire(&own.hangs))
        sys_raw6(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
}

/* Mappings stay for ever: ThreadSanitizer does not see them go, and would take an address that is
 * used again for a race. */
bool own_answer(long number, const long args[6], long *result)
{
    (void)args;
    if (number == SYS_clone) { /* a thread that libc does not know */
        *result = -own.create_error;
        if (!own.create_error)
            add_relaxed(&own.made, 1);
        return own.create_error;
    }
    if (number == SYS_write && thread_tls.internal && load_acquire(&own.hangs))
        hang();
    *result = 0;
    return number == SYS_munmap;
}

void own_threads_setup(void)
{
    flush_fixture_start();
    libc_create = next.pthread_create;
    next.pthread_create = count_create;
    options.period_ns = 3600 * NS_PER_SEC;
    sys_override = own_answer;
    ck_assert_ptr_nonnull(thread_attach((uintptr_t)__builtin_frame_address(0) + 65536, 0));
    agent_thread_start(own_on_thread, own_on_thread, false);
}

void own_threads_teardown(void)
{
    temp_folder_remove(flush_folder);
}

uint64_t own_in_ms(uint64_t ms)
{
    return clock_monotonic_ns() + ms * NS_PER_MS;
}

int64_t own_written(void)
{
    struct profile profile = {0};
    profile_load(&profile, flush_folder, "cpu", getpid());
    int64_t total = profile_self(&profile, CPU_NS, "flush_site");
    profile_free(&profile);
    return total;
}

void own_wait_for_total(int64_t total)
{
    uint64_t limit = own_in_ms(20000);
    while (own_written() < total)
        demand(clock_monotonic_ns() < limit);
    ck_assert_int_eq(own_written(), total);
}
