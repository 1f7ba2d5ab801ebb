/* The names of profile files: made as documented, known again, and no other name with them. */
#include "test/check.h"

#include <stdint.h>
#include <string.h>

#include "uploader/profile_name.h"

START_TEST(names_are_made)
{
    char name[PROFILE_NAME_SIZE];
    struct blob_header header = {.family = "cpu", .sequence = 7};
    profile_name_make(name, "redis-server", 4711, &header, COMPRESSION_GZIP, 0);
    ck_assert_str_eq(name, "redis-server.4711.0007.cpu.pb.gz");
    strcpy(header.family, "heap");
    header.sequence = 12345;
    profile_name_make(name, "a.b", 1, &header, COMPRESSION_ZSTD, 0);
    ck_assert_str_eq(name, "a.b.1.12345.heap.pb.zst");
    profile_name_make(name, "x", 1, &header, COMPRESSION_NONE, 3);
    ck_assert_str_eq(name, "x.1.12345-3.heap.pb");
    strcpy(header.dialect, "html");
    profile_name_make(name, "x", 1, &header, COMPRESSION_GZIP, 3);
    ck_assert_str_eq(name, "x.1.12345-3.heap.html");
    ck_assert(profile_name_matches(name) && profile_name_is_text("html"));
    strcpy(header.dialect, "collapsed");
    profile_name_make(name, "x", 1, &header, COMPRESSION_ZSTD, 0);
    ck_assert_str_eq(name, "x.1.12345.heap.collapsed");
    ck_assert(profile_name_matches(name) && profile_name_is_text("collapsed"));
    ck_assert(!profile_name_is_text("pprof") && !profile_name_is_text(""));
    strcpy(header.dialect, "pprof");
    strcpy(header.capture, "order-1.17");
    profile_name_make(name, "x", 1, &header, COMPRESSION_GZIP, 3);
    ck_assert_str_eq(name, "x.1.12345-3.heap@order-1.17.pb.gz");
    strcpy(header.dialect, "html");
    profile_name_make(name, "x", 1, &header, COMPRESSION_GZIP, 0);
    ck_assert_str_eq(name, "x.1.12345.heap@order-1.17.html");
    ck_assert(profile_name_matches(name));
    profile_name_make_temporary(name, 42, 99);
    ck_assert_str_eq(name, ".libagent.42.99.tmp");
}
END_TEST

