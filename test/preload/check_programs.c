/* Programs that people run: the profile is whole and has the names that it should, and a program
 * too short to be sampled does what it does without us, and leaves nothing. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/preload/profile_reader.h"
#include "test/preload/run_program.h"

#define WHOLE_MIN 0.99

static void expect_whole(const struct profile *profile, int value)
{
    double share = profile_whole_share(profile, value);
    if (share < WHOLE_MIN) {
        profile_print(profile, value, true, 5);
        ck_abort_msg("only %.4f is in stacks that reach main or a thread's start", share);
    }
}

/* Each function has at least its share of `value` in stacks with it. */
struct expectation {
    const char *function;
    double share;
};

static void expect_functions(const struct profile *profile, int value,
                             const struct expectation *expectations)
{
    double total = (double)profile_total(profile, value);
    for (; expectations->function; expectations++) {
        double share = (double)profile_under(profile, value, expectations->function) / total;
        fprintf(stderr, "%s: %.3f\n", expectations->function, share);
        if (share < expectations->share) {
            profile_print(profile, value, false, 5);
            ck_abort_msg("%s has %.4f", expectations->function, share);
        }
    }
}

static void wait_for_server(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert(strlen(socket_path) < sizeof(address.sun_path));
    strcpy(address.sun_path, socket_path);
    for (int tries = 0; tries < 1000; tries++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        int result = connect(fd, (struct sockaddr *)&address, sizeof(address));
        close(fd);
        if (result == 0)
            return;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    ck_abort_msg("nobody listens at %s", socket_path);
}

static void run_tool(const char *program, const char *const *arguments)
{
    struct run run;
    run_program(&run, &(struct run_request){
                          .program = program, .arguments = arguments, .without_agent = true});
    run_expect_success(&run);
    run_free(&run);
}

START_TEST(test_redis_under_load)
{
    struct run server;
    run_start(&server, &(struct run_request){
                           .program = "/usr/bin/redis-server",
                           .arguments = (const char *[]){"--port", "0", "--unixsocket", "socket",
                                                         "--save", "", NULL},
                           .environment = (const char *[]){"LIBAGENT_PERIOD=5s",
                                                           "LIBAGENT_ALLOC_INTERVAL=64KiB", NULL}});
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/socket", server.folder);
    wait_for_server(path);
    run_tool("/usr/bin/redis-benchmark",
             (const char *[]){"-s", path, "-q", "-r", "100000", "-n", "150000", "-d", "100", "-t",
                              "set,get,incr,lpush,sadd,zadd,lrange_100", NULL});
    run_tool("/usr/bin/redis-cli", (const char *[]){"-s", path, "bgsave", NULL});
    run_stop(&server, SIGTERM);
    run_expect_quiet_success(&server);
    ck_assert_ptr_nonnull(strstr(server.out, "saving started"));

    struct profile profile;
    profile_load(&profile, server.profiles, "cpu", server.pid);
    ck_assert_uint_ge(profile.file_count, 2);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), 1e9);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), server.cpu_seconds * 0.9e9);
    expect_whole(&profile, CPU_NS);
    expect_functions(&profile, CPU_NS,
                     (const struct expectation[]){{"main", 0.9},
                                                  {"aeMain", 0.9},
                                                  {"readQueryFromClient", 0.2},
                                                  {"processCommand", 0.1},
                                                  {"call", 0.05},
                                                  {"lrangeCommand", 0.001},
                                                  {NULL, 0}});
    /* Debian's libc names its exported functions only. */
    for (size_t i = 0; i < profile.stack_count; i++)
        for (uint32_t k = 0; k < profile.stacks[i].depth; k++)
            ck_assert_int_ne(profile.stacks[i].frames[k].function[0], 0);
    profile_free(&profile);

    profile_load(&profile, server.profiles, "heap", server.pid);
    expect_whole(&profile, ALLOC_BYTES);
    expect_functions(&profile, ALLOC_BYTES,
                     (const struct expectation[]){{"main", 0.9},
                                                  {"aeMain", 0.5},
                                                  {"setCommand", 0.001},
                                                  {"pushGenericCommand", 0.1},
                                                  {"zaddGenericCommand", 0.001},
                                                  {NULL, 0}});
    profile_free(&profile);
    run_free(&server);
}
END_TEST

static const char python_program[] =
    "import threading, json, zlib, re\n"
    "def work(n):\n"
    "    data = [{'key': i, 'text': str(i) * 5} for i in range(300)]\n"
    "    for i in range(n):\n"
    "        text = json.dumps(data)\n"
    "        json.loads(text)\n"
    "        zlib.crc32(zlib.compress(text.encode(), 1))\n"
    "        sum(len(m) for m in re.findall('[0-9]+', text))\n"
    "        sorted(str(k) for k in range(500))\n"
    "threads = [threading.Thread(target=work, args=(700,)) for i in range(4)]\n"
    "[t.start() for t in threads]\n"
    "[t.join() for t in threads]\n"
    "print('done')\n";

