/* start.h: what a start of the agent does, in its order; life.h says when.
 *
 * The first start in a process makes what stays for good: the key by which ends of threads are
 * seen, the list of loaded objects. That may be done by a thread of libc's alone (start_prepare),
 * so it is done before main where a start may come from outside.
 *
 * Owns: what is known of the program. Context: INIT, TICK. Locks: the caller holds LOCK_LIFE,
 * except in start_program. */
#ifndef LIBAGENT_START_H
#define LIBAGENT_START_H

#include "agent/base/compiler.h"

/* INIT, once: the environment of the process, of which what options are read from is copied; its
 * name (kept); where the main thread's frames end. */
void start_program(char *const *environment, const char *program, const void *main_stack);
/* INIT, at the end of the constructor: from now on there may be other threads. */
void start_main_follows(void);
int start_prepare(void) MUST_USE;
/* Reads the options, makes all tables and contexts anew, switches everything on but the state. 0,
 * or a negative errno (and a line in the log): -EINVAL: wrong options; -ENOMEM; -EBUSY. Nothing is
 * on then. */
int start_all(void) MUST_USE;
/* The state is ON. */
void start_done(void);

#endif
