#include "agent/start.h"

#include <errno.h>

#include "agent/agent.h"
#include "agent/agent_thread.h"
#include "agent/alloc/alloc_sample.h"
#include "agent/app_threads.h"
#include "agent/base/arena.h"
#include "agent/base/cgroup.h"
#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/heap_watch.h"
#include "agent/life.h"
#include "agent/rates.h"
#include "agent/record/heap_recorder.h"
#include "agent/record/scratch.h"
#include "agent/record/time_recorder.h"
#include "agent/sched/wall.h"
#include "agent/thread/moment.h"
#include "agent/thread/thread_reset.h"
#include "agent/ticks_thread.h"
#include "agent/unseen_threads.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwinder.h"
#include "agent/ways_out.h"

/* Who came in late is out in microseconds, unless its thread has lost its processor. */
static const uint64_t reset_wait_ns = NS_PER_SEC;

static char *const *kept_environment;
static char program_name[256]; /* NAME_MAX */
static bool is_prepared;
static bool is_before_main;

void start_program(char *const *environment, const char *program, const void *main_stack)
{
    kept_environment = options_keep(environment);
    format(program_name, sizeof(program_name), "%s", program);
    thread_note_main((uintptr_t)main_stack);
    is_before_main = true;
}

void start_main_follows(void)
{
    is_before_main = false;
}

/* The program's own malloc comes before ours: pthread_create would call that one, and a sample's
 * stack does not tell whether its lock is held. */
static bool has_own_malloc(void)
{
    uintptr_t malloc = (uintptr_t)next_first_malloc;
    return malloc && (malloc < modules_self_start || malloc >= modules_self_end);
}

static int prepare_unwinder(void)
{
    if (!next.dl_iterate_phdr)
        return -ENOSYS;
    int error = modules_start((modules_iterate_fn)next.dl_iterate_phdr);
    if (error)
        return error;
    modules_mark_system((uintptr_t)next.malloc);
    if (has_own_malloc())
        modules_mark_system((uintptr_t)next_first_malloc);
    return unwind_start();
}

int start_prepare(void)
{
    if (is_prepared)
        return 0;
    arena_set_budget(cgroup_limit_share(options.memory));
    int error = thread_start(app_thread_leaving);
    thread_on_late(app_thread_late);
    if (!error)
        error = prepare_unwinder();
    is_prepared = !error;
    return error;
}

/* What was loaded since is seen now, or, by a thread that may not wait for the loader, at the next
 * moment of the program's. */
static void see_objects(void)
{
    if (thread_tls.internal)
        modules_want_rescan();
    else
        (void)!modules_rescan(); /* sets `modules_stale` where it fails */
}

static int make_tables(void)
{
    int error = scratch_start(options.max_frames);
    if (!error)
        error = flush_left_over();
    if (!error)
        error = recorder_start(clock_monotonic_ns(), clock_realtime_ns());
    return error;
}

static int start_tables(void)
{
    const size_t before = arena_budget();
    arena_set_budget(cgroup_limit_share(options.memory));
    int error = make_tables();
    if (error != -ENOMEM || arena_budget() >= before)
        return error;
    /* The live heap and the threads' slots stay as they were made. */
    log_warn_once("LIBAGENT_MEMORY: %zu bytes are less than what is in use: the %zu of before stay",
                  arena_budget(), before);
    arena_set_budget(before);
    return make_tables();
}

static void choose_scheduler(void)
{
    struct sched_request request = {
        .period_ns = NS_PER_SEC / options.frequency,
        .cpu = (options.profiles & PROFILE_CPU) && options_ok(PART_CPU),
    };
    if ((options.profiles & PROFILE_WALL) && options_ok(PART_CPU))
        request.wall = &wall_visitor;
    if (request.wall && options.wall_signal && !options.signals)
        log_warn_once("LIBAGENT_SIGNALS=0: LIBAGENT_WALL_SIGNAL is not used");
    wall_stop();
    life_scheduler = scheduler_start(&request);
    if (life_scheduler && request.wall)
        wall_start(options.wall_signal);
}

