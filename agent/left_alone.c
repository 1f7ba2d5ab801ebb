#include "agent/left_alone.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/thread/left_threads.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/thread_scan.h"

/* A list of threads is cut where one ends that is just being listed: what is found must be found
 * again, as it ends the process. */
enum { LOOKS = 2 };

static void (*write_last)(void);
static uint32_t ends;

void left_alone_start(void (*last)(void))
{
    write_last = last;
}

static void count_others(int tid, void *data)
{
    int *others = data;
    *others += tid != thread_pid() && tid != sys_tid() && !flush_is_own_thread_now(tid);
}

static bool are_tasks_ours(void)
{
    struct stat task;
    int others = 0;
    int count = thread_scan_each(count_others, &others);
    /* The folder has a link for each thread, and two of its own. */
    return count > 1 && others == 0 &&
           sys_call4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &task, 0) == 0 &&
           task.st_nlink == (uint64_t)count + 2;
}

/* Of the first thread, in the kernel's words: behind its name, which may hold anything, its state
 * is the third field, and how it ended the 52nd. False: it has not. */
static bool first_has_ended(int *status)
{
    enum { STATE_FIELD = 3, EXIT_CODE_FIELD = 52 };
    char path[64], text[1024];
    format(path, sizeof(path), "/proc/self/task/%d/stat", thread_pid());
    if (sys_read_file(path, text, sizeof(text)) < 0)
        return false;
    const char *at = NULL;
    for (const char *next = text; (next = strchr(next, ')')) != NULL; next++)
        at = next;
    if (!at || strncmp(at, ") Z", 3) != 0)
        return false;
    int field = STATE_FIELD - 1;
    while (field < EXIT_CODE_FIELD && (at = strchr(at, ' ')) != NULL) {
        at++;
        field++;
    }
    *status = 0;
    for (; at && *at >= '0' && *at <= '9'; at++)
        *status = *status * 10 + (*at - '0');
    *status = *status >> 8 & 0xff; /* as exit gave it */
    return true;
}

static bool look(int *status)
{
    if (!first_has_ended(status) || !thread_scan_is_possible())
        return false;
    for (int i = 0; i < LOOKS; i++)
        if (!are_tasks_ours())
            return false;
    return true;
}

static void count_staying(int tid, void *data)
{
    int *staying = data, status;
    *staying += !left_threads_has(tid) && !flush_is_own_thread_now(tid) &&
                !own_thread_is_of_libc(tid) && !(tid == thread_pid() && first_has_ended(&status));
}

/* Of two that leave at once each has said so before it looks. */
bool left_alone_by_this_thread(void)
{
    int staying = 0;
    left_threads_add(sys_tid());
    full_fence();
    return thread_scan_is_possible() && thread_scan_each(count_staying, &staying) > 0 &&
           staying == 0;
}

bool left_alone_look(void)
{
    int status;
    return look(&status);
}

void left_alone_end(void)
{
    int status;
    if (!write_last || !look(&status) || exchange_acq_rel(&ends, 1))
        return;
    write_last();
    sys_call1(SYS_exit_group, status);
}
