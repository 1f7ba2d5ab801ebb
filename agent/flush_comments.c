#include "agent/flush_comments.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/options.h"
#include "agent/base/stats.h"
#include "agent/heap_watch.h"
#include "agent/rates.h"
#include "agent/record/heap_snapshot.h"
#include "agent/sched/wall.h"
#include "agent/unwind/unwinder.h"

enum { COMMENTS = STAT_COUNT + 10 + HEAP_WATCH_COMMENTS, COMMENT_SIZE = 160 };

static struct {
    uint64_t before[STAT_COUNT];
    uint64_t cpu_before_ns; /* the process's CPU clock */
    uint64_t since_ns;      /* CLOCK_MONOTONIC */
    char texts[COMMENTS][COMMENT_SIZE];
    const char *list[COMMENTS + 1];
} comments;

void flush_comments_start(uint64_t cpu_ns)
{
    memset(comments.before, 0, sizeof(comments.before));
    comments.cpu_before_ns = cpu_ns;
    comments.since_ns = clock_monotonic_ns();
}

const char *const *flush_comments(void)
{
    return comments.list;
}

static uint64_t since_last_comments(enum stat_id stat)
{
    return stats_get(stat) - comments.before[stat];
}

static const char cpu_samples[] = "cpu samples";

/* What they are called where no CPU profile is asked for: they tell what threads did that ran. */
static const char *samples_name(void)
{
    return options.profiles & PROFILE_CPU ? cpu_samples : "samples of running threads";
}

static void comment_stat(char text[COMMENT_SIZE], const char *name, uint64_t value)
{
    const char *at = strstr(name, cpu_samples);
    size_t before = at ? (size_t)(at - name) : 0;
    format(text, COMMENT_SIZE, "libagent: %.*s%s%s: %llu", (int)before, name,
           at ? samples_name() : "", name + before + (at ? sizeof(cpu_samples) - 1 : 0),
           (unsigned long long)value);
}

/* What the agent took of the process's CPU time, and how that was bounded. */
static size_t comment_overhead(size_t count)
{
    uint64_t now = clock_process_cpu_ns(), monotonic_ns = clock_monotonic_ns();
    uint64_t cpu = MAX_OF(now - comments.cpu_before_ns, (uint64_t)1);
    uint64_t spent = since_last_comments(STAT_HANDLERS_NS) + since_last_comments(STAT_HOOKS_NS) +
                     since_last_comments(STAT_TICKS_NS) + since_last_comments(STAT_FLUSH_NS);
    uint64_t hundredths = spent / (cpu / 10000 + 1);
    uint64_t of_processor = spent / ((monotonic_ns - comments.since_ns) / 10000 + 1);
    comments.cpu_before_ns = now;
    format(comments.texts[count++], COMMENT_SIZE,
           "libagent: overhead: %llu.%02llu %% of the process's CPU time, %llu.%02llu %% of a "
           "processor",
           (unsigned long long)(hundredths / 100), (unsigned long long)(hundredths % 100),
           (unsigned long long)(of_processor / 100), (unsigned long long)(of_processor % 100));
    comments.since_ns = monotonic_ns;
    if (rates_period_ns() > NS_PER_SEC / options.frequency)
        format(comments.texts[count++], COMMENT_SIZE,
               "libagent: to keep to LIBAGENT_OVERHEAD %s come each %llu us of CPU time",
               samples_name(), (unsigned long long)(rates_period_ns() / 1000));
    if (wall_is_on() && rates_tick_period_ns() > NS_PER_SEC / options.frequency)
        format(comments.texts[count++], COMMENT_SIZE,
               "libagent: to keep to LIBAGENT_OVERHEAD waiting threads are looked at each %llu us",
               (unsigned long long)(rates_tick_period_ns() / 1000));
    if (rates_alloc_interval() > options.alloc_interval)
        format(comments.texts[count++], COMMENT_SIZE,
               "libagent: to keep to LIBAGENT_OVERHEAD allocation samples come each %llu bytes",
               (unsigned long long)rates_alloc_interval());
    return count;
}

void flush_comments_make(const struct window *window, bool has_live)
{
    size_t count = comment_overhead(0);
    format(comments.texts[count++], COMMENT_SIZE, "libagent: service: %s",
           options.service ? options.service : "");
    format(comments.texts[count++], COMMENT_SIZE, "libagent: unwinder: %s", unwinder->name);
    for (int i = 0; i < STAT_COUNT; i++) {
        uint64_t now = stats_get((enum stat_id)i);
        if (now != comments.before[i]) {
            comment_stat(comments.texts[count++], stats_text((enum stat_id)i),
                         now - comments.before[i]);
        }
        comments.before[i] = now;
    }
    format(comments.texts[count++], COMMENT_SIZE, "libagent: stacks in the table: %u",
           window->stacks.entries);
    format(comments.texts[count++], COMMENT_SIZE, "libagent: rows in the table: %u",
           window->totals.entries);
    format(comments.texts[count++], COMMENT_SIZE, "libagent: bytes of tables in use: %zu",
           window->stacks.arena.used + window->totals.arena.used + window->threads.arena.used);
    if (has_live)
        format(comments.texts[count++], COMMENT_SIZE, "libagent: records of the live heap: %u",
               heap_snapshot_records());
    count += heap_watch_comments(comments.texts[count], COMMENT_SIZE);
    for (size_t i = 0; i < count; i++)
        comments.list[i] = comments.texts[i];
    comments.list[count] = NULL;
}
