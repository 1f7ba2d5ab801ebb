/* CFLAGS: -O2 */
/* prog_ticks_together MS: computes, and has a timer on its CPU clock with a handler that does
 * nothing: the kernel looks at it in the same instant as at the agent's. */
#include "test/preload/program.h"

#define EVENT_TID _sigev_un._tid

static uint32_t calls;

SITE static void empty_handler(int number)
{
    (void)number;
    calls++;
}

SITE static void work(uint64_t ms)
{
    spin(ms * 1000000);
    keep(&ms);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = empty_handler, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec times = {{0, 1000000}, {0, 1000000}};
    timer_t timer;
    event.EVENT_TID = (int)syscall(SYS_gettid);
    if (sigaction(SIGUSR1, &action, NULL) != 0 ||
        timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0 ||
        timer_settime(timer, 0, &times, NULL) != 0)
        return 1;
    work(number_argument(argc, argv, 1, 100));
    printf("calls %u\n", calls);
    return 0;
}
