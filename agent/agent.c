#include "agent/agent.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "agent/agent_thread.h"
#include "agent/alloc/alloc_sample.h"
#include "agent/base/arena.h"
#include "agent/base/cgroup.h"
#include "agent/base/clock.h"
#include "agent/base/float_mode.h"
#include "agent/base/format.h"
#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/rates.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/cpu_sample.h"
#include "agent/sched/itimer.h"
#include "agent/sched/sampling_signal.h"
#include "agent/sched/sched.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/thread_context.h"
#include "agent/ticks_thread.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwinder.h"
#include "uploader/uploader.h"

enum agent_state { AGENT_OFF, AGENT_STARTING, AGENT_ON, AGENT_STOPPING };

/* What exit may be held up by at most. */
static const uint64_t exit_limit_ns = 3 * NS_PER_SEC;

static uint32_t state;
static struct lock life_lock = LOCK_INIT(LOCK_LIFE);
/* A dlopen was passed on unwatched. */
static uint32_t unwatched_load;
static const struct scheduler *scheduler; /* NULL: no time is profiled */

static bool is_on(void)
{
    return load_acquire(&state) == AGENT_ON;
}

/* ---- system calls in threads of the app ---- */

/* A filter that one thread sets can reach them all. Who makes calls counts itself here and then
 * looks at the state; who sets the filter ends the state and then waits for the count. */
static uint32_t callers;

/* False: no system call may be made here. */
static bool calls_begin(void)
{
    __atomic_fetch_add(&callers, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == AGENT_ON)
        return true;
    __atomic_fetch_sub(&callers, 1, __ATOMIC_RELEASE);
    return false;
}

static void calls_end(void)
{
    __atomic_fetch_sub(&callers, 1, __ATOMIC_RELEASE);
}

/* ---- threads ---- */

static void thread_begin(struct thread_slot *slot)
{
    if (scheduler && slot) {
        wall_thread_begin(slot, clock_monotonic_ns());
        scheduler->thread_begin(slot);
    }
}

static void thread_gone(struct thread_slot *slot)
{
    if (scheduler)
        scheduler->thread_end(slot);
}

struct thread_slot *agent_thread_prepare(uintptr_t start_routine, void *argument)
{
    if (thread_tls.internal || !calls_begin())
        return NULL;
    struct thread_slot *slot = thread_prepare(start_routine, argument);
    calls_end();
    return slot;
}

void agent_thread_not_born(struct thread_slot *slot)
{
    thread_release_slot(slot);
}

uintptr_t agent_thread_begin(struct thread_slot *slot, void **argument)
{
    uintptr_t routine = slot->start_routine;
    *argument = slot->start_argument;
    if (!calls_begin())
        return routine; /* the slot stays taken: nobody needs it any more */
    thread_tls.inside = 1;
    thread_attach_prepared(slot);
    thread_begin(slot);
    /* A sanitizer that stands before us does not know the thread yet, and its malloc, which the
     * making of another one calls, would crash. */
    if (!own_thread_is_known_to_libc())
        moment_pass(true);
    thread_tls.inside = 0;
    calls_end();
    return routine;
}

/* The calling thread ends: its last CPU time is accounted, its timer goes, its slot is free. */
static void thread_leaving(void)
{
    struct thread_slot *slot = thread_tls.slot;
    if (!calls_begin())
        return;
    thread_tls.inside = 1;
    if (slot && thread_owns(slot)) {
        if (scheduler) {
            thread_note_last_name(slot);
            thread_guard_enter(slot);
            uint64_t now = clock_thread_cpu_ns();
            cpu_sample_unreached(slot, now);
            cpu_sample_tail(slot, now);
            scheduler->thread_end(slot);
            cpu_sample_overhead(slot);
            wall_thread_end(slot, clock_monotonic_ns());
            thread_guard_leave(slot);
        }
        thread_leave();
    }
    thread_tls.inside = 0;
    calls_end();
}

void agent_thread_named(uintptr_t thread, const char *name)
{
    if (!is_on())
        return;
    if (thread == 0 || thread_is_self(thread))
        thread_named(name);
    else
        thread_other_named();
}

/* ---- start ---- */

static int start_tables(void)
{
    arena_set_budget(cgroup_limit_share(options.memory));
    int error = thread_start(thread_leaving);
    if (!error)
        error = scratch_start(options.max_frames);
    if (!error)
        error = recorder_start(clock_monotonic_ns(), clock_realtime_ns());
    return error;
}

/* The program's own malloc comes before ours: pthread_create would call that one, and a sample's
 * stack does not tell whether its lock is held. */
static bool has_own_malloc(void)
{
    uintptr_t malloc = (uintptr_t)next_first_malloc;
    return malloc && (malloc < modules_self_start || malloc >= modules_self_end);
}

static int start_unwinder(void)
{
    if (!next.dl_iterate_phdr)
        return -ENOSYS;
    int error = modules_start((modules_iterate_fn)next.dl_iterate_phdr);
    if (error)
        return error;
    modules_mark_system((uintptr_t)next.malloc);
    if (has_own_malloc())
        modules_mark_system((uintptr_t)next_first_malloc);
    error = unwind_start();
    if (!error)
        unwinder_start(options.unwinder);
    return error;
}

