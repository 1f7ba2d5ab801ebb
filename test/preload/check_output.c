/* Files: when they appear, what they are called, who may read them, and what happens where they
 * cannot be written. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

static const char *const half_a_second[] = {"malloc", "500", "main", NULL};

static void start_recursion(struct run *run, const char *ms, const char *const *environment)
{
    run_start(run, &(struct run_request){.program = "recursion",
                                         .arguments = (const char *[]){"malloc", ms, "main", NULL},
                                         .environment = environment});
}

START_TEST(test_windows_appear_while_it_runs)
{
    struct run run;
    char name[64];
    start_recursion(&run, "30000", (const char *[]){"LIBAGENT_PERIOD=1s", NULL});
    for (int sequence = 0; sequence < 3; sequence++) {
        int tries = 0;
        for (const char *const *family = (const char *const[]){"cpu", "heap", NULL}; *family;
             family++) {
            snprintf(name, sizeof(name), "prog_recursion.%d.%04d.%s.pb.gz", (int)run.pid, sequence,
                     *family);
            while (run_file_count(&run, name) == 0) {
                ck_assert_msg(tries++ < 1500, "no %s after 15 s", name);
                nanosleep(&(struct timespec){0, 10000000}, NULL);
            }
        }
    }
    run_stop(&run, SIGTERM);
    ck_assert(WIFSIGNALED(run.status));
    struct profile profile;
    profile_load(&profile, run.profiles, "cpu", run.pid);
    /* The thread works all the time, and the windows have no gap. */
    for (uint32_t i = 1; i < profile.file_count; i++) {
        int64_t end = profile.files[i - 1]->time_nanos + profile.files[i - 1]->duration_nanos;
        ck_assert_int_lt(profile.files[i]->time_nanos - end, 200000000);
        ck_assert_int_gt(profile.files[i]->duration_nanos, 800000000);
    }
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_names_and_modes)
{
    struct run run;
    start_recursion(&run, "500", NULL);
    run_wait(&run);
    run_expect_quiet_success(&run);
    ck_assert_uint_eq(run_file_count(&run, ""), 2);
    static const char *const families[] = {"cpu", "heap"};
    for (int i = 0; i < 2; i++) {
        char path[2 * PATH_MAX];
        struct stat status;
        snprintf(path, sizeof(path), "%s/prog_recursion.%d.0000.%s.pb.gz", run.profiles,
                 (int)run.pid, families[i]);
        ck_assert_msg(stat(path, &status) == 0, "no %s", path);
        ck_assert_uint_eq(status.st_mode & 07777, 0600);
        struct profile profile;
        profile_load(&profile, run.profiles, families[i], run.pid);
        const char *program =
            profile.files[0]->string_table[profile.files[0]->mapping[0]->filename];
        ck_assert_str_eq(program, run_program_path("recursion"));
        ck_assert(profile_has_comment(&profile, "samples"));
        time_t begin = (time_t)(profile.files[0]->time_nanos / 1000000000);
        ck_assert_int_le(begin, time(NULL));
        ck_assert_int_ge(begin, time(NULL) - 120);
        profile_free(&profile);
    }
    run_free(&run);
}
END_TEST

