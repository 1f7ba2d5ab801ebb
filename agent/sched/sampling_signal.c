#include "agent/sched/sampling_signal.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/sys.h"

/* Standard signals first: their default use is rare in programs; real-time ones are taken by
 * runtimes (glibc's timers, Boehm's collector, musl's). */
static const int candidates[] = {SIGPROF, SIGVTALRM, SIGSTKFLT, SIGPWR};

/* What libc adds to the flags of each action (SA_RESTORER), and sigaction shows again. */
#if defined(__x86_64__)
static const int flags_of_libc = 0x04000000;
#else
static const int flags_of_libc = 0;
#endif

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum { VIEWS = 8 };
static struct sigaction views[VIEWS];
static uint32_t view;
static struct lock view_lock = LOCK_INIT(LOCK_SIGNALS);
static sampling_handler sample;
static int number;
static uint64_t widened; /* a bit a signal: see other_signal_action */

int sampling_signal_number(void)
{
    return number;
}

bool sampling_signal_is_ours(const siginfo_t *info)
{
    return info->si_code == SI_TIMER && thread_slot_is_ours(info->si_value.sival_ptr);
}

static bool has_handler(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

bool sampling_signal_is_handled(void)
{
    return has_handler(&views[load_acquire(&view)]);
}

/* The default action of every candidate is the end of the process: done by the kernel, so that
 * the exit status tells the signal. It is pending until this handler returns and unblocks it. */
static void default_action(int signal)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    next.sigaction(signal, &action, NULL);
    sys_call3(SYS_tgkill, sys_pid(), sys_tid(), signal);
}

static void chain(int signal, siginfo_t *info, void *context)
{
    const struct sigaction app = views[load_acquire(&view)];
    if (app.sa_handler == SIG_IGN)
        return;
    if (app.sa_handler == SIG_DFL) {
        default_action(signal);
        return;
    }
    if (app.sa_flags & (int)SA_RESETHAND) {
        /* As the kernel does it: all but the handler stays. */
        struct sigaction reset = app;
        reset.sa_handler = SIG_DFL;
        int result;
        (void)sampling_signal_action(signal, &reset, NULL, &result);
    }
    if (app.sa_flags & SA_SIGINFO)
        app.sa_sigaction(signal, info, context);
    else
        app.sa_handler(signal);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    if (!sampling_signal_is_ours(info)) {
        chain(signal, info, context);
        return;
    }
    sampling_handler handler = load_acquire(&sample);
    if (handler)
        handler(info->si_value.sival_ptr, context);
}

/* Puts our handler into the kernel, with what of the app's own handler it has to share. */
static void install(int signal, const struct sigaction *app)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    if (has_handler(app)) {
        const int shared = SA_RESTART | SA_ONSTACK | SA_NODEFER;
        action.sa_flags = SA_SIGINFO | (app->sa_flags & shared);
        action.sa_mask = app->sa_mask;
    }
    next.sigaction(signal, &action, NULL);
}

int sampling_signal_start(sampling_handler handler)
{
    if (!next.sigaction)
        return -ENOSYS;
    for (size_t i = 0; !number && i < ARRAY_SIZE(candidates); i++) {
        struct sigaction found;
        if (next.sigaction(candidates[i], NULL, &found) != 0 || found.sa_handler != SIG_DFL)
            continue;
        views[0] = found;
        number = candidates[i];
        if (number != SIGPROF)
            log_info("SIGPROF is in use, signal %d is taken instead", number);
        install(number, &found);
    }
    if (!number)
        return -EBUSY;
    store_release(&sample, handler);
    return 0;
}

void sampling_signal_stop(void)
{
    store_release(&sample, NULL);
}

/* Four of the kernel's frames, which is what libc recommends (_SC_SIGSTKSZ): two of them, the app's
 * handler and ours fit. 12 KiB where the kernel does not tell its frame's size. */
static size_t ample_alternate_stack(void)
{
    return MAX_OF(4 * getauxval(AT_MINSIGSTKSZ), 12288ul);
}

/* The calling thread's alternate stack stands for those of all; one that is not set yet may be
 * small. */
static bool has_small_alternate_stack(void)
{
    stack_t stack;
    return sys_call2(SYS_sigaltstack, NULL, &stack) != 0 || (stack.ss_flags & SS_DISABLE) ||
           stack.ss_size < ample_alternate_stack();
}

/* Actions of other signals. A handler of the app's on an alternate stack that was made for one
 * frame of the kernel must not have ours on top. So the kernel's mask of that handler has our
 * signal too, and sigaction does not show it; time in it goes to the next sample. */
static bool other_signal_action(int signal, const struct sigaction *action, struct sigaction *old,
                                int *result)
{
    if (signal < 1 || signal > 64)
        return false;
    uint64_t bit = (uint64_t)1 << (signal - 1);
    bool was_widened = load_relaxed(&widened) & bit;
    bool widens = action && has_handler(action) && (action->sa_flags & SA_ONSTACK) &&
                  !sigismember(&action->sa_mask, number) && has_small_alternate_stack();
    if (!was_widened && !widens)
        return false;
    struct sigaction wider;
    if (widens) {
        wider = *action;
        sigaddset(&wider.sa_mask, number);
    }
    *result = next.sigaction(signal, widens ? &wider : action, old);
    if (*result != 0)
        return true;
    if (old && was_widened)
        sigdelset(&old->sa_mask, number);
    if (action && sys_pid() == thread_pid()) { /* not in a vfork child: the word is the parent's */
        if (widens)
            __atomic_fetch_or(&widened, bit, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(&widened, ~bit, __ATOMIC_RELAXED);
    }
    return true;
}

bool sampling_signal_action(int signal, const struct sigaction *action, struct sigaction *old,
                            int *result)
{
    if (!number)
        return false;
    if (signal != number)
        return other_signal_action(signal, action, old, result);
    *result = 0;
    if (sys_pid() != thread_pid()) {
        /* A vfork (or _Fork) child: the dispositions are its own, the view is the parent's. */
        struct sigaction kernel;
        *result = next.sigaction(signal, action, &kernel);
        if (old)
            *old = kernel.sa_sigaction == on_signal ? views[load_acquire(&view)] : kernel;
        return true;
    }
    lock_acquire(&view_lock);
    uint32_t index = load_relaxed(&view);
    const struct sigaction before = views[index];
    if (action) {
        index = (index + 1) % VIEWS;
        views[index] = *action;
        views[index].sa_flags |= flags_of_libc;
        store_release(&view, index);
        install(signal, action);
    }
    lock_release(&view_lock);
    if (old)
        *old = before;
    return true;
}

void sampling_signal_reset_in_child(void)
{
    lock_reset(&view_lock);
}
