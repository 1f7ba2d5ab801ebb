/* A storm: everything at once (prog_storm), sampled as often as the kernel's tick allows, in
 * windows of a second; 10 s of it, or $STORM_SECONDS, and less by each of the other unwinders; or
 * all by $STORM_UNWINDER. Nothing hangs and nothing goes wrong; stacks are whole; what was sampled
 * adds up to the clocks of the kernel and to what the program counted.
 *
 * Sampling is random, so limits are held with room for chance, which is small in a long run:
 *  - Shares as chance.h has it.
 *  - Of allocations of s bytes each is sampled for itself, with p = 1 - exp(-s / interval), and
 * then counts v / p. The sum errs by more than t with a probability of at most 2 exp(-t^2 / (2 V +
 * 2/3 M t)) (Bernstein), V = sum v^2 (1 - p) / p, M = max v / p: t is chosen so that this is 1e-9,
 * for each of 14 sums. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/chance.h"
#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/preload/storm.h"
#include "test/temp_path.h"

#define INCOMPLETE_MAX 0.005
#define DROPPED_MAX    0.05
/* What may be missing of a process's CPU time: threads' last moments, when libc calls nothing of
 * ours any more, and the process's first ones. */
#define CPU_MISSING_MAX 0.01
/* In children of some ms, which make a thread, these moments weigh more. */
#define CHILD_CPU_MISSING_MAX 0.03

enum { DEFAULT_SECONDS = 10, PLUGINS = 4, CHILDREN_MAX = 65536 };

/* libunwind takes some 50 us for a walk after each dlopen: where a thousand allocations a second
 * are sampled, more than 5 % of the ticks would find it at that. */
static const struct variant {
    const char *unwinder, *program;
    unsigned part;           /* of the time */
    unsigned alloc_interval; /* in KiB */
} variants[] = {
    {"cfi", "storm", 1, 64}, {"libunwind", "storm", 2, 256}, {"fp", "storm_records", 3, 64}};

/* In bytes, of the variant that runs. */
static double alloc_interval;

static char folder[TEMP_PATH_SIZE], plugins[PLUGINS][96];

static unsigned storm_seconds(void)
{
    const char *text = getenv("STORM_SECONDS");
    return text && atoi(text) > 0 ? (unsigned)atoi(text) : DEFAULT_SECONDS;
}

/* Each copy is a library of its own to the loader. */
static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "storm")));
    for (int i = 0; i < PLUGINS; i++) {
        char command[2 * PATH_MAX];
        snprintf(plugins[i], sizeof(plugins[i]), "%s/plugin%d.so", folder, i);
        snprintf(command, sizeof(command), "cp '%s' %s",
                 run_program_path(i == 0 ? "plugin" : "storm_plugin"), plugins[i]);
        ck_assert_int_eq(system(command), 0);
    }
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* ---- shares ---- */

static void expect_share(const char *what, double part, double count, double limit)
{
    fprintf(stderr, "%s: %.0f of %.0f, %.3f %% (limit %.1f %%)\n", what, part, count,
            100 * part / count, 100 * limit);
    ck_assert_msg(count >= 100, "%s: only %.0f samples", what, count);
    ck_assert_msg(!chance_share_is_above(part, count, limit), "%s: %.0f of %.0f", what, part,
                  count);
}

/* `unit`: about the value of one sample, or more. */
static void expect_whole(const char *what, const struct profile *profile, int value, double unit)
{
    double broken = 0, all = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if (stack_is_pseudo(stack) && strcmp(stack->frames[0].function, "[unknown]") != 0)
            continue;
        all += (double)stack->values[value];
        broken += stack_is_whole(stack) ? 0 : (double)stack->values[value];
    }
    if (broken > 0)
        profile_print(profile, value, true, 12);
    expect_share(what, broken / unit, all / unit, INCOMPLETE_MAX);
}

