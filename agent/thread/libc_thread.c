#include "agent/thread/libc_thread.h"

#include "agent/base/sys.h"

#if defined(__x86_64__)

#include <asm/prctl.h>

enum {
    /* In glibc's struct pthread: at 720 from 2.11 on. */
    ID_LOWEST = 512,
    ID_HIGHEST = 1024,
    SELF = 0,
    SELF_TOO = 16,
};

static size_t id_offset;

size_t libc_thread_id_offset(void)
{
    uintptr_t control;
    __asm__("movq %%fs:0, %0" : "=r"(control));
    uint32_t tid = (uint32_t)sys_tid();
    size_t offset = ID_LOWEST;
    while (offset < ID_HIGHEST && *(const uint32_t *)(control + offset) != tid)
        offset += sizeof(tid);
    return offset;
}

void libc_thread_start(void)
{
    id_offset = libc_thread_id_offset();
}

bool libc_thread_is_current(int tid)
{
    uintptr_t control = 0;
    if (id_offset < ID_LOWEST || id_offset >= ID_HIGHEST)
        return false; /* not found: no thread is known to be libc's */
    if (sys_call2(SYS_arch_prctl, ARCH_GET_FS, &control) != 0 || !sys_readable(control + SELF) ||
        !sys_readable(control + SELF_TOO) || !sys_readable(control + id_offset))
        return false;
    return *(const uintptr_t *)(control + SELF) == control &&
           *(const uintptr_t *)(control + SELF_TOO) == control &&
           *(const int32_t *)(control + id_offset) == tid;
}

#else

void libc_thread_start(void) {}

size_t libc_thread_id_offset(void)
{
    return 0;
}

bool libc_thread_is_current(int tid)
{
    (void)tid;
    return false;
}

#endif
