#include "agent/agent.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>

#include "agent/agent_thread.h"
#include "agent/alloc/alloc_sample.h"
#include "agent/base/clock.h"
#include "agent/base/float_mode.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/control.h"
#include "agent/control_signals.h"
#include "agent/flush.h"
#include "agent/late_thread.h"
#include "agent/left_alone.h"
#include "agent/life.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/itimer.h"
#include "agent/sched/sampling_signal.h"
#include "agent/start.h"
#include "agent/thread/moment.h"
#include "agent/thread/presence.h"
#include "agent/thread/thread_context.h"
#include "agent/unseen_threads.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwinder.h"
#include "agent/ways_out.h"
#include "uploader/uploader.h"

/* As exit may be held up. */
static const uint64_t pause_limit_ns = 3 * NS_PER_SEC;

/* A dlopen was passed on unwatched. */
static uint32_t unwatched_load;

/* Not a child on the parent's memory (vfork), nor one that was made past libc. */
static bool is_this_process(void)
{
    return thread_pid() == 0 || thread_in_process();
}

/* ---- the constructor ---- */

/* The executable's base name, in `path`. */
static const char *executable_name(char *path, size_t size)
{
    long length = sys_readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = 0;
    return base_name(path);
}

/* The name that the program was started by: that of a link (redis-server, for an executable that
 * serves several names) or a script rather than what it leads to. */
static const char *program_name(const char *executable)
{
    const char *started = (const char *)sys_auxv(AT_EXECFN);
    bool is_descriptor = started && strncmp(started, "/dev/fd/", 8) == 0; /* fexecve */
    return started && *base_name(started) && !is_descriptor ? base_name(started) : executable;
}

static void at_term(uint64_t deadline_ns);

/* Is this process to be profiled, now or later? */
static bool select_process(char **argv, char **environment, const char *executable,
                           const char *program)
{
    struct rng rng;
    rng_seed(&rng, 0);
    const char *const names[] = {executable, program, argv[0] ? base_name(argv[0]) : NULL, NULL};
    if (!options_select(environment, sys_auxv(AT_SECURE) != 0, names, 1 - rng_unit(&rng)))
        return false;
    options_load(environment, program);
    return options_ok(PART_ALL) && options_ok(PART_OUTPUT) && options.profiles;
}

static void init(char **argv, char **environment)
{
    char path[512];
    const char *executable = executable_name(path, sizeof(path));
    const char *program = program_name(executable);
    if (select_process(argv, environment, executable, program)) {
        /* The main thread's frames lie below its arguments. */
        start_program(environment, program, argv);
        if (control_begin())
            options_load(environment, program);
        life_begin(control_is_enabled());
        left_alone_start(agent_at_exit);
        /* A start from outside is done by a thread that libc does not know. */
        if (control_is_asked_for())
            (void)!start_prepare();
        if (!options.manual_start)
            (void)!life_count_start(NULL, NULL);
        start_main_follows();
        control_start();
        control_signals_start(at_term);
    }
    if (options.help)
        ways_out_print_help(environment);
    if (!life_is_possible())
        alloc_stop_for_good();
}

bool agent_init(char **argv, char **environment)
{
    float_mode mode = float_mode_enter();
    init(argv, environment);
    float_mode_leave(mode);
    return life_is_possible();
}

void agent_stay_off(void)
{
    alloc_stop_for_good();
}

/* ---- signals ---- */

void agent_before_jump(const void *environment)
{
    if (likely(!sampling_signal_is_in_masks()) || !life_is_on() ||
        !sampling_signal_would_stay_blocked(environment))
        return;
    /* The handler's stack may have no room for a tick's frame: none is due before the jump. */
    struct thread_slot *slot = thread_current();
    bool has_timer = life_scheduler && slot && thread_owns(slot);
    if (has_timer)
        life_scheduler->thread_hold(slot);
    sampling_signal_unblock();
    if (has_timer)
        life_scheduler->thread_go_on(slot);
}

/* ---- end ---- */