static void expect_figures(const struct profile *profile)
{
    double cpu = (double)profile_figure(profile, "cpu samples");
    double alloc = (double)profile_figure(profile, "allocation samples");
    double put_off =
        (double)(profile_figure(profile, "cpu samples put off: thread was inside the agent") +
                 profile_figure(profile, "cpu samples put off: no scratch buffer"));
    double dropped =
        (double)(profile_figure(profile, "allocation samples folded: no scratch buffer") +
                 profile_figure(profile, "allocation samples dropped: thread not tracked") +
                 profile_figure(profile, "samples folded into libagent truncated: table full"));
    expect_share("stacks incomplete, by the agent's figure",
                 (double)profile_figure(profile, "stacks that did not reach main or thread start"),
                 cpu + alloc, INCOMPLETE_MAX);
    static const char *const by_cfi[] = {
        "stacks walked by cfi: libunwind was in use",
        "stacks walked by cfi: frame records did not lead to their end"};
    for (size_t i = 0; i < 2; i++)
        fprintf(stderr, "%s: %lld of %.0f\n", by_cfi[i],
                (long long)profile_figure(profile, by_cfi[i]), cpu + alloc);
    expect_share("cpu samples put off", put_off, cpu + put_off, DROPPED_MAX);
    expect_share("samples dropped or folded", dropped, cpu + alloc, DROPPED_MAX);
}

/* ---- sums ---- */

static void expect_between(const char *what, double value, double low, double high)
{
    fprintf(stderr, "%s: %.0f, of %.0f to %.0f\n", what, value, low, high);
    ck_assert_msg(value >= low && value <= high, "%s: %.0f, not in %.0f to %.0f", what, value, low,
                  high);
}

/* What was allocated, by the program's own count. */
struct truth {
    double sum, variance, largest;
};

static void add_truth(struct truth *truth, const uint64_t counts[STORM_SIZES], int value)
{
    for (int i = 0; i < STORM_SIZES; i++) {
        double p = -expm1(-(double)storm_sizes[i] / alloc_interval);
        double one = value == ALLOC_BYTES ? (double)storm_sizes[i] : 1;
        truth->sum += (double)counts[i] * one;
        truth->variance += (double)counts[i] * one * one * (1 - p) / p;
        truth->largest = fmax(truth->largest, one / p);
    }
}

/* `folded`: of samples whose stack is not known. */
static void expect_truth(const char *what, const struct truth *truth, double seen, double folded)
{
    double log_alarm = CHANCE_LOG_ALARM + log(2), middle = truth->largest * log_alarm / 3;
    double error = middle + sqrt(middle * middle + 2 * truth->variance * log_alarm);
    expect_between(what, seen, truth->sum - error - folded, truth->sum + error);
}

/* The counts that end a line. */
static void read_counts(const char *text, uint64_t counts[STORM_SIZES])
{
    for (int i = 0; i < STORM_SIZES; i++) {
        char *end;
        counts[i] = strtoull(text, &end, 10);
        ck_assert_ptr_ne(end, text);
        text = end;
    }
}

static const char *line_of(const struct run *run, const char *key)
{
    char begin[64];
    snprintf(begin, sizeof(begin), "\n%s ", key);
    const char *line = strstr(run->out, begin);
    ck_assert_msg(line != NULL, "no line '%s'", key);
    return line + strlen(begin);
}

static void expect_allocations(const struct run *run, const struct profile *profile)
{
    static const char *const ways[] = {
#define X(name) "storm_" #name,
        STORM_WAYS(X)
#undef X
    };
    static const struct {
        int value;
        const char *name;
    } values[] = {{ALLOC_BYTES, "bytes"}, {ALLOC_OBJECTS, "objects"}};
    for (int k = 0; k < 2; k++) {
        int value = values[k].value;
        double folded = (double)(profile_self(profile, value, "[unknown]") +
                                 profile_self(profile, value, "libagent truncated"));
        double seen_sum = 0;
        struct truth sum = {0};
        for (int way = 0; way < STORM_WAYS_COUNT; way++) {
            uint64_t counts[STORM_SIZES];
            char what[64];
            struct truth truth = {0};
            read_counts(line_of(run, ways[way]), counts);
            add_truth(&truth, counts, value);
            add_truth(&sum, counts, value);
            double seen = (double)profile_under(profile, value, ways[way]);
            snprintf(what, sizeof(what), "%s of %s", values[k].name, ways[way]);
            expect_truth(what, &truth, seen, folded);
            seen_sum += seen;
        }
        expect_truth(values[k].name, &sum, seen_sum, folded);
    }
}

