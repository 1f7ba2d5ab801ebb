#include "agent/sched/wall.h"

#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/record/kept_stacks.h"
#include "agent/record/scratch.h"
#include "agent/sched/blocked.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/look_budget.h"
#include "agent/sched/run_balance.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/wall_account.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/unwind/modules.h"

enum { ANSWER_TICKS = 8 }; /* an answer is awaited for so many ticks */

static const uint64_t one_sample = (uint64_t)1 << RECORD_FRACTION_BITS;

bool wall_on;
static struct account *accounts; /* one a slot */
/* The last tick that visited threads, and the last one behind it that found the process idle: each
 * thread was visited and stands. Ticks do without where threads are many (agent/sched/tick.c). */
static uint64_t visited_ns, idle_ns;
static bool sends_signals;
/* Stacks cannot be read from outside: those of CPU samples are kept. */
static bool keeps_samples;

static struct account *account_of(const struct thread_slot *slot)
{
    return &accounts[slot - thread_slot_at(0)];
}

/* ---- samples ---- */

static void add_labelled(const struct thread_slot *slot, const struct record_stack *stack,
                         uint32_t count, const struct label_view *labels, uint64_t amount_ns)
{
    recorder_add_labelled(RECORD_WALL, stack, count, &slot->label, labels,
                          (struct record_values){one_sample, amount_ns}, true);
    stats_add(STAT_WALL_SAMPLES, 1);
}

/* Apart, for the room that a copy of labels takes: nothing has that on a thread's own stack. */
static __attribute__((noinline)) void add_of_other(const struct thread_slot *slot,
                                                   const struct record_stack *stack, uint32_t count,
                                                   uint64_t amount_ns)
{
    struct label_set copy;
    struct label_view labels = user_labels_of(load_acquire(&slot->labels), &copy);
    add_labelled(slot, stack, count, &labels, amount_ns);
}

static void add_of_own(const struct thread_slot *slot, const struct record_stack *stack,
                       uint32_t count, uint64_t amount_ns)
{
    struct label_view labels = user_labels_here(slot->labels);
    add_labelled(slot, stack, count, &labels, amount_ns);
}

/* Not in a handler. */
static void add(const struct thread_slot *slot, const struct record_stack *stack, uint32_t count,
                uint64_t amount_ns)
{
    const struct thread_slot *own = thread_current();
    if (own && own == slot)
        add_of_own(slot, stack, count, amount_ns);
    else
        add_of_other(slot, stack, count, amount_ns);
}

/* A stack that nobody walked: a name above the place where the thread began. */
struct named_stack {
    uint64_t first_word;
    uint64_t pcs[2];
};

static uint32_t name_stack(const struct thread_slot *slot, enum pseudo_frame name, uint32_t state,
                           struct named_stack *stack)
{
    stack->first_word = load_relaxed(&modules_generation) | (uint64_t)state << RECORD_STATE_SHIFT;
    stack->pcs[0] = name;
    stack->pcs[1] = cpu_sample_root(slot);
    return stack->pcs[1] ? 2 : 1;
}

static void add_named(const struct thread_slot *slot, enum pseudo_frame name, uint64_t amount_ns)
{
    struct named_stack stack;
    if (!amount_ns)
        return;
    uint32_t state = name == PSEUDO_TAIL ? RECORD_UNTOLD : RECORD_RUNNING;
    uint32_t count = name_stack(slot, name, state, &stack);
    add(slot, (const struct record_stack *)(const void *)&stack, count, amount_ns);
}

/* The stack gets the thread's time until it was last seen there, with the labels that it had when
 * it was looked at, not those of now. Where a capture began or ended meanwhile, in parts. */
static void tell(const struct thread_slot *slot, struct account *account,
                 const struct record_stack *stack, uint32_t count)
{
    while (account->last_ns < account->seen_ns) {
        uint64_t until = account->seen_ns;
        struct label_view labels =
            user_labels_kept(load_acquire(&slot->labels), account->last_ns, &until);
        uint64_t samples = until == account->seen_ns ? one_sample : 0;
        recorder_add_labelled(RECORD_WALL, stack, count, &slot->label, &labels,
                              (struct record_values){samples, until - account->last_ns}, true);
        account->last_ns = until;
    }
    stats_add(STAT_WALL_SAMPLES, 1);
}

