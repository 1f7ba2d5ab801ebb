/* The writer against the bytes of the format's own documentation, and against libprotobuf-c. */
#include "test/check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/protobuf.h"
#include "agent/base/rng.h"
#include "profile.pb-c.h"

#define CHECK_BYTES(buffer, text)                                                                  \
    do {                                                                                           \
        ck_assert_int_eq((buffer).error, 0);                                                       \
        ck_assert_uint_eq((buffer).size, sizeof(text) - 1);                                        \
        ck_assert_mem_eq((buffer).data, text, sizeof(text) - 1);                                   \
        buffer_free(&(buffer));                                                                    \
    } while (0)

START_TEST(varints)
{
    struct buffer out = {0};
    pb_varint(&out, 0);
    pb_varint(&out, 1);
    pb_varint(&out, 127);
    pb_varint(&out, 128);
    pb_varint(&out, 150);
    pb_varint(&out, 16383);
    pb_varint(&out, 16384);
    CHECK_BYTES(out, "\x00\x01\x7f\x80\x01\x96\x01\xff\x7f\x80\x80\x01");
    pb_varint(&out, UINT64_MAX);
    CHECK_BYTES(out, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    pb_varint(&out, UINT64_C(1) << 63);
    CHECK_BYTES(out, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
}
END_TEST

START_TEST(the_examples_of_the_documentation)
{
    struct buffer out = {0};
    pb_uint(&out, 1, 150);
    CHECK_BYTES(out, "\x08\x96\x01");
    pb_bytes(&out, 2, "testing", 7);
    CHECK_BYTES(out, "\x12\x07testing");
    static const uint64_t values[] = {3, 270, 86942};
    pb_packed(&out, 6, values, 3);
    CHECK_BYTES(out, "\x32\x06\x03\x8e\x02\x9e\xa7\x05");
    size_t mark = pb_begin(&out, 3);
    pb_uint(&out, 1, 150);
    pb_end(&out, mark);
    CHECK_BYTES(out, "\x1a\x83\x80\x80\x00\x08\x96\x01"); /* the length has a fixed width */
}
END_TEST

START_TEST(zero_and_empty)
{
    struct buffer out = {0};
    pb_uint(&out, 1, 0);
    pb_packed(&out, 2, NULL, 0);
    ck_assert_uint_eq(out.size, 0);
    pb_bytes(&out, 2, NULL, 0);
    CHECK_BYTES(out, "\x12\x00");
    size_t mark = pb_begin(&out, 16);
    pb_end(&out, mark);
    CHECK_BYTES(out, "\x82\x01\x80\x80\x80\x00");
}
END_TEST

static int64_t any_number(struct rng *rng)
{
    return (int64_t)(rng_next(rng) >> (rng_next(rng) % 64));
}

/* A profile of `samples` random samples: what the agent writes and the decoder gives back. */
static void check_round_trip(uint64_t seed, size_t samples)
{
    struct rng rng = {.state = seed};
    struct buffer out = {0};
    pb_bytes(&out, 6, "", 0);
    pb_bytes(&out, 6, "a\0b", 3);
    for (size_t i = 0; i < samples; i++) {
        uint64_t locations[64];
        size_t count = rng_next(&rng) % ARRAY_SIZE(locations);
        for (size_t j = 0; j < count; j++)
            locations[j] = (uint64_t)any_number(&rng);
        size_t sample = pb_begin(&out, 2);
        pb_packed(&out, 1, locations, count);
        pb_packed(&out, 2, (const uint64_t[]){(uint64_t)any_number(&rng), 0}, 2);
        size_t label = pb_begin(&out, 3);
        pb_uint(&out, 1, (uint64_t)any_number(&rng));
        pb_uint(&out, 3, (uint64_t)-any_number(&rng)); /* int64: ten bytes when negative */
        pb_end(&out, label);
        pb_end(&out, sample);
    }
    size_t period = pb_begin(&out, 11);
    pb_uint(&out, 1, 1);
    pb_end(&out, period);
    pb_uint(&out, 12, 0);
    ck_assert_int_eq(out.error, 0);

    Perftools__Profiles__Profile *profile =
        perftools__profiles__profile__unpack(NULL, out.size, out.data);
    ck_assert_ptr_nonnull(profile);
    ck_assert_uint_eq(profile->n_sample, samples);
    ck_assert_uint_eq(profile->n_string_table, 2);
    ck_assert_int_eq(profile->period_type->type, 1);
    rng.state = seed;
    for (size_t i = 0; i < samples; i++) {
        const Perftools__Profiles__Sample *sample = profile->sample[i];
        size_t count = rng_next(&rng) % 64;
        if (sample->n_location_id != count || sample->n_value != 2 || sample->n_label != 1)
            ck_abort_msg("sample %zu of seed %lu", i, seed);
        bool same = true;
        for (size_t j = 0; j < count; j++)
            same &= sample->location_id[j] == (uint64_t)any_number(&rng);
        same &= sample->value[0] == any_number(&rng) && sample->value[1] == 0;
        same &= sample->label[0]->key == any_number(&rng);
        same &= sample->label[0]->num == -any_number(&rng);
        if (!same)
            ck_abort_msg("sample %zu of seed %lu", i, seed);
    }
    perftools__profiles__profile__free_unpacked(profile, NULL);
    buffer_free(&out);
}

START_TEST(another_decoder_reads_the_same)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        check_round_trip(seed, seed * 10);
    check_round_trip(21, 20000); /* the buffer moves between begin and end */
}
END_TEST

START_TEST(a_message_that_is_too_long_is_an_error)
{
    struct buffer out = {0};
    size_t most = ((size_t)1 << 28) - 1;
    size_t mark = pb_begin(&out, 1);
    ck_assert_ptr_nonnull(buffer_room(&out, most + 1));
    out.size += most;
    pb_end(&out, mark);
    ck_assert_int_eq(out.error, 0);
    ck_assert_mem_eq(out.data, "\x0a\xff\xff\xff\x7f", 5);
    out.size++;
    pb_end(&out, mark);
    ck_assert_int_eq(out.error, -EMSGSIZE);
    buffer_free(&out);
}
END_TEST

START_TEST(nothing_is_written_after_an_error)
{
    struct buffer out = {0};
    pb_uint(&out, 1, 1);
    size_t mark = pb_begin(&out, 2);
    size_t size = out.size;
    out.error = -ENOMEM;
    pb_uint(&out, 1, 1);
    pb_bytes(&out, 1, "abc", 3);
    pb_packed(&out, 1, (const uint64_t[]){1}, 1);
    size_t inner = pb_begin(&out, 3);
    pb_end(&out, inner);
    pb_end(&out, mark);
    ck_assert_uint_eq(out.size, size);
    ck_assert_int_eq(out.error, -ENOMEM);
    buffer_free(&out);
    /* Nor when there never was a buffer. */
    out.error = -ENOMEM;
    mark = pb_begin(&out, 1);
    pb_end(&out, mark);
    ck_assert_ptr_null(out.data);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("protobuf");
    TCase *writer = tcase_create("writer");
    tcase_add_test(writer, varints);
    tcase_add_test(writer, the_examples_of_the_documentation);
    tcase_add_test(writer, zero_and_empty);
    tcase_add_test(writer, another_decoder_reads_the_same);
    tcase_add_test(writer, a_message_that_is_too_long_is_an_error);
    tcase_add_test(writer, nothing_is_written_after_an_error);
    suite_add_tcase(suite, writer);
    return suite;
}
