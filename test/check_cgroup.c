/* The memory limit that the process lives under, as the files of both versions of cgroups tell it.
 * The files are the suite's own: opens and reads are answered here. */
#include "test/check.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/base/cgroup.h"
#include "agent/base/sys.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

struct file {
    const char *path;
    const char *text;
};

enum { FILES = 8, FIRST_FD = 1000 };

static struct {
    struct file files[FILES];
    size_t offsets[FILES]; /* read so far */
    int open;
} disk;

/* RLIMIT_AS and RLIMIT_DATA */
static uint64_t address_space = UINT64_MAX, data = UINT64_MAX;

static bool answer(long number, const long args[6], long *result)
{
    if (number == SYS_prlimit64) {
        uint64_t *limit = (uint64_t *)args[3];
        limit[0] = args[1] == RLIMIT_AS ? address_space : data;
        limit[1] = UINT64_MAX;
        *result = 0;
        return true;
    }
    if (number == SYS_openat) {
        *result = -ENOENT;
        for (int i = 0; i < FILES && disk.files[i].path; i++) {
            if (strcmp(disk.files[i].path, (const char *)args[1]) == 0) {
                disk.offsets[i] = 0;
                disk.open++;
                *result = FIRST_FD + i;
            }
        }
        return true;
    }
    if (args[0] < FIRST_FD || args[0] >= FIRST_FD + FILES)
        return false;
    int file = (int)args[0] - FIRST_FD;
    if (number == SYS_close) {
        disk.open--;
        *result = 0;
        return true;
    }
    if (number == SYS_fstat) {
        *(struct stat *)args[1] = (struct stat){.st_mode = S_IFREG};
        *result = 0;
        return true;
    }
    if (number != SYS_read)
        return false;
    const char *rest = disk.files[file].text + disk.offsets[file];
    size_t size = MIN_OF(strlen(rest), (size_t)args[2]);
    memcpy((void *)args[1], rest, size);
    disk.offsets[file] += size;
    *result = (long)size;
    return true;
}

/* What of 64 MiB is granted where these files are. */
static uint64_t share_with(const struct file files[FILES])
{
    memcpy(disk.files, files, sizeof(disk.files));
    sys_override = answer;
    uint64_t share = cgroup_limit_share(64 * MIB);
    sys_override = NULL;
    ck_assert_int_eq(disk.open, 0);
    return share;
}

#define SHARE(...) share_with((const struct file[FILES]){__VA_ARGS__})

START_TEST(without_cgroups_there_is_no_limit)
{
    ck_assert_uint_eq(SHARE({0}), 64 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", ""}), 64 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"}), 64 * MIB);
}
END_TEST

START_TEST(version_2_tells_the_limit_of_the_own_group)
{
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/user.slice/app.service\n"},
                            {"/sys/fs/cgroup/user.slice/app.service/memory.max", "536870912\n"}),
                      32 * MIB);
    /* Above what is wanted it does not matter. */
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/memory.max", "17179869184\n"}),
        64 * MIB);
    /* A last line without its end, and lines of version 1 before it. */
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "12:pids:/a\n1:name=systemd:/b\n0::/c"},
                            {"/sys/fs/cgroup/a/memory.max", "16777216\n"},
                            {"/sys/fs/cgroup/b/memory.max", "16777216\n"},
                            {"/sys/fs/cgroup/c/memory.max", "268435456"}),
                      16 * MIB);
    /* A colon in the name. */
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a:b:memory\n"},
                            {"/sys/fs/cgroup/a:b:memory/memory.max", "268435456\n"}),
                      16 * MIB);
}
END_TEST

START_TEST(in_a_container_the_root_is_the_own_group)
{
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/memory.max", "268435456\n"}),
        16 * MIB);
    /* The path is the host's, the files are the container's. */
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/system.slice/docker-1.scope\n"},
                            {"/sys/fs/cgroup/memory.max", "268435456\n"}),
                      16 * MIB);
    /* Without /proc. */
    ck_assert_uint_eq(SHARE({"/sys/fs/cgroup/memory.max", "268435456\n"}), 16 * MIB);
}
END_TEST

START_TEST(the_least_limit_is_in_force)
{
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "536870912\n"},
                            {"/sys/fs/cgroup/memory.max", "268435456\n"}),
                      16 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "268435456\n"},
                            {"/sys/fs/cgroup/memory.max", "536870912\n"}),
                      16 * MIB);
}
END_TEST

