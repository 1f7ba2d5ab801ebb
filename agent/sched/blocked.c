#include "agent/sched/blocked.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/thread_scan.h"
#include "agent/unwind/stack_reader.h"
#include "agent/unwind/unwind.h"

/* Most stacks of waiting threads are one copy of this; deeper ones take more. */
enum { WINDOW = 32 << 10 };
/* Number, six arguments, stack pointer and program counter: 19 characters each at most. */
enum { LINE_SIZE = 192, PATH_SIZE = 48 };

static void *window;
static bool has_proc, has_delays;

int blocked_start(void)
{
    if (!window)
        window = arena_reserve(WINDOW);
    has_proc = has_delays = thread_scan_is_possible();
    return window ? 0 : -ENOMEM;
}

static int open_file(int tid, const char *name)
{
    char path[PATH_SIZE];
    format(path, sizeof(path), "/proc/self/task/%d/%s", tid, name);
    return sys_open(path, O_RDONLY, 0);
}

/* Bytes read, with a 0 behind them, or a negative errno. */
static long read_line(int fd, char line[LINE_SIZE])
{
    long size = sys_call4(SYS_pread64, fd, line, LINE_SIZE - 1, 0);
    line[size > 0 ? size : 0] = 0;
    return size;
}

/* The hexadecimal number in front of *end, which is moved to the blank before it. */
static uint64_t last_number(const char *line, const char **end)
{
    const char *at = *end;
    uint64_t value = 0;
    for (unsigned shift = 0; at > line && at[-1] != ' ' && at[-1] != 'x'; shift += 4) {
        char digit = *--at;
        value |= (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10) << (shift & 63);
    }
    while (at > line && *at != ' ')
        at--;
    *end = at;
    return value;
}

/* "running", or the number of the system call (-1: none), its arguments, stack pointer and program
 * counter. False: it runs. */
static bool parse(const char *line, long size, struct unwind_regs *regs, uint32_t *state)
{
    const char *end = line + size;
    if (size < 2 || line[0] == 'r')
        return false;
    end -= end[-1] == '\n';
    regs->r[UNWIND_PC] = last_number(line, &end);
    regs->r[UNWIND_SP] = last_number(line, &end);
    *state = RECORD_BLOCKED;
    if (line[0] == '-')
        return true;
    uint32_t number = 0;
    for (const char *at = line; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint32_t)(*at - '0');
    *state = RECORD_SYSTEM_CALL + number;
    return true;
}

/* A copy of a byte of the stack is refused, or there is none. */
static bool is_out_of_reach(int tid, uintptr_t sp)
{
    uint8_t byte;
    const struct stack_copy copy = {.pid = tid};
    return !stack_copy_bytes(&copy, sp, &byte, 1);
}

static bool walk(int tid, struct unwind_regs *regs, uint32_t state, struct record_stack *stack,
                 uint32_t *count)
{
    const struct stack_copy copy = {.pid = tid, .data = window, .size = WINDOW};
    const uintptr_t sp = regs->r[UNWIND_SP];
    const uint64_t known = 1ull << UNWIND_PC | 1ull << UNWIND_SP;
    uint32_t flags, generation;
    *count = unwind_walk_copy(regs, known, true, &copy, stack->pcs, options.max_frames, &flags,
                              &generation);
    if (*count <= 1 && is_out_of_reach(tid, sp))
        return false;
    if (flags & UNWIND_GUESSED)
        state |= RECORD_APPROXIMATE;
    if (flags & UNWIND_CUT)
        stats_add(STAT_STACKS_CUT, 1);
    else if (!(flags & UNWIND_COMPLETE))
        stats_add(STAT_BLOCKED_INCOMPLETE, 1);
    stack->generation = generation | (uint64_t)state << RECORD_STATE_SHIFT;
    return *count > 0;
}

static enum blocked read_by(int fd, int tid, uint64_t cpu_ns, struct record_stack *stack,
                            uint32_t *count)
{
    char line[LINE_SIZE], again[LINE_SIZE];
    struct unwind_regs regs;
    uint32_t state;
    long size = read_line(fd, line);
    if (size < 0)
        return size == -ESRCH ? BLOCKED_GONE : BLOCKED_REFUSED;
    if (!parse(line, size, &regs, &state))
        return BLOCKED_NOT;
    bool walked = walk(tid, &regs, state, stack, count);
    if (read_line(fd, again) != size || memcmp(line, again, (size_t)size) != 0 ||
        !blocked_stands(tid, cpu_ns))
        return BLOCKED_MOVED;
    return walked ? BLOCKED_READ : BLOCKED_REFUSED;
}

bool blocked_stands(int tid, uint64_t cpu_ns)
{
    return clock_thread_cpu_of_ns(tid) == cpu_ns;
}

enum blocked blocked_read(int tid, uint64_t cpu_ns, struct record_stack *stack, uint32_t *count)
{
    int fd = has_proc ? open_file(tid, "syscall") : -EACCES;
    if (fd < 0)
        return clock_thread_cpu_of_ns(tid) ? BLOCKED_REFUSED : BLOCKED_GONE;
    enum blocked result = read_by(fd, tid, cpu_ns, stack, count);
    sys_close(fd);
    return result;
}

/* "TID (name) S ...", which anybody may read; a name has 15 bytes at most, and any bytes. */
bool blocked_runs(int tid, bool otherwise)
{
    char line[LINE_SIZE];
    int fd = has_proc ? open_file(tid, "stat") : -EACCES;
    if (fd < 0)
        return otherwise;
    long size = read_line(fd, line);
    sys_close(fd);
    enum { TID_MAX = 10, NAME_MAX_SIZE = 16 };
    for (long at = MIN_OF(size, (long)(TID_MAX + NAME_MAX_SIZE + 4)) - 3; at > 0; at--)
        if (line[at] == ')')
            return line[at + 2] == 'R';
    return otherwise;
}

static uint64_t next_number(const char **at)
{
    uint64_t value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        value = value * 10 + (uint64_t)(**at - '0');
    *at += **at == ' ';
    return value;
}

/* "RAN READY TIMES": ns, ns, and how often it was given a processor; zeros where the kernel does
 * not count. */
uint64_t blocked_delay_ns(int tid)
{
    char line[LINE_SIZE];
    int fd = has_delays ? open_file(tid, "schedstat") : -EACCES;
    if (fd < 0) {
        has_delays &= fd != -ENOENT || clock_thread_cpu_of_ns(tid) == 0;
        return UINT64_MAX;
    }
    long size = read_line(fd, line);
    sys_close(fd);
    const char *at = line;
    (void)next_number(&at);
    uint64_t delay_ns = next_number(&at);
    return size > 0 && next_number(&at) ? delay_ns : UINT64_MAX;
}
