/* The pprof file of a window: decoded by libprotobuf-c, held against the rules of its readers and
 * against what was recorded. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "agent/base/arena.h"
#include "agent/export/export.h"
#include "test/fake_modules.h"
#include "test/preload/profile_reader.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Mapping Mapping;

enum { ONE = 1 << RECORD_FRACTION_BITS, BYTE = 1 << RECORD_AMOUNT_BITS_ALLOC };

static const char *const comments[] = {"libagent: cpu samples: 1", "second \xff", NULL};
static const struct thread_label alice = {.tid = 41, .name = "alice"};
static const struct thread_label bob = {.tid = 42, .name = "bob"};

static struct export_request request;
static struct window *window;
static Profile *profile;

static void setup(void)
{
    fake_modules_start();
    arena_set_budget((size_t)64 << 20);
    ck_assert_int_eq(recorder_start(1, 2), 0);
    request = (struct export_request){
        .has_window = true,
        .family = RECORD_CPU,
        .start_unix_ns = 1700000000123456789,
        .duration_ns = 60000000001,
        .period = 9900990,
        .thread_labels = true,
        .state_label = true,
        .comments = comments,
    };
}

static void teardown(void)
{
    if (profile)
        perftools__profiles__profile__free_unpacked(profile, NULL);
    profile = NULL;
}

static void add(enum record_family family, uint64_t generation, const uint64_t *pcs, uint32_t count,
                const struct thread_label *thread, uint64_t values_count, uint64_t amount)
{
    struct {
        uint64_t generation;
        uint64_t pcs[1024];
    } stack = {.generation = generation};
    memcpy(stack.pcs, pcs, count * sizeof(pcs[0]));
    recorder_add(family, (const void *)&stack, count, thread,
                 (struct record_values){values_count, amount}, true);
}

#define PCS(...) (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8

/* Turns the window and encodes it into `out`. */
static int encode(struct buffer *out)
{
    window = recorder_turn(3, 4);
    return export_pprof(window, &request, out);
}

/* Decodes, and checks what holds for every file. */
static void decode(const struct buffer *out)
{
    char why[200] = "";
    teardown();
    profile = perftools__profiles__profile__unpack(NULL, out->size, out->data);
    ck_assert_ptr_nonnull(profile);
    ck_assert_msg(profile_is_valid(profile, export_family_name(request.family), why, sizeof(why)),
                  "%s", why);
    for (size_t i = 0; i < profile->n_string_table; i++)
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(profile->string_table[i], profile->string_table[k]);
    for (size_t i = 0; i < profile->n_mapping; i++)
        ck_assert(profile->mapping[i]->has_functions && !profile->mapping[i]->has_filenames &&
                  !profile->mapping[i]->has_line_numbers);
    for (size_t i = 0; i < profile->n_location; i++) {
        ck_assert_uint_eq(profile->location[i]->n_line, 1);
        ck_assert_uint_ne(profile->location[i]->mapping_id, 0);
        ck_assert_uint_ne(profile->location[i]->address, 0);
    }
    for (size_t i = 0; i < profile->n_function; i++)
        ck_assert_int_ne(profile->function[i]->system_name, 0);
}

static void encode_and_decode(void)
{
    struct buffer out = {0};
    ck_assert_int_eq(encode(&out), 0);
    ck_assert_uint_gt(out.size, 0);
    decode(&out);
    buffer_free(&out);
}

static const char *text(int64_t index)
{
    ck_assert_uint_lt((uint64_t)index, profile->n_string_table);
    return profile->string_table[index];
}

static const Location *location_of_frame(const Sample *sample, size_t frame)
{
    ck_assert_uint_lt(frame, sample->n_location_id);
    return profile->location[sample->location_id[frame] - 1];
}

static const char *name_of(const Location *location)
{
    return text(profile->function[location->line[0]->function_id - 1]->name);
}

static const Mapping *mapping_of(const Location *location)
{
    return profile->mapping[location->mapping_id - 1];
}

/* "leaf;caller;..." */
static const char *stack_of(const Sample *sample)
{
    static char stack[4096];
    char *at = stack;
    for (size_t i = 0; i < sample->n_location_id; i++)
        at += snprintf(at, (size_t)(stack + sizeof(stack) - at), "%s%s", i ? ";" : "",
                       name_of(location_of_frame(sample, i)));
    return stack;
}