static int start_uploader(char *const *environment, const char *program)
{
    const struct uploader_config config = {
        .folder = options.output,
        .tmpdir = environment_get(environment, "TMPDIR"),
        .output_limit = options.output_limit,
        .compression = options.compression,
        .program = program,
        .pid = sys_pid(),
    };
    return uploader_start(&config);
}

static void start_scheduler(bool with_cpu)
{
    struct sched_request request = {.period_ns = NS_PER_SEC / options.frequency, .cpu = with_cpu};
    if ((options.profiles & PROFILE_WALL) && options_ok(PART_CPU))
        request.wall = &wall_visitor;
    scheduler = scheduler_start(&request);
    if (scheduler && request.wall)
        wall_start(options.wall_signal);
}

static int start(char **argv, char *const *environment, const char *program)
{
    store_release(&state, AGENT_STARTING);
    int error = start_tables();
    if (!error)
        error = start_unwinder();
    if (!error)
        error = start_uploader(environment, program);
    if (error)
        return error;
    agent_thread_start(thread_begin, thread_gone, has_own_malloc());
    bool with_cpu = (options.profiles & PROFILE_CPU) && options_ok(PART_CPU);
    bool with_alloc = (options.profiles & PROFILE_ALLOC) && options_ok(PART_ALLOC);
    start_scheduler(with_cpu);
    flush_start(scheduler != NULL);
    store_release(&state, AGENT_ON);
    /* The main thread's frames lie below its arguments. */
    thread_begin(thread_attach((uintptr_t)argv, 0));
    agent_thread_start_ticks(scheduler);
    if (with_alloc)
        alloc_start(options.alloc_interval);
    rates_start(scheduler ? scheduler->set_period : NULL);
    log_info("profiling %s, pid %d:%s%s%s, stacks by %s", program, sys_pid(),
             scheduler && with_cpu ? " cpu" : "", wall_is_on() ? " wall" : "",
             with_alloc ? " alloc" : "", unwinder->name);
    return 0;
}

static void print_help(void)
{
    static char text[16384];
    options_help(text, sizeof(text));
    log_plain(text);
}

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

static void init(char **argv, char **environment)
{
    char path[512];
    const char *executable = executable_name(path, sizeof(path));
    const char *program = program_name(executable);
    struct rng rng;
    rng_seed(&rng, 0);
    lock_acquire(&life_lock);
    const char *const names[] = {executable, program, argv[0] ? base_name(argv[0]) : NULL, NULL};
    bool selected =
        options_select(environment, sys_auxv(AT_SECURE) != 0, names, 1 - rng_unit(&rng));
    if (selected) {
        options_load(environment, program);
        if (options.help)
            print_help();
        selected = options_ok(PART_ALL) && options_ok(PART_OUTPUT) && options.profiles;
    }
    if (selected) {
        int error = start(argv, environment, program);
        if (error) {
            store_release(&state, AGENT_OFF);
            recorder_destroy();
            log_error("not profiled: start failed (error %d)", -error);
        }
    }
    if (!is_on())
        alloc_stop_for_good();
    lock_release(&life_lock);
}

void agent_init(char **argv, char **environment)
{
    float_mode mode = float_mode_enter();
    init(argv, environment);
    float_mode_leave(mode);
}

void agent_stay_off(void)
{
    alloc_stop_for_good();
}

/* ---- signals ---- */

bool agent_signal_action(int number, const struct sigaction *action, struct sigaction *old,
                         int *result)
{
    if (itimer_has_signal(number)) {
        /* The default action is what the app has already. */
        if (!action || (action->sa_handler == SIG_DFL && action->sa_flags == 0)) {
            if (old)
                itimer_previous_action(old);
            *result = 0;
            return true;
        }
        itimer_yield();
    }
    return sampling_signal_action(number, action, old, result);
}

void agent_itimer_wanted(int which)
{
    if (itimer_is_ours(which))
        itimer_yield();
}

void agent_signal_wanted(int number)
{
    if (itimer_has_signal(number))
        itimer_yield();
}

bool agent_itimer_is_ours(int which)
{
    return itimer_is_ours(which);
}

void agent_signal_renew(void)
{
    if (thread_in_process())
        sampling_signal_renew();
}

void agent_before_jump(const void *environment)
{
    if (likely(!sampling_signal_is_in_masks()) || !is_on() ||
        !sampling_signal_would_stay_blocked(environment))
        return;
    /* The handler's stack may have no room for a tick's frame: none is due before the jump. */
    struct thread_slot *slot = thread_tls.slot;
    bool has_timer = scheduler && slot && thread_owns(slot);
    if (has_timer)
        scheduler->thread_hold(slot);
    sampling_signal_unblock();
    if (has_timer)
        scheduler->thread_go_on(slot);
}

/* ---- end ---- */

