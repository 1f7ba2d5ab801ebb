/* Names in objects of all kinds: with relocated code, linked for an address, of several segments;
 * whose files are gone, are others by now, or were never there; and in a root that is an overlay,
 * as containers have it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

/* Of 0.4 s at 250 Hz; fewer where the processor is shared. */
enum { ENOUGH = 5 };

static const char *const environment[] = {"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=250", NULL};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Samples whose leaf is in an object of that file name: in the function ("": in one without a
 * name); NULL: in any. */
static int64_t samples_in(const struct profile *profile, const char *object, const char *function)
{
    int64_t sum = 0;
    char nameless[64];
    snprintf(nameless, sizeof(nameless), "%s+0x", object);
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        const struct frame *leaf = &stack->frames[0];
        if (strcmp(file_name(leaf->object), object) != 0)
            continue;
        if (!function || (*function ? strcmp(leaf->function, function) == 0
                                    : strncmp(leaf->function, nameless, strlen(nameless)) == 0))
            sum += stack->values[CPU_SAMPLES];
    }
    return sum;
}

/* `way`=path of the plugin; in static storage until 8 more were asked for. */
static const char *argument(const char *way, const char *plugin)
{
    static char texts[8][4200];
    static unsigned next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof(texts[0]), "%s=%s", way, run_program_path(plugin));
    return text;
}

static void run_objects(struct run *run, struct profile *profile, const char *const *arguments)
{
    run_program(run, &(struct run_request){
                         .program = "objects", .arguments = arguments, .environment = environment});
    run_expect_quiet_success(run);
    profile_load(profile, run->profiles, "cpu", run->pid);
}

static const struct {
    const char *plugin, *function;
} forms[] = {
    {"textrel_plugin", "textrel_hot"},
    {"segments_plugin", "segments_hot"},
    {"prelinked_plugin", "prelinked_hot"},
};

