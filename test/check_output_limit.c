/* Which files go to make room, and which never do. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/temp_folder.h"
#include "uploader/output_limit.h"

static const uint64_t now_ns = 1700000000 * NS_PER_SEC;
static const uint64_t hour_ns = 3600 * NS_PER_SEC;

static char folder[TEMP_PATH_SIZE];
static struct removed_files removed;

static void setup(void)
{
    strcpy(folder, temp_folder_make());
    umask(022);
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

/* A profile of `size` bytes that is `age_s` old. */
static void add(const char *name, size_t size, uint64_t age_s)
{
    write_file_at(in_folder(folder, name), size, (int64_t)(now_ns - age_s * NS_PER_SEC));
}

/* Through an O_PATH descriptor, as the file backend does; leaks none. */
static int make_room(uint64_t limit, uint64_t size)
{
    int before = count_descriptors();
    int fd = open(folder, O_PATH | O_DIRECTORY);
    int error = output_limit_make_room(fd, limit - size, now_ns, &removed);
    close(fd);
    ck_assert_int_eq(count_descriptors(), before);
    return error;
}

static void assert_names(const char *expected)
{
    char *names = list_folder(folder);
    ck_assert_str_eq(names, expected);
    free(names);
}

START_TEST(oldest_go_first_and_no_more_than_needed)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    add("b.2.0007.heap.pb", 100, 40);
    add("c.3.0001-2.cpu.pb.zst", 100, 10);
    add("d.4.0001.lock.pb.gz", 100, 20);
    ck_assert_int_eq(make_room(400, 1), 0);
    assert_names("a.1.0000.cpu.pb.gz c.3.0001-2.cpu.pb.zst d.4.0001.lock.pb.gz");
    ck_assert_uint_eq(removed.count, 1);
    ck_assert_uint_eq(removed.bytes, 100);
    ck_assert_int_eq(make_room(400, 201), 0);
    assert_names("c.3.0001-2.cpu.pb.zst");
    ck_assert_uint_eq(removed.count, 2);
    ck_assert_uint_eq(stats_get(STAT_FILES_REMOVED), 3);
    ck_assert_int_eq(make_room(400, 400), 0);
    assert_names("");
}
END_TEST

START_TEST(at_the_limit_nothing_goes)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    add("a.1.0001.cpu.pb.gz", 100, 20);
    ck_assert_int_eq(make_room(300, 100), 0);
    ck_assert_uint_eq(removed.count, 0);
    ck_assert_uint_eq(removed.bytes, 0);
    ck_assert_int_eq(make_room(299, 100), 0);
    assert_names("a.1.0001.cpu.pb.gz");
}
END_TEST

START_TEST(equal_times_go_by_name)
{
    add("a.1.0002.cpu.pb.gz", 100, 5);
    add("a.1.0000.heap.pb.gz", 100, 5);
    add("a.1.0000.cpu.pb.gz", 100, 5);
    add("a.1.0001.cpu.pb.gz", 100, 5);
    ck_assert_int_eq(make_room(300, 100), 0);
    assert_names("a.1.0001.cpu.pb.gz a.1.0002.cpu.pb.gz");
}
END_TEST

START_TEST(only_ours_count_and_go)
{
    add("a.1.0000.cpu.pb.gz", 100, 1);
    add("graph.1.0001.frozen.pb", 5000, 1000);
    add("notes.txt", 5000, 1000);
    add(".hidden.1.0001.cpu.pb.gz", 5000, 1000);
    ck_assert_int_eq(mkdir(in_folder(folder, "dir.1.0000.cpu.pb.gz"), 0755), 0);
    ck_assert_int_eq(symlink("notes.txt", in_folder(folder, "link.1.0000.cpu.pb.gz")), 0);
    ck_assert_int_eq(mkfifo(in_folder(folder, "fifo.1.0000.cpu.pb.gz"), 0600), 0);
    ck_assert_int_eq(make_room(200, 100), 0);
    ck_assert_uint_eq(removed.count, 0);
    ck_assert_int_eq(make_room(200, 101), 0);
    ck_assert_uint_eq(removed.count, 1);
    assert_names(".hidden.1.0001.cpu.pb.gz dir.1.0000.cpu.pb.gz fifo.1.0000.cpu.pb.gz "
                 "graph.1.0001.frozen.pb link.1.0000.cpu.pb.gz notes.txt");
}
END_TEST

static bool other_user(long number, const long args[6], long *result)
{
    (void)args;
    *result = 54321;
    return number == SYS_geteuid;
}

START_TEST(files_of_another_user_stay)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    add("a.1.0001.cpu.pb.gz", 100, 20);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(in_folder(folder, "a.1.0000.cpu.pb.gz"), 12345, 12345), 0);
        ck_assert_int_eq(make_room(150, 100), 0);
        assert_names("a.1.0000.cpu.pb.gz");
    }
    /* The same for a process that is not root: here nothing is of the user that we are. */
    sys_override = other_user;
    ck_assert_int_eq(make_room(150, 100), 0);
    sys_override = NULL;
    ck_assert_uint_eq(removed.count, 0);
}
END_TEST

