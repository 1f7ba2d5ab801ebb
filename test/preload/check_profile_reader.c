/* The judge judged: a hand-made profile is read right, and each rule is broken once. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/temp_path.h"

typedef Perftools__Profiles__Profile Profile;

enum {
    S_EMPTY,
    S_SAMPLES,
    S_COUNT,
    S_CPU,
    S_NANOSECONDS,
    S_PROGRAM,
    S_LIBRARY,
    S_MAIN,
    S_F,
    S_G,
    S_OVERHEAD,
    S_NAME,
    S_WORKER,
    S_ID,
    S_UNIT,
    S_BUILD_ID,
    S_AGENT,
    S_COMMENT,
    STRINGS
};

/* A CPU profile of two threads: main > f (70 ns, 7 samples), main > g > f (20 ns, 2 samples,
 * thread "worker", 77) and the overhead (1 ns). */
struct made {
    Profile profile;
    char *strings[STRINGS];
    Perftools__Profiles__ValueType types[3], *type_list[2];
    Perftools__Profiles__Mapping mappings[3], *mapping_list[3];
    Perftools__Profiles__Function functions[4], *function_list[4];
    Perftools__Profiles__Line lines[4], *line_list[4];
    Perftools__Profiles__Location locations[4], *location_list[4];
    Perftools__Profiles__Label labels[2], *label_list[2];
    Perftools__Profiles__Sample samples[3], *sample_list[3];
    uint64_t stacks[3][3];
    int64_t values[3][2];
    int64_t comments[1];
};

static void make_tables(struct made *made)
{
    static const char *const strings[STRINGS] = {"",
                                                 "samples",
                                                 "count",
                                                 "cpu",
                                                 "nanoseconds",
                                                 "/bin/program",
                                                 "/lib/libx.so",
                                                 "main",
                                                 "f",
                                                 "g",
                                                 "libagent overhead",
                                                 "thread name",
                                                 "worker",
                                                 "thread id",
                                                 "id",
                                                 "00ff",
                                                 "[libagent]",
                                                 "cpu samples: 9"};
    for (int i = 0; i < STRINGS; i++)
        made->strings[i] = (char *)strings[i];
    static const int64_t types[3][2] = {
        {S_SAMPLES, S_COUNT}, {S_CPU, S_NANOSECONDS}, {S_CPU, S_NANOSECONDS}};
    for (int i = 0; i < 3; i++) {
        perftools__profiles__value_type__init(&made->types[i]);
        made->types[i].type = types[i][0];
        made->types[i].unit = types[i][1];
    }
    for (uint64_t i = 0; i < 3; i++) {
        perftools__profiles__mapping__init(&made->mappings[i]);
        made->mappings[i].id = i + 1;
        made->mappings[i].memory_start = 0x1000;
        made->mappings[i].memory_limit = 0x9000;
        made->mappings[i].file_offset = 0x1000;
        made->mappings[i].filename = i == 0 ? S_PROGRAM : i == 1 ? S_LIBRARY : S_AGENT;
        made->mappings[i].build_id = S_BUILD_ID;
        made->mappings[i].has_functions = true;
        made->mapping_list[i] = &made->mappings[i];
    }
    made->type_list[0] = &made->types[0];
    made->type_list[1] = &made->types[1];
    static const int64_t names[4] = {S_MAIN, S_F, S_G, S_OVERHEAD};
    for (uint64_t i = 0; i < 4; i++) {
        perftools__profiles__function__init(&made->functions[i]);
        made->functions[i].id = i + 1;
        made->functions[i].name = names[i];
        perftools__profiles__line__init(&made->lines[i]);
        made->lines[i].function_id = i + 1;
        made->line_list[i] = &made->lines[i];
        perftools__profiles__location__init(&made->locations[i]);
        made->locations[i].id = i + 1;
        made->locations[i].mapping_id = i == 3 ? 3 : i == 2 ? 2 : 1;
        made->locations[i].address = 0x2000 + i;
        made->locations[i].n_line = 1;
        made->locations[i].line = &made->line_list[i];
        made->function_list[i] = &made->functions[i];
        made->location_list[i] = &made->locations[i];
    }
}

static void make_samples(struct made *made)
{
    static const uint64_t stacks[3][3] = {{2, 1, 0}, {2, 3, 1}, {4, 0, 0}};
    static const size_t depths[3] = {2, 3, 1};
    static const int64_t values[3][2] = {{7, 70}, {2, 20}, {0, 1}};
    memcpy(made->stacks, stacks, sizeof(stacks));
    memcpy(made->values, values, sizeof(values));
    for (int i = 0; i < 3; i++) {
        perftools__profiles__sample__init(&made->samples[i]);
        made->samples[i].n_location_id = depths[i];
        made->samples[i].location_id = made->stacks[i];
        made->samples[i].n_value = 2;
        made->samples[i].value = made->values[i];
        made->sample_list[i] = &made->samples[i];
    }
    for (int i = 0; i < 2; i++) {
        perftools__profiles__label__init(&made->labels[i]);
        made->label_list[i] = &made->labels[i];
    }
    made->labels[0].key = S_NAME;
    made->labels[0].str = S_WORKER;
    made->labels[1].key = S_ID;
    made->labels[1].num = 77;
    made->labels[1].num_unit = S_UNIT;
    made->samples[1].n_label = 2;
    made->samples[1].label = made->label_list;
}