static const char *label_text(const Sample *sample, const char *key)
{
    for (size_t i = 0; i < sample->n_label; i++)
        if (strcmp(text(sample->label[i]->key), key) == 0)
            return text(sample->label[i]->str);
    return "";
}

/* The one sample with this stack, of this thread ("": whichever). */
static const Sample *sample_of(const char *stack, const char *thread)
{
    const Sample *found = NULL;
    for (size_t i = 0; i < profile->n_sample; i++) {
        const Sample *sample = profile->sample[i];
        if (strcmp(stack_of(sample), stack) != 0 ||
            (thread[0] && strcmp(label_text(sample, "thread name"), thread) != 0))
            continue;
        ck_assert_msg(!found, "twice: %s", stack);
        found = sample;
    }
    ck_assert_msg(found != NULL, "no sample '%s' of '%s'", stack, thread);
    return found;
}

static void check_values(const Sample *sample, int64_t count, int64_t amount)
{
    ck_assert_int_eq(sample->value[0], count);
    ck_assert_int_eq(sample->value[1], amount);
}

START_TEST(the_header)
{
    ck_assert_str_eq(export_family_name(RECORD_CPU), "cpu");
    ck_assert_str_eq(export_family_name(RECORD_ALLOC), "heap");
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000), &alice, ONE, 10);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1000), &alice, ONE, 10 * BYTE);
    encode_and_decode();
    ck_assert_int_eq(profile->time_nanos, 1700000000123456789);
    ck_assert_int_eq(profile->duration_nanos, 60000000001);
    ck_assert_int_eq(profile->period, 9900990);
    ck_assert_str_eq(text(profile->default_sample_type), "cpu");
    ck_assert_uint_eq(profile->n_comment, 2);
    ck_assert_str_eq(text(profile->comment[0]), comments[0]);
    ck_assert_str_eq(text(profile->comment[1]), "second \xef\xbf\xbd");
    struct buffer out = {0};
    request.family = RECORD_ALLOC;
    request.comments = NULL;
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    decode(&out);
    buffer_free(&out);
    ck_assert_str_eq(text(profile->default_sample_type), "alloc_space");
    ck_assert_uint_eq(profile->n_comment, 0);
}
END_TEST

START_TEST(values_are_rounded_and_nothing_is_added)
{
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1001), &alice, 3 * ONE, 123456789);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1001), &alice, 2 * ONE, 1);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1002), &alice, 0, 5);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1003), &alice, ONE / 2, 0);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1004), &alice, ONE / 2 - 1, 0); /* 0 and 0: left out */
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1005), &alice, 0, 0);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1001), &alice, 1000 * ONE + ONE / 2 - 1,
        70 * BYTE + BYTE / 2);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1002), &alice, ONE, BYTE / 2 - 1);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1003), &alice, ONE / 2 - 1, BYTE / 2 - 1);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1004), &alice, UINT64_MAX, UINT64_MAX);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, 3);
    check_values(sample_of("libfake.so.1+0x1001", "alice"), 5, 123456790);
    check_values(sample_of("libfake.so.1+0x1002", "alice"), 0, 5);
    check_values(sample_of("libfake.so.1+0x1003", "alice"), 1, 0);
    request.family = RECORD_ALLOC;
    struct buffer out = {0};
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    decode(&out);
    buffer_free(&out);
    ck_assert_uint_eq(profile->n_sample, 3);
    check_values(sample_of("libfake.so.1+0x1001", "alice"), 1000, 71);
    check_values(sample_of("libfake.so.1+0x1002", "alice"), 1, 0);
    check_values(sample_of("libfake.so.1+0x1004", "alice"), 1ll << 48, 1ll << 56);
}
END_TEST

START_TEST(an_empty_window_gives_nothing)
{
    struct buffer out = {0};
    ck_assert_int_eq(encode(&out), 0);
    ck_assert_ptr_null(out.data);
    add(RECORD_ALLOC, 1, PCS(LIB_BIAS + 0x1000), &alice, ONE, BYTE); /* the other family */
    ck_assert_int_eq(encode(&out), 0);
    ck_assert_uint_eq(out.size, 0);
    ck_assert_ptr_null(out.data);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000), &alice, 5, 0);
    ck_assert_int_eq(encode(&out), 0);
    ck_assert_ptr_null(out.data);
}
END_TEST