/* What it stands at. */
static void settle(const struct thread_slot *slot, struct account *account)
{
    uint64_t idle = load_relaxed(&idle_ns);
    if (account->seen_ns == load_relaxed(&visited_ns))
        account->seen_ns = MAX_OF(account->seen_ns, idle);
    if (!account->kept || account->seen_ns <= account->last_ns)
        return;
    uint32_t count;
    const struct record_stack *stack = kept_stack_at(account->kept, &count);
    tell(slot, account, stack, count);
}

static uint64_t take_running(struct account *account)
{
    return __atomic_exchange_n(&account->running_ns, 0, __ATOMIC_RELAXED);
}

/* ---- ticks ---- */

/* The time up to `now_ns` is for this stack, and so is what follows until the thread moves. */
static void stand(const struct thread_slot *slot, struct account *account,
                  const struct record_stack *stack, uint32_t count, uint64_t now_ns,
                  uint64_t cpu_ns)
{
    account->kept = kept_stack(stack, count);
    account->cpu_ns = cpu_ns;
    account->seen_ns = now_ns;
    if (!account->kept)
        tell(slot, account, stack, count);
}

static void run(struct account *account, uint64_t now_ns)
{
    add_relaxed(&account->running_ns, now_ns - account->last_ns);
    account->last_ns = account->seen_ns = now_ns;
}

/* It is seen waiting, and what is left it waited. */
static void run_before(struct account *account, uint64_t now_ns, uint64_t cpu_ns)
{
    uint64_t passed = now_ns - account->last_ns;
    run(account, account->last_ns +
                     run_balance_take(&account->balance, account->tid, cpu_ns, passed, false));
}

/* It is seen running. What it did not run it has waited, where it did before. */
static void wait_and_run(const struct thread_slot *slot, struct account *account, uint64_t now_ns,
                         uint64_t cpu_ns)
{
    uint32_t count;
    uint64_t passed = now_ns - account->last_ns;
    uint64_t ran = run_balance_take(&account->balance, account->tid, cpu_ns, passed, true);
    if (ran < passed && account->waited) {
        account->seen_ns = now_ns - ran;
        const struct record_stack *stack = kept_stack_at(account->waited, &count);
        tell(slot, account, stack, count);
    } else {
        run_balance_give(&account->balance, passed - ran);
    }
    run(account, now_ns);
}

/* The same stack in another state. */
static void stand_at_sampled(const struct thread_slot *slot, struct account *account,
                             struct record_stack *stack, uint32_t state, uint64_t now_ns,
                             uint64_t cpu_ns)
{
    struct named_stack named;
    uint32_t count, sampled = load_acquire(&account->sampled);
    if (sampled) {
        const struct record_stack *kept = kept_stack_at(sampled, &count);
        stack->generation = (uint32_t)kept->generation | (uint64_t)state << RECORD_STATE_SHIFT;
        memcpy(stack->pcs, kept->pcs, count * sizeof(kept->pcs[0]));
    } else {
        count = name_stack(slot, PSEUDO_UNREACHED, state, &named);
        stack = (struct record_stack *)(void *)&named;
    }
    stand(slot, account, stack, count, now_ns, cpu_ns);
}

/* False: it has gone on meanwhile, and they may be those of what it does now. */
static bool keep_labels(const struct thread_slot *slot, uint64_t cpu_ns)
{
    user_labels_keep(load_acquire(&slot->labels));
    return blocked_stands(load_relaxed(&slot->tid), cpu_ns);
}

/* What the thread does is not told. */
static void look_without(struct thread_slot *slot, struct account *account,
                         struct record_stack *stack, uint64_t now_ns, uint64_t cpu_ns)
{
    store_relaxed(&keeps_samples, true);
    stats_add(STAT_BLOCKED_REFUSED, 1);
    if (blocked_runs(account->tid, cpu_ns != account->cpu_ns)) {
        wait_and_run(slot, account, now_ns, cpu_ns);
        account->cpu_ns = cpu_ns;
        return;
    }
    uint32_t state = RECORD_BLOCKED | RECORD_APPROXIMATE;
    if (sends_signals) {
        uint32_t answer = load_acquire(&account->answer);
        if (answer == ANSWER_AWAITED && ++account->awaited < ANSWER_TICKS)
            return; /* it has no processor yet */
        account->awaited = 0;
        store_relaxed(&account->answer, answer == ANSWER_NONE ? ANSWER_AWAITED : ANSWER_NONE);
        if (answer == ANSWER_NONE && sampling_signal_send(slot, account->tid))
            return; /* the next tick has the stack, and all of the time */
        if (answer == ANSWER_GIVEN)
            state = RECORD_BLOCKED;
    }
    user_labels_keep(load_acquire(&slot->labels));
    run_before(account, now_ns, cpu_ns);
    stand_at_sampled(slot, account, stack, state, now_ns, cpu_ns);
}