void agent_at_exit(void)
{
    uint32_t on = AGENT_ON;
    if (!is_on() || !thread_in_process() ||
        !__atomic_compare_exchange_n(&state, &on, AGENT_STOPPING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    /* exit from a handler that came in the middle of a sample of this thread: that sample will
     * never end, and nobody is to wait for it. */
    struct thread_slot *slot = thread_tls.slot;
    if (slot && thread_owns(slot) && (slot->guard & 1))
        thread_guard_leave(slot);
    thread_tls.inside++;
    alloc_stop_for_good();
    store_release(&moment_work, NULL);
    uint64_t deadline = clock_monotonic_ns() + exit_limit_ns;
    ticks_thread_stop(deadline);
    if (scheduler)
        scheduler->stop();
    rates_stop();
    agent_thread_finish(deadline);
    log_flush();
    thread_tls.inside--;
}

void agent_before_seccomp(const void *filter)
{
    if (!is_on() || !thread_in_process() || (filter && !sys_readable((uintptr_t)filter)))
        return;
    agent_at_exit();
    /* Nothing of ours may still be on its way: a filter can reach all threads. */
    uint64_t deadline = clock_monotonic_ns() + NS_PER_SEC;
    agent_thread_pause(deadline); /* for good: a moment that has begun makes no thread any more */
    static const struct timespec pause = {0, 50000};
    full_fence();
    while (__atomic_load_n(&callers, __ATOMIC_SEQ_CST) != 0 && clock_monotonic_ns() < deadline)
        sys_call2(SYS_nanosleep, &pause, NULL);
    agent_thread_wait_gone(deadline);
    (void)thread_guard_quiescent(deadline);
}

bool agent_pause(bool at_any_price)
{
    if (!is_on() || !thread_in_process() || thread_tls.internal)
        return false;
    thread_tls.inside++;
    agent_thread_pause(at_any_price ? 0 : clock_monotonic_ns() + NS_PER_SEC);
    thread_tls.inside--;
    return true;
}

void agent_go_on(bool paused)
{
    if (paused)
        agent_thread_go_on();
}

static void write_before_exec(void)
{
    if (!is_on() || !thread_in_process() || thread_tls.inside ||
        (!flush_is_due_at_end() && uploader_is_done()))
        return;
    thread_tls.inside++;
    struct thread_slot *slot = thread_tls.slot;
    if (scheduler && slot && thread_owns(slot)) {
        /* Others lose what they did since their last sample. */
        thread_guard_enter(slot);
        cpu_sample_tail(slot, clock_thread_cpu_ns());
        thread_guard_leave(slot);
    }
    agent_thread_flush(clock_monotonic_ns() + exit_limit_ns);
    thread_tls.inside--;
}

void agent_before_exec(void)
{
    write_before_exec();
    itimer_before_exec();
}

void agent_exec_failed(void)
{
    itimer_exec_failed();
}

/* ---- objects ---- */

void agent_objects_changed(const void *loaded)
{
    if (!calls_begin())
        return;
    if (thread_in_process()) {
        thread_tls.inside++;
        modules_note_loaded(loaded);
        if (modules_rescan() != 0)
            moment_set_due_now();
        thread_tls.inside--;
    }
    calls_end();
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

/* ---- fork ---- */

/* LOCK_MODULES is held over the fork, and signals wait with it: the kernel starts a fork again
 * when a signal is pending, so that with many pages to copy it would never end. */
void agent_fork_prepare(void)
{
    if (!is_on())
        return;
    thread_tls.inside++;
    thread_tls.in_fork = 1;
    modules_lock_for_fork();
}

static void after_fork(void)
{
    thread_tls.in_fork = 0;
    thread_tls.inside--;
    modules_unlock_after_fork();
}

void agent_fork_parent(void)
{
    if (thread_tls.in_fork)
        after_fork();
}

/* The child has one thread and a copy of the parent's memory: what the parent recorded is the
 * parent's to ship, time starts anew. */
void agent_fork_child(void)
{
    lock_reset(&life_lock);
    if (!thread_tls.in_fork)
        return;
    callers = 0;
    if (thread_reset_in_child() > 0) {
        modules_distrust_loader();
        unwinder_reset_in_child();
    }
    scratch_reset_in_child();
    recorder_reset_in_child(clock_monotonic_ns(), clock_realtime_ns());
    stats_reset();
    rng_reset_in_child();
    log_reset_in_child();
    flush_reset_in_child();
    rates_reset_in_child();
    uploader_reset_in_child(thread_pid());
    agent_thread_reset_in_child();
    /* Gaps of its own, not those of the parent. */
    thread_tls.rng.state = 0;
    thread_tls.bytes_until_sample = 0;
    struct thread_slot *own = thread_tls.slot;
    if (!own)
        own = thread_attach(0, 0);
    wall_reset_in_child(own, clock_monotonic_ns());
    if (scheduler)
        scheduler->reset_in_child(own);
    agent_thread_start_ticks(scheduler);
    after_fork();
}
