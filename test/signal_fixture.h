/* signal_fixture.h: the sampling signal, started for a suite, which stands for the shim: where an
 * app would call sigaction, it calls sampling_signal_action. */
#ifndef LIBAGENT_TEST_SIGNAL_FIXTURE_H
#define LIBAGENT_TEST_SIGNAL_FIXTURE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/sched/sampling_signal.h"

/* The signals that may be taken, the first one first. */
enum { SIGNAL_CANDIDATES = 4 };
extern const int signal_candidates[SIGNAL_CANDIDATES];

extern struct thread_slot *signal_own;   /* the main thread's */
extern volatile uint32_t signal_samples; /* of ours, for that slot */

/* Attaches the main thread and starts; the result is sampling_signal_start's. */
int signal_fixture_try(void);
void signal_fixture_start(void);
/* Sends what a timer of ours sends, to the calling thread. */
void signal_tick(struct thread_slot *slot);
/* Sends the signal as others do: raise, kill, sigqueue (whose value is a slot, by a wild chance)
 * and a timer of the app. */
enum { SENDERS = 4 };
void signal_send(int sender);
/* ThreadSanitizer keeps a signal until a function that it knows is called: this one does that. */
void signals_come(void);

/* The app's handlers, and what they saw. */
void signal_plain(int signal);
void signal_info(int signal, siginfo_t *info, void *context);
extern volatile uint32_t signal_handled, signal_deepest;
extern volatile bool signal_raises_again; /* the first call raises once more */
extern siginfo_t signal_seen;
extern sigset_t signal_mask_inside;

/* The app's sigaction: with a handler (signal_info where flags say SA_SIGINFO). */
struct sigaction signal_action(void (*handler)(int), int flags);
struct sigaction signal_set(struct sigaction action);
struct sigaction signal_get(void);
/* SA_RESTORER, which libc adds on x86-64 and which has no name in its headers. */
enum { SIGNAL_FLAG_OF_LIBC = 0x04000000 };
/* What the kernel has. */
struct sigaction signal_in_kernel(int signal);
/* Handler, mask and flags, but for the one of libc. */
void signal_check_same(const struct sigaction *a, const struct sigaction *b);

/* Runs `body` in a fork child that knows it is one; returns the wait status. */
int signal_in_child(void (*body)(int), int argument);
void signal_check_killed(int status);

#endif
