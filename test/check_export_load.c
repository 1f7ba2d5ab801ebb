/* The pprof file of large and random windows, without memory, and as other programs read it:
 * go tool pprof and protoc. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/base/arena.h"
#include "agent/base/rng.h"
#include "agent/export/export.h"
#include "test/export_faults.h"
#include "test/fake_modules.h"
#include "test/preload/profile_reader.h"
#include "test/temp_folder.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__Sample Sample;

enum { ONE = 1 << RECORD_FRACTION_BITS };

static struct export_request request;

static void start(size_t budget)
{
    fake_modules_start();
    arena_set_budget(budget);
    ck_assert_int_eq(recorder_start(1, 2), 0);
    static const char *const comments[] = {"libagent: a figure: 17", NULL};
    request = (struct export_request){
        .has_window = true,
        .family = RECORD_CPU,
        .start_unix_ns = 1700000000000000000,
        .duration_ns = 60000000000,
        .period = 10000000,
        .thread_labels = true,
        .comments = comments,
    };
}

static void setup(void)
{
    start((size_t)64 << 20);
}

static Profile *decode(struct buffer *out)
{
    char why[200] = "";
    Profile *profile = perftools__profiles__profile__unpack(NULL, out->size, out->data);
    ck_assert_ptr_nonnull(profile);
    ck_assert_msg(profile_is_valid(profile, "cpu", why, sizeof(why)), "%s", why);
    buffer_free(out);
    return profile;
}

static void free_profile(Profile *profile)
{
    perftools__profiles__profile__free_unpacked(profile, NULL);
}

/* ---- Random stacks against the truth -------------------------------------------------------- */

enum { KEYS = 700, DEPTH_MAX = 12 };

struct stack_key {
    uint64_t generation;
    uint64_t pcs[DEPTH_MAX];
};

static struct {
    struct stack_key stack;
    uint32_t depth;
    struct thread_label thread;
    int64_t count, amount;
} truth[KEYS];

static bool is_of(const Profile *profile, const Sample *sample, size_t key)
{
    int64_t tid = 0;
    for (size_t i = 0; i < sample->n_label; i++)
        if (sample->label[i]->num)
            tid = sample->label[i]->num;
    if (sample->n_location_id != truth[key].depth || (uint64_t)tid != truth[key].thread.tid)
        return false;
    for (size_t i = 0; i < truth[key].depth; i++)
        if (profile->location[sample->location_id[i] - 1]->address !=
            truth[key].stack.pcs[i] - LIB_BIAS)
            return false;
    return true;
}

START_TEST(random_windows)
{
    struct rng rng = {.state = (uint64_t)_i};
    memset(truth, 0, sizeof(truth));
    for (size_t key = 0; key < KEYS; key++) {
        truth[key].depth = 1 + (uint32_t)(rng_next(&rng) % DEPTH_MAX);
        truth[key].thread.tid = 1 + rng_next(&rng) % 5;
        for (uint32_t i = 0; i < truth[key].depth; i++)
            truth[key].stack.pcs[i] = LIB_BIAS + 0x1000 + rng_next(&rng) % 50;
        /* the key itself, so that no two are equal */
        truth[key].stack.pcs[0] = LIB_BIAS + 0x2000 + key;
    }
    for (int i = 0; i < 5000; i++) {
        size_t key = rng_next(&rng) % KEYS;
        uint64_t amount = rng_next(&rng) % 10000000;
        truth[key].stack.generation = rng_next(&rng) % 3;
        truth[key].count++;
        truth[key].amount += (int64_t)amount;
        recorder_add(RECORD_CPU, (const void *)&truth[key].stack, truth[key].depth,
                     &truth[key].thread, (struct record_values){ONE, amount}, true);
    }
    struct buffer out = {0};
    ck_assert_int_eq(export_pprof(recorder_turn(3, 4), &request, &out), 0);
    Profile *profile = decode(&out);
    size_t expected = 0;
    for (size_t key = 0; key < KEYS; key++)
        expected += truth[key].count > 0;
    ck_assert_uint_eq(profile->n_sample, expected);
    for (size_t i = 0; i < profile->n_sample; i++) {
        const Sample *sample = profile->sample[i];
        uint64_t leaf = profile->location[sample->location_id[0] - 1]->address;
        size_t key = leaf - 0x2000;
        ck_assert_uint_lt(key, KEYS);
        ck_assert(is_of(profile, sample, key));
        ck_assert_int_eq(sample->value[0], truth[key].count);
        ck_assert_int_eq(sample->value[1], truth[key].amount);
    }
    free_profile(profile);
}
END_TEST

/* ---- Size ----------------------------------------------------------------------------------- */

