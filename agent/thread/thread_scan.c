#include "agent/thread/thread_scan.h"

#include <errno.h>
#include <fcntl.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"
#include "agent/thread/left_threads.h"

/* The kernel's record of a folder's entry. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* 0 for "." and "..". */
static int parse_tid(const char *name)
{
    int tid = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        tid = tid * 10 + (*name - '0');
    return tid;
}

int thread_scan_each(void (*each)(int tid, void *data), void *data)
{
    char buffer[4096] __attribute__((aligned(8)));
    int fd = sys_open("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    int count = 0;
    long size;
    while ((size = sys_call3(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < size;) {
            const struct entry *entry = (const void *)(buffer + at);
            int tid = parse_tid(entry->name);
            at += entry->size;
            if (tid == 0)
                continue;
            count++;
            if (each)
                each(tid, data);
        }
    }
    sys_close(fd);
    return size < 0 ? (int)size : count;
}

/* The folder may be of another namespace of pids (unshare, and no new mount of it), where all have
 * other numbers. */
bool thread_scan_is_possible(void)
{
    char target[16];
    long length = sys_readlink("/proc/self", target, sizeof(target) - 1);
    if (length < 0)
        return false;
    target[length] = 0;
    return parse_tid(target) == thread_pid();
}

struct scan {
    bool (*is_own)(int tid);
    void (*adopted)(struct thread_slot *slot);
    int own;
    bool with_main;
};

static void count_own(int tid, void *data)
{
    struct scan *scan = data;
    scan->own += scan->is_own(tid);
}

static void adopt(int tid, void *data)
{
    struct scan *scan = data;
    /* The first thread was attached at the start; where it has no slot it has ended. While a slot
     * waits for its thread (tid 0), this may be the one: a later scan looks again. Asked in this
     * order, as the thread stores its tid in between. One that has left is accounted already. */
    if ((tid == thread_pid() && !scan->with_main) || scan->is_own(tid) || left_threads_has(tid) ||
        thread_find_slot(0) || thread_find_slot(tid))
        return;
    struct thread_slot *slot = thread_adopt(tid);
    if (!slot)
        return;
    thread_read_name(slot);
    scan->adopted(slot);
}

static int release_gone(void (*gone)(struct thread_slot *slot))
{
    int used = 0;
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        int tid = load_relaxed(&slot->tid);
        if (load_acquire(&slot->state) != SLOT_USED || tid == 0)
            continue;
        if (sys_call3(SYS_tgkill, thread_pid(), tid, 0) == -ESRCH) {
            gone(slot);
            thread_release_slot(slot);
        } else
            used++;
    }
    return used;
}

static void scan_if_more_than(int used, struct scan *scan)
{
    if (!thread_scan_is_possible())
        return;
    int tasks = thread_scan_each(count_own, scan);
    /* Equal numbers are the rule; only else each thread is looked for among the slots. */
    if (tasks >= 0 && tasks - scan->own != used)
        (void)!thread_scan_each(adopt, scan);
}

void thread_scan(bool (*is_own)(int tid), void (*adopted)(struct thread_slot *slot),
                 void (*gone)(struct thread_slot *slot))
{
    struct scan scan = {.is_own = is_own, .adopted = adopted};
    scan_if_more_than(release_gone(gone), &scan);
}

static void has_none(struct thread_slot *slot)
{
    (void)slot;
}

void thread_scan_all(bool (*is_own)(int tid))
{
    struct scan scan = {.is_own = is_own, .adopted = has_none, .with_main = true};
    scan_if_more_than(release_gone(has_none), &scan);
}