/* ---- children ---- */

/* Sums over all children that ended by exit. */
struct children {
    unsigned count, left_out;
    double cpu, cpu_least, cpu_most;
    double seen[ALLOC_BYTES + 1];
    struct truth truth[ALLOC_BYTES + 1];
};

static double allocated_under(const struct profile *profile, int value)
{
    return (double)profile_under(profile, value, "child_allocator(void*)");
}

/* Whether the kernel gave a child's pid to another one later: their files are in one folder. */
static bool is_pid_of_two(const struct run *run, int pid)
{
    char line[32];
    snprintf(line, sizeof(line), "\nreaped %d\n", pid);
    const char *first = strstr(run->out, line);
    ck_assert_msg(first != NULL, "child %d was not reaped", pid);
    return strstr(first + 1, line) != NULL;
}

static void add_child(const struct run *run, const char *line, struct children *children)
{
    int pid, at;
    unsigned long cpu_ns;
    char key[32];
    uint64_t counts[STORM_SIZES];
    ck_assert_int_eq(sscanf(line, "%d %lu%n", &pid, &cpu_ns, &at), 2);
    if (is_pid_of_two(run, pid)) {
        children->left_out++;
        return;
    }
    read_counts(line + at, counts);
    snprintf(key, sizeof(key), "ended %d", pid);
    double most = strtod(line_of(run, key), NULL);

    struct profile profile;
    profile_load(&profile, run->profiles, "cpu", pid);
    double cpu = (double)profile_total(&profile, CPU_NS);
    ck_assert_msg(cpu <= most, "child %d: %.0f ns in files, %.0f used", pid, cpu, most);
    children->cpu += cpu;
    children->cpu_least += (double)cpu_ns;
    children->cpu_most += most;
    profile_free(&profile);
    profile_load(&profile, run->profiles, "heap", pid);
    for (int value = 0; value <= ALLOC_BYTES; value++) {
        children->seen[value] += allocated_under(&profile, value);
        add_truth(&children->truth[value], counts, value);
    }
    profile_free(&profile);
    children->count++;
}

static void expect_children(const struct run *run)
{
    struct children children = {0};
    for (const char *line = strstr(run->out, "child "); line; line = strstr(line, "\nchild ")) {
        line += *line == '\n';
        add_child(run, line + strlen("child "), &children);
    }
    fprintf(stderr, "%u children by exit, %u more whose pid was used again\n", children.count,
            children.left_out);
    ck_assert_uint_ge(children.count, 1);
    /* A pid of 32,768 comes again while a few thousand others are there. */
    ck_assert_uint_le(children.left_out, children.count / 4 + 3);
    expect_between("ns of children's CPU time", children.cpu,
                   children.cpu_least * (1 - CHILD_CPU_MISSING_MAX), children.cpu_most);
    expect_truth("bytes of children", &children.truth[ALLOC_BYTES], children.seen[ALLOC_BYTES], 0);
    expect_truth("objects of children", &children.truth[ALLOC_OBJECTS],
                 children.seen[ALLOC_OBJECTS], 0);
}

/* ---- files ---- */

static const char *family_of(const char *name)
{
    static const char *const families[] = {"cpu", "heap"};
    for (size_t i = 0; i < 2; i++) {
        char end[32];
        size_t length = (size_t)snprintf(end, sizeof(end), ".%s.pb.gz", families[i]);
        if (strlen(name) > length && strcmp(name + strlen(name) - length, end) == 0)
            return families[i];
    }
    ck_abort_msg("%s is no profile", name);
}

/* Those of children that ended otherwise, and of what they became, are among them. */
static void expect_valid_files(const struct run *run)
{
    unsigned count = 0;
    DIR *directory = opendir(run->profiles);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[PATH_MAX + 256], why[256] = "";
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", run->profiles, entry->d_name);
        Perftools__Profiles__Profile *message = profile_read(path, why, sizeof(why));
        ck_assert_msg(message &&
                          profile_is_valid(message, family_of(entry->d_name), why, sizeof(why)),
                      "%s: %s", path, why);
        perftools__profiles__profile__free_unpacked(message, NULL);
        count++;
    }
    closedir(directory);
    fprintf(stderr, "%u valid files\n", count);
}

