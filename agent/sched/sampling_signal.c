#include "agent/sched/sampling_signal.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "agent/base/clock.h"
#include "agent/base/float_mode.h"
#include "agent/base/lock.h"
#include "agent/base/next.h"
#include "agent/base/signal_sets.h"
#include "agent/base/sys.h"
#include "agent/thread/presence.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

typedef void (*signal_handler)(int signal, siginfo_t *info, void *context);

/* The kernel's struct sigaction. */
struct kernel_action {
    signal_handler handler;
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static const uint64_t own_bit = SIGNAL_BIT(SAMPLING_SIGNAL);
static sampling_handler sample;
static uintptr_t previous; /* a signal_handler, SIG_DFL or SIG_IGN */
static bool started;
uint64_t sampling_signal_widened; /* a bit a signal: see sampling_signal_action */
uint64_t sampling_signal_cost_ns;

#if defined(__x86_64__)
/* The kernel asks for the way back from a handler. Debuggers and unwinders (that of exceptions
 * among them) know it by these bytes, where no call frame information covers it; they look one
 * byte before it. */
enum { HAS_RESTORER = 0x04000000 };
void sampling_signal_return(void) HIDDEN;
__asm__(".pushsection .text.__restore_rt,\"ax\",@progbits\n"
        "    nop\n"
        "    .balign 16, 0x90\n"
        "    .globl sampling_signal_return\n"
        "    .hidden sampling_signal_return\n"
        "    .type __restore_rt, @function\n"
        "    .type sampling_signal_return, @function\n"
        "sampling_signal_return:\n"
        "__restore_rt:\n"
        "    .byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0\n" /* movq $15, %rax: rt_sigreturn */
        "    .byte 0x0f, 0x05\n"                      /* syscall */
        "    .size __restore_rt, . - __restore_rt\n"
        ".popsection\n");
#else
enum { HAS_RESTORER = 0 };
#define sampling_signal_return NULL
#endif

/* libc's handler has the mask that it asked for: that of the interrupted code, and its signal. */
static void chain(signal_handler handler, int signal, siginfo_t *info, void *context)
{
    uint64_t mask;
    memcpy(&mask, &((const ucontext_t *)context)->uc_sigmask, sizeof(mask));
    mask |= SIGNAL_BIT(SAMPLING_SIGNAL);
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    handler(signal, info, context);
}

static bool is_ours(const siginfo_t *info)
{
    return info->si_code == SI_TIMER && thread_slot_is_ours(info->si_value.sival_ptr);
}

static const uint64_t signals_that_wait = SIGNALS_THAT_WAIT;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    if (is_ours(info)) {
        (void)alignment_checks_off();
        /* Step 6; the way back from the handler restores the mask. */
        sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &signals_that_wait, NULL,
                  sizeof(signals_that_wait));
        /* Not earlier: who jumps out of here would stay counted. */
        presence_enter_inside_handler(info->si_value.sival_ptr);
        sampling_handler handler = __atomic_load_n(&sample, __ATOMIC_SEQ_CST);
        if (handler)
            handler(info->si_value.sival_ptr, context);
        presence_leave_inside_handler(info->si_value.sival_ptr);
        return;
    }
    uintptr_t chained = load_acquire(&previous);
    if (chained == (uintptr_t)SIG_DFL)
        sys_default_action(signal);
    else if (chained != (uintptr_t)SIG_IGN)
        chain((signal_handler)chained, signal, info, context);
}

#ifdef __SANITIZE_THREAD__
static int install(void)
{
    struct sigaction old;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (next.sigaction(SAMPLING_SIGNAL, &action, &old) != 0)
        return -errno;
    if (old.sa_sigaction != on_signal)
        store_release(&previous, (uintptr_t)old.sa_sigaction);
    return 0;
}
#else
static bool on_alternate_stack; /* our handler runs there, where a thread has one */

static long kernel_sigaction(const struct kernel_action *action, struct kernel_action *old)
{
    return sys_call4(SYS_rt_sigaction, SAMPLING_SIGNAL, action, old, sizeof(action->mask));
}

