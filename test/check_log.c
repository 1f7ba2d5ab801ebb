/* Where log lines go, and what they never do: land in the app's files, block, raise a signal. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/log.h"
#include "agent/base/sys.h"
#include "test/stderr_pipe.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* The lines of a file, each without its time, which is that of now, and its pid, which is ours. */
static const char *lines_of_file(const char *path)
{
    static char lines[4096];
    char text[4096];
    size_t used = 0;
    int kept = errno;
    snprintf(text, sizeof(text), "%s", text_of_file(path));
    for (char *rest, *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        struct tm tm = {.tm_isdst = 0};
        unsigned ms;
        int pid, length = 0;
        const char *fraction = strptime(line, "%Y-%m-%dT%H:%M:%S", &tm);
        ck_assert_msg(fraction && fraction - line == 19, "%s", line);
        ck_assert_int_eq(sscanf(fraction, ".%3uZ %d %n", &ms, &pid, &length), 2);
        ck_assert_int_eq(pid, getpid());
        time_t age = time(NULL) - timegm(&tm);
        ck_assert_int_le(llabs((long long)age), 60);
        used += (size_t)snprintf(lines + used, sizeof(lines) - used, "%s\n", fraction + length);
    }
    errno = kept;
    return lines;
}

START_TEST(lines_are_filtered_by_level)
{
    static const char *const want[] = {
        "libagent: error: 1\n", "libagent: error: 1\nlibagent: warn: 2\n",
        "libagent: error: 1\nlibagent: warn: 2\nlibagent: info: 3\n",
        "libagent: error: 1\nlibagent: warn: 2\nlibagent: info: 3\nlibagent: debug: 4\n"};
    for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
        log_start((enum log_level)level, NULL);
        log_error("%d", 1);
        log_warn("%d", 2);
        log_info("%d", 3);
        log_debug("%d", 4);
        CHECK_WRITTEN(want[level]);
    }
}
END_TEST

START_TEST(before_the_start_warnings_go_to_standard_error)
{
    log_warn("early %s", "bird");
    log_info("not shown");
    CHECK_WRITTEN("libagent: warn: early bird\n");
}
END_TEST

START_TEST(a_line_stays_one_line)
{
    log_start(LOG_WARN, NULL);
    log_warn("[%s]", "a\nlibagent: error: false\r\x1b[31m\x7f\tz\xc3\xa4");
    CHECK_WRITTEN("libagent: warn: [a?libagent: error: false??[31m??z\xc3\xa4]\n");
    /* Of UTF-8: the control characters above 0x7f, characters of all lengths, what is none. */
    log_warn("[%s]", "\xc2\x9b"
                     "31m\xc2\x80\xc2\xa0\xe2\x82\xac\xf0\x9f\x98\x80");
    log_warn("[%s]", "\x9b"
                     "31m\xff\xe2\x82|\xed\xa0\x80\xc3");
    CHECK_WRITTEN("libagent: warn: [?31m?\xc2\xa0\xe2\x82\xac\xf0\x9f\x98\x80]\n"
                  "libagent: warn: [?31m???|????]\n");
}
END_TEST