/* ---- the storm ---- */

static void tell_numbers(const struct run *run)
{
    static const char *const happened[] = {"opened", "forked",    "spawned",      "cancelled",
                                           "thrown", "own_ticks", "process_ticks"};
    for (size_t i = 0; i < sizeof(happened) / sizeof(happened[0]); i++) {
        int64_t number = run_number(run, happened[i]);
        fprintf(stderr, "%s: %lld\n", happened[i], (long long)number);
        ck_assert_int_ge(number, 1);
    }
    ck_assert_int_eq(run_number(run, "wrong"), 0);
    ck_assert_int_eq(run_number(run, "cancelled") * 2, run_number(run, "spawned"));
    /* By exceptions, returns and cancellations alike. */
    ck_assert_int_eq(run_number(run, "destroyed"),
                     run_number(run, "spawned") + run_number(run, "thrown") * STORM_THROW_FRAMES);
}

START_TEST(test_storm)
{
    const struct variant *variant = &variants[_i];
    unsigned length = storm_seconds() / (getenv("STORM_UNWINDER") ? 1 : variant->part);
    struct run run;
    struct profile profile;
    char seconds[16], option[64], interval[64], comment[64];
    snprintf(seconds, sizeof(seconds), "%u", length);
    snprintf(option, sizeof(option), "LIBAGENT_UNWINDER=%s", variant->unwinder);
    snprintf(interval, sizeof(interval), "LIBAGENT_ALLOC_INTERVAL=%uKiB", variant->alloc_interval);
    alloc_interval = 1024 * variant->alloc_interval;
    snprintf(comment, sizeof(comment), "libagent: unwinder: %s", variant->unwinder);
    fprintf(stderr, "%s, %u s\n", variant->unwinder, length);
    run_program(&run,
                &(struct run_request){.program = variant->program,
                                      .arguments = (const char *[]){seconds, plugins[0], plugins[1],
                                                                    plugins[2], plugins[3], NULL},
                                      .environment = (const char *[]){"LIBAGENT_FREQUENCY=10000",
                                                                      "LIBAGENT_PERIOD=1s",
                                                                      interval, option, NULL},
                                      .seconds = length + 180});
    run_expect_quiet_success(&run);
    tell_numbers(&run);

    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert(profile_has_comment(&profile, comment));
    fprintf(stderr, "%u windows\n", profile.file_count);
    ck_assert_uint_ge(profile.file_count, length / 2);
    expect_between("ns of CPU time", (double)profile_total(&profile, CPU_NS),
                   (double)run_number(&run, "process") * (1 - CPU_MISSING_MAX),
                   (double)run_number(&run, "process_with_ends") * (1 + CPU_MISSING_MAX));
    expect_figures(&profile);
    expect_whole("cpu stacks incomplete", &profile, CPU_SAMPLES, 1);
    profile_free(&profile);

    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_allocations(&run, &profile);
    /* The largest of a storm's blocks counts for two intervals. */
    expect_whole("allocation stacks incomplete", &profile, ALLOC_BYTES, 2 * alloc_interval);
    profile_free(&profile);

    expect_children(&run);
    expect_valid_files(&run);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("storm");
    TCase *tcase = tcase_create("storm");
    tcase_set_timeout(tcase, 3 * storm_seconds() + 600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    const char *only = getenv("STORM_UNWINDER");
    int first = 0, last = sizeof(variants) / sizeof(variants[0]);
    while (only && first < last && strcmp(variants[first].unwinder, only) != 0)
        first++;
    if (first == last) {
        fprintf(stderr, "STORM_UNWINDER=%s: not one of cfi, libunwind, fp\n", only);
        exit(EXIT_FAILURE);
    }
    tcase_add_loop_test(tcase, test_storm, first, only ? first + 1 : last);
    suite_add_tcase(suite, tcase);
    return suite;
}