START_TEST(forms_of_objects)
{
    struct run run;
    struct profile profile;
    const char *arguments[] = {argument("plain", forms[_i].plugin), NULL};
    run_objects(&run, &profile, arguments);
    int64_t all = samples_in(&profile, "plain", NULL);
    int64_t hot = samples_in(&profile, "plain", forms[_i].function);
    int64_t nameless = samples_in(&profile, "plain", "");
    if (hot < ENOUGH || nameless)
        profile_print(&profile, CPU_SAMPLES, false, 20);
    ck_assert_int_ge(hot, ENOUGH);
    ck_assert_int_eq(nameless, 0);
    ck_assert_int_le(all - hot, all / 10); /* plugin_run, compute */
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* Of a file that is not the object's any more nothing is read: its addresses stay. */
START_TEST(files_that_are_not_there)
{
    struct run run;
    struct profile profile;
    const char *arguments[] = {argument("deleted", "textrel_plugin"),
                               argument("memory", "segments_plugin"),
                               argument("replaced", "textrel_plugin"), NULL};
    run_objects(&run, &profile, arguments);
    /* That of the descriptor which the program closed. */
    const char *in_memory = NULL;
    for (size_t i = 0; i < profile.stack_count; i++)
        if (strncmp(profile.stacks[i].frames[0].object, "/proc/self/fd/", 14) == 0)
            in_memory = file_name(profile.stacks[i].frames[0].object);
    ck_assert_ptr_nonnull(in_memory);
    const char *const gone[] = {"deleted", "replaced", in_memory};
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        int64_t all = samples_in(&profile, gone[i], NULL);
        ck_assert_int_ge(all, ENOUGH);
        ck_assert_int_eq(samples_in(&profile, gone[i], ""), all);
    }
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* The program's folder is another by the time that names are looked for. */
START_TEST(a_relative_path)
{
    struct run run;
    struct profile profile;
    const char *arguments[] = {argument("relative", "segments_plugin"), NULL};
    run_objects(&run, &profile, arguments);
    int64_t hot = samples_in(&profile, "relative", "segments_hot");
    ck_assert_int_ge(hot, ENOUGH);
    ck_assert_int_eq(samples_in(&profile, "relative", ""), 0);
    for (size_t i = 0; i < profile.stack_count; i++) {
        const char *path = profile.stacks[i].frames[0].object;
        if (strcmp(file_name(path), "relative") == 0)
            ck_assert_msg(strncmp(path, run.folder, strlen(run.folder)) == 0, "%s", path);
    }
    profile_free(&profile);
    run_free(&run);
}
END_TEST

static const char *const root_changes[] = {NULL, "root=/inside", "pivot=/inside"};

/* In a root that is an overlay the file is the one that the program sees. Where it changes its root
 * later, another file of the same path is not taken for it. */
START_TEST(a_root_that_is_an_overlay)
{
    if (geteuid() != 0)
        return;
    char script[PATH_MAX], program[PATH_MAX], plugin[PATH_MAX], other[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("test/preload/overlay_root.sh", script));
    snprintf(program, sizeof(program), "%s", run_program_path("objects"));
    snprintf(plugin, sizeof(plugin), "%s", run_program_path("textrel_plugin"));
    snprintf(other, sizeof(other), "%s", run_program_path("segments_plugin"));
    struct run run;
    struct profile profile;
    run_program(
        &run, &(struct run_request){
                  .program = "/usr/bin/unshare",
                  .arguments = (const char *[]){"--mount", "/bin/sh", script, program, plugin,
                                                other, "there=/object.so", root_changes[_i], NULL},
                  .environment = (const char *[]){"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=250",
                                                  "LIBAGENT_PROCESSES=prog_objects", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", 0);
    int64_t all = samples_in(&profile, "object.so", NULL);
    int64_t right = samples_in(&profile, "object.so", _i ? "" : "textrel_hot");
    if (right < ENOUGH || all - right > all / 10)
        profile_print(&profile, CPU_SAMPLES, false, 20);
    ck_assert_int_ge(right, ENOUGH);
    ck_assert_int_le(all - right, _i ? 0 : all / 10);
    ck_assert_int_ge(profile_under(&profile, CPU_SAMPLES, "main"), ENOUGH);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

/* As in a chroot: the program's own file is found by what was executed. */
START_TEST(no_proc)
{
    if (geteuid() != 0)
        return;
    const char *plugin = argument("there", "segments_plugin");
    char script[4 * PATH_MAX], path[PATH_MAX + 16];
    snprintf(script, sizeof(script),
             "cp %s program; mount -t tmpfs none /proc; exec env LD_PRELOAD=%s ./program %s",
             run_program_path("objects"), run_agent_path(), plugin);
    struct run run;
    struct profile profile;
    run_in_own_mounts(&run, script, environment);
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_int_ge(profile_under(&profile, CPU_SAMPLES, "main"), ENOUGH);
    snprintf(path, sizeof(path), "%s/program", run.folder);
    ck_assert_uint_gt(profile.files[0]->n_mapping, 0);
    const Perftools__Profiles__Profile *file = profile.files[0];
    ck_assert_str_eq(file->string_table[file->mapping[0]->filename], path);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

struct symbol {
    char name[64];
    uint64_t value, size;
};

/* The functions of a program that tells them. */
static size_t read_functions(const char *path, struct symbol *symbols, size_t most)
{
    char command[PATH_MAX + 32], line[512];
    snprintf(command, sizeof(command), "nm -S '%s'", path);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t count = 0;
    while (fgets(line, sizeof(line), pipe)) {
        struct symbol *s = &symbols[count];
        unsigned long value, size;
        if (count < most && sscanf(line, "%lx %lx %*[tT] %63s", &value, &size, s->name) == 3) {
            s->value = value;
            s->size = size;
            count++;
        }
    }
    ck_assert_int_eq(pclose(pipe), 0);
    return count;
}

static const struct symbol *function_at(const struct symbol *symbols, size_t count, uint64_t value)
{
    for (size_t i = 0; i < count; i++)
        if (value - symbols[i].value < symbols[i].size)
            return &symbols[i];
    return NULL;
}

/* All addresses of a function have one name, that of where it begins. */
START_TEST(a_stripped_program)
{
    static struct symbol symbols[512];
    struct run run;
    struct profile profile;
    const char *program = run_program_path("shares");
    size_t count = read_functions(program, symbols, sizeof(symbols) / sizeof(symbols[0]));
    run_program(
        &run, &(struct run_request){
                  .program = "/bin/sh",
                  .arguments = (const char *[]){"-c", "strip -o program $0 && ./program 20000 1",
                                                program, NULL},
                  .environment = (const char *[]){"LIBAGENT_PROFILES=cpu", "LIBAGENT_FREQUENCY=250",
                                                  "LIBAGENT_PROCESSES=program", NULL}});
    run_expect_quiet_success(&run);
    profile_load(&profile, run.profiles, "cpu", 0);
    uint64_t in_g[2] = {0, 0};
    for (size_t i = 0; i < profile.stack_count; i++) {
        for (uint32_t k = 0; k < profile.stacks[i].depth; k++) {
            const struct frame *frame = &profile.stacks[i].frames[k];
            const struct symbol *s = function_at(symbols, count, frame->address);
            char name[64];
            if (strcmp(file_name(frame->object), "program") != 0 || !s)
                continue;
            snprintf(name, sizeof(name), "program+0x%lx", (unsigned long)s->value);
            ck_assert_str_eq(frame->function, name);
            if (strcmp(s->name, "g") == 0)
                in_g[in_g[0] && in_g[0] != frame->address] = frame->address;
        }
    }
    ck_assert_uint_ne(in_g[1], 0);
    profile_free(&profile);
    run_free(&run);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("objects");
    TCase *tcase = tcase_create("objects");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, forms_of_objects, 0, (int)(sizeof(forms) / sizeof(forms[0])));
    tcase_add_test(tcase, files_that_are_not_there);
    tcase_add_loop_test(tcase, a_root_that_is_an_overlay, 0,
                        (int)(sizeof(root_changes) / sizeof(root_changes[0])));
    tcase_add_test(tcase, a_relative_path);
    tcase_add_test(tcase, no_proc);
    tcase_add_test(tcase, a_stripped_program);
    suite_add_tcase(suite, tcase);
    return suite;
}