static struct made *make(void)
{
    static struct made made;
    memset(&made, 0, sizeof(made));
    make_tables(&made);
    make_samples(&made);
    Profile *profile = &made.profile;
    perftools__profiles__profile__init(profile);
    profile->n_sample_type = 2;
    profile->sample_type = made.type_list;
    profile->period_type = &made.types[2];
    profile->period = 9900990;
    profile->default_sample_type = S_CPU;
    profile->n_mapping = 3;
    profile->mapping = made.mapping_list;
    profile->n_function = 4;
    profile->function = made.function_list;
    profile->n_location = 4;
    profile->location = made.location_list;
    profile->n_sample = 3;
    profile->sample = made.sample_list;
    profile->n_string_table = STRINGS;
    profile->string_table = made.strings;
    profile->time_nanos = 1000000000;
    profile->duration_nanos = 500000000;
    made.comments[0] = S_COMMENT;
    profile->n_comment = 1;
    profile->comment = made.comments;
    return &made;
}

static char folder[TEMP_PATH_SIZE];

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "judge")));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

enum packing { PLAIN, GZIP, ZSTD };

static void write_profile(const Profile *profile, const char *name, enum packing packing)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    size_t size = perftools__profiles__profile__get_packed_size(profile);
    uint8_t *bytes = malloc(size);
    perftools__profiles__profile__pack(profile, bytes);
    if (packing == GZIP) {
        gzFile file = gzopen(path, "wb");
        ck_assert_int_eq(gzwrite(file, bytes, (unsigned)size), (int)size);
        gzclose(file);
    } else {
        size_t room = ZSTD_compressBound(size);
        uint8_t *packed = malloc(room);
        if (packing == ZSTD)
            size = ZSTD_compress(packed, room, bytes, size, 3);
        FILE *file = fopen(path, "w");
        fwrite(packing == ZSTD ? packed : bytes, size, 1, file);
        fclose(file);
        free(packed);
    }
    free(bytes);
}

START_TEST(test_sums_of_windows)
{
    struct made *made = make();
    write_profile(&made->profile, "some.prog.12.0000.cpu.pb.gz", GZIP);
    made->profile.time_nanos += made->profile.duration_nanos;
    made->values[0][CPU_NS] = 700;
    write_profile(&made->profile, "some.prog.12.0001.cpu.pb.zst", ZSTD);
    made->profile.time_nanos += made->profile.duration_nanos;
    made->values[0][CPU_NS] = 7000;
    write_profile(&made->profile, "some.prog.12.0002.cpu.pb", PLAIN);
    made->values[0][CPU_NS] = 70000; /* of another family, and of another process */
    write_profile(&made->profile, "some.prog.12.0000.heap.pb.gz", GZIP);
    write_profile(&made->profile, "some.prog.13.0000.cpu.pb.gz", GZIP);

    struct profile profile;
    profile_load(&profile, folder, "cpu", 12);
    ck_assert_uint_eq(profile.file_count, 3);
    ck_assert_uint_eq(profile.stack_count, 9);
    ck_assert_int_eq(profile_total(&profile, CPU_NS), 7770 + 60 + 3);
    ck_assert_int_eq(profile_total(&profile, CPU_SAMPLES), 27);
    ck_assert_int_eq(profile_self(&profile, CPU_NS, "f"), 7770 + 60);
    ck_assert_int_eq(profile_self(&profile, CPU_NS, "main"), 0);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "main"), 7770 + 60);
    ck_assert_int_eq(profile_under(&profile, CPU_NS, "g"), 60);
    ck_assert_int_eq(profile_of_tid(&profile, CPU_NS, 77), 60);
    ck_assert_int_eq(profile_of_thread(&profile, CPU_NS, "worker"), 60);
    ck_assert_int_eq(profile_of_thread(&profile, CPU_NS, ""), 7770 + 3);
    ck_assert(profile_has_comment(&profile, "cpu samples"));
    ck_assert(!profile_has_comment(&profile, "samples dropped"));
    ck_assert_str_eq(profile.stacks[1].frames[1].object, "/lib/libx.so");
    ck_assert(stack_is_pseudo(&profile.stacks[2]));
    ck_assert(!stack_is_pseudo(&profile.stacks[0]));
    /* These stacks end in main, but not where libc calls it. */
    ck_assert_double_eq(profile_whole_share(&profile, CPU_NS), 0);
    profile_free(&profile);

    profile_load(&profile, folder, "cpu", 0);
    ck_assert_uint_eq(profile.file_count, 4);
    profile_free(&profile);
    profile_load(&profile, folder, "wall", 0);
    ck_assert_uint_eq(profile.file_count, 0);
    ck_assert_int_eq(profile_total(&profile, CPU_NS), 0);
    profile_free(&profile);
}
END_TEST

