/* Programs under the thread sanitizer, whose malloc crashes in threads that it does not know, and
 * under that of memory, which does not take libcurl's: they live, end as without us, and are
 * profiled, for several periods. */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

/* Where the run-time library stands. */
static const struct {
    const char *program;
    bool is_first; /* before the agent, as README has it */
} ways[] = {
    {"gcc_tsan", true}, {"gcc_tsan", false}, {"gcc_tsan_inside", false}, {"clang_msan", false}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* cputimer and sigprof have no wall time. */
static const struct {
    const char *scheduler, *profiles;
} kinds[] = {{"auto", "cpu"},
             {"auto", "cpu,wall,alloc,heap"},
             {"cputimer", "cpu,alloc,heap"},
             {"sigprof", "cpu"},
             {"sigalrm", "cpu"},
             {"sigalrm", "cpu,wall"},
             {"sleep", "cpu"},
             {"sleep", "cpu,wall"},
             {"event", "cpu"},
             {"event", "cpu,wall"}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void start(struct run *run, int way, const char *scheduler, const char *families,
                  const char *upload, const char *spool)
{
    char preload[PATH_MAX + 32], by[64], of[64];
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s%s", ways[way].is_first ? "libtsan.so.2 " : "",
             run_agent_path());
    snprintf(by, sizeof(by), "LIBAGENT_SCHEDULER=%s", scheduler);
    snprintf(of, sizeof(of), "LIBAGENT_PROFILES=%s", families);
    run_start(run,
              &(struct run_request){
                  .program = ways[way].program,
                  .environment = (const char *[]){preload, by, of, "LIBAGENT_PERIOD=1s",
                                                  "LIBAGENT_FREQUENCY=1000", upload, spool, NULL},
                  .seconds = 120});
}

static void expect_profiled(struct run *run)
{
    struct profile cpu;
    run_expect_success(run);
    ck_assert_str_eq(run->out, "child 7\n");
    profile_load(&cpu, run->profiles, "cpu", run->pid);
    ck_assert_int_gt(profile_under(&cpu, CPU_NS, "work"), 0);
    profile_free(&cpu);
}

START_TEST(programs_under_the_thread_sanitizer_live)
{
    struct run runs[KINDS];
    for (int i = 0; i < KINDS; i++)
        start(&runs[i], 0, kinds[i].scheduler, kinds[i].profiles, NULL, NULL);
    for (int i = 0; i < KINDS; i++) {
        run_wait(&runs[i]);
        run_expect_quiet_success(&runs[i]);
        expect_profiled(&runs[i]);
        run_free(&runs[i]);
    }
}
END_TEST

/* A URL at which nobody listens, and none is asked. */
#define URL "LIBAGENT_UPLOAD_URL=http://127.0.0.1:9"

START_TEST(a_backend_gets_nothing_from_them)
{
    struct run files, spools;
    char spool[TEMP_PATH_SIZE], variable[TEMP_PATH_SIZE + 16], pattern[TEMP_PATH_SIZE + 16];
    ck_assert_ptr_nonnull(mkdtemp(temp_path(spool, "tsan")));
    snprintf(variable, sizeof(variable), "LIBAGENT_SPOOL=%s", spool);
    snprintf(pattern, sizeof(pattern), "%s/*.post.spool", spool);
    start(&files, _i, "event", "cpu,wall", URL, NULL);
    start(&spools, _i, "cputimer", "cpu", URL, variable);
    run_wait(&files);
    run_wait(&spools);
    expect_profiled(&files);
    ck_assert_ptr_nonnull(strstr(files.err, "profiles are not sent from under this sanitizer"));
    ck_assert_ptr_eq(strchr(files.err, '\n'), files.err + files.err_size - 1);
    run_expect_quiet_success(&spools);
    expect_profiled(&spools);
    glob_t kept;
    ck_assert_int_eq(glob(pattern, 0, NULL, &kept), 0);
    ck_assert_uint_ge(kept.gl_pathc, 3);
    for (size_t i = 0; i < kept.gl_pathc; i++)
        ck_assert_int_eq(unlink(kept.gl_pathv[i]), 0);
    globfree(&kept);
    ck_assert_int_eq(rmdir(spool), 0);
    run_free(&files);
    run_free(&spools);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("tsan");
    TCase *tcase = tcase_create("programs");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, programs_under_the_thread_sanitizer_live);
    tcase_add_loop_test(tcase, a_backend_gets_nothing_from_them, 0, WAYS);
    suite_add_tcase(suite, tcase);
    return suite;
}