static int make_all(void)
{
    bool was_prepared = is_prepared;
    int error = start_prepare();
    if (!error)
        error = start_tables();
    if (!error && was_prepared)
        see_objects();
    if (!error)
        error = ways_out_start(kept_environment, program_name, agent_at_exit);
    /* Where the agent starts with the program there is one thread, and nothing to find. */
    if (!error && !is_before_main)
        error = thread_reset_all(flush_is_own_thread, clock_monotonic_ns() + reset_wait_ns);
    return error;
}

int start_all(void)
{
    flush_hold();
    if (!is_before_main) /* the constructor has */
        options_load(kept_environment, program_name);
    int error =
        options_ok(PART_ALL) && options_ok(PART_OUTPUT) && options.profiles ? make_all() : -EINVAL;
    if (error) {
        recorder_destroy();
        log_error("not profiled: start failed: %s (errno %d)",
                  error == -EBUSY ? "a thread is still inside the agent" : error_text(error),
                  -error);
        return error;
    }
    unwinder_start(options.unwinder);
    choose_scheduler();
    flush_start(life_scheduler != NULL);
    for (uint32_t i = 0; i < thread_slot_count(); i++) {
        struct thread_slot *slot = thread_slot_at(i);
        if (load_acquire(&slot->state) == SLOT_USED && load_relaxed(&slot->tid) != 0)
            app_thread_begins(slot);
    }
    return 0;
}

/* A library that is preloaded before us keeps its malloc from us, unseen, and is easily put behind.
 * A program's own malloc cannot be, and a sanitizer's runtime has to be the first. */
static void say_whose_malloc(void)
{
    if (!(options.profiles & (PROFILE_ALLOC | PROFILE_LIVE)) || !has_own_malloc())
        return;
    const struct object *object =
        modules_resolve(load_relaxed(&modules_generation), (uintptr_t)next_first_malloc).object;
    const char *name = object ? base_name(object->path) : "of another library";
    if (!object || object->is_main || glob_match("lib*san.so*", name) ||
        glob_match("libclang_rt.*", name))
        log_info("allocations are not seen: malloc is that of %s", name);
    else
        log_warn_once(
            "allocations are not seen: malloc is that of %s, which stands before libagent.so "
            "in LD_PRELOAD; behind it they are",
            name);
}

/* What an earlier start recorded is live still: frees were followed all the time. */
static bool start_heap(void)
{
    if (options.heap_mark_ns && !(options.profiles & PROFILE_LIVE))
        log_warn_once(
            "LIBAGENT_HEAP_MARK is of the live heap, which LIBAGENT_PROFILES leaves out: add "
            "heap or heap-growth");
    if ((options.profiles & PROFILE_LIVE) && options_ok(PART_ALLOC) && options_ok(PART_HEAP))
        return heap_recorder_start(options.heap_sample_rate) == 0;
    heap_recorder_stop();
    heap_recorder_clear();
    return false;
}

static void look(uint64_t now_ns)
{
    rates_look(now_ns);
    if (life_scheduler)
        unseen_threads_look(now_ns);
    if (now_ns >= heap_watch_due_ns())
        agent_thread_want_look(LOOK_AT_HEAP);
}

void start_done(void)
{
    bool with_alloc = (options.profiles & PROFILE_ALLOC) && options_ok(PART_ALLOC);
    bool with_heap = start_heap();
    say_whose_malloc();
    flush_heap_start(with_heap);
    if (!thread_tls.internal && !thread_current())
        (void)!thread_attach_late();
    unseen_threads_start(clock_monotonic_ns());
    /* One that has stayed begins to work: what it works with is made. */
    agent_thread_start(app_thread_adopted, app_thread_gone, has_own_malloc());
    ticks_thread_start(life_scheduler);
    if (with_alloc || with_heap)
        alloc_start(options.alloc_interval);
    rates_start(life_scheduler ? life_scheduler->set_period : NULL,
                life_scheduler ? life_scheduler->set_tick_period : NULL);
    store_release(&moment_look, look);
    bool with_cpu = life_scheduler && (options.profiles & PROFILE_CPU);
    log_info("profiling %s, pid %d:%s%s%s%s, stacks by %s", program_name, sys_pid(),
             with_cpu ? " cpu" : "", wall_is_on() ? " wall" : "", with_alloc ? " alloc" : "",
             with_heap ? " heap" : "", unwinder->name);
}
