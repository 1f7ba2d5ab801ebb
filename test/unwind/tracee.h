/* tracee.h: a stopped thread of another process: registers, memory, the objects of its process.
 *
 * One process at a time: its objects become `modules_list`, which the walk uses. Failures that
 * no test wants (no memory, ptrace refused) end the program with a line that says what. */
#ifndef LIBAGENT_TEST_TRACEE_H
#define LIBAGENT_TEST_TRACEE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "agent/unwind/unwind.h"

struct tracee {
    pid_t pid, tid; /* the thread that is stopped */
    struct user_regs_struct regs;
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* Runs a program; it is stopped before its first instruction. Output goes to /dev/null. */
pid_t tracee_start(char *const command[], bool its_threads);
/* Takes hold of a running thread, and of threads that it makes, if these are asked for. */
void tracee_seize(pid_t tid, bool its_threads);
void tracee_get_registers(struct tracee *tracee);
void tracee_registers(const struct tracee *tracee, struct unwind_regs *regs);

/* Bytes read, fewer where the memory ends. */
size_t tracee_read(pid_t pid, uintptr_t address, void *data, size_t size);
/* One word, by windows that tracee_forget_memory outdates (call that when the thread has run); the
 * first only of windows that are there. */
bool tracee_known_word(uintptr_t address, uintptr_t *value);
bool tracee_read_word(pid_t pid, uintptr_t address, uintptr_t *value);
void tracee_forget_memory(void);

#endif