static void look(struct thread_slot *slot, struct account *account, struct record_stack *stack,
                 uint64_t now_ns, uint64_t cpu_ns)
{
    uint32_t count = 0;
    thread_read_news(slot);
    settle(slot, account);
    account->waited = account->kept ? account->kept : account->waited;
    account->kept = 0;
    enum blocked found = blocked_read(account->tid, cpu_ns, stack, &count);
    /* Those until now were needed for what it waited before. */
    if (found == BLOCKED_READ && !keep_labels(slot, cpu_ns))
        found = BLOCKED_MOVED;
    switch (found) {
    case BLOCKED_READ:
        stats_add(STAT_BLOCKED_READ, 1);
        run_before(account, now_ns, cpu_ns);
        stand(slot, account, stack, count, now_ns, cpu_ns);
        break;
    case BLOCKED_NOT:
        wait_and_run(slot, account, now_ns, cpu_ns);
        break;
    case BLOCKED_MOVED:
        stats_add(STAT_BLOCKED_MOVED, 1);
        break;
    case BLOCKED_REFUSED:
        look_without(slot, account, stack, now_ns, cpu_ns);
        break;
    case BLOCKED_GONE:
        break;
    }
}

static void open_account(struct account *account, int tid, uint64_t now_ns)
{
    account->last_ns = account->seen_ns = now_ns;
    account->kept = account->waited = account->sampled = 0;
    account->balance = (struct run_balance){0};
    account->answer = ANSWER_NONE;
    account->looked_ns = 0;
    store_relaxed(&account->running_ns, 0);
    account->tid = tid;
}

static void visit(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns)
{
    if (!wall_on || !claim(account_of(slot)))
        return;
    struct account *account = account_of(slot);
    struct record_stack *stack = NULL;
    int tid = load_relaxed(&slot->tid);
    if (account->tid != tid && account->tid != -tid) /* it attached itself unseen */
        open_account(account, tid, now_ns);
    if (account->tid == tid && now_ns > account->seen_ns) {
        if (account->kept && account->cpu_ns == cpu_ns)
            account->seen_ns = now_ns;
        else if (look_budget_take(&account->looked_ns, now_ns))
            stack = scratch_claim();
    }
    if (stack) {
        uint64_t begin = clock_monotonic_ns();
        if (tick_guard_enter()) {
            look(slot, account, stack, now_ns, cpu_ns);
            tick_guard_leave();
        }
        scratch_give(stack);
        look_budget_spent(clock_monotonic_ns() - begin);
    }
    if (account->tid == tid && (!account->kept || account->cpu_ns != cpu_ns))
        tick_visit_again(); /* or all of a wait that begins now would be what it does next */
    release(account);
}

static void tick_done(uint64_t now_ns, uint32_t visits)
{
    store_relaxed(visits ? &visited_ns : &idle_ns, now_ns);
    look_budget_renew(now_ns);
    /* No thread of the app may come by one when a period is over. */
    moment_pass(own_thread_is_known_to_libc());
}

/* A burst of looks, with room for a thousand threads: what is not looked at now is nobody's. */
const struct tick_visitor wall_visitor = {
    .still = visit, .moved = visit, .done = tick_done, .last = look_budget_start};