START_TEST(test_broken_files)
{
    char why[256];
    char path[256];
    struct made *made = make();
    write_profile(&made->profile, "plain.pb.gz", PLAIN); /* must be gzip */
    write_profile(&made->profile, "packed.pb", GZIP);    /* must not be */
    write_profile(&made->profile, "cut.pb.gz", GZIP);
    snprintf(path, sizeof(path), "%s/cut.pb.gz", folder);
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(truncate(path, status.st_size - 3), 0);
    static const char *const names[] = {"plain.pb.gz", "packed.pb", "cut.pb.gz", "none.pb.gz"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        ck_assert_msg(profile_read(path, why, sizeof(why)) == NULL, "%s was read", names[i]);
    }
}
END_TEST

static void expect(const struct made *made, bool valid, const char *what)
{
    char why[256] = "";
    bool is_valid = profile_is_valid(&made->profile, "cpu", why, sizeof(why));
    ck_assert_msg(is_valid == valid, "%s: %s", what, valid ? why : "was not seen");
}

/* Breaks one thing of a good profile. */
#define BREAK(change)                                                                              \
    do {                                                                                           \
        struct made *made = make();                                                                \
        Profile *profile = &made->profile;                                                         \
        (void)profile;                                                                             \
        change;                                                                                    \
        expect(made, false, #change);                                                              \
    } while (0)

START_TEST(test_rules)
{
    char why[256];
    expect(make(), true, "the good one");
    ck_assert(!profile_is_valid(&make()->profile, "heap", why, sizeof(why)));

    BREAK(made->strings[S_EMPTY] = "x");
    BREAK(made->strings[S_F] = "\xff");
    BREAK(made->strings[S_F] = "\xc0\xaf");         /* a long form */
    BREAK(made->strings[S_F] = "\xed\xa0\x80");     /* a surrogate */
    BREAK(made->strings[S_F] = "\xf4\x90\x80\x80"); /* beyond the last */
    BREAK(made->strings[S_F] = "\xe2\x82");         /* cut */
    BREAK(profile->n_string_table = 0);
    BREAK(profile->n_sample_type = 1);
    BREAK(made->types[0].unit = S_EMPTY);
    BREAK(made->types[1].type = S_SAMPLES);
    BREAK(profile->period_type = NULL);
    BREAK(made->types[2].unit = S_COUNT);
    BREAK(profile->period = 0);
    BREAK(profile->time_nanos = 0);
    BREAK(profile->duration_nanos = 0);
    BREAK(made->comments[0] = STRINGS);
    BREAK(profile->default_sample_type = STRINGS);
    BREAK(profile->default_sample_type = S_SAMPLES);
    BREAK(profile->n_mapping = 0);
    BREAK(made->mappings[1].id = 3);
    BREAK(made->mappings[1].memory_start += 8);
    BREAK(made->mappings[1].memory_limit = 0);
    BREAK(made->mappings[1].filename = S_EMPTY);
    BREAK(made->mappings[0].filename = S_MAIN);
    BREAK(made->strings[S_BUILD_ID] = "00FF");
    BREAK(made->strings[S_BUILD_ID] = "00f");
    BREAK(made->functions[2].id = 9);
    BREAK(made->functions[2].name = S_EMPTY);
    BREAK(made->functions[2].filename = -1);
    BREAK(made->locations[0].id = 2);
    BREAK(made->locations[0].mapping_id = 4);
    BREAK(made->locations[0].address = 0xfff);
    BREAK(made->locations[0].address = 0x9000);
    BREAK(made->locations[0].n_line = 0); /* has_functions is set */
    BREAK(made->locations[3].address = made->locations[3].mapping_id = made->locations[3].n_line =
              0);
    BREAK(made->lines[0].function_id = 5);
    BREAK(made->lines[0].function_id = 0);
    BREAK(profile->n_sample = 0);
    BREAK(made->samples[0].n_value = 1);
    BREAK(made->values[0][0] = -1);
    BREAK(memset(made->values[2], 0, sizeof(made->values[2])));
    BREAK(made->samples[0].n_location_id = 0);
    BREAK(made->stacks[0][1] = 0);
    BREAK(made->stacks[0][1] = 5);
    BREAK(made->labels[0].key = S_EMPTY);
    BREAK(made->labels[0].num = 1);
    BREAK(made->labels[0].str = STRINGS);
    BREAK(made->labels[1].num_unit = S_EMPTY);
    BREAK(made->strings[S_NAME] = "pprof::x");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("profile_reader");
    TCase *tcase = tcase_create("hand-made profiles");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_sums_of_windows);
    tcase_add_test(tcase, test_broken_files);
    tcase_add_test(tcase, test_rules);
    suite_add_tcase(suite, tcase);
    return suite;
}
