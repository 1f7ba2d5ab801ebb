/* Files, lines and inlined functions (LIBAGENT_SYMBOLS=lines) of a program that tells them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"
#include "test/temp_path.h"

typedef Perftools__Profiles__Profile message;
typedef Perftools__Profiles__Location location;

static const char *text_of(const message *profile, int64_t number)
{
    return profile->string_table[number];
}

/* The function of the location's k-th line; ids are dense (profile_is_valid). */
static const Perftools__Profiles__Function *function_of(const message *profile, const location *at,
                                                        size_t k)
{
    return profile->function[at->line[k]->function_id - 1];
}

/* Whether the line is in that function of this program's source; then from `start` to `start` + 9,
 * as the function is not longer. */
static bool is_in(const message *profile, const location *at, size_t k, const char *name,
                  int64_t start)
{
    const Perftools__Profiles__Function *function = function_of(profile, at, k);
    if (k >= at->n_line || strcmp(text_of(profile, function->name), name) != 0)
        return false;
    const char *file = text_of(profile, function->filename);
    const char *end = strstr(file, "/test/preload/prog_lines.c");
    ck_assert_msg(file[0] == '/' && end && strchr(end, '.')[2] == 0, "%s is in '%s'", name, file);
    ck_assert_int_eq(function->start_line, start);
    int64_t line = at->line[k]->line;
    ck_assert_msg(line >= start && line <= start + 9, "%s at line %lld, it starts at %lld", name,
                  (long long)line, (long long)start);
    return true;
}

/* Samples at a location that has the three functions, or `outer` alone where that is so. */
static int64_t samples_in_loop(const struct run *run, const message *profile)
{
    int64_t sum = 0;
    for (size_t i = 0; i < profile->n_sample; i++) {
        const Perftools__Profiles__Sample *sample = profile->sample[i];
        const location *at = profile->location[sample->location_id[0] - 1];
        if (at->n_line == 3 && is_in(profile, at, 0, "inner", run_number(run, "inner")) &&
            is_in(profile, at, 1, "middle", run_number(run, "middle")) &&
            is_in(profile, at, 2, "outer", run_number(run, "outer")))
            sum += sample->value[CPU_SAMPLES];
    }
    return sum;
}

/* Runs it, and has its only cpu profile. */
static void run_lines(struct run *run, struct profile *profile, const char *program,
                      const char *symbols)
{
    run_program(
        run, &(struct run_request){.program = program,
                                   .environment = (const char *[]){symbols, "LIBAGENT_PROFILES=cpu",
                                                                   "LIBAGENT_PERIOD=0", NULL}});
    run_expect_quiet_success(run);
    profile_load(profile, run->profiles, "cpu", run->pid);
    ck_assert_uint_eq(profile->file_count, 1);
}

static void expect_lines(const struct run *run, const struct profile *profile)
{
    const message *file = profile->files[0];
    int64_t met = samples_in_loop(run, file), all = profile_total(profile, CPU_SAMPLES);
    /* The program does nothing else; what the agent does at its end may be sampled. */
    ck_assert_msg(met >= 10 && met * 10 >= all * 9, "%lld of %lld", (long long)met, (long long)all);
    const Perftools__Profiles__Mapping *main_mapping = file->mapping[0];
    ck_assert(main_mapping->has_filenames && main_mapping->has_line_numbers &&
              main_mapping->has_inline_frames);
}

START_TEST(a_program_with_debugging_information)
{
    struct run run;
    struct profile profile;
    run_lines(&run, &profile, "lines", "LIBAGENT_SYMBOLS=lines");
    expect_lines(&run, &profile);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* As distributions give it: stripped, the rest packed in a separate file. */
static const char *const packings[] = {"none", "zlib", "zlib-gnu", "zstd"};

START_TEST(a_separate_debug_file)
{
    struct run run;
    struct profile profile;
    char command[4 * 4096], program[4096], folder[TEMP_PATH_SIZE];
    ck_assert_ptr_nonnull(mkdtemp(temp_path(folder, "lines")));
    snprintf(program, sizeof(program), "%s/stripped", folder);
    snprintf(command, sizeof(command),
             "cd %s && objcopy --only-keep-debug --compress-debug-sections=%s %s whole.debug && "
             "strip -o stripped %s && objcopy --add-gnu-debuglink=whole.debug stripped",
             folder, packings[_i], run_program_path("lines"), run_program_path("lines"));
    ck_assert_int_eq(system(command), 0);
    run_lines(&run, &profile, program, "LIBAGENT_SYMBOLS=lines");
    expect_lines(&run, &profile);
    profile_free(&profile);
    run_free(&run);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Threads begin and end all the time, while profiles are written. */
START_TEST(threads_that_die_meanwhile)
{
    struct run run;
    struct profile profile;
    run_program(&run,
                &(struct run_request){.program = "short_threads",
                                      .arguments = (const char *[]){"3000", "1000000", "16", NULL},
                                      .environment = (const char *[]){
                                          "LIBAGENT_SYMBOLS=lines", "LIBAGENT_PROFILES=cpu",
                                          "LIBAGENT_PERIOD=1s", "LIBAGENT_FREQUENCY=250", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_uint_ge(profile.file_count, 2);
    int64_t met = 0, all = 0;
    for (size_t i = 0; i < profile.stack_count; i++) {
        const message *file = profile.files[profile.stacks[i].file];
        const location *at = file->location[profile.stacks[i].sample->location_id[0] - 1];
        int64_t samples = profile.stacks[i].values[CPU_SAMPLES];
        const char *own = text_of(file, function_of(file, at, at->n_line - 1)->name);
        if (strcmp(own, "burn") != 0)
            continue;
        all += samples;
        met += at->n_line > 1 && at->line[0]->line > 0 ? samples : 0; /* in spin, at its line */
    }
    ck_assert_msg(all >= 30 && met * 10 >= all * 9, "%lld of %lld", (long long)met, (long long)all);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

START_TEST(names_alone_have_no_lines)
{
    struct run run;
    struct profile profile;
    run_lines(&run, &profile, "lines", "LIBAGENT_SYMBOLS=names");
    const message *file = profile.files[0];
    ck_assert_int_ge(profile_self(&profile, CPU_SAMPLES, "outer"), 10);
    for (size_t i = 0; i < file->n_location; i++) {
        ck_assert_uint_eq(file->location[i]->n_line, 1);
        ck_assert_int_eq(file->location[i]->line[0]->line, 0);
    }
    for (size_t i = 0; i < file->n_function; i++)
        ck_assert_int_eq(file->function[i]->filename, 0);
    for (size_t i = 0; i < file->n_mapping; i++)
        ck_assert(!file->mapping[i]->has_filenames && !file->mapping[i]->has_line_numbers &&
                  !file->mapping[i]->has_inline_frames);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("lines");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 300);
    tcase_add_test(all, a_program_with_debugging_information);
    tcase_add_loop_test(all, a_separate_debug_file, 0,
                        (int)(sizeof(packings) / sizeof(packings[0])));
    tcase_add_test(all, threads_that_die_meanwhile);
    tcase_add_test(all, names_alone_have_no_lines);
    suite_add_tcase(suite, all);
    return suite;
}
