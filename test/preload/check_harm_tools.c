/* Tools that people run do under the agent what they do without it. The scripts test/preload/tool_*
 * say what each is given to do; compared are its output, error output and exit status, and with
 * these the hashes of what it made. Each is sampled meanwhile, in all processes of the script:
 * their profiles, put together, have the functions that do the work. */
#include "test/check.h"
#include "test/preload/profile_expect.h"
#include "test/preload/run_pair.h"

struct tool {
    const char *script;
    struct expectation expectations[4];
    struct expectation allocations[2]; /* none: hardly any */
};

/* Shares are a half of what is usual, or less; those under 0.1 ask that the function is seen: what
 * takes 3 % of a second has some 7 samples, and threads that wait for each other vary more. */
static const struct tool tools[] = {
    {"tool_sqlite.sh", {{"sqlite3_step", 0.4}}, {{"sqlite3RunParser", 0.1}}},
    {"tool_gcc.sh", {{"toplev::main(int, char**)", 0.5}}, {{"toplev::main(int, char**)", 0.5}}},
    {"tool_perl.pl", {{"Perl_runops_standard", 0.5}}, {{"Perl_runops_standard", 0.5}}},
    {"tool_bash.sh", {{"execute_command_internal", 0.3}}, {{"execute_command_internal", 0.1}}},
    /* Debian's git has no names of its own functions. */
    {"tool_git.sh", {{"deflate", 0.02}, {"inflate", 0.001}}, {{"deflateInit2_", 0.001}}},
    {"tool_openssl.sh",
     {{"EVP_Digest", 0.05}, {"EVP_EncryptUpdate", 0.05}, {"EC_POINT_mul", 0.05}},
     {{NULL, 0}}},
    {"tool_python.py",
     {{"_PyEval_EvalFrameDefault", 0.5}, {"_PyFunction_Vectorcall", 0.4}, {"deflate", 0.005}},
     {{"_PyEval_EvalFrameDefault", 0.5}}},
};

/* Harsher than the defaults: threads of the agent's from the first second on, as many CPU samples
 * as the kernel's tick gives, an allocation sampled each 16 KiB. */
static const char *const environment[] = {"LIBAGENT_PERIOD=1s",
                                          "LIBAGENT_FREQUENCY=250",
                                          "LIBAGENT_ALLOC_INTERVAL=16KiB",
                                          "PERL_HASH_SEED=0",
                                          "LC_ALL=C",
                                          NULL};

#define WHOLE_MIN 0.99

START_TEST(test_tool)
{
    const struct tool *tool = &tools[_i];
    char path[PATH_MAX];
    run_script_path(tool->script, path);
    struct run_pair pair;
    run_pair(&pair, &(struct run_request){.program = run_script_interpreter(tool->script),
                                          .arguments = (const char *[]){path, NULL},
                                          .environment = environment});
    profile_expect(pair.with.profiles, "cpu", 0, WHOLE_MIN, tool->expectations);
    if (tool->allocations[0].function)
        profile_expect(pair.with.profiles, "heap", 0, WHOLE_MIN, tool->allocations);
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_tools");
    TCase *tcase = tcase_create("tools");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, test_tool, 0, sizeof(tools) / sizeof(tools[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
