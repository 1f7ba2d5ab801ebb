/* ways_out.h: the uploader as the options want it, and what that means for the end of the process.
 *
 * Owns: nothing. Context: INIT; ways_out_exit_deadline_ns also THR;
 * ways_out_moment SIG, HOOK, THR. Locks: none. */
#ifndef LIBAGENT_WAYS_OUT_H
#define LIBAGENT_WAYS_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* `before_exit` ends the agent: called from exit, where libraries that uploads use would be gone
 * later. 0 or a negative errno. */
int ways_out_start(char *const *environment, const char *program,
                   void (*before_exit)(void)) MUST_USE;
/* Where profiles are sent: takes care that `before_exit` is among the first functions that exit
 * calls. exit goes backwards, and OpenSSL's end comes where the program has first used it: so it is
 * registered anew, each time when the program has become twice as old. On a clean stack. When it is
 * to be called again, UINT64_MAX: never. */
uint64_t ways_out_moment(uint64_t now_ns) MUST_USE;
/* Around fork. THR. In a child whose parent `had_threads` nothing is registered any more: one of
 * those may have held the list's lock, and is not there. */
void ways_out_fork_prepare(void);
void ways_out_fork_parent(void);
void ways_out_fork_child(bool had_threads);
/* LIBAGENT_HELP=1: the options in force, and where profiles are sent; where a start follows the
 * program's, behind it: what is wrong is told once. */
void ways_out_print_help(char *const *environment);
/* Until when exit may be held up, counted from now. */
uint64_t ways_out_exit_deadline_ns(void);
/* On a terminal: the files of the last window, in a line. INIT. */
void ways_out_say_where(void);

#endif