START_TEST(max_is_no_limit)
{
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "max\n"},
                            {"/sys/fs/cgroup/memory.max", "max\n"}),
                      64 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "max\n"},
                            {"/sys/fs/cgroup/memory.max", "268435456\n"}),
                      16 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "268435456\n"},
                            {"/sys/fs/cgroup/memory.max", "max\n"}),
                      16 * MIB);
}
END_TEST

static const char version_1[] = "11:pids:/p\n"
                                "10:memory:/docker/abc\n"
                                "9:cpu,cpuacct:/c\n"
                                "1:name=systemd:/s\n";

START_TEST(version_1_tells_the_limit)
{
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", version_1},
              {"/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456\n"}),
        16 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", version_1},
                            {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"}),
                      16 * MIB);
    /* Its way to say that there is none. */
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", version_1},
              {"/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n"},
              {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}),
        64 * MIB);
    /* Both versions, the limit in the first (the second has no controllers then). */
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", "10:memory:/docker/abc\n0::/docker/abc\n"},
              {"/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456\n"}),
        16 * MIB);
}
END_TEST

START_TEST(nonsense_is_no_limit)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "none\n",
                                        "-1\n",
                                        "0x1000000\n",
                                        " 16777216\n",
                                        "18446744073709551616\n",
                                        "99999999999999999999999999999999999999\n",
                                        "0\n"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_assert_msg(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", texts[i]}) == 64 * MIB,
                      "%s", texts[i]);
    static const char *const groups[] = {"\n", ":\n", "::\n", "0:\n", "0::\n", "nothing", "\n\n\n"};
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        ck_assert_msg(SHARE({"/proc/self/cgroup", groups[i]}) == 64 * MIB, "%s", groups[i]);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_no_limit)
{
    static char text[8192];
    memset(text, 'a', sizeof(text) - 1);
    memcpy(text, "0::/", 4);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", text}), 64 * MIB);
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", text}, {"/sys/fs/cgroup/memory.max", "268435456\n"}), 16 * MIB);
}
END_TEST

START_TEST(there_is_a_least_share)
{
    ck_assert_uint_eq(
        SHARE({"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/memory.max", "4096\n"}),
        8 * MIB);
    ck_assert_uint_eq(SHARE({"/proc/self/cgroup", "0::/a\n"},
                            {"/sys/fs/cgroup/a/memory.max", "134221824\n"}), /* 128 MiB + 4 KiB */
                      8 * MIB + KIB / 4);
    memset(disk.files, 0, sizeof(disk.files));
    sys_override = answer;
    ck_assert_uint_eq(cgroup_limit_share(MIB), 8 * MIB);
    ck_assert_uint_eq(cgroup_limit_share(UINT64_MAX), UINT64_MAX);
    sys_override = NULL;
}
END_TEST

START_TEST(this_machine_has_an_answer)
{
    uint64_t share = cgroup_limit_share(64 * MIB);
    ck_assert_uint_ge(share, 4 * MIB);
    ck_assert_uint_le(share, 64 * MIB);
}
END_TEST

START_TEST(limits_of_mappings_count)
{
    static const struct file none[FILES];
    address_space = 512 * MIB;
    ck_assert_uint_eq(share_with(none), 32 * MIB);
    data = 256 * MIB;
    ck_assert_uint_eq(share_with(none), 16 * MIB);
    address_space = UINT64_MAX;
    ck_assert_uint_eq(share_with(none), 16 * MIB);
    data = MIB;
    ck_assert_uint_eq(share_with(none), 8 * MIB);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("cgroup");
    TCase *limits = tcase_create("limits");
    tcase_set_timeout(limits, 60);
    tcase_add_test(limits, without_cgroups_there_is_no_limit);
    tcase_add_test(limits, version_2_tells_the_limit_of_the_own_group);
    tcase_add_test(limits, in_a_container_the_root_is_the_own_group);
    tcase_add_test(limits, the_least_limit_is_in_force);
    tcase_add_test(limits, max_is_no_limit);
    tcase_add_test(limits, version_1_tells_the_limit);
    tcase_add_test(limits, nonsense_is_no_limit);
    tcase_add_test(limits, a_path_that_is_too_long_is_no_limit);
    tcase_add_test(limits, there_is_a_least_share);
    tcase_add_test(limits, limits_of_mappings_count);
    tcase_add_test(limits, this_machine_has_an_answer);
    suite_add_tcase(suite, limits);
    return suite;
}
