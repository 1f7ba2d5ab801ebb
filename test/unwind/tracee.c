#include "test/unwind/tracee.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WINDOWS = 4, WINDOW_SIZE = 8192, PAGE = 4096 };

/* What was read since the thread stopped. */
static struct window {
    uintptr_t low;
    size_t size;
    uint8_t data[WINDOW_SIZE];
} windows[WINDOWS];
static uint32_t next_window;

void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "unwind_differential: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    exit(2);
}

static void run_command(char *const command[], int wait_fd)
{
    char byte;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    if (!getenv("SHOW_ERRORS"))
        dup2(null, 2);
    /* The same addresses in each run, so that a difference is found again. */
    personality(ADDR_NO_RANDOMIZE);
    if (read(wait_fd, &byte, 1) == 1)
        execvp(command[0], command);
    _exit(127);
}

pid_t tracee_start(char *const command[], bool its_threads)
{
    int gate[2], status;
    if (pipe2(gate, O_CLOEXEC) != 0)
        die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0)
        run_command(command, gate[0]);
    tracee_seize(pid, its_threads);
    if (write(gate[1], "", 1) != 1)
        die("write: %s", strerror(errno));
    close(gate[0]);
    close(gate[1]);
    if (waitpid(pid, &status, __WALL) != pid || status >> 8 != (SIGTRAP | PTRACE_EVENT_EXEC << 8))
        die("%s does not start", command[0]);
    return pid;
}

void tracee_seize(pid_t tid, bool its_threads)
{
    long options = PTRACE_O_TRACEEXEC | (its_threads ? PTRACE_O_TRACECLONE : 0);
    if (ptrace(PTRACE_SEIZE, tid, 0, options) != 0)
        die("seize %d: %s", tid, strerror(errno));
}

void tracee_get_registers(struct tracee *tracee)
{
    if (ptrace(PTRACE_GETREGS, tracee->tid, 0, &tracee->regs) != 0)
        die("registers of %d: %s", tracee->tid, strerror(errno));
}

void tracee_registers(const struct tracee *tracee, struct unwind_regs *regs)
{
    const struct user_regs_struct *r = &tracee->regs;
    const uintptr_t values[UNWIND_REGS] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi,
                                           r->rbp, r->rsp, r->r8,  r->r9,  r->r10, r->r11,
                                           r->r12, r->r13, r->r14, r->r15, r->rip};
    memcpy(regs->r, values, sizeof(values));
}

size_t tracee_read(pid_t pid, uintptr_t address, void *data, size_t size)
{
    struct iovec local = {data, size}, remote = {(void *)address, size};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return got < 0 ? 0 : (size_t)got;
}

bool tracee_known_word(uintptr_t address, uintptr_t *value)
{
    for (uint32_t i = 0; i < WINDOWS; i++) {
        const struct window *w = &windows[i];
        if (address - w->low < w->size && w->size - (address - w->low) >= sizeof(*value)) {
            memcpy(value, w->data + (address - w->low), sizeof(*value));
            return true;
        }
    }
    return false;
}

bool tracee_read_word(pid_t pid, uintptr_t address, uintptr_t *value)
{
    if (tracee_known_word(address, value))
        return true;
    struct window *w = &windows[next_window++ % WINDOWS];
    w->low = address & ~(uintptr_t)(PAGE - 1);
    w->size = tracee_read(pid, w->low, w->data, WINDOW_SIZE);
    return tracee_known_word(address, value);
}

void tracee_forget_memory(void)
{
    for (uint32_t i = 0; i < WINDOWS; i++)
        windows[i].size = 0;
    next_window = 0;
}
