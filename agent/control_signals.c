#include "agent/control_signals.h"

#include <string.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/life.h"
#include "agent/thread/libc_thread.h"
#include "agent/thread/thread_context.h"

enum purpose { TOGGLE, FLUSH, TERM, PURPOSES };

static struct {
    const char *option;
    int number;        /* 0: not asked for */
    uint32_t in_place; /* ours is the kernel's */
} signals[PURPOSES] = {
    [TOGGLE].option = "LIBAGENT_TOGGLE_SIGNAL",
    [FLUSH].option = "LIBAGENT_FLUSH_SIGNAL",
    [TERM].option = "LIBAGENT_TERM_FLUSH",
};

/* What a program that is told to end may be held up by. */
static const uint64_t term_limit_ns = NS_PER_SEC;

static uint32_t toggles;
static uint32_t unwritten;
static uint32_t term_state; /* a futex word: 0, 1: it is being written, 2: done */
static void (*write_at_term)(uint64_t deadline_ns);

/* A process that is not ours on our memory (vfork), one that was made past libc, or a thread that
 * is not libc's: nothing may be touched. */
static bool may_act(void)
{
    return life_is_possible() && (thread_pid() == 0 || thread_in_process()) &&
           libc_thread_is_current(sys_tid());
}

static void on_toggle(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    if (!may_act())
        return;
    add_relaxed(&toggles, 1);
    agent_thread_want_control();
}

static void on_flush(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    if (!may_act())
        return;
    if (life_is_on()) {
        agent_thread_want_flush();
    } else {
        store_release(&unwritten, 1);
        agent_thread_want_control();
    }
}

static void wait_written(uint64_t deadline_ns)
{
    while (load_acquire(&term_state) == 1 && clock_monotonic_ns() < deadline_ns)
        sys_futex_wait(&term_state, 1, deadline_ns);
}

static void on_term(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    uint64_t deadline = clock_monotonic_ns() + term_limit_ns;
    if (may_act()) {
        uint32_t none = 0;
        if (__atomic_compare_exchange_n(&term_state, &none, 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            write_at_term(deadline);
            store_release(&term_state, 2);
            sys_futex_wake(&term_state, INT32_MAX);
        } else {
            wait_written(deadline);
        }
    }
    sys_default_action(number);
}

static void (*const handlers[PURPOSES])(int, siginfo_t *, void *) = {
    [TOGGLE] = on_toggle,
    [FLUSH] = on_flush,
    [TERM] = on_term,
};

static void install(enum purpose purpose)
{
    struct sigaction action = {.sa_sigaction = handlers[purpose],
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    if (purpose == TERM)
        memset(&action.sa_mask, 0xff, sizeof(action.sa_mask));
    if (next.sigaction(signals[purpose].number, &action, NULL) == 0)
        store_release(&signals[purpose].in_place, 1);
}

static void start_one(enum purpose purpose, int number)
{
    struct sigaction had;
    if (!number || !next.sigaction || next.sigaction(number, NULL, &had) != 0)
        return;
    for (int i = 0; i < PURPOSES; i++)
        if (signals[i].number == number) {
            log_error("%s: signal %d is that of %s", signals[purpose].option, number,
                      signals[i].option);
            return;
        }
    if (had.sa_handler != SIG_DFL) {
        log_error("%s: the program %s signal %d: it is not used", signals[purpose].option,
                  had.sa_handler == SIG_IGN ? "ignores" : "has a handler of", number);
        return;
    }
    signals[purpose].number = number;
    install(purpose);
}

void control_signals_start(void (*at_term)(uint64_t deadline_ns))
{
    write_at_term = at_term;
    if (!options.signals) {
        const bool asked[PURPOSES] = {options.toggle_signal, options.flush_signal,
                                      options.term_flush};
        for (int i = 0; i < PURPOSES; i++)
            if (asked[i])
                log_warn("LIBAGENT_SIGNALS=0: %s is not used", signals[i].option);
        return;
    }
    start_one(TOGGLE, (int)options.toggle_signal);
    start_one(FLUSH, (int)options.flush_signal);
    /* The kernel gives the first process of a container no signal that has the default action. */
    if (options.term_flush && sys_pid() != 1)
        start_one(TERM, SIGTERM);
}

bool control_signals_toggled(void)
{
    return __atomic_exchange_n(&toggles, 0, __ATOMIC_ACQ_REL) & 1;
}

bool control_signals_unwritten(void)
{
    return exchange_acq_rel(&unwritten, 0);
}

static bool is_of(int number, enum purpose *purpose)
{
    for (int i = 0; i < PURPOSES; i++)
        if (signals[i].number == number) {
            *purpose = (enum purpose)i;
            return true;
        }
    return false;
}

/* The program has set `handler`, where ours may have been. */
static void program_set(enum purpose purpose, uintptr_t handler)
{
    /* A child on our memory has actions of its own, and this word is its parent's. */
    if (thread_pid() != 0 && !thread_in_process())
        return;
    bool was_ours = exchange_acq_rel(&signals[purpose].in_place, 0);
    if (handler == (uintptr_t)SIG_DFL && (was_ours || purpose == TERM))
        install(purpose);
    else if (was_ours && purpose != TERM)
        log_warn("%s: the program uses signal %d itself now", signals[purpose].option,
                 signals[purpose].number);
}

void control_signals_acted(int number, const struct sigaction *action, struct sigaction *old)
{
    enum purpose purpose;
    if (!number || !is_of(number, &purpose))
        return;
    if (old && (old->sa_flags & SA_SIGINFO) && old->sa_sigaction == handlers[purpose])
        *old = (struct sigaction){.sa_handler = SIG_DFL};
    if (action)
        program_set(purpose, (uintptr_t)action->sa_handler);
}

uintptr_t control_signals_set(int number, uintptr_t handler, uintptr_t old)
{
    enum purpose purpose;
    if (!number || old == (uintptr_t)SIG_ERR || !is_of(number, &purpose))
        return old;
    program_set(purpose, handler);
    return old == (uintptr_t)handlers[purpose] ? (uintptr_t)SIG_DFL : old;
}
