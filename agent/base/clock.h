/* clock.h: the clocks, in nanoseconds. Policy code takes times as arguments; only the callers at
 * the edges (handler, hooks, loops) read these. They are the kernel's, read from the vDSO (where
 * there is none, by a system call), and not those that libc's name gives.
 * Owns: nothing (once found, the place of the function in the vDSO). Context: any
 * (async-signal-safe). Locks: none. */
#ifndef LIBAGENT_CLOCK_H
#define LIBAGENT_CLOCK_H

#include <stdint.h>

#define NS_PER_SEC 1000000000ull
#define NS_PER_MS  1000000ull

uint64_t clock_monotonic_ns(void); /* vdso, about 25 ns */
uint64_t clock_realtime_ns(void);  /* since 1970, UTC */
/* CPU time of the calling thread (a system call); 0 when the kernel refuses. */
uint64_t clock_thread_cpu_ns(void);
/* CPU time of all threads of the process, the ended ones too. */
uint64_t clock_process_cpu_ns(void);
/* CPU time of the thread `tid` of this process; 0 when it is gone. */
uint64_t clock_thread_cpu_of_ns(int tid);
/* The kernel's tick, at which it looks at CPU timers; 0 when it does not tell. */
uint64_t clock_tick_ns(void);
/* The kernel's id of the CPU clock of thread `tid` (kernel ABI: (~tid << 3) | 6). */
int clock_id_of_thread(int tid);

#endif