/* Of the two signals of interval timers of CPU time, those that the program has a handler for. */
static uint64_t profilers_signals(void)
{
    static const int signals[] = {SIGPROF, SIGVTALRM};
    uint64_t set = 0;
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct kernel_action action = {0};
        if (sys_call4(SYS_rt_sigaction, signals[i], NULL, &action, sizeof(action.mask)) == 0 &&
            (uintptr_t)action.handler != (uintptr_t)SIG_DFL &&
            (uintptr_t)action.handler != (uintptr_t)SIG_IGN)
            set |= SIGNAL_BIT(signals[i]);
    }
    return set;
}

static int install(void)
{
    struct kernel_action old = {0};
    struct kernel_action action = {
        .handler = on_signal,
        .flags = SA_SIGINFO | SA_RESTART | SA_NODEFER | HAS_RESTORER,
        .restorer = sampling_signal_return,
        .mask = profilers_signals(),
    };
    /* Go's runtime, whose goroutines have stacks of a few KiB, adds SA_ONSTACK to the action of
     * this signal when it begins: it stays, whoever was in between. */
    on_alternate_stack |= kernel_sigaction(NULL, &old) == 0 && (old.flags & SA_ONSTACK);
    if (on_alternate_stack)
        action.flags |= SA_ONSTACK;
    long error = kernel_sigaction(&action, &old);
    if (!error && old.handler != on_signal)
        store_release(&previous, (uintptr_t)old.handler);
    return (int)error;
}
#endif

/* Signals like those of timers, while the handler does nothing yet. */
static uint64_t measure_cost(void)
{
    enum { ROUNDS = 3 };
    siginfo_t info = {.si_signo = SAMPLING_SIGNAL, .si_code = SI_TIMER};
    info.si_value.sival_ptr = thread_slot_at(0);
    if (!is_ours(&info)) /* there is no table of threads */
        return 0;
    uint64_t least = UINT64_MAX, mask;
    /* The start's lock keeps it waiting. */
    sys_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, &own_bit, &mask, sizeof(mask));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begin = clock_monotonic_ns();
        sys_call4(SYS_rt_tgsigqueueinfo, sys_pid(), sys_tid(), SAMPLING_SIGNAL, &info);
        least = MIN_OF(least, clock_monotonic_ns() - begin);
    }
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    return least;
}

int sampling_signal_start(sampling_handler handler)
{
    int error = install();
    if (!error)
        error = lock_unblock_signals(own_bit);
    if (error)
        return error;
    sampling_signal_cost_ns = measure_cost();
    started = true;
    store_release(&sample, handler);
    return 0;
}

void sampling_signal_stop(void)
{
    __atomic_store_n(&sample, NULL, __ATOMIC_SEQ_CST);
}

bool sampling_signal_send(struct thread_slot *slot, int tid)
{
    siginfo_t info = {.si_signo = SAMPLING_SIGNAL, .si_code = SI_TIMER};
    info.si_value.sival_ptr = slot;
    return sys_call4(SYS_rt_tgsigqueueinfo, thread_pid(), tid, SAMPLING_SIGNAL, &info) == 0;
}

void sampling_signal_renew(void)
{
    if (started)
        (void)!install();
}

