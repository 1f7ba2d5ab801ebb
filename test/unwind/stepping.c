#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "test/unwind/differences.h"
#include "test/unwind/judge.h"
#include "test/unwind/modes.h"
#include "test/unwind/shadow_stack.h"
#include "test/unwind/tracee_modules.h"

static struct rng rng = {.state = 42};

/* Waits for the thread to stop; false when it has ended. *signal gets what is to be delivered. */
static bool wait_for_stop(pid_t tid, int *signal)
{
    int status;
    *signal = 0;
    if (waitpid(tid, &status, __WALL) != tid)
        die("waitpid: %s", strerror(errno));
    if (!WIFSTOPPED(status))
        return false;
    bool is_event = status >> 16 != 0, is_trap = WSTOPSIG(status) == SIGTRAP;
    if (!is_event && !is_trap)
        *signal = WSTOPSIG(status);
    return true;
}

/* That at the pc. From the file where there is one, which saves a system call a step. */
static void read_code(const struct tracee *tracee, uint8_t code[16])
{
    size_t size;
    const uint8_t *bytes = tracee_file_bytes(tracee->regs.rip, &size);
    memset(code, 0, 16);
    if (bytes && size >= 16)
        memcpy(code, bytes, 16);
    else
        tracee_read(tracee->pid, tracee->regs.rip, code, 16);
}

static bool changes_maps(const struct tracee *tracee, const uint8_t *code)
{
    unsigned long number = tracee->regs.rax;
    return code[0] == 0x0f && code[1] == 0x05 &&
           (number == SYS_mmap || number == SYS_mprotect || number == SYS_munmap ||
            number == SYS_mremap);
}

/* False when the program has ended. */
static bool step_stretch(struct tracee *tracee, uint64_t steps, int *signal)
{
    uint8_t code[16];
    for (uint64_t i = 0; i < steps; i++) {
        struct tracee before = *tracee;
        read_code(tracee, code);
        int delivered = *signal;
        if (ptrace(PTRACE_SINGLESTEP, tracee->tid, 0, delivered) != 0 ||
            !wait_for_stop(tracee->tid, signal))
            return false;
        tracee_forget_memory();
        tracee_get_registers(tracee);
        if (changes_maps(&before, code))
            judge_modules(tracee->pid);
        shadow_step(&before, code, delivered, tracee);
        judge_step(tracee);
    }
    return true;
}

/* Lets the program run for a while; false when it has ended. */
static bool run_on(struct tracee *tracee, uint64_t most_us, int *signal)
{
    if (!most_us)
        return true;
    if (ptrace(PTRACE_CONT, tracee->tid, 0, *signal) != 0)
        return false;
    usleep((useconds_t)(rng_next(&rng) % most_us));
    /* Fails when it has ended: then the wait says so. */
    bool interrupted = ptrace(PTRACE_INTERRUPT, tracee->tid, 0, 0) == 0;
    if (!wait_for_stop(tracee->tid, signal))
        return false;
    /* A stop of its own came first: what was asked for is still to come. */
    while (interrupted && *signal) {
        int stop = *signal;
        if (ptrace(PTRACE_CONT, tracee->tid, 0, stop) != 0 || !wait_for_stop(tracee->tid, signal))
            return false;
    }
    tracee_forget_memory();
    tracee_get_registers(tracee);
    judge_modules(tracee->pid);
    judge_gap();
    return true;
}

/* Lets the loader do its work: stops at the program's first own instruction. */
static void run_to_entry(struct tracee *tracee)
{
    enum { AUX_ENTRY = 9, BREAKPOINT = 0xcc };
    char path[64];
    uint64_t pairs[128];
    uintptr_t entry = 0;
    int signal;
    snprintf(path, sizeof(path), "/proc/%d/auxv", tracee->pid);
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(pairs, 16, 64, file) : 0;
    if (file)
        fclose(file);
    for (size_t i = 0; i < count; i++)
        if (pairs[2 * i] == AUX_ENTRY)
            entry = pairs[2 * i + 1];
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, tracee->tid, entry, 0);
    long trap = (code & ~0xffl) | BREAKPOINT;
    if (errno || ptrace(PTRACE_POKETEXT, tracee->tid, entry, trap) != 0 ||
        ptrace(PTRACE_CONT, tracee->tid, 0, 0) != 0 || !wait_for_stop(tracee->tid, &signal))
        die("the program's entry is not reached");
    tracee_get_registers(tracee);
    tracee->regs.rip = entry;
    if (ptrace(PTRACE_POKETEXT, tracee->tid, entry, code) != 0 ||
        ptrace(PTRACE_SETREGS, tracee->tid, 0, &tracee->regs) != 0)
        die("the program's entry: %s", strerror(errno));
}

/* One processor for both: each step is a switch to the other and back. */
static void stay_on_this_processor(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

void step_program(bool from_entry, uint64_t stops, uint64_t stretch, uint64_t gap_us,
                  char *const command[])
{
    stay_on_this_processor();
    for (int run = 0; differences_stops() < stops; run++) {
        if (run == RUNS_MAX)
            die("%d runs of %s give only %lu steps", run, command[0], differences_stops());
        int signal = 0;
        struct tracee tracee = {.pid = tracee_start(command, false)};
        tracee.tid = tracee.pid;
        if (from_entry)
            run_to_entry(&tracee);
        tracee_forget_memory();
        tracee_get_registers(&tracee);
        judge_modules(tracee.pid);
        shadow_begin_empty();
        /* The first run is watched from there. */
        bool alive = run == 0 || run_on(&tracee, gap_us, &signal);
        while (alive && differences_stops() < stops) {
            uint64_t rest = stops - differences_stops();
            alive = step_stretch(&tracee, rest < stretch ? rest : stretch, &signal) &&
                    run_on(&tracee, gap_us, &signal);
        }
        if (alive) {
            kill(tracee.pid, SIGKILL);
            while (wait_for_stop(tracee.tid, &signal)) {
            }
        }
    }
}
