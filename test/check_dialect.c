/* What differs between receivers inside the file: limits, labels, names. Decoded by libprotobuf-c.
 */
#include "test/check.h"

#include <string.h>

#include "agent/base/arena.h"
#include "agent/export/export.h"
#include "test/fake_modules.h"
#include "test/preload/profile_reader.h"

typedef Perftools__Profiles__Profile Profile;

enum { ONE = 1 << RECORD_FRACTION_BITS, BYTE = 1 << RECORD_AMOUNT_BITS_ALLOC, VALUES = 4 };

static const struct thread_label alice = {.tid = 41, .name = "alice"};
static struct export_request request;
static Profile *profile;

static void setup(void)
{
    fake_modules_start();
    arena_set_budget((size_t)64 << 20);
    ck_assert_int_eq(recorder_start(1, 2), 0);
    request = (struct export_request){
        .has_window = true,
        .families = 1 << RECORD_CPU | 1 << RECORD_ALLOC,
        .start_unix_ns = 1700000000123456789,
        .duration_ns = 1,
        .period = 9900990,
        .thread_labels = true,
        .state_label = true,
    };
}

static void teardown(void)
{
    if (profile)
        perftools__profiles__profile__free_unpacked(profile, NULL);
}

static void add(enum record_family family, uint64_t pc, uint64_t amount)
{
    const uint64_t stack[] = {0, pc};
    recorder_add(family, (const void *)stack, 1, &alice, (struct record_values){ONE, amount}, true);
}

static size_t encode(const struct window *window, enum export_dialect dialect, size_t max_bytes)
{
    struct buffer out = {0};
    request.dialect = dialect;
    ck_assert_int_eq(export_within_limits(window, &request, max_bytes, &out), 0);
    teardown();
    profile = perftools__profiles__profile__unpack(NULL, out.size, out.data);
    ck_assert_ptr_nonnull(profile);
    size_t size = out.size;
    buffer_free(&out);
    return size;
}

static int64_t sum(size_t value)
{
    int64_t total = 0;
    for (size_t i = 0; i < profile->n_sample; i++)
        total += profile->sample[i]->value[value];
    return total;
}

static int64_t least(size_t value)
{
    int64_t amount = INT64_MAX;
    /* The last one is what was folded. */
    for (size_t i = 0; i + 1 < profile->n_sample; i++)
        if (profile->sample[i]->value[value] < amount)
            amount = profile->sample[i]->value[value];
    return amount;
}

START_TEST(pyroscope_is_limited)
{
    enum { ROWS = 30000, LARGE = 1000 };
    int64_t total = 0;
    for (uint64_t i = 0; i < ROWS; i++) {
        uint64_t amount = i % (ROWS / LARGE) == 0 ? 9000000 : 1000 + i % 7;
        add(RECORD_CPU, 0x1000 + i * 16, amount);
        total += (int64_t)amount;
    }
    const struct window *window = recorder_turn(3, 4);
    encode(window, DIALECT_PPROF, 0);
    ck_assert_uint_eq(profile->n_sample, ROWS);
    ck_assert_uint_eq(profile->sample[0]->n_label, 2);
    size_t size = encode(window, DIALECT_PYROSCOPE, 0);
    ck_assert_uint_eq(sum(1), total);
    ck_assert_uint_eq(sum(0), ROWS);
    /* Most of the room is used. */
    ck_assert_uint_le(profile->n_sample, 16000);
    ck_assert_uint_gt(profile->n_sample, 5000);
    ck_assert_uint_le(size, 2000000);
    ck_assert_uint_eq(profile->sample[0]->n_label, 0);
    for (int share = 2; share < 64; share *= 2) {
        ck_assert_uint_le(encode(window, DIALECT_PYROSCOPE, size / share), size / share);
        ck_assert_uint_eq(sum(1), total);
    }
    /* The large ones stay. */
    ck_assert_uint_lt(profile->n_sample, 2 * LARGE);
    ck_assert_uint_ge(profile->n_sample, 2);
    ck_assert_int_eq(least(1), 9000000);
    /* All others too, where asked. */
    ck_assert_uint_le(encode(window, DIALECT_PPROF, size / 2), size / 2);
    ck_assert_uint_eq(sum(1), total);
}
END_TEST