START_TEST(what_no_table_had_room_for)
{
    window = recorder_turn(3, 4);
    window->truncated[RECORD_CPU] = (struct record_values){7 * ONE, 700};
    struct buffer out = {0};
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    decode(&out);
    buffer_free(&out);
    ck_assert_uint_eq(profile->n_sample, 1);
    ck_assert_uint_eq(profile->sample[0]->n_label, 0);
    check_values(sample_of("libagent truncated", ""), 7, 700);
    request.family = RECORD_ALLOC; /* each family has its own */
    ck_assert_int_eq(export_pprof(window, &request, &out), 0);
    ck_assert_ptr_null(out.data);
}
END_TEST

START_TEST(labels)
{
    const struct thread_label full = {.tid = 1, .name = "sixteen letters!"};
    _Static_assert(sizeof("sixteen letters!") - 1 == sizeof(full.name), "no 0 at the end");
    const struct thread_label odd = {.tid = 77, .name = "a\x80z\xe2"};
    const struct thread_label none = {.tid = 0, .name = ""};
    const struct thread_label nameless = {.tid = 5, .name = ""};
    const struct thread_label *const threads[] = {&alice, &bob, &full, &odd, &none, &nameless};
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000), threads[i], ONE, 10 + i);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, ARRAY_SIZE(threads));
    static const char *const names[] = {
        "alice", "bob", "sixteen letters!", "a\xef\xbf\xbdz\xef\xbf\xbd", "", ""};
    for (size_t i = 0; i < profile->n_sample; i++) {
        const Sample *sample = profile->sample[i];
        size_t which = (size_t)sample->value[1] - 10, label = 0;
        if (names[which][0]) {
            ck_assert_str_eq(text(sample->label[label]->key), "thread name");
            ck_assert_str_eq(text(sample->label[label]->str), names[which]);
            ck_assert_int_eq(sample->label[label++]->num, 0);
        }
        if (threads[which]->tid) {
            ck_assert_str_eq(text(sample->label[label]->key), "thread id");
            ck_assert_int_eq(sample->label[label]->num, threads[which]->tid);
            ck_assert_str_eq(text(sample->label[label]->num_unit), "id");
            ck_assert_int_eq(sample->label[label++]->str, 0);
        }
        ck_assert_uint_eq(sample->n_label, label);
    }
}
END_TEST

START_TEST(states_of_wall_samples)
{
    const uint64_t running = 1, approximate = (uint64_t)RECORD_APPROXIMATE << RECORD_STATE_SHIFT;
    const uint64_t blocked = 1 | (uint64_t)RECORD_BLOCKED << RECORD_STATE_SHIFT;
    const uint64_t call = 1 | (uint64_t)RECORD_SYSTEM_CALL << RECORD_STATE_SHIFT;
    const uint64_t one = (uint64_t)1 << RECORD_STATE_SHIFT;
    static const struct {
        const char *state, *approximate;
    } truth[] = {{"running", ""}, {"blocked", ""}, {"read", ""},
                 {"clone3", ""},  {"9999", ""},    {"read", "true"}};
    const uint64_t words[] = {
        running,          blocked,           call + SYS_read * one,
        call + 435 * one, call + 9999 * one, call + SYS_read * one + approximate};
    ck_assert_str_eq(export_family_name(RECORD_WALL), "wall");
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        add(RECORD_WALL, words[i], PCS(LIB_BIAS + 0x1000), &alice, ONE, 10 + i);
    /* Without a state in a CPU sample, though the stack is the same. */
    add(RECORD_CPU, running, PCS(LIB_BIAS + 0x1000), &alice, ONE, 1);
    /* Generations that look alike are one where the states are. */
    add(RECORD_WALL, blocked + 1, PCS(LIB_BIAS + 0x1000), &alice, ONE, 1000);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, 1);
    ck_assert_str_eq(label_text(profile->sample[0], "state"), "");
    for (int with_threads = 0; with_threads < 2; with_threads++) {
        struct buffer out = {0};
        request.family = RECORD_WALL;
        request.thread_labels = with_threads;
        ck_assert_int_eq(export_pprof(window, &request, &out), 0);
        decode(&out);
        buffer_free(&out);
        ck_assert_str_eq(text(profile->default_sample_type), "wall");
        ck_assert_uint_eq(profile->n_sample, ARRAY_SIZE(words));
        for (size_t i = 0; i < profile->n_sample; i++) {
            const Sample *sample = profile->sample[i];
            size_t which = (size_t)(sample->value[1] % 1000) - 10;
            ck_assert_uint_lt(which, ARRAY_SIZE(words));
            ck_assert_int_eq(sample->value[0], which == 1 ? 2 : 1);
            ck_assert_str_eq(label_text(sample, "state"), truth[which].state);
            ck_assert_str_eq(label_text(sample, "approximate"), truth[which].approximate);
            ck_assert_str_eq(label_text(sample, "thread name"), with_threads ? "alice" : "");
        }
    }
}
END_TEST

