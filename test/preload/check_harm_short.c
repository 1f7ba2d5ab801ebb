/* Programs that end at once do under the agent what they do without it: output, error output, exit
 * status or signal. With the defaults they are too short to be sampled, and leave nothing; then
 * again with every allocation recorded, so that they write a profile while they end.
 *
 * Where a container refuses what unshare, bwrap, sudo or ping want, they fail alike. */
#include <unistd.h>

#include "test/check.h"
#include "test/preload/run_pair.h"

#define AS_NOBODY "setpriv --reuid 65534 --regid 65534 --clear-groups "
/* Times differ from run to run. */
#define PING(ping)                                                                                 \
    "set -o pipefail; " ping                                                                       \
    " -c 3 -i 0.2 127.0.0.1 | sed -E 's/(time|=) ?[0-9./]+ ?ms/\\1 T/; s/, pipe [0-9]+//'"

static const struct {
    const char *const *arguments;
    bool leaves_nothing; /* far too short for a timer sample */
    bool allocates;      /* and ends in a way that a profile can be written at */
} short_programs[] = {
    {(const char *[]){"/bin/true", NULL}, true, false},
    {(const char *[]){"/bin/false", NULL}, true, false},
    {(const char *[]){"/bin/cat", "/etc/passwd", "/does/not/exist", NULL}, true, true},
    {(const char *[]){"/bin/ls", "-lR", "/etc/apt", NULL}, false, true},
    {(const char *[]){"/bin/sh", "-c", "echo a; echo b >&2; kill -TERM $$", NULL}, true, false},
    {(const char *[]){"/bin/bash", "-c",
                      "for i in 1 2 3; do (echo $i | cat | tr 1 2); done; ls / | wc -l; "
                      "x=$(sort -r /etc/passwd | head -n 1); echo $x; (exit 4) & wait $!; exit $?",
                      NULL},
     false, true},
    {(const char *[]){"/bin/bash", "-c", "ulimit -v 200000; /bin/true; exit 7", NULL}, false, true},
    {(const char *[]){"/usr/bin/perl", "-e",
                      "print join(',', map { $_ * 2 } 1..10), qq{\\n}; system('true'); "
                      "print `echo in`; if (fork() == 0) { exit 3 } wait; exit($? >> 8)",
                      NULL},
     false, true},
    {(const char *[]){"/usr/bin/python3", "-c",
                      "import multiprocessing as m, subprocess as s\n"
                      "print(m.Pool(2).map(abs, range(-5, 0)))\n"
                      "print(s.run(['echo', 'x'], capture_output=True).stdout)\n"
                      "raise SystemExit(5)",
                      NULL},
     false, true},
    {(const char *[]){"/usr/bin/awk", "BEGIN { \"date +%Z\" | getline x; print x; exit 6 }", NULL},
     true, true},
    {(const char *[]){"/usr/bin/unshare", "--user", "--map-root-user", "id", "-u", NULL}, true,
     true},
    {(const char *[]){"/usr/bin/unshare", "-Ur", "true", NULL}, true, true},
    {(const char *[]){"/usr/bin/unshare", "-Urmpf", "--mount-proc", "sh", "-c",
                      "cat /proc/self/uid_map; echo $$; ls -d /proc/1 /proc/self", NULL},
     true, true},
    {(const char *[]){"/usr/bin/bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
                      "--unshare-all", "--die-with-parent", "sh", "-c",
                      "id -u; touch /x; cat /proc/1/comm; kill -TERM $$", NULL},
     true, true},
    /* Nobody but root has the agent in a setuid program. */
    {(const char *[]){"/usr/bin/sudo", "-n", "true", NULL}, false, false},
    {(const char *[]){"/usr/bin/sudo", "-n", "-u", "nobody", "sh", "-c", "id -un; exit 3", NULL},
     false, false},
    {(const char *[]){"/usr/bin/sudo", "-n", "sh", "-c", "echo out; kill -TERM $$", NULL}, false,
     false},
    {(const char *[]){"/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                      "/usr/bin/sudo", "-n", "true", NULL},
     false, false},
    {(const char *[]){"/bin/bash", "-c", PING(AS_NOBODY "ping"), NULL}, false, true},
    {(const char *[]){"/bin/bash", "-c", PING("ping"), NULL}, false, true},
    {(const char *[]){"/usr/bin/timeout", "0.2", "sleep", "10", NULL}, true, true},
    {(const char *[]){"/does/not/exist/at/all/but/by/sh", NULL}, true, false},
};

enum { SHORT_PROGRAMS = sizeof(short_programs) / sizeof(short_programs[0]) };

static void expect_same(int i, const char *setting, struct run_pair *pair)
{
    const char *const *arguments = short_programs[i].arguments;
    const char *const by_shell[] = {"-c", arguments[0], NULL};
    bool is_there = access(arguments[0], X_OK) == 0;
    run_pair(pair, &(struct run_request){.program = is_there ? arguments[0] : "/bin/sh",
                                         .arguments = is_there ? arguments + 1 : by_shell,
                                         .environment = (const char *[]){setting, NULL}});
}

START_TEST(test_not_sampled)
{
    struct run_pair pair;
    expect_same(_i, "LIBAGENT_ALLOC_INTERVAL=1024GiB", &pair);
    if (short_programs[_i].leaves_nothing)
        run_expect_no_file(&pair.with);
    run_pair_free(&pair);
}
END_TEST

START_TEST(test_all_recorded)
{
    struct run_pair pair;
    expect_same(_i, "LIBAGENT_ALLOC_INTERVAL=1", &pair);
    if (short_programs[_i].allocates)
        ck_assert_uint_ne(run_file_count(&pair.with, ".heap.pb.gz"), 0);
    run_pair_free(&pair);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_short");
    TCase *tcase = tcase_create("short programs");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_not_sampled, 0, SHORT_PROGRAMS);
    tcase_add_loop_test(tcase, test_all_recorded, 0, SHORT_PROGRAMS);
    suite_add_tcase(suite, tcase);
    return suite;
}