START_TEST(all_rows_alike)
{
    for (uint64_t i = 0; i < 20000; i++)
        add(RECORD_CPU, 0x1000 + i * 16, 5);
    encode(recorder_turn(3, 4), DIALECT_PYROSCOPE, 0);
    ck_assert_uint_gt(profile->n_sample, 5000);
    ck_assert_int_eq(sum(1), 100000);
}
END_TEST

START_TEST(nothing_fits)
{
    for (uint64_t i = 0; i < 100; i++)
        add(RECORD_CPU, 0x1000 + i * 16, 5);
    encode(recorder_turn(3, 4), DIALECT_PYROSCOPE, 1);
    ck_assert_uint_le(profile->n_sample, 2);
    ck_assert_int_eq(sum(1), 500);
}
END_TEST

/* Each state would be a series: stacks that differ in it alone are one row. */
START_TEST(pyroscope_has_no_states)
{
    request.family = RECORD_WALL;
    for (uint64_t state = 0; state < 3; state++) {
        const uint64_t stack[] = {state << RECORD_STATE_SHIFT, 0x1000};
        recorder_add(RECORD_WALL, (const void *)stack, 1, &alice, (struct record_values){ONE, 7},
                     true);
    }
    const struct window *window = recorder_turn(3, 4);
    encode(window, DIALECT_PARCA, 0);
    ck_assert_uint_eq(profile->n_sample, 3);
    ck_assert_uint_ge(profile->sample[0]->n_label, 3);
    encode(window, DIALECT_PYROSCOPE, 0);
    ck_assert_uint_eq(profile->n_sample, 1);
    ck_assert_uint_eq(profile->sample[0]->n_label, 0);
    ck_assert_int_eq(sum(1), 21);
}
END_TEST

START_TEST(datadog_has_all_in_one)
{
    static const char *const types[] = {"cpu-samples",   "count", "cpu-time",    "nanoseconds",
                                        "alloc-samples", "count", "alloc-space", "bytes"};
    add(RECORD_CPU, 0x1000, 7);
    add(RECORD_ALLOC, 0x1000, 11 * BYTE);
    add(RECORD_ALLOC, 0x2000, 13 * BYTE);
    const struct window *window = recorder_turn(3, 4);
    encode(window, DIALECT_DATADOG, 0);
    ck_assert_uint_eq(profile->n_sample_type, VALUES);
    for (size_t i = 0; i < VALUES; i++) {
        ck_assert_str_eq(profile->string_table[profile->sample_type[i]->type], types[2 * i]);
        ck_assert_str_eq(profile->string_table[profile->sample_type[i]->unit], types[2 * i + 1]);
    }
    ck_assert_uint_eq(profile->n_sample, 3);
    ck_assert_int_eq(sum(0), 1);
    ck_assert_int_eq(sum(1), 7);
    ck_assert_int_eq(sum(2), 2);
    ck_assert_int_eq(sum(3), 24);
    for (size_t i = 0; i < 3; i++) {
        const int64_t *value = profile->sample[i]->value;
        ck_assert((value[0] != 0) != (value[2] != 0));
    }
    /* What is not profiled is not named. */
    request.families = 1 << RECORD_ALLOC;
    request.family = RECORD_ALLOC;
    encode(window, DIALECT_DATADOG, 0);
    ck_assert_uint_eq(profile->n_sample_type, 2);
    ck_assert_int_eq(sum(1), 24);
    ck_assert_str_eq(profile->string_table[profile->default_sample_type], "alloc-space");
}
END_TEST

/* ---- the program's labels ---- */