START_TEST(program_is_made_harmless)
{
    static const char *const cases[][2] = {
        {"redis-server", "redis-server"},
        {"a_B9.-z", "a_B9.-z"},
        {"../../etc/passwd", "_._.._etc_passwd"},
        {".hidden", "_hidden"},
        {"two words", "two_words"},
        {"\xc3\xa9t\xc3\xa9", "__t__"},
        {"a\nb", "a_b"},
        {"", "unknown"},
        {NULL, "unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[PROFILE_PROGRAM_SIZE];
        profile_name_program(out, cases[i][0]);
        ck_assert_str_eq(out, cases[i][1]);
    }
    char lengthy[1000];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    char out[PROFILE_PROGRAM_SIZE];
    profile_name_program(out, lengthy);
    ck_assert_uint_eq(strlen(out), PROFILE_PROGRAM_SIZE - 1);
}
END_TEST

START_TEST(longest_name_fits_and_is_known)
{
    char program[PROFILE_PROGRAM_SIZE];
    memset(program, 'p', sizeof program - 1);
    program[sizeof program - 1] = 0;
    struct blob_header header = {.family = "heap-growth", .sequence = UINT32_MAX};
    memset(header.capture, 'c', sizeof header.capture - 12);
    strcat(header.capture, ".4294967295");
    char name[PROFILE_NAME_SIZE];
    profile_name_make(name, program, INT32_MAX, &header, COMPRESSION_ZSTD, UINT64_MAX);
    const char *end = ".2147483647.4294967295-18446744073709551615.heap-growth@";
    ck_assert_uint_eq(strlen(name), strlen(program) + strlen(end) + strlen(header.capture) + 7);
    ck_assert_mem_eq(name + strlen(program), end, strlen(end));
    ck_assert(profile_name_matches(name));
}
END_TEST

START_TEST(made_names_are_known)
{
    static const char *const families[] = {"cpu",  "heap",        "wall",
                                           "lock", "heap-growth", "heap-peak"};
    static const char *const programs[] = {
        "a", "redis-server", "python3.11", "a.1.0001.cpu.pb", "9", "_", "a-b"};
    static const uint64_t copies[] = {0, 2, 9, 1700000000000};
    static const char *const captures[] = {"a.1", "1.1", "a.b-C_9.4294967295", ".pb.2"};
    char name[PROFILE_NAME_SIZE];
    for (size_t f = 0; f < 4; f++)
        for (size_t p = 0; p < sizeof programs / sizeof programs[0]; p++)
            for (size_t c = 0; c < 4; c++)
                for (int how = COMPRESSION_GZIP; how <= COMPRESSION_NONE; how++) {
                    struct blob_header header = {.sequence = (uint32_t)(f * 9000)};
                    strcpy(header.family, families[f]);
                    ck_assert(profile_name_family_known(header.family));
                    profile_name_make(name, programs[p], 31, &header, (enum compression)how,
                                      copies[c]);
                    ck_assert_msg(profile_name_matches(name), "%s", name);
                    ck_assert(!profile_name_matches_temporary(name));
                    for (size_t i = 0; i < sizeof captures / sizeof captures[0]; i++) {
                        strcpy(header.capture, captures[i]);
                        profile_name_make(name, programs[p], 31, &header, (enum compression)how,
                                          copies[c]);
                        ck_assert_msg(profile_name_matches(name), "%s", name);
                    }
                }
    profile_name_make_temporary(name, 1, UINT64_MAX);
    ck_assert(profile_name_matches_temporary(name));
    ck_assert(!profile_name_matches(name));
}
END_TEST

START_TEST(other_names_are_not_known)
{
    static const char *const others[] = {
        "",
        ".",
        "..",
        "profile.pb.gz",
        "graph.1.0001.frozen.pb",
        "app.1.001.cpu.pb.gz",
        "app.1..cpu.pb.gz",
        "app.1.0001-.cpu.pb.gz",
        "app.1.0001-x.cpu.pb.gz",
        "app.1.0001-2-3.cpu.pb.gz",
        "app.1.01-2.cpu.pb.gz",
        "app.1.-2.cpu.pb.gz",
        "app.x.0001.cpu.pb.gz",
        "app..0001.cpu.pb.gz",
        "1.0001.cpu.pb.gz",
        ".1.0001.cpu.pb.gz",
        ".app.1.0001.cpu.pb.gz",
        "two words.1.0001.cpu.pb.gz",
        "a\nb.1.0001.cpu.pb.gz",
        "app.1.0001.cpu.pb.gz.bak",
        "app.1.0001.cpu.pb.xz",
        "app.1.0001.cpu.html.gz",
        "app.1.0001.index.html",
        "index.html",
        "app.1.0001.cpu.txt",
        "app.1.0001.cpu",
        "app.1.0001.mycpu.pb",
        "app.1.0001.CPU.pb",
        "app.1.0001.cpu.pb.GZ",
        "app.1.0001..pb",
        "app.1.0001.pb",
        "app.1.0001cpu.pb",
        "app.1.0001.cpu@.pb",
        "app.1.0001.cpu@1.pb",
        "app.1.0001.cpu@.1.pb",
        "app.1.0001.cpu@a.pb",
        "app.1.0001.cpu@a.x.pb",
        "app.1.0001.cpu@a.1@b.2.pb",
        "app.1.0001.cpu@a b.1.pb",
        "app.1.0001.mycpu@a.1.pb",
        "app.1.0001@a.1.pb",
        "me@app.1.0001.cpu.pb",
        "cpu.pb",
        ".pb",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!profile_name_matches(others[i]), "%s", others[i]);
    static const char *const not_temporary[] = {
        "",
        ".libagent.1.tmp",
        ".libagent.1.2.tm",
        "libagent.1.2.tmp",
        ".libagent..2.tmp",
        ".libagent.1.x.tmp",
        ".libagent.1.2.3.tmp",
        "x.libagent.1.2.tmp",
        ".tmp",
        ".lib1.2.tmp",
        "1.2.tmp",
    };
    for (size_t i = 0; i < sizeof not_temporary / sizeof not_temporary[0]; i++)
        ck_assert_msg(!profile_name_matches_temporary(not_temporary[i]), "%s", not_temporary[i]);
    ck_assert(!profile_name_family_known("frozen"));
    ck_assert(!profile_name_family_known(""));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("profile_name");
    TCase *all = tcase_create("all");
    tcase_add_test(all, names_are_made);
    tcase_add_test(all, program_is_made_harmless);
    tcase_add_test(all, longest_name_fits_and_is_known);
    tcase_add_test(all, made_names_are_known);
    tcase_add_test(all, other_names_are_not_known);
    suite_add_tcase(suite, all);
    return suite;
}
