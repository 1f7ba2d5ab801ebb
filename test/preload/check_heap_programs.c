/* The live heap of programs that people run, at each flush, against a full trace of the same run
 * (prog_trace_heap.c, behind the agent).
 *
 * The trace tells the least and the most bytes that were live while a flush was under way: from the
 * end of its window, which is taken before the heap is looked at, to when its file was written. The
 * profile's sum must be within these and the bound of what sampling does (heap_bound.h). Five
 * flushes in a hundred thousand million may be beyond it by chance: with at most 2,000 flushes a
 * run, one false alarm in ten million runs. Intervals are chosen so that the bound is below 5 %
 * once a program has filled its heap; that this is so, often enough, is checked, too. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "test/check.h"
#include "test/preload/heap_bound.h"
#include "test/preload/heap_trace.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_pair.h"

enum { SAMPLES_MIN = 100, TRACES_MAX = 512, ALLOWED_PERCENT = 5 };

#define LOG_ALARM 24.4 /* log(2 / 5e-11) */
/* The coarse clock, the trace's and that of files, is behind the window's by a tick at most. */
#define CLOCKS_NS 5000000u

struct trace {
    int pid;
    struct trace_file *file;
};

struct judged {
    struct trace traces[TRACES_MAX];
    size_t trace_count;
    int flushes, close; /* judged, and of them where the truth is known within 5 %, bound and all */
    double worst, share; /* the largest error there; how far at most, of the bound */
};

static struct trace_file *read_trace(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    struct trace_file *trace = malloc(sizeof(*trace));
    FILE *file = fopen(path, "r");
    ck_assert(trace && file);
    ck_assert_uint_eq(fread(trace, sizeof(*trace), 1, file), 1);
    fclose(file);
    ck_assert_uint_eq(trace->lost, 0);
    return trace;
}

static void read_traces(struct judged *judged, const char *folder)
{
    DIR *directory = opendir(folder);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        int pid;
        if (sscanf(entry->d_name, "trace.%d.", &pid) != 1)
            continue;
        ck_assert_uint_lt(judged->trace_count, TRACES_MAX);
        judged->traces[judged->trace_count++] =
            (struct trace){pid, read_trace(folder, entry->d_name)};
    }
    closedir(directory);
}

/* Of the image that the process was then: a process has a file for each exec. */
static const struct trace_file *trace_of(const struct judged *judged, int pid, uint64_t time_ns)
{
    const struct trace_file *found = NULL;
    for (size_t i = 0; i < judged->trace_count; i++) {
        const struct trace *trace = &judged->traces[i];
        if (trace->pid == pid && trace->file->start_ns <= time_ns &&
            (!found || trace->file->start_ns > found->start_ns))
            found = trace->file;
    }
    return found;
}

static uint64_t tick_at(const struct trace_file *trace, uint64_t time_ns)
{
    uint64_t since = time_ns > trace->start_ns ? time_ns - trace->start_ns : 0;
    uint64_t tick = since >> TRACE_TICK_BITS;
    ck_assert_uint_lt(tick, TRACE_TICKS - 1);
    return tick;
}

/* All that was at some time from the one to the other. */
static struct trace_tick between(const struct trace_file *trace, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t first = tick_at(trace, from_ns), last = tick_at(trace, to_ns);
    uint64_t before = first;
    while (!trace->ticks[before].written) /* the first of all is */
        before--;
    struct trace_tick sum = trace->ticks[before];
    if (before < first)
        sum.least = sum.most = sum.last;
    for (uint64_t i = first + 1; i <= last; i++) {
        const struct trace_tick *tick = &trace->ticks[i];
        if (!tick->written)
            continue;
        sum.least = tick->least < sum.least ? tick->least : sum.least;
        sum.most = tick->most > sum.most ? tick->most : sum.most;
        sum.samples = fmin(sum.samples, tick->samples);
        sum.variance = fmax(sum.variance, tick->variance);
    }
    return sum;
}

static double bytes_of_file(const struct profile *profile, uint32_t file)
{
    double bytes = 0;
    for (size_t i = 0; i < profile->stack_count; i++)
        if (profile->stacks[i].file == file)
            bytes += (double)profile->stacks[i].values[LIVE_BYTES];
    return bytes;
}

static void judge_flush(struct judged *judged, const struct profile *profile, uint32_t number,
                        int pid)
{
    struct stat status;
    const Perftools__Profiles__Profile *file = profile->files[number];
    uint64_t begin = (uint64_t)(file->time_nanos + file->duration_nanos) - CLOCKS_NS;
    ck_assert_int_eq(stat(profile->paths[number], &status), 0);
    uint64_t end = (uint64_t)status.st_mtim.tv_sec * 1000000000u +
                   (uint64_t)status.st_mtim.tv_nsec + CLOCKS_NS;
    const struct trace_file *trace = trace_of(judged, pid, begin);
    if (!trace)
        return; /* it was a process for less than the clocks' difference */
    struct trace_tick truth = between(trace, begin, end);
    if (truth.samples < SAMPLES_MIN)
        return;
    double bound = heap_bound(truth.variance, trace->largest, LOG_ALARM) + 64;
    double seen = bytes_of_file(profile, number);
    double error = fmax(fmax((double)truth.least - seen, seen - (double)truth.most), 0);
    ck_assert_msg(error <= bound,
                  "%s: %.0f bytes live, the trace has %llu to %llu, the bound is %.0f",
                  profile->paths[number], seen, (unsigned long long)truth.least,
                  (unsigned long long)truth.most, bound);
    judged->flushes++;
    judged->share = fmax(judged->share, error / bound);
    double doubt = bound + (double)(truth.most - truth.least);
    if (doubt * 100 > (double)truth.least * ALLOWED_PERCENT)
        return;
    judged->close++;
    judged->worst = fmax(judged->worst, error / (double)truth.least);
    fprintf(stderr, "  process %d: inuse_space %.0f, the trace has %llu to %llu\n", pid, seen,
            (unsigned long long)truth.least, (unsigned long long)truth.most);
}