START_TEST(without_labels_threads_are_one)
{
    request.thread_labels = false;
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000), &alice, ONE, 10);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000), &bob, ONE, 20);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1000, LIB_BIAS + 0x1000), &bob, ONE, 40);
    /* halves that are rounded only when they are added up */
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1002), &alice, ONE / 4, 0);
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1002), &bob, ONE / 4, 0);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, 3);
    check_values(sample_of("libfake.so.1+0x1000", ""), 2, 30);
    check_values(sample_of("libfake.so.1+0x1000;libfake.so.1+0x1000", ""), 1, 40);
    check_values(sample_of("libfake.so.1+0x1002", ""), 1, 0);
    for (size_t i = 0; i < profile->n_string_table; i++)
        ck_assert_int_ne(strncmp(profile->string_table[i], "thread ", 7), 0);
}
END_TEST

START_TEST(generations)
{
    /* The same code at two places, the second in a later generation: one sample. */
    add(RECORD_CPU, 1, PCS(LIB_BIAS + 0x1004, LIB_BIAS + 0x1008), &alice, ONE, 1);
    add(RECORD_CPU, 2, PCS(REUSED_BIAS + 0x1004, LIB_BIAS + 0x1008), &alice, ONE, 2);
    add(RECORD_CPU, 2, PCS(REUSED_BIAS + 0x1004, LIB_BIAS + 0x1008), &bob, ONE, 4);
    /* The same address with another object, or none. */
    add(RECORD_CPU, 2, PCS(REUSED_BIAS + 0x2004), &alice, ONE, 8);
    add(RECORD_CPU, 3, PCS(REUSED_BIAS + 0x2004), &alice, ONE, 16);
    add(RECORD_CPU, 4, PCS(REUSED_BIAS + 0x2004), &alice, ONE, 32);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, 5);
    check_values(sample_of("libfake.so.1+0x1004;libfake.so.1+0x1008", "alice"), 2, 3);
    check_values(sample_of("libfake.so.1+0x1004;libfake.so.1+0x1008", "bob"), 1, 4);
    check_values(sample_of("libfake.so.1+0x2004", ""), 1, 8);
    check_values(sample_of("b\xef\xbf\xbd\xef\xbf\xbd-d.so+0x2004", ""), 1, 16);
    check_values(sample_of("[anon]+0x7c0000002004", ""), 1, 32);
}
END_TEST

static void check_mapping(const Mapping *mapping, uint64_t start, uint64_t limit, uint64_t offset,
                          const char *filename, const char *build_id)
{
    ck_assert_uint_eq(mapping->memory_start, start);
    ck_assert_uint_eq(mapping->memory_limit, limit);
    ck_assert_uint_eq(mapping->file_offset, offset);
    ck_assert_str_eq(text(mapping->filename), filename);
    ck_assert_str_eq(text(mapping->build_id), build_id);
}

