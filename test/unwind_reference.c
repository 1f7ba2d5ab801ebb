#include "test/unwind_reference.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "agent/base/format.h"
#include "agent/base/sys.h"

__thread struct unwind_stack test_home;

void test_home_set(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    /* As after attaching: only the page in use is known. */
    test_home.high = (uintptr_t)low + size;
    test_home.low = (uintptr_t)__builtin_frame_address(0) & ~4095ul;
}

/* As sys_readable, of which suites count the calls. */
static bool is_readable(uint64_t address)
{
    return sys_raw6(SYS_rt_sigprocmask, ~0, (long)(address & ~7ull), 0, 8, 0, 0) == -EINVAL;
}

/* libunwind's unw_is_signal_frame tells it of the frame behind. */
static bool is_sigreturn(uint64_t ip)
{
#if defined(__x86_64__)
    static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#elif defined(__aarch64__)
    static const uint32_t code[] = {0xd2801168, 0xd4000001};
#endif
    return is_readable(ip) && is_readable(ip + sizeof(code) - 1) &&
           memcmp((const void *)ip, code, sizeof(code)) == 0;
}

void reference_walk(const ucontext_t *context, struct frames *frames)
{
    unw_cursor_t cursor;
    frames->count = frames->flags = 0;
    unw_init_local2(&cursor, (unw_context_t *)(uintptr_t)context, UNW_INIT_SIGNAL_FRAME);
    bool exact = true;
    do {
        unw_word_t ip = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        if (!ip)
            break;
        frames->pcs[frames->count++] = ip - !exact;
        exact = !exact && is_sigreturn(ip);
    } while (frames->count < REFERENCE_MAX && unw_step(&cursor) > 0);
}

void agent_walk(const ucontext_t *context, struct frames *frames)
{
    struct unwind_regs regs;
    unwind_regs_from_context(&regs, context);
    frames->count = unwind_walk(&regs, true, &test_home, frames->pcs, REFERENCE_MAX, &frames->flags,
                                &frames->generation);
}

void walk_here(struct frames *frames)
{
    struct unwind_regs regs;
    unwind_regs_here(&regs);
    frames->count = unwind_walk(&regs, true, &test_home, frames->pcs, REFERENCE_MAX, &frames->flags,
                                &frames->generation);
    /* This function's own frame. */
    if (frames->count)
        memmove(frames->pcs, frames->pcs + 1, --frames->count * sizeof(frames->pcs[0]));
}

bool same_frames(const struct frames *a, const struct frames *b)
{
    return a->count == b->count && memcmp(a->pcs, b->pcs, a->count * sizeof(a->pcs[0])) == 0;
}

void print_address(FILE *out, uint64_t pc)
{
    Dl_info info;
    if (!dladdr((void *)pc, &info)) {
        fprintf(out, "0x%llx", (unsigned long long)pc);
        return;
    }
    fprintf(out, "%s+0x%llx", base_name(info.dli_fname),
            (unsigned long long)(pc - (uintptr_t)info.dli_fbase));
    if (info.dli_sname)
        fprintf(out, " %s+0x%llx", info.dli_sname,
                (unsigned long long)(pc - (uintptr_t)info.dli_saddr));
}

void print_frames(FILE *out, const char *title, const struct frames *frames)
{
    fprintf(out, "  %s: %u frames, flags %u\n", title, frames->count, frames->flags);
    for (uint32_t i = 0; i < frames->count; i++) {
        fprintf(out, "    ");
        print_address(out, frames->pcs[i]);
        fprintf(out, "\n");
    }
    fflush(out);
}
