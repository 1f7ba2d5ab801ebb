#include "test/signal_fixture.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/check.h"
#include "test/demand.h"
#include "test/record_fixture.h"

struct thread_slot *signal_own;
volatile uint32_t signal_samples;

static void on_sample(struct thread_slot *slot, void *context)
{
    demand(slot == signal_own);
    demand(context != NULL);
    signal_samples++;
}

int signal_fixture_try(void)
{
    fixture_threads();
    signal_own = thread_attach(0, 0);
    return sampling_signal_start(on_sample);
}

void signal_fixture_start(void)
{
    ck_assert_int_eq(signal_fixture_try(), 0);
}

void signals_come(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
}

void signal_tick(struct thread_slot *slot)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = SAMPLING_SIGNAL;
    info.si_code = SI_TIMER;
    info.si_value.sival_ptr = slot;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), sys_tid(), info.si_signo, &info);
    signals_come();
}