void wall_sample_inside_handler(struct thread_slot *slot, struct record_stack *stack,
                                uint32_t count)
{
    struct account *account = account_of(slot);
    uint64_t running = take_running(account);
    if (running)
        add_of_own(slot, stack, count, running);
    if (load_relaxed(&keeps_samples)) {
        store_release(&account->sampled, kept_stack(stack, count));
        uint32_t awaited = ANSWER_AWAITED;
        __atomic_compare_exchange_n(&account->answer, &awaited, ANSWER_GIVEN, false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

/* ---- threads ---- */

void wall_thread_begin(struct thread_slot *slot, uint64_t now_ns)
{
    if (!wall_on)
        return;
    struct account *account = account_of(slot);
    if (!claim_in_time(account))
        return;
    open_account(account, slot->tid, now_ns);
    release(account);
}

/* All of its time up to `now_ns`. */
static void close_account(struct thread_slot *slot, struct account *account, uint64_t now_ns)
{
    settle(slot, account);
    uint64_t rest = take_running(account);
    if (!options.signals) {
        add_named(slot, PSEUDO_RUNNING, rest);
        rest = 0;
    }
    if (now_ns > account->last_ns)
        rest += now_ns - account->last_ns;
    account->last_ns = account->seen_ns = MAX_OF(now_ns, account->last_ns);
    account->kept = 0;
    add_named(slot, PSEUDO_TAIL, rest);
}

void wall_thread_end(struct thread_slot *slot, uint64_t now_ns)
{
    if (!wall_on)
        return;
    struct account *account = account_of(slot);
    if (!claim_in_time(account))
        return;
    if (account->tid == slot->tid)
        close_account(slot, account, now_ns);
    account->tid = -slot->tid;
    release(account);
}

/* ---- flushes ---- */

bool wall_is_on(void)
{
    return wall_on;
}

void wall_flush(struct thread_slot *slot, uint64_t now_ns, uint64_t cpu_ns, bool final)
{
    if (!wall_on)
        return;
    struct account *account = account_of(slot);
    if (!claim_in_time(account))
        return;
    if (account->tid > 0 && account->tid == load_relaxed(&slot->tid)) {
        if (account->kept && account->cpu_ns == cpu_ns)
            account->seen_ns = MAX_OF(account->seen_ns, now_ns);
        thread_read_news(slot);
        settle(slot, account);
        if (final)
            close_account(slot, account, now_ns);
        else if (!options.signals || cpu_sample_is_unreached(slot, cpu_ns))
            add_named(slot, options.signals ? PSEUDO_UNREACHED : PSEUDO_RUNNING,
                      take_running(account));
    }
    release(account);
}

static bool forget_stacks(void)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct account *account = &accounts[i];
        if (!claim_in_time(account))
            return false;
        settle(thread_slot_at(i), account);
        account->kept = account->waited = 0;
        store_relaxed(&account->sampled, 0);
        release(account);
    }
    return true;
}

/* Threads that went without telling so: nobody knows when. Their slots may be another's already. */
static void close_gone(void)
{
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        struct account *account = &accounts[i];
        if (account->tid <= 0 || load_acquire(&slot->state) == SLOT_USED || !claim_in_time(account))
            continue;
        if (account->tid > 0 && load_acquire(&slot->state) != SLOT_USED) {
            close_account(slot, account, account->seen_ns);
            account->tid = 0;
        }
        release(account);
    }
}

void wall_flushed(void)
{
    if (!wall_on)
        return;
    close_gone();
    if (!kept_stacks_are_many())
        return;
    kept_stacks_close();
    /* Else they stay closed until the next flush: what cannot be kept is told at each tick. */
    if (thread_guard_quiescent(clock_monotonic_ns() + NS_PER_SEC) && forget_stacks())
        kept_stacks_open();
}

/* ---- start ---- */

static void begin_anew(void)
{
    memset(accounts, 0, thread_slot_count() * sizeof(accounts[0]));
    visited_ns = idle_ns = 0;
    keeps_samples = false;
    look_budget_start();
}

void wall_start(bool signals)
{
    if (!accounts)
        accounts = arena_reserve(thread_slot_capacity() * sizeof(accounts[0]));
    if (accounts)
        begin_anew();
    sends_signals = signals && options.signals;
    wall_on = accounts && blocked_start() == 0 && kept_stacks_start() == 0;
    if (!wall_on)
        log_warn_once("no wall profile: LIBAGENT_MEMORY has no room for it");
}

void wall_stop(void)
{
    store_relaxed(&wall_on, false);
    kept_stacks_destroy();
}

void wall_reset_in_child(struct thread_slot *own, uint64_t now_ns)
{
    if (!wall_on)
        return;
    begin_anew();
    kept_stacks_open();
    (void)!blocked_start();
    if (own)
        wall_thread_begin(own, now_ns);
}
