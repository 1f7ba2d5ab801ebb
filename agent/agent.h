/* agent.h: the agent, as shim/ calls it: agent.c, for threads app_threads.c, for fork agent_fork.c.
 *
 * Every function returns at once while the agent is off (agent/life.h), but for what ends it.
 *
 * Owns: nothing. Context: as said at each function. Locks: LOCK_LIFE in what starts, ends and
 * forks; else as said. */
#ifndef LIBAGENT_AGENT_H
#define LIBAGENT_AGENT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/sched/itimer_hold.h"

struct thread_slot;

/* The one constructor: reads the options and starts the agent where they select this process.
 * False: it is never profiled, and needs none of the functions for forks and exit below. INIT. */
bool agent_init(char **argv, char **environment) MUST_USE;
/* Instead, where this libc is not supported: hooks only forward. INIT. */
void agent_stay_off(void);
/* Return from main, exit, quick_exit: writes the last window, within EXIT_LIMIT. INIT. */
void agent_at_exit(void);
/* Before the process has system calls, or looks at the clock, end it or raise signals: writes the
 * last window, ends our threads and timers; the agent makes no system call afterwards, and reads no
 * clock. Nothing is done where `filter` cannot be read, as the kernel will refuse it; NULL: there
 * is none (strict mode, and others). `what` says in the log what the program does. THR. */
void agent_before_silence(const void *filter, const char *what);
/* Around a call that the kernel refuses to a process with several threads, or that must reach
 * every thread of it: ours are gone between these two. What is recorded stays, and is written after
 * the next period. They may be writing a file: that is waited for a second, with `at_any_price`
 * three; where even that is not enough the thread ends as soon as it comes back. `paused`: what
 * agent_pause returned. THR, SIG; a vfork child. */
bool agent_pause(bool at_any_price) MUST_USE;
void agent_go_on(bool paused);
/* Is the calling thread in the start of a library of ours, whose pipe nobody needs? Any context. */
bool agent_refuses_pipe(void) MUST_USE;
/* Before exec: what was recorded is written, since exec ends it. THR. */
void agent_before_exec(void);
/* It returned. Keeps errno. THR. */
void agent_exec_failed(void);

/* pthread_create: NULL: the new thread is not to be tracked. THR. */
struct thread_slot *agent_thread_prepare(uintptr_t start_routine, void *argument);
void agent_thread_not_born(struct thread_slot *slot);
/* A bare clone made it, with that id, or failed (below 0). Keeps errno. THR. */
void agent_thread_cloned(struct thread_slot *slot, int tid);
/* libc makes threads by itself for what the caller has just asked for. Keeps errno. THR. */
void agent_threads_of_libc(void);
/* First thing in the new thread: returns the start routine given to agent_thread_prepare, and its
 * argument. THR. */
uintptr_t agent_thread_begin(struct thread_slot *slot, void **argument);

/* A thread was named, the calling one or another: by libc's handle, which is its thread pointer; 0:
 * the calling one. THR. */
void agent_thread_named(uintptr_t thread, const char *name);

/* Objects were loaded or unloaded: `loaded` is what dlopen gave, NULL after dlclose. THR;
 * LOCK_MODULES. */
void agent_objects_changed(const void *loaded);
/* An object is being loaded that cannot be waited for. THR. */
void agent_objects_will_change(void);
/* Code of loaded objects is about to be reached (dlsym with that handle): sees what could not be
 * waited for. THR; LOCK_MODULES. */
void agent_objects_used(const void *handle);

/* sigaction: true when answered here (*result, *old). Held until released, in any case. THR, SIG.
 */
bool agent_signal_action(int number, const struct sigaction *action, struct sigaction *old,
                         int *result, struct itimer_hold *hold);
/* The app asks for an interval timer, and arms or disarms it where it `takes` it, or sets a
 * signal's action: what the agent has of it is given back first, and it takes nothing until the
 * release. True: what getitimer tells is the agent's. THR, SIG. */
bool agent_itimer_hold(struct itimer_hold *hold, int which, bool takes);
void agent_signal_hold(struct itimer_hold *hold, int number);
void agent_itimer_release(const struct itimer_hold *hold);
/* The app is about to take signals of this set by itself (sigwait and its kin). THR. */
void agent_signals_awaited(const sigset_t *set);
/* It was called, with success; `old` becomes what the program is to see. THR, SIG. */
void agent_signal_acted(int number, const struct sigaction *action, struct sigaction *old);
/* The same for signal and its kin, which gave `old`. THR, SIG. */
uintptr_t agent_signal_set(int number, uintptr_t handler, uintptr_t old);
/* Before and after pthread_cancel. THR. */
void agent_signal_renew(void);
/* Before longjmp: `environment` is the jmp_buf. A handler may be left that keeps our signal away.
 * THR, SIG. */
void agent_before_jump(const void *environment);

/* Handlers of fork, in the order of their names. */
void agent_fork_prepare(void);
void agent_fork_parent(void);
void agent_fork_child(void);

#endif