static bool has_handler(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

/* Four of the kernel's frames, which is what libc recommends (_SC_SIGSTKSZ): two of them, the app's
 * handler and ours fit. 12 KiB where the kernel does not tell its frame's size. */
static size_t ample_alternate_stack(void)
{
    return MAX_OF(4 * sys_auxv(AT_MINSIGSTKSZ), 12288ul);
}

/* The calling thread's alternate stack stands for those of all; one that is not set yet may be
 * small. */
static bool has_small_alternate_stack(void)
{
    stack_t stack;
    return sys_call2(SYS_sigaltstack, NULL, &stack) != 0 || (stack.ss_flags & SS_DISABLE) ||
           stack.ss_size < ample_alternate_stack();
}

/* A handler of the app's on an alternate stack that was made for one frame of the kernel must not
 * have ours on top. So the kernel's mask of that handler has our signal too, and sigaction does not
 * show it; time in it goes to the next sample. */
bool sampling_signal_action(int signal, const struct sigaction *action, struct sigaction *old,
                            int *result)
{
    if (!started || signal < 1 || signal > 64)
        return false;
    uint64_t bit = SIGNAL_BIT(signal);
    bool was_widened = load_relaxed(&sampling_signal_widened) & bit;
    bool widens = action && has_handler(action) && (action->sa_flags & SA_ONSTACK) &&
                  has_small_alternate_stack();
    if (!was_widened && !widens)
        return false;
    struct sigaction wider;
    if (widens) {
        wider = *action;
        /* Not by sigaddset, which refuses libc's signals. */
        wider.sa_mask.__val[0] |= (unsigned long)1 << (SAMPLING_SIGNAL - 1);
    }
    *result = next.sigaction(signal, widens ? &wider : action, old);
    if (*result != 0)
        return true;
    if (old && was_widened)
        old->sa_mask.__val[0] &= ~((unsigned long)1 << (SAMPLING_SIGNAL - 1));
    if (action && thread_in_process()) { /* not in a vfork child: the word is the parent's */
        if (widens)
            __atomic_fetch_or(&sampling_signal_widened, bit, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(&sampling_signal_widened, ~bit, __ATOMIC_RELAXED);
    }
    return true;
}

/* The stack pointer in libc's jmp_buf; 0: not known. */
static uintptr_t stack_pointer_of(const void *environment)
{
#if defined(__x86_64__)
    /* The seventh word, rotated and masked by the thread's pointer guard, as in glibc since 2.5. */
    enum { STACK_POINTER = 6, ROTATED = 17 };
    uintptr_t guard;
    __asm__("movq %%fs:48, %0" : "=r"(guard));
    uintptr_t word = ((const uintptr_t *)environment)[STACK_POINTER];
    return (word >> ROTATED | word << (64 - ROTATED)) ^ guard;
#elif defined(__aarch64__)
    /* The fourteenth word, masked by the process's pointer guard, which the loader takes from the
     * kernel's random bytes, the second eight, as in glibc since 2.19. */
    enum { STACK_POINTER = 13 };
    const uintptr_t *random = (const uintptr_t *)sys_auxv(AT_RANDOM);
    return random ? ((const uintptr_t *)environment)[STACK_POINTER] ^ random[1] : 0;
#endif
}

/* A handler may jump within itself, and is on its small stack afterwards. */
static bool is_on_alternate_stack(uintptr_t address)
{
    stack_t stack;
    return sys_call2(SYS_sigaltstack, NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE) &&
           address - (uintptr_t)stack.ss_sp < stack.ss_size;
}

bool sampling_signal_would_stay_blocked(const void *environment)
{
    uint64_t mask;
    return sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask)) == 0 &&
           (mask & own_bit) && !is_on_alternate_stack(stack_pointer_of(environment));
}

static bool take_pending(siginfo_t *info)
{
    static const struct timespec none = {0, 0};
    return sys_call4(SYS_rt_sigtimedwait, &own_bit, info, &none, sizeof(own_bit)) ==
           SAMPLING_SIGNAL;
}

void sampling_signal_unblock(void)
{
    siginfo_t info, kept;
    bool has_kept = false;
    while (take_pending(&info)) {
        if (is_ours(&info))
            continue;
        kept = info; /* libc sends one in a thread's life: two that are not ours count as one */
        has_kept = true;
    }
    /* Back into the queue as it was: it says who sent it, and how. */
    if (has_kept)
        sys_call4(SYS_rt_tgsigqueueinfo, sys_pid(), sys_tid(), SAMPLING_SIGNAL, &kept);
    sys_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, &own_bit, NULL, sizeof(own_bit));
}
