/* own_thread.h: the agent's own threads.
 *
 * They block every signal but glibc's internal two (cancellation and the one that carries setuid
 * to all threads), have a small stack, are marked internal (hooks and handler pass them by), and
 * run under no realtime policy, and have a descriptor table of their own where the kernel allows
 * it: so they keep nothing of the app's open (the reader of the app's pipe would wait for us), and
 * no number of theirs is ever the app's.
 *
 * Owns: the count of those who want none of them. Context: own_thread_create THR, INIT, TICK, and
 * HOOK or SIG at a moment (agent/thread/moment.h); own_thread_enter in the new thread. Locks: none
 * of ours; pthread_create takes libc's. */
#ifndef LIBAGENT_OWN_THREAD_H
#define LIBAGENT_OWN_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* Starts a detached thread. 0 or a negative errno (-ENOSYS: no pthread_create here). */
int own_thread_create(void *(*routine)(void *)) MUST_USE;
/* Those that are made from now on are pthreads: what runs on them needs all of libc. Else, and
 * where one that is none makes another, they are threads of agent/thread/raw_thread.h. INIT, TICK.
 */
void own_thread_use_libc(bool uses);
bool own_thread_uses_libc(void);
/* Is the calling thread one of ours, and a pthread? */
bool own_thread_is_known_to_libc(void);
/* Number of those pthreads that the kernel still has, and whether `tid` is one of the last. */
uint32_t own_threads_of_libc_there(void);
bool own_thread_is_of_libc(int tid);
/* So many want none of them to be there, from the program's first instruction on. A child begins
 * with none. */
void own_threads_pause(void);
bool own_threads_go_on(void); /* true: nobody wants that any more */
bool own_threads_are_paused(void);
void own_threads_reset_in_child(void);
/* The state of a thread of which there is one at most; a futex word, since others wait for it. */
enum own_thread_state { OWN_THREAD_NONE, OWN_THREAD_STARTING, OWN_THREAD_RUNNING };
/* Starts the thread of `state` if there is none. Nothing is done where it is to stay away, which is
 * asked once the state is told: who wants it away says so first and then looks at the state, and
 * one of the two sees the other. 0; -EBUSY: it stays away; or another negative errno. */
int own_thread_need(uint32_t *state, void *(*routine)(void *), bool (*stays_away)(void)) MUST_USE;
/* It is made, and has not said yet who it is. */
static inline bool own_thread_is_starting(const uint32_t *state)
{
    return load_acquire(state) == OWN_THREAD_STARTING;
}
/* The last act of such a thread. */
void own_thread_is_none(uint32_t *state);
bool own_thread_is_there(const uint32_t *state);
/* True when it has ended; false at the CLOCK_MONOTONIC deadline (0: none). */
bool own_thread_wait_none(const uint32_t *state, uint64_t deadline_ns);
/* First call of the routine. `name`: up to 15 bytes. */
void own_thread_enter(const char *name);
/* The calling thread asks the kernel for a processor soon when it wakes up, and for the shortest
 * time at once there. Its share is the same. Linux before 6.12 knows nothing of it. */
void own_thread_be_prompt(void);

#endif