/* The process ends, or falls silent: the last window is written. */
static void end(uint64_t deadline_ns, bool waits_for_others)
{
    /* exit from a handler that came in the middle of a sample of this thread: that sample will
     * never end, and nobody is to wait for it. */
    struct thread_slot *slot = thread_current();
    if (slot && thread_owns(slot) && (slot->guard & 1))
        thread_guard_leave(slot);
    thread_tls.inside++;
    routes_end_by(deadline_ns);
    if (life_is_on() && life_scheduler)
        unseen_threads_look_now();
    if (life_end(deadline_ns, waits_for_others))
        agent_thread_finish(deadline_ns);
    log_flush();
    thread_tls.inside--;
}

/* SIGTERM's handler, on whatever stack: the agent's thread does it, if there can be one. */
static void at_term(uint64_t deadline_ns)
{
    if (agent_thread_call())
        end(deadline_ns, false);
}

void agent_at_exit(void)
{
    if (life_is_possible() && is_this_process())
        end(ways_out_exit_deadline_ns(), false);
}

void agent_before_silence(const void *filter, const char *what)
{
    if (!life_is_possible() || !is_this_process() || (filter && !sys_readable((uintptr_t)filter)))
        return;
    log_info("profiled up to this moment: the program %s", what);
    end(ways_out_exit_deadline_ns(), true);
    /* Nothing of ours may still be on its way: a filter can reach all threads. */
    uint64_t deadline = clock_monotonic_ns() + NS_PER_SEC;
    /* For good: a moment that has begun makes no thread any more. */
    (void)agent_thread_pause(deadline);
    (void)presence_wait_others_left(deadline);
    life_wait_calls_over(deadline);
    agent_thread_wait_gone(deadline);
    (void)thread_guard_quiescent(deadline);
}

bool agent_pause(bool at_any_price)
{
    if (!life_is_possible() || !is_this_process() || thread_tls.internal)
        return false;
    thread_tls.inside++;
    uint64_t limit_ns = at_any_price ? pause_limit_ns : NS_PER_SEC;
    bool ended = agent_thread_pause(clock_monotonic_ns() + limit_ns);
    bool is_ours = ended || !at_any_price || !late_thread_begins();
    thread_tls.inside--;
    return is_ours;
}

void agent_go_on(bool paused)
{
    if (paused)
        agent_thread_go_on();
}

static void account_own_time(void)
{
    struct thread_slot *slot = thread_current();
    if (!life_scheduler || !slot || !thread_owns(slot))
        return;
    /* Others lose what they did since their last sample. */
    thread_guard_enter(slot);
    cpu_sample_tail(slot, clock_thread_cpu_ns());
    thread_guard_leave(slot);
}

static void write_before_exec(void)
{
    if (!life_is_possible() || !is_this_process() || thread_tls.inside)
        return;
    thread_tls.inside++;
    uint64_t deadline = ways_out_exit_deadline_ns();
    if (!life_enter()) {
        life_wait_stopped(deadline);
    } else if (flush_is_due_at_end() || !uploader_is_done()) {
        account_own_time();
        life_leave();
        agent_thread_flush_last(deadline);
    } else {
        life_leave();
    }
    thread_tls.inside--;
}

bool agent_refuses_pipe(void)
{
    return unwinder_refuses_pipe();
}

void agent_before_exec(void)
{
    write_before_exec();
    itimer_before_exec();
}

/* ---- objects ---- */

void agent_objects_changed(const void *loaded)
{
    if (!life_enter())
        return;
    if (thread_in_process()) {
        thread_tls.inside++;
        modules_note_loaded(loaded);
        if (modules_rescan() != 0)
            moment_set_due_now();
        thread_tls.inside--;
    }
    life_leave();
}

void agent_objects_will_change(void)
{
    store_relaxed(&modules_stale, 1);
    store_release(&unwatched_load, 1);
    moment_set_due_now();
}

void agent_objects_used(const void *handle)
{
    if (unlikely(load_relaxed(&unwatched_load)) && exchange_acq_rel(&unwatched_load, 0))
        agent_objects_changed(handle == RTLD_NEXT ? NULL : handle);
}