START_TEST(mappings_and_addresses)
{
    add(RECORD_CPU, 1,
        PCS(PSEUDO_OVERHEAD, VDSO_BIAS + 0x987, JIT_CODE, BAD_BIAS + 0x2000, LIB_BIAS + 0x10234,
            LIB_BIAS + 0x5fff, JIT_CODE + 0x5000, PSEUDO_TAIL),
        &alice, ONE, 1);
    encode_and_decode();
    const Sample *sample = sample_of("libagent overhead;[vdso]+0x987;[anon]+0x7b0000001234;"
                                     "b\xef\xbf\xbd\xef\xbf\xbd-d.so+0x2000;libfake.so.1+0x10234;"
                                     "libfake.so.1+0x5fff;[anon]+0x7b0000006234;[thread end]",
                                     "alice");
    static const uint64_t addresses[] = {PSEUDO_OVERHEAD, 0x987,  JIT_CODE,          0x2000,
                                         0x10234,         0x5fff, JIT_CODE + 0x5000, PSEUDO_TAIL};
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
        ck_assert_uint_eq(location_of_frame(sample, i)->address, addresses[i]);
    /* Mapping 1 is the main program, though nothing of it was sampled. */
    const struct object_segment *code = &fake_main.segments[0];
    check_mapping(profile->mapping[0], code->vaddr / 4096 * 4096,
                  (code->vaddr + code->size + 4095) / 4096 * 4096, code->offset / 4096 * 4096,
                  fake_main.path, "");
    check_mapping(mapping_of(location_of_frame(sample, 0)), 0, 0x1000, 0, "[libagent]", "");
    check_mapping(mapping_of(location_of_frame(sample, 1)), 0, 0x1000, 0, "[vdso]", "");
    check_mapping(mapping_of(location_of_frame(sample, 2)), 0x7b0000001000, 0x7b0000007000, 0,
                  "[anon]", "");
    check_mapping(mapping_of(location_of_frame(sample, 3)), 0x2000, 0x12000, 0x2000,
                  "/opt/\xef\xbf\xbd\xef\xbf\xbd/b\xef\xbf\xbd\xef\xbf\xbd-d.so", "");
    check_mapping(mapping_of(location_of_frame(sample, 4)), 0x10000, 0x11000, 0xf000,
                  "/opt/fake/libfake.so.1", "abcd000f10");
    check_mapping(mapping_of(location_of_frame(sample, 5)), 0x1000, 0x6000, 0x1000,
                  "/opt/fake/libfake.so.1", "abcd000f10");
    ck_assert(mapping_of(location_of_frame(sample, 6)) == mapping_of(location_of_frame(sample, 2)));
    ck_assert(mapping_of(location_of_frame(sample, 7)) == mapping_of(location_of_frame(sample, 0)));
    ck_assert_uint_eq(profile->n_mapping, fake_main.segment_count + 6u);
}
END_TEST

START_TEST(addresses_at_the_end_of_memory)
{
    add(RECORD_CPU, 1, PCS(UINT64_MAX - 1, UINT64_MAX - 5000), &alice, ONE, 1);
    encode_and_decode();
    check_values(sample_of("[anon]+0xfffffffffffffffe;[anon]+0xffffffffffffec77", ""), 1, 1);
}
END_TEST

/* Names of this program's own functions: one with a C++ name. */
int known_function(int x) __asm__("_ZN5known8functionEi");
__attribute__((noinline)) int known_function(int x)
{
    return x + (x << 3);
}

static __attribute__((noinline)) int plain_function(int x)
{
    return x * 5;
}

START_TEST(names_from_the_file)
{
    ck_assert_int_eq(known_function(1) + plain_function(1), 14);
    uintptr_t known = (uintptr_t)known_function, plain = (uintptr_t)plain_function;
    add(RECORD_CPU, 1, PCS(known, plain), &alice, ONE, 1);
    add(RECORD_CPU, 1, PCS(known + 1, plain + 1), &alice, ONE, 2);
    encode_and_decode();
    ck_assert_uint_eq(profile->n_sample, 2);
    for (size_t i = 0; i < profile->n_sample; i++)
        ck_assert_str_eq(stack_of(profile->sample[i]), "known::function(int);plain_function");
    /* Four locations, two functions; the name in the file stands beside the readable one. */
    ck_assert_uint_eq(profile->n_location, 4);
    ck_assert_uint_eq(profile->n_function, 2);
    for (size_t i = 0; i < 2; i++) {
        const char *name = text(profile->function[i]->name);
        const char *system_name = text(profile->function[i]->system_name);
        ck_assert_str_eq(system_name, strcmp(name, "plain_function") == 0 ? "plain_function"
                                                                          : "_ZN5known8functionEi");
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("export");
    TCase *file = tcase_create("file");
    tcase_add_checked_fixture(file, setup, teardown);
    tcase_add_test(file, the_header);
    tcase_add_test(file, values_are_rounded_and_nothing_is_added);
    tcase_add_test(file, an_empty_window_gives_nothing);
    tcase_add_test(file, what_no_table_had_room_for);
    tcase_add_test(file, labels);
    tcase_add_test(file, states_of_wall_samples);
    tcase_add_test(file, without_labels_threads_are_one);
    tcase_add_test(file, generations);
    tcase_add_test(file, mappings_and_addresses);
    tcase_add_test(file, addresses_at_the_end_of_memory);
    tcase_add_test(file, names_from_the_file);
    suite_add_tcase(suite, file);
    return suite;
}