/* What starts find again and again, also in children; another text is another line. */
START_TEST(a_line_of_starts_comes_once_in_a_process)
{
    log_start(LOG_WARN, NULL);
    for (int start = 0; start < 3; start++) {
        log_warn_once("of %d", 1);
        log_error_once("of %d", 2);
        log_warn("each");
    }
    CHECK_WRITTEN("libagent: warn: of 1\nlibagent: error: of 2\n"
                  "libagent: warn: each\nlibagent: warn: each\n"
                  "libagent: warn: each\n");
    pid_t child = fork();
    if (child == 0) {
        log_warn_once("of %d", 1);
        log_warn_once("of the child");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    CHECK_WRITTEN("libagent: warn: of the child\n");
}
END_TEST

/* None is lost where there are more than can be told apart. */
START_TEST(of_many_lines_each_comes)
{
    log_start(LOG_WARN, NULL);
    for (int i = 0; i < 100; i++) {
        char line[64];
        snprintf(line, sizeof(line), "libagent: warn: of %d\n", i);
        log_warn_once("of %d", i);
        CHECK_WRITTEN(line);
    }
}
END_TEST

START_TEST(a_long_line_is_cut)
{
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    log_start(LOG_WARN, NULL);
    log_warn("%s", text);
    log_warn("next");
    const char *got = text_of(stderr_pipe_read);
    const char *end = strchr(got, '\n');
    ck_assert_ptr_nonnull(end);
    ck_assert_int_eq(end - got, 1023);
    ck_assert_str_eq(end, "\nlibagent: warn: next\n");
}
END_TEST

START_TEST(a_file_that_the_app_opened_as_2_is_spared)
{
    log_start(LOG_WARN, NULL);
    log_warn("one");
    int kept = dup(2);
    close(2);
    log_warn("while it is closed");
    int fd = open(path_in_folder("data"), O_CREAT | O_RDWR, 0600);
    ck_assert_int_eq(fd, 2);
    log_warn("into the app's file?");
    log_plain("that neither\n");
    ck_assert(!log_stderr_is_terminal());
    struct stat status;
    fstat(2, &status);
    dup2(kept, 2);
    log_warn("two");
    ck_assert_int_eq(status.st_size, 0);
    CHECK_WRITTEN("libagent: warn: one\nlibagent: warn: two\n");
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

START_TEST(a_program_that_starts_without_standard_error_gets_no_line)
{
    int kept = dup(2);
    close(2);
    log_start(LOG_WARN, NULL);
    log_warn("closed");
    int fd = open(path_in_folder("data"), O_CREAT | O_RDWR, 0600);
    ck_assert_int_eq(fd, 2);
    log_warn("into the app's file?");
    struct stat status;
    fstat(2, &status);
    dup2(kept, 2);
    ck_assert_int_eq(status.st_size, 0);
    log_flush();
    CHECK_WRITTEN("");
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

START_TEST(a_log_file_is_appended_to)
{
    const char *path = path_in_folder("log");
    umask(0);
    log_start(LOG_WARN, path);
    log_warn("one");
    log_start(LOG_WARN, path);
    log_warn("two");
    log_plain("plain text is for standard error\n");
    ck_assert_str_eq(lines_of_file(path), "libagent: warn: one\nlibagent: warn: two\n");
    struct stat status;
    stat(path, &status);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    CHECK_WRITTEN("plain text is for standard error\n");
    /* Removed meanwhile, as by a rotation: the next line makes it anew. */
    unlink(path);
    log_warn("three");
    ck_assert_str_eq(lines_of_file(path), "libagent: warn: three\n");
}
END_TEST

START_TEST(a_relative_log_file_stays_where_it_was)
{
    ck_assert_int_eq(chdir(stderr_folder), 0);
    log_start(LOG_WARN, "log");
    ck_assert_int_eq(chdir("/"), 0);
    log_warn("one");
    ck_assert_str_eq(lines_of_file(path_in_folder("log")), "libagent: warn: one\n");
    CHECK_WRITTEN("");
}
END_TEST

START_TEST(a_log_file_that_cannot_be_opened_is_said_once)
{
    char target[64], want[256];
    snprintf(target, sizeof(target), "%s", path_in_folder("target"));
    const char *path = path_in_folder("link");
    ck_assert_int_eq(symlink(target, path), 0);
    log_start(LOG_WARN, path);
    log_warn("one");
    log_warn("two");
    snprintf(want, sizeof(want),
             "libagent: error: LIBAGENT_LOG_FILE %s cannot be opened (errno %d): log lines are "
             "lost\n",
             path, ELOOP);
    CHECK_WRITTEN(want);
    ck_assert_int_eq(access(target, F_OK), -1); /* not written through the link */
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

START_TEST(a_fifo_without_a_reader_does_not_hold_up)
{
    const char *path = path_in_folder("fifo");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    log_start(LOG_WARN, path);
    log_warn("one"); /* a wait is the test's timeout */
    ck_assert_ptr_nonnull(strstr(text_of(stderr_pipe_read), "cannot be opened"));
}
END_TEST

/* A thread with its own descriptor table, where nothing is open. */
static void *log_detached(void *text)
{
    ck_assert_int_eq(unshare(CLONE_FILES), 0);
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    log_thread_is_detached();
    log_thread_is_detached(); /* once more changes nothing */
    log_warn("%s", (const char *)text);
    /* No descriptor is left open behind it. */
    for (int fd = 0; fd < 64; fd++)
        ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    return NULL;
}

static void run_detached(const char *text)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, log_detached, (void *)(uintptr_t)text), 0);
    pthread_join(thread, NULL);
}

START_TEST(a_detached_thread_fetches_the_apps_descriptor)
{
    log_start(LOG_WARN, NULL);
    run_detached("from afar");
    CHECK_WRITTEN("libagent: warn: from afar\n");
    log_warn("from here");
    CHECK_WRITTEN("libagent: warn: from here\n");
}
END_TEST

START_TEST(detached_threads_may_come_and_go)
{
    log_start(LOG_WARN, NULL);
    for (int i = 0; i < 20; i++) {
        run_detached("from afar");
        CHECK_WRITTEN("libagent: warn: from afar\n");
    }
}
END_TEST

static void *start_detached(void *unused)
{
    (void)unused;
    ck_assert_int_eq(unshare(CLONE_FILES), 0);
    close(2);
    log_thread_is_detached();
    log_start(LOG_WARN, NULL);
    return NULL;
}

/* The agent starts more than once, also by threads of its own. */
START_TEST(a_later_start_changes_nothing_about_standard_error)
{
    pthread_t thread;
    log_start(LOG_WARN, NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, start_detached, NULL), 0);
    pthread_join(thread, NULL);
    log_warn("seen");
    CHECK_WRITTEN("libagent: warn: seen\n");
    const char *path = path_in_folder("apps");
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    dup2(file, 2);
    log_start(LOG_WARN, NULL);
    log_warn("not seen");
    ck_assert_str_eq(text_of_file(path), "");
    close(file);
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

static long refused_number, refused_with;

static bool refuse(long number, const long args[6], long *result)
{
    (void)args;
    *result = refused_with;
    return number == refused_number;
}

START_TEST(without_pidfd_lines_wait_for_the_flush)
{
    static const long numbers[] = {SYS_pidfd_open, SYS_pidfd_getfd};
    for (int i = 0; i < 2; i++) {
        refused_number = numbers[i];
        refused_with = i == 0 ? -ENOSYS : -EPERM;
        sys_override = refuse;
        log_start(LOG_WARN, NULL);
        run_detached("from afar");
        CHECK_WRITTEN("");
        log_flush();
        CHECK_WRITTEN("libagent: warn: from afar\n");
        sys_override = NULL;
    }
}
END_TEST

START_TEST(a_detached_thread_spares_the_apps_file_too)
{
    log_start(LOG_WARN, NULL);
    int kept = dup(2);
    close(2);
    run_detached("it is closed");
    dup2(kept, 2);
    log_flush();
    CHECK_WRITTEN("");
    close(2);
    int fd = open(path_in_folder("data"), O_CREAT | O_RDWR, 0600);
    ck_assert_int_eq(fd, 2);
    run_detached("into the app's file?");
    struct stat status;
    fstat(2, &status);
    dup2(kept, 2);
    log_flush();
    ck_assert_int_eq(status.st_size, 0);
    CHECK_WRITTEN("");
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

START_TEST(a_detached_thread_writes_to_the_log_file)
{
    const char *path = path_in_folder("log");
    log_start(LOG_WARN, path);
    run_detached("from afar");
    ck_assert_str_eq(lines_of_file(path), "libagent: warn: from afar\n");
    log_bar_file(true);
    run_detached("from the user before");
    log_warn("from here");
    log_bar_file(false);
    run_detached("from afar");
    ck_assert_str_eq(lines_of_file(path), "libagent: warn: from afar\nlibagent: warn: from here\n"
                                          "libagent: warn: from afar\n");
}
END_TEST

START_TEST(a_fork_child_forgets_what_waited)
{
    log_start(LOG_WARN, NULL);
    size_t filled = stderr_pipe_fill();
    log_warn("the parent's");
    pid_t child = fork();
    if (child == 0) {
        log_reset_in_child();
        stderr_pipe_drain(filled);
        log_warn("the child's");
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_WRITTEN("libagent: warn: the child's\n");
    log_flush();
    CHECK_WRITTEN("libagent: warn: the parent's\n");
}
END_TEST

START_TEST(plain_text_comes_whole)
{
    static char text[20000];
    log_start(LOG_ERROR, NULL);
    log_plain("");
    CHECK_WRITTEN("");
    memset(text, 'x', sizeof(text) - 1);
    log_plain(text);
    CHECK_WRITTEN(text);
    for (size_t i = 71; i < sizeof(text) - 1; i += 72)
        text[i] = '\n';
    log_plain(text);
    CHECK_WRITTEN(text);
}
END_TEST

START_TEST(a_terminal_is_told_from_a_pipe)
{
    bool is_there_first = _i;
    if (!is_there_first)
        log_start(LOG_WARN, NULL);
    ck_assert(!log_stderr_is_terminal());
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal) | unlockpt(terminal), 0);
    int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(other_end, 0);
    dup2(other_end, 2);
    if (is_there_first)
        log_start(LOG_WARN, NULL);
    /* Else it is not the descriptor 2 of the start. */
    ck_assert(log_stderr_is_terminal() == is_there_first);
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("log");
    TCase *lines = tcase_create("lines");
    tcase_add_checked_fixture(lines, stderr_pipe_setup, stderr_pipe_teardown);
    tcase_add_test(lines, lines_are_filtered_by_level);
    tcase_add_test(lines, before_the_start_warnings_go_to_standard_error);
    tcase_add_test(lines, a_line_stays_one_line);
    tcase_add_test(lines, a_line_of_starts_comes_once_in_a_process);
    tcase_add_test(lines, of_many_lines_each_comes);
    tcase_add_test(lines, a_long_line_is_cut);
    tcase_add_test(lines, plain_text_comes_whole);
    tcase_add_loop_test(lines, a_terminal_is_told_from_a_pipe, 0, 2);
    tcase_add_test(lines, a_fork_child_forgets_what_waited);
    suite_add_tcase(suite, lines);
    TCase *places = tcase_create("places");
    tcase_add_checked_fixture(places, stderr_pipe_setup, stderr_pipe_teardown);
    tcase_add_test(places, a_file_that_the_app_opened_as_2_is_spared);
    tcase_add_test(places, a_program_that_starts_without_standard_error_gets_no_line);
    tcase_add_test(places, a_log_file_is_appended_to);
    tcase_add_test(places, a_relative_log_file_stays_where_it_was);
    tcase_add_test(places, a_log_file_that_cannot_be_opened_is_said_once);
    tcase_add_test(places, a_fifo_without_a_reader_does_not_hold_up);
    tcase_add_test(places, a_detached_thread_fetches_the_apps_descriptor);
    tcase_add_test(places, detached_threads_may_come_and_go);
    tcase_add_test(places, a_later_start_changes_nothing_about_standard_error);
    tcase_add_test(places, without_pidfd_lines_wait_for_the_flush);
    tcase_add_test(places, a_detached_thread_spares_the_apps_file_too);
    tcase_add_test(places, a_detached_thread_writes_to_the_log_file);
    suite_add_tcase(suite, places);
    return suite;
}