static struct label_set set_of(const char *key, const char *text, const int64_t *number)
{
    uint64_t label[LABEL_WORDS_MAX];
    struct label_set set = {0};
    ck_assert_int_eq(label_make(label, key, text, number), 0);
    ck_assert_int_eq(label_set_change(&set, NULL, label, true), 1);
    return set;
}

static void add_labelled(uint64_t amount, const struct label_view *labels)
{
    const uint64_t stack[] = {0, 0x1000};
    recorder_add_labelled(RECORD_CPU, (const void *)stack, 1, &alice, labels,
                          (struct record_values){ONE, amount}, true);
}

/* What has a label of that text (NULL: that number, with its key for a unit). */
static int64_t sum_under(const char *key, const char *text, int64_t number)
{
    int64_t total = 0;
    char *const *strings = profile->string_table;
    for (size_t i = 0; i < profile->n_sample; i++) {
        for (size_t j = 0; j < profile->sample[i]->n_label; j++) {
            const Perftools__Profiles__Label *label = profile->sample[i]->label[j];
            if (strcmp(strings[label->key], key) != 0)
                continue;
            if (text && label->str && strcmp(strings[label->str], text) == 0)
                total += profile->sample[i]->value[1];
            if (!text && label->str == 0 && label->num == number &&
                strcmp(strings[label->num_unit], key) == 0)
                total += profile->sample[i]->value[1];
        }
    }
    return total;
}

static void expect_labels(const struct window *window, enum export_dialect dialect)
{
    encode(window, dialect, 0);
    ck_assert_uint_eq(profile->n_sample, 6);
    ck_assert_int_eq(sum(1), 111111);
    ck_assert_int_eq(sum_under("route", "/pay", 0), 10);
    ck_assert_int_eq(sum_under("route", "/\xef\xbf\xbd", 0), 100);
    ck_assert_int_eq(sum_under("shard", NULL, -3), 1000);
    ck_assert_int_eq(sum_under("shard", NULL, 0), 10000);
    ck_assert_int_eq(sum_under("capture", "slice", 0), 100000);
    ck_assert_int_eq(sum_under("process_capture", "all", 0), 100000);
}

/* Texts, numbers (0 and negative ones, too), what is no UTF-8, both captures; two stacks that
 * differ in labels alone are one row where labels are not sent. */
START_TEST(labels_are_for_all_but_pyroscope)
{
    const int64_t negative = -3, zero = 0;
    const struct label_set sets[] = {
        set_of("route", "/pay", NULL),    set_of("route", "/\xff", NULL),
        set_of("shard", NULL, &negative), set_of("shard", NULL, &zero),
        set_of("capture", "slice", NULL), set_of("process_capture", "all", NULL),
    };
    uint64_t amount = 1;
    request.user_labels = true;
    add_labelled(amount, NULL);
    for (size_t i = 0; i < 4; i++)
        add_labelled(amount *= 10, &(struct label_view){.set = &sets[i]});
    add_labelled(amount * 10, &(struct label_view){.captures = {&sets[4], &sets[5]}});
    const struct window *window = recorder_turn(3, 4);
    expect_labels(window, DIALECT_PPROF);
    expect_labels(window, DIALECT_PARCA);
    expect_labels(window, DIALECT_DATADOG);
    encode(window, DIALECT_PYROSCOPE, 0);
    ck_assert_uint_eq(profile->n_sample, 1);
    ck_assert_uint_eq(profile->sample[0]->n_label, 0);
    ck_assert_int_eq(sum(1), 111111);
    for (size_t i = 0; i < profile->n_string_table; i++)
        ck_assert_ptr_null(strstr(profile->string_table[i], "/pay"));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dialect");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, pyroscope_is_limited);
    tcase_add_test(all, all_rows_alike);
    tcase_add_test(all, nothing_fits);
    tcase_add_test(all, pyroscope_has_no_states);
    tcase_add_test(all, datadog_has_all_in_one);
    tcase_add_test(all, labels_are_for_all_but_pyroscope);
    suite_add_tcase(suite, all);
    return suite;
}