static bool is_first_of_pid(const struct judged *judged, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (judged->traces[i].pid == judged->traces[index].pid)
            return false;
    return true;
}

static void judge(const struct run *run, const char *name, int close_min)
{
    static struct judged judged;
    judged = (struct judged){.trace_count = 0};
    read_traces(&judged, run->profiles);
    for (size_t i = 0; i < judged.trace_count; i++) {
        struct profile profile;
        if (!is_first_of_pid(&judged, i))
            continue;
        profile_load(&profile, run->profiles, "heap", judged.traces[i].pid);
        ck_assert_int_eq(profile_figure(&profile, "live heap: frees that were not seen"), 0);
        ck_assert_int_eq(profile_figure(&profile, "live heap: samples dropped: tables full"), 0);
        for (uint32_t k = 0; k < profile.file_count; k++)
            judge_flush(&judged, &profile, k, judged.traces[i].pid);
        profile_free(&profile);
    }
    fprintf(stderr,
            "%s: %d flushes, off by at most %.2f of the bound; in %d it is within 5 %%, and they "
            "are off by at most %.2f %%\n",
            name, judged.flushes, judged.share, judged.close, judged.worst * 100);
    ck_assert_int_ge(judged.close, close_min);
    for (size_t i = 0; i < judged.trace_count; i++)
        free(judged.traces[i].file);
}

/* close_min: as often as a heap that is full is asked for; nginx's three times two workers, with
 * clients that do not read on, and again when a reload has let others take over. */
static const struct subject {
    const char *name, *size, *interval, *processes, *period;
    int close_min;
} core[] = {{"redis", "20000", "512", "redis-server", "LIBAGENT_PERIOD=0", 2},
            {"sqlite", "60000", "128", "sqlite3", "LIBAGENT_PERIOD=0", 2},
            {"python", "30000", "256", "python3*", "LIBAGENT_PERIOD=0", 2}},
  full[] = {{"redis", "500000", "6144", "redis-server", "LIBAGENT_PERIOD=0", 2},
            {"sqlite", "600000", "1024", "sqlite3", "LIBAGENT_PERIOD=0", 2},
            {"python", "200000", "1024", "python3*", "LIBAGENT_PERIOD=0", 2},
            {"nginx", NULL, "256", "nginx", "LIBAGENT_PERIOD=0", 12},
            {"gcc", NULL, "64", "cc1", "LIBAGENT_PERIOD=0", 2},
            {"cursors", NULL, "64", "postgres", "LIBAGENT_PERIOD=0", 4},
            {"postgres", NULL, "64", "postgres", "LIBAGENT_PERIOD=1s", 4}};
enum { CORE = sizeof(core) / sizeof(core[0]), FULL = sizeof(full) / sizeof(full[0]) };

static void run_subject(const struct subject *subject)
{
    struct run run;
    char script[PATH_MAX], trace[PATH_MAX], interval[64], processes[64];
    run_script_path("heap_programs.sh", script);
    snprintf(trace, sizeof(trace), "%s", run_program_path("trace_heap"));
    snprintf(interval, sizeof(interval), "LIBAGENT_ALLOC_INTERVAL=%s", subject->interval);
    snprintf(processes, sizeof(processes), "LIBAGENT_PROCESSES=%s", subject->processes);
    run_program(&run, &(struct run_request){
                          .program = "/bin/sh",
                          .arguments = (const char *[]){script, subject->name, subject->size, NULL},
                          .beside = trace,
                          .environment = (const char *[]){
                              interval, processes, "LIBAGENT_PROFILES=alloc,heap", subject->period,
                              "LIBAGENT_FLUSH_SIGNAL=rtmin+5", NULL}});
    run_expect_success(&run);
    judge(&run, subject->name, subject->close_min);
    run_free(&run);
}

START_TEST(test_a_short_run)
{
    run_subject(&core[_i]);
}
END_TEST

START_TEST(test_a_long_run)
{
    run_subject(&full[_i]);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("heap_programs");
    TCase *tcase = tcase_create("programs");
    tcase_set_timeout(tcase, 300);
    if (getenv("HEAP_PROGRAMS_LONG"))
        tcase_add_loop_test(tcase, test_a_long_run, 0, FULL);
    else
        tcase_add_loop_test(tcase, test_a_short_run, 0, CORE);
    suite_add_tcase(suite, tcase);
    return suite;
}
