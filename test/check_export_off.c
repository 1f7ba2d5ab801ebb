/* LIBAGENT_SYMBOLS=off: readers find names themselves, and do so where a mapping has none. */
#include "test/check.h"

#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/options.h"
#include "agent/export/export.h"
#include "test/fake_modules.h"
#include "test/preload/profile_reader.h"

START_TEST(only_pseudo_frames_have_names)
{
    fake_modules_start();
    arena_set_budget((size_t)64 << 20);
    ck_assert_int_eq(recorder_start(1, 2), 0);
    options.symbols = SYMBOLS_OFF;
    static const struct thread_label label = {.tid = 1, .name = "one"};
    const struct {
        uint64_t generation;
        uint64_t pcs[5];
    } stack = {1, {PSEUDO_OVERHEAD, LIB_BIAS + 0x10234, JIT_CODE, (uintptr_t)suite, PSEUDO_TAIL}};
    static const char *const names[] = {"libagent overhead", NULL, NULL, NULL, "[thread end]"};
    const uint64_t addresses[] = {PSEUDO_OVERHEAD, 0x10234, JIT_CODE,
                                  (uintptr_t)suite - fake_main_bias, PSEUDO_TAIL};
    recorder_add(RECORD_CPU, (const void *)&stack, ARRAY_SIZE(names), &label,
                 (struct record_values){1 << RECORD_FRACTION_BITS, 1000}, true);
    const struct export_request request = {
        .family = RECORD_CPU,
        .start_unix_ns = 1,
        .duration_ns = 1,
        .period = 1,
        .has_window = true,
    };
    struct buffer out = {0};
    char why[200] = "";
    ck_assert_int_eq(export_pprof(recorder_turn(3, 4), &request, &out), 0);
    Perftools__Profiles__Profile *profile =
        perftools__profiles__profile__unpack(NULL, out.size, out.data);
    ck_assert_ptr_nonnull(profile);
    ck_assert_msg(profile_is_valid(profile, "cpu", why, sizeof(why)), "%s", why);
    ck_assert_uint_eq(profile->n_sample, 1);
    ck_assert_uint_eq(profile->sample[0]->n_location_id, ARRAY_SIZE(names));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const Perftools__Profiles__Location *location =
            profile->location[profile->sample[0]->location_id[i] - 1];
        const Perftools__Profiles__Mapping *mapping = profile->mapping[location->mapping_id - 1];
        ck_assert_uint_eq(location->address, addresses[i]);
        ck_assert_uint_eq(location->n_line, names[i] != NULL);
        ck_assert_int_eq(mapping->has_functions, names[i] != NULL);
        if (names[i])
            ck_assert_str_eq(
                profile->string_table[profile->function[location->line[0]->function_id - 1]->name],
                names[i]);
    }
    ck_assert_uint_eq(profile->n_function, 2);
    perftools__profiles__profile__free_unpacked(profile, NULL);
    buffer_free(&out);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("export_off");
    TCase *off = tcase_create("off");
    tcase_add_test(off, only_pseudo_frames_have_names);
    suite_add_tcase(suite, off);
    return suite;
}
