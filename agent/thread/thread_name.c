/* thread_name.c: the names of threads, as samples are labelled with them (thread_context.h). */
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"

/* So many times has a thread named another, which libc does not tell by its id. */
static uint32_t others_named;

void thread_other_named(void)
{
    __atomic_fetch_add(&others_named, 1, __ATOMIC_RELEASE);
}

/* Since the thread was asked for its name. */
static bool take_news(struct thread_slot *slot)
{
    uint32_t named = load_acquire(&others_named);
    bool is_news = named != load_relaxed(&slot->others_named);
    store_relaxed(&slot->others_named, named);
    return is_news;
}

void thread_named(const char *name)
{
    struct thread_slot *slot = thread_current();
    if (!slot || !thread_owns(slot))
        return;
    char padded[sizeof(slot->label.name)] = {0};
    for (size_t i = 0; i + 1 < sizeof(padded) && name[i]; i++)
        padded[i] = name[i];
    memcpy(slot->label.name, padded, sizeof(padded));
}

void thread_read_name(struct thread_slot *slot)
{
    char path[48], name[sizeof(slot->label.name)] = {0};
    format(path, sizeof(path), "/proc/self/task/%d/comm", slot->tid);
    int fd = sys_open(path, O_RDONLY, 0);
    if (fd < 0)
        return;
    long length = sys_call3(SYS_read, fd, name, sizeof(name));
    sys_close(fd);
    if (length <= 0)
        return;
    name[length - 1] = 0; /* a line */
    memcpy(slot->label.name, name, sizeof(name));
}

void thread_read_news(struct thread_slot *slot)
{
    if (!take_news(slot))
        return;
    char before[sizeof(slot->label.name)];
    memcpy(before, slot->label.name, sizeof(before));
    thread_read_name(slot);
    /* It may have named itself between the two, which is not to be lost. */
    if (memcmp(before, slot->label.name, sizeof(before)) != 0)
        thread_read_name(slot);
}

static void ask(struct thread_slot *slot)
{
    char name[sizeof(slot->label.name)] = {0};
    if (sys_call2(SYS_prctl, PR_GET_NAME, name) == 0)
        memcpy(slot->label.name, name, sizeof(name));
}

void thread_note_last_name(struct thread_slot *slot)
{
    if (take_news(slot))
        ask(slot);
}

void thread_note_name(struct thread_slot *slot)
{
    enum { EVERY = 8, OLD = 64 };
    uint32_t age = slot->name_age++;
    if (take_news(slot) || age % (age < OLD ? EVERY : OLD) == 0)
        ask(slot);
}