START_TEST(test_compressions)
{
    static const char *const values[] = {"LIBAGENT_COMPRESSION=gzip", "LIBAGENT_COMPRESSION=zstd",
                                         "LIBAGENT_COMPRESSION=none"};
    static const char *const suffixes[] = {".cpu.pb.gz", ".cpu.pb.zst", ".cpu.pb"};
    struct run run;
    struct profile profile;
    start_recursion(&run, "500", (const char *[]){values[_i], NULL});
    run_wait(&run);
    run_expect_quiet_success(&run);
    ck_assert_uint_eq(run_file_count(&run, suffixes[_i]), 1);
    ck_assert_uint_eq(run_file_count(&run, ""), 2);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_int_ge(profile_under(&profile, CPU_NS, "leaf_malloc"), 250000000);
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap", run.pid);
    ck_assert_int_gt(profile_under(&profile, ALLOC_BYTES, "leaf_malloc"), 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(test_default_folder)
{
    struct run run;
    char path[PATH_MAX + 32];
    struct stat status;
    start_recursion(&run, "300", (const char *[]){"LIBAGENT_OUTPUT", NULL});
    run_wait(&run);
    run_expect_quiet_success(&run);
    run_expect_no_file(&run);
    snprintf(path, sizeof(path), "%s/libagent-%u", run.folder, (unsigned)getuid());
    ck_assert_int_eq(lstat(path, &status), 0);
    ck_assert(S_ISDIR(status.st_mode));
    ck_assert_uint_eq(status.st_mode & 07777, 0700);
    struct profile profile;
    profile_load(&profile, path, "cpu", run.pid);
    ck_assert_uint_eq(profile.file_count, 1);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Somebody else could have put it there: not followed, said, and the program goes on. */
START_TEST(test_default_folder_that_is_a_link)
{
    char folder[TEMP_PATH_SIZE], path[128], target[128], command[16 + TEMP_PATH_SIZE];
    struct run run;
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "link")));
    snprintf(target, sizeof(target), "%s/target", folder);
    snprintf(path, sizeof(path), "%s/libagent-%u", folder, (unsigned)getuid());
    ck_assert_int_eq(mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, path), 0);
    run_program(&run,
                &(struct run_request){.program = "recursion",
                                      .arguments = half_a_second,
                                      .environment = (const char *[]){"LIBAGENT_OUTPUT", NULL},
                                      .folder = folder});
    run_expect_success(&run);
    ck_assert_msg(strncmp(run.err, "libagent: error: ", 17) == 0, "nothing is said: %s", run.err);
    ck_assert_int_eq(rmdir(target), 0); /* empty */
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_folders_that_cannot_be_written)
{
    static const char *const folders[] = {"LIBAGENT_OUTPUT=/proc/none", "LIBAGENT_OUTPUT=/dev/null",
                                          "LIBAGENT_OUTPUT=/dev/full/x"};
    struct run run;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    start_recursion(&run, "300", (const char *[]){folders[_i], NULL});
    run_wait(&run);
    clock_gettime(CLOCK_MONOTONIC, &end);
    run_expect_success(&run);
    ck_assert_msg(strncmp(run.err, "libagent: ", 10) == 0, "nothing is said: '%s'", run.err);
    ck_assert_int_le(end.tv_sec - begin.tv_sec, 8); /* 3 s at most are for the exit */
    run_free(&run);
}
END_TEST

/* Oldest go first, and what is there stays within the limit. */
START_TEST(test_output_limit)
{
    struct run run;
    start_recursion(&run, "5000",
                    (const char *[]){"LIBAGENT_PERIOD=1s", "LIBAGENT_OUTPUT_LIMIT=12KiB", NULL});
    run_wait(&run);
    run_expect_success(&run);
    DIR *folder = opendir(run.profiles);
    off_t total = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat status;
        if (fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 && S_ISREG(status.st_mode))
            total += status.st_size;
    }
    closedir(folder);
    ck_assert_int_gt(total, 0);
    ck_assert_int_le(total, 12 * 1024);
    ck_assert_uint_eq(run_file_count(&run, ".0000.cpu.pb.gz"), 0);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("output");
    TCase *tcase = tcase_create("files");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_windows_appear_while_it_runs);
    tcase_add_test(tcase, test_names_and_modes);
    tcase_add_loop_test(tcase, test_compressions, 0, 3);
    tcase_add_test(tcase, test_default_folder);
    tcase_add_test(tcase, test_default_folder_that_is_a_link);
    tcase_add_loop_test(tcase, test_folders_that_cannot_be_written, 0, 3);
    tcase_add_test(tcase, test_output_limit);
    suite_add_tcase(suite, tcase);
    return suite;
}