START_TEST(test_python_with_threads)
{
    struct run run;
    struct profile profile;
    run_program(&run,
                &(struct run_request){.program = "/usr/bin/python3",
                                      .arguments = (const char *[]){"-c", python_program, NULL}});
    run_expect_quiet_success(&run);
    ck_assert_str_eq(run.out, "done\n");
    profile_load(&profile, run.profiles, "cpu", run.pid);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), run.cpu_seconds * 0.95e9);
    expect_whole(&profile, CPU_NS);
    expect_functions(&profile, CPU_NS,
                     (const struct expectation[]){{"_PyEval_EvalFrameDefault", 0.9},
                                                  {"_PyFunction_Vectorcall", 0.5},
                                                  {"deflate", 0.02},
                                                  {NULL, 0}});
    profile_free(&profile);
    profile_load(&profile, run.profiles, "heap", run.pid);
    expect_whole(&profile, ALLOC_BYTES);
    expect_functions(&profile, ALLOC_BYTES,
                     (const struct expectation[]){{"_PyEval_EvalFrameDefault", 0.5}, {NULL, 0}});
    profile_free(&profile);
    run_free(&run);
}
END_TEST

static const struct {
    const char *const *arguments;
    bool leaves_nothing; /* far too short for a timer sample */
} short_programs[] = {
    {(const char *[]){"/bin/true", NULL}, true},
    {(const char *[]){"/bin/false", NULL}, true},
    {(const char *[]){"/bin/cat", "/etc/passwd", "/does/not/exist", NULL}, true},
    {(const char *[]){"/bin/ls", "-lR", "/etc/apt", NULL}, false},
    {(const char *[]){"/bin/sh", "-c", "echo a; echo b >&2; kill -TERM $$", NULL}, true},
    {(const char *[]){"/bin/bash", "-c",
                      "for i in 1 2 3; do (echo $i | cat | tr 1 2); done; ls / | wc -l; "
                      "x=$(sort -r /etc/passwd | head -n 1); echo $x; (exit 4) & wait $!; exit $?",
                      NULL},
     false},
    {(const char *[]){"/bin/bash", "-c", "ulimit -v 200000; /bin/true; exit 7", NULL}, false},
    {(const char *[]){"/usr/bin/perl", "-e",
                      "print join(',', map { $_ * 2 } 1..10), qq{\\n}; system('true'); "
                      "print `echo in`; if (fork() == 0) { exit 3 } wait; exit($? >> 8)",
                      NULL},
     false},
    {(const char *[]){"/usr/bin/python3", "-c",
                      "import multiprocessing as m, subprocess as s\n"
                      "print(m.Pool(2).map(abs, range(-5, 0)))\n"
                      "print(s.run(['echo', 'x'], capture_output=True).stdout)\n"
                      "raise SystemExit(5)",
                      NULL},
     false},
    {(const char *[]){"/usr/bin/awk", "BEGIN { \"date +%Z\" | getline x; print x; exit 6 }", NULL},
     true},
    {(const char *[]){"/usr/bin/unshare", "--user", "--map-root-user", "id", "-u", NULL}, true},
    {(const char *[]){"/usr/bin/timeout", "0.2", "sleep", "10", NULL}, true},
    {(const char *[]){"/does/not/exist/at/all/but/by/sh", NULL}, true},
};

START_TEST(test_short_programs)
{
    const char *const *arguments = short_programs[_i].arguments;
    const char *const by_shell[] = {"-c", arguments[0], NULL};
    bool is_there = access(arguments[0], X_OK) == 0;
    struct run_request request = {.program = is_there ? arguments[0] : "/bin/sh",
                                  .arguments = is_there ? arguments + 1 : by_shell,
                                  /* No allocation sample: what is sampled is another test's. */
                                  .environment =
                                      (const char *[]){"LIBAGENT_ALLOC_INTERVAL=1024GiB", NULL},
                                  .without_agent = true};
    struct run with, without;
    run_program(&without, &request);
    request.without_agent = false;
    run_program(&with, &request);
    run_expect_same(&with, &without);
    if (short_programs[_i].leaves_nothing)
        run_expect_no_file(&with);
    run_free(&with);
    run_free(&without);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("programs");
    TCase *tcase = tcase_create("other people's programs");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_redis_under_load);
    tcase_add_test(tcase, test_python_with_threads);
    tcase_add_loop_test(tcase, test_short_programs, 0,
                        sizeof(short_programs) / sizeof(short_programs[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
