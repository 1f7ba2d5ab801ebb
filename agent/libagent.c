#include "agent/libagent.h"

#include <errno.h>

#include "agent/agent_thread.h"
#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/float_mode.h"
#include "agent/base/log.h"
#include "agent/base/option_pairs.h"
#include "agent/base/options.h"
#include "agent/flush.h"
#include "agent/life.h"
#include "agent/thread/thread_context.h"
#include "uploader/uploader.h"

/* What libagent_stop may be held up by: a window takes milliseconds, unless a disk is slow. */
static const uint64_t stop_limit_ns = 3 * NS_PER_SEC;

static int check_options(const char *text)
{
    static struct option_pairs unused;
    static bool is_said;
    int error = option_pairs_from_list(&unused, text);
    if (!error && !is_said)
        log_warn("libagent_start: options are not used where others have started it, or "
                 "LIBAGENT_START is not manual: %s; others like it are not told",
                 text);
    is_said |= !error;
    return error;
}

/* Under LOCK_LIFE. Before a start that starts: those of an earlier one count no more. */
static int take_options(const char *text, bool starts)
{
    static struct option_pairs pairs;
    if (!starts)
        return text ? check_options(text) : 0;
    options_overlay(OVERLAY_START, NULL);
    if (!text)
        return 0;
    int error = option_pairs_from_list(&pairs, text);
    if (!error)
        options_overlay(OVERLAY_START, pairs.list);
    return error;
}

EXPORT const char *libagent_version(void)
{
    return LIBAGENT_VERSION;
}

/* A call's frame: nothing of it where the agent is away, and the caller's floating point mode. */
static int call(int (*work)(const void *), const void *argument, int away)
{
    if (!life_call_begins())
        return away;
    float_mode mode = float_mode_enter();
    int result = work(argument);
    float_mode_leave(mode);
    life_call_ends();
    return result;
}

static int start(const void *options)
{
    return life_count_start(take_options, options);
}

EXPORT int libagent_start(const char *options)
{
    return call(start, options, -ESHUTDOWN);
}

static int stop(const void *unused)
{
    (void)unused;
    return life_count_stop(clock_monotonic_ns() + stop_limit_ns);
}

EXPORT int libagent_stop(void)
{
    return call(stop, NULL, -ESHUTDOWN);
}

/* 0: the agent is on, and the calling thread may do its work. */
static int look_whether_on(void)
{
    if (thread_tls.entered || thread_tls.inside)
        return -EDEADLK;
    if (!life_enter())
        return -ENOTCONN;
    bool is_ours = thread_in_process();
    life_leave();
    return is_ours ? 0 : -ENOTCONN;
}

static int flush(const void *argument)
{
    const int timeout_ms = *(const int *)argument;
    int refused = timeout_ms < 0 ? -EINVAL : look_whether_on();
    if (refused)
        return refused;
    thread_tls.inside++;
    uint64_t deadline = clock_monotonic_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    int error = agent_thread_flush(deadline);
    /* Others have put their windows behind ours meanwhile. */
    if (error == -ETIMEDOUT && clock_monotonic_ns() < deadline)
        error = uploader_wait_done(deadline) == 0 ? 0 : -ETIMEDOUT;
    thread_tls.inside--;
    return error;
}

EXPORT int libagent_flush(int timeout_ms)
{
    return call(flush, &timeout_ms, -ENOTCONN);
}

static int heap_mark(const void *unused)
{
    (void)unused;
    int error = look_whether_on();
    if (error)
        return error;
    thread_tls.inside++;
    error = flush_heap_mark();
    thread_tls.inside--;
    return error;
}

EXPORT int libagent_heap_mark(void)
{
    return call(heap_mark, NULL, -ENOTCONN);
}
