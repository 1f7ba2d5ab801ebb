#include "agent/thread/libc_thread.h"

#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"

#if defined(__x86_64__)

#include <asm/prctl.h>
#include <sys/auxv.h>

#ifndef AT_HWCAP2
#define AT_HWCAP2 26
#endif

/* rdfsbase is for user space, too. */
enum { HWCAP2_FSGSBASE = 2 };
static bool has_instruction;

static void choose_way(void)
{
    has_instruction = sys_auxv(AT_HWCAP2) & HWCAP2_FSGSBASE;
}

static bool ask_instruction(uintptr_t *pointer)
{
#ifdef LIBAGENT_TEST
    if (sys_override)
        return false;
#endif
    if (likely(has_instruction))
        __asm__ volatile("rdfsbase %0" : "=r"(*pointer));
    return has_instruction;
}

enum {
    /* In glibc's struct pthread: at 720 from 2.11 on. */
    ID_NEAREST = 512,
    ID_FARTHEST = 1024,
    ID_STEP = sizeof(uint32_t),
    SELF = 0,
    SELF_TOO = 16,
};

static bool ask_pointer(uintptr_t *pointer)
{
    return sys_call2(SYS_arch_prctl, ARCH_GET_FS, pointer) == 0;
}

static bool has_own_address(uintptr_t control)
{
    return sys_readable(control + SELF) && sys_readable(control + SELF_TOO) &&
           *(const uintptr_t *)(control + SELF) == control &&
           *(const uintptr_t *)(control + SELF_TOO) == control;
}

#elif defined(__aarch64__)

static void choose_way(void) {}

static bool ask_instruction(uintptr_t *pointer)
{
    (void)pointer;
    return false; /* the other way is one */
}

enum {
    /* glibc's struct pthread lies right below the thread pointer, and its id 208 from its begin:
     * 1,568 below in 2.31, 1,632 in 2.36. */
    ID_NEAREST = -1024,
    ID_FARTHEST = -4096,
    ID_STEP = -(int)sizeof(uint32_t),
};

static bool ask_pointer(uintptr_t *pointer)
{
#ifdef LIBAGENT_TEST
    long result;
    if (sys_override &&
        sys_override(LIBC_THREAD_POINTER_CALL, (const long[6]){0, (long)pointer}, &result))
        return result == 0;
#endif
    *pointer = thread_pointer();
    return true;
}

static bool has_own_address(uintptr_t control)
{
    return control % sizeof(control) == 0;
}

#endif

static ptrdiff_t id_offset;

ptrdiff_t libc_thread_id_offset(void)
{
    uintptr_t control = thread_pointer();
    uint32_t tid = (uint32_t)sys_tid();
    uintptr_t page = 0;
    for (ptrdiff_t offset = ID_NEAREST; offset != ID_FARTHEST; offset += ID_STEP) {
        uintptr_t at = control + (uintptr_t)offset;
        /* Another libc's block may be smaller, and end with its mapping. */
        if (at / PAGE_SIZE_MIN != page && !sys_readable(at))
            break;
        page = at / PAGE_SIZE_MIN;
        if (*(const uint32_t *)at == tid)
            return offset;
    }
    return ID_FARTHEST;
}

void libc_thread_start(void)
{
    id_offset = libc_thread_id_offset();
    choose_way();
}

bool libc_thread_has_pointer(uintptr_t pointer)
{
    uintptr_t now = 0;
    return (ask_instruction(&now) || ask_pointer(&now)) && now == pointer;
}

bool libc_thread_is_current(int tid)
{
    uintptr_t control = 0;
    if (id_offset == 0 || id_offset == ID_FARTHEST)
        return false; /* not found: no thread is known to be libc's */
    return ask_pointer(&control) && has_own_address(control) &&
           sys_readable(control + (uintptr_t)id_offset) &&
           *(const int32_t *)(control + (uintptr_t)id_offset) == tid;
}