START_TEST(stale_temporaries_count_and_go_younger_do_not)
{
    write_file_at(in_folder(folder, ".libagent.1.1.tmp"), 100, (int64_t)(now_ns - hour_ns - 1));
    write_file_at(in_folder(folder, ".libagent.1.2.tmp"), 100, (int64_t)(now_ns - hour_ns));
    write_file_at(in_folder(folder, ".libagent.1.3.tmp"), 100, (int64_t)(now_ns + hour_ns));
    add("a.1.0000.cpu.pb.gz", 100, 60);
    ck_assert_int_eq(make_room(300, 100), 0);
    ck_assert_uint_eq(removed.count, 0);
    ck_assert_int_eq(make_room(299, 100), 0);
    assert_names(".libagent.1.2.tmp .libagent.1.3.tmp a.1.0000.cpu.pb.gz");
    ck_assert_int_eq(make_room(100, 100), 0);
    assert_names(".libagent.1.2.tmp .libagent.1.3.tmp");
}
END_TEST

/* More entries than one getdents64 gives, in random order: what stays are exactly the youngest. */
START_TEST(many_files)
{
    enum { COUNT = 2000, KEPT = 137 };
    static int age_of[COUNT];
    for (int i = 0; i < COUNT; i++)
        age_of[i] = i + 1;
    uint32_t x = 7;
    for (int i = COUNT - 1; i > 0; i--) {
        x = x * 1664525u + 1013904223u;
        int j = (int)((x >> 8) % (unsigned)(i + 1));
        int age = age_of[i];
        age_of[i] = age_of[j];
        age_of[j] = age;
    }
    char name[64];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "app.9.%04d.cpu.pb.gz", i);
        add(name, 10, (uint64_t)age_of[i]);
    }
    ck_assert_int_eq(make_room(KEPT * 10 + 5, 5), 0);
    ck_assert_uint_eq(removed.count, COUNT - KEPT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "app.9.%04d.cpu.pb.gz", i);
        ck_assert_int_eq(file_exists(in_folder(folder, name)), age_of[i] <= KEPT);
    }
}
END_TEST

START_TEST(what_cannot_be_removed_is_an_error)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    add("a.1.0001.cpu.pb.gz", 100, 20);
    fault_set(SYS_unlinkat, 0, 100, -EPERM);
    ck_assert_int_eq(make_room(200, 100), -EDQUOT);
    ck_assert_int_eq(fault_clear(), 2);
    ck_assert_uint_eq(removed.count, 0);
    /* One that stays is made up for by the next. */
    fault_set(SYS_unlinkat, 0, 1, -EPERM);
    ck_assert_int_eq(make_room(200, 100), 0);
    fault_clear();
    assert_names("a.1.0000.cpu.pb.gz");
}
END_TEST

START_TEST(files_that_vanish_meanwhile_are_no_error)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    add("a.1.0001.cpu.pb.gz", 100, 20);
    /* Removed by another process after it was listed. */
    fault_set(SYS_unlinkat, 0, 1, -ENOENT);
    ck_assert_int_eq(make_room(200, 100), 0);
    fault_clear();
    ck_assert_uint_eq(removed.count, 0);
    ck_assert_int_eq(count_files(folder), 2);
    /* And before it was looked at. */
    fault_set(SYS_newfstatat, 0, 1, -ENOENT);
    ck_assert_int_eq(make_room(200, 100), 0);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_int_eq(count_files(folder), 2);
}
END_TEST

START_TEST(faults_of_the_listing_are_told)
{
    add("a.1.0000.cpu.pb.gz", 100, 30);
    fault_set_open(O_DIRECTORY, 0, 1, -EACCES);
    ck_assert_int_eq(make_room(100, 100), -EACCES);
    fault_clear();
    fault_set(SYS_getdents64, 0, 1, -EIO);
    ck_assert_int_eq(make_room(100, 100), -EIO);
    fault_clear();
    for (int n = 0; n < 3; n++) {
        /* The batch, the names, the files. */
        fault_set(SYS_mmap, n, 1, -ENOMEM);
        ck_assert_int_eq(make_room(100, 100), -ENOMEM);
        ck_assert_int_eq(fault_clear(), 1);
    }
    assert_names("a.1.0000.cpu.pb.gz");
    ck_assert_uint_eq(stats_get(STAT_FILES_REMOVED), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("output_limit");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, oldest_go_first_and_no_more_than_needed);
    tcase_add_test(all, at_the_limit_nothing_goes);
    tcase_add_test(all, equal_times_go_by_name);
    tcase_add_test(all, only_ours_count_and_go);
    tcase_add_test(all, files_of_another_user_stay);
    tcase_add_test(all, stale_temporaries_count_and_go_younger_do_not);
    tcase_add_test(all, many_files);
    tcase_add_test(all, what_cannot_be_removed_is_an_error);
    tcase_add_test(all, files_that_vanish_meanwhile_are_no_error);
    tcase_add_test(all, faults_of_the_listing_are_told);
    suite_add_tcase(suite, all);
    return suite;
}