START_TEST(a_hundred_thousand_stacks)
{
    enum { ROWS = 100000, FRAMES = 60, CODE = 4096 };
    start((size_t)1 << 30);
    struct {
        uint64_t generation;
        uint64_t pcs[FRAMES];
    } stack = {.generation = 1};
    const struct thread_label thread = {.tid = 7, .name = "worker"};
    struct rng rng = {.state = 1};
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < FRAMES; i++)
            stack.pcs[i] = LIB_BIAS + 0x1000 + rng_next(&rng) % CODE;
        recorder_add(RECORD_CPU, (const void *)&stack, FRAMES, &thread,
                     (struct record_values){ONE, 1000 + row}, true);
    }
    struct window *window = recorder_turn(3, 4);
    ck_assert_uint_eq(window->truncated[RECORD_CPU].count, 0);
    struct buffer out = {0};
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    /* 0.4 s; more under sanitizers */
    ck_assert_int_lt(end.tv_sec - begin.tv_sec, 10);
    Profile *profile = decode(&out);
    int64_t count = 0, amount = 0;
    for (size_t i = 0; i < profile->n_sample; i++) {
        ck_assert_uint_eq(profile->sample[i]->n_location_id, FRAMES);
        count += profile->sample[i]->value[0];
        amount += profile->sample[i]->value[1];
    }
    ck_assert_uint_eq(profile->n_sample, ROWS);
    ck_assert_int_eq(count, ROWS);
    ck_assert_int_eq(amount, (int64_t)ROWS * (ROWS - 1) / 2 + 1000ll * ROWS);
    ck_assert_uint_eq(profile->n_location, CODE);
    free_profile(profile);
}
END_TEST

/* ---- No memory ------------------------------------------------------------------------------ */

static __attribute__((noinline)) int some_function(int x)
{
    return x * 7;
}

static void add_some(size_t rows)
{
    const struct thread_label thread = {.tid = 7, .name = "worker"};
    for (size_t i = 0; i < rows; i++) {
        const uint64_t stack[] = {1,
                                  LIB_BIAS + 0x1000 + i % 0x5000,
                                  (uintptr_t)some_function,
                                  JIT_CODE + i,
                                  VDSO_BIAS + 16,
                                  PSEUDO_TAIL};
        recorder_add(RECORD_CPU, (const void *)stack, 5, &thread,
                     (struct record_values){ONE, 1000000}, true);
    }
}

START_TEST(every_mapping_refused_in_turn)
{
    ck_assert_int_eq(some_function(1), 7);
    add_some(10000); /* so many that every table and buffer has to grow */
    expect_whole_or_nothing(recorder_turn(3, 4), &request);
}
END_TEST

/* ---- Other readers -------------------------------------------------------------------------- */

/* What a command prints; fails the test if it fails. */
static char *output_of(const char *command)
{
    static char output[1 << 20];
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t size = fread(output, 1, sizeof(output) - 1, pipe);
    output[size] = 0;
    ck_assert_msg(pclose(pipe) == 0, "%s: %.2000s", command, output);
    return output;
}

static void check_has(const char *output, const char *part)
{
    ck_assert_msg(strstr(output, part) != NULL, "no '%s' in:\n%.4000s", part, output);
}

START_TEST(other_readers_take_it)
{
    add_some(3);
    struct window *window = recorder_turn(3, 4);
    window->truncated[RECORD_CPU] = (struct record_values){2 * ONE, 55};
    struct buffer out = {0};
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    const char *folder = temp_folder_make();
    write_file(in_folder(folder, "cpu.pb"), out.data, out.size);
    buffer_free(&out);
    char command[4096];
    snprintf(command, sizeof(command),
             "cd test && protoc --decode=perftools.profiles.Profile profile.proto < %s/cpu.pb 2>&1",
             folder);
    char *text = output_of(command);
    check_has(text, "string_table: \"\"\n");
    check_has(text, "string_table: \"libfake.so.1+0x1002\"\n");
    check_has(text, "time_nanos: 1700000000000000000\n");
    check_has(text, "has_functions: true\n");
    if (system("command -v go > /dev/null 2>&1") == 0) {
        snprintf(command, sizeof(command), "go tool pprof -symbolize=none -raw %s/cpu.pb 2>&1",
                 folder);
        text = output_of(command);
        check_has(text, "samples/count cpu/nanoseconds[dflt]\n");
        check_has(text, "PeriodType: cpu nanoseconds\nPeriod: 10000000\n");
        check_has(text, "Comment: libagent: a figure: 17\n");
        check_has(text, "thread name:[worker]\n");
        check_has(text, "thread id:[7 id]\n");
        check_has(text, " libagent truncated ");
        check_has(text, ": 0x1002 M=2 libfake.so.1+0x1002 ");
        check_has(text, "/opt/fake/libfake.so.1 abcd000f10 [FN]\n");
    }
    temp_folder_remove(folder);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("export_load");
    TCase *windows = tcase_create("windows");
    tcase_add_checked_fixture(windows, setup, NULL);
    tcase_add_loop_test(windows, random_windows, 0, 5);
    tcase_add_test(windows, a_hundred_thousand_stacks);
    tcase_add_test(windows, every_mapping_refused_in_turn);
    tcase_add_test(windows, other_readers_take_it);
    tcase_set_timeout(windows, 120); /* go builds its pprof once */
    suite_add_tcase(suite, windows);
    return suite;
}
