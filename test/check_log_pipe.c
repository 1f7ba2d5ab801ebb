/* Log lines behind a pipe that is full, broken, or read slowly: they never block, never raise a
 * signal, and stay whole. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/base/log.h"
#include "agent/base/sys.h"
#include "test/stderr_pipe.h"

static void check_full_pipe(void)
{
    log_start(LOG_WARN, NULL);
    size_t filled = stderr_pipe_fill();
    log_warn("one"); /* a wait is the test's timeout */
    log_warn("two");
    stderr_pipe_drain(filled);
    CHECK_WRITTEN("");
    log_warn("three");
    CHECK_WRITTEN("libagent: warn: one\nlibagent: warn: two\nlibagent: warn: three\n");
    log_flush();
    CHECK_WRITTEN("");
}

START_TEST(lines_wait_while_a_pipe_is_full)
{
    check_full_pipe();
}
END_TEST

START_TEST(lines_wait_while_a_pipe_that_does_not_block_is_full)
{
    fcntl(2, F_SETFL, O_NONBLOCK);
    check_full_pipe();
}
END_TEST

START_TEST(what_cannot_wait_is_lost_and_counted)
{
    char text[971], want[8192] = "";
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    log_start(LOG_WARN, NULL);
    size_t filled = stderr_pipe_fill();
    for (int i = 0; i < 7; i++)
        log_warn("%d%s", i, text);
    log_flush(); /* nothing moves */
    stderr_pipe_drain(filled);
    log_flush();
    for (int i = 0; i < 4; i++) /* four lines of 988 bytes find room in 4 KiB: the first ones */
        sprintf(want + strlen(want), "libagent: warn: %d%s\n", i, text);
    strcat(want, "libagent: warn: lines that were lost: 3\n");
    CHECK_WRITTEN(want);
    log_warn("next");
    CHECK_WRITTEN("libagent: warn: next\n");
}
END_TEST

static int polls_to_fail, flushes_inside;

static bool poll_fails_at_first(long number, const long args[6], long *result)
{
    (void)args;
    *result = 0;
    return number == SYS_ppoll && polls_to_fail-- > 0;
}

START_TEST(no_line_overtakes_one_that_waits)
{
    log_start(LOG_WARN, NULL);
    polls_to_fail = 2; /* room comes between the look at the first line and that at the second */
    sys_override = poll_fails_at_first;
    log_warn("one");
    log_warn("two");
    sys_override = NULL;
    CHECK_WRITTEN("");
    log_flush();
    CHECK_WRITTEN("libagent: warn: one\nlibagent: warn: two\n");
}
END_TEST

static bool flush_during_a_write(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    if (number == SYS_write && flushes_inside++ == 0)
        log_flush();
    return false;
}

START_TEST(a_second_flush_at_the_same_time_writes_nothing_twice)
{
    log_start(LOG_WARN, NULL);
    size_t filled = stderr_pipe_fill();
    log_warn("one");
    log_warn("two");
    stderr_pipe_drain(filled);
    sys_override = flush_during_a_write;
    log_flush();
    sys_override = NULL;
    ck_assert_int_eq(flushes_inside, 2);
    CHECK_WRITTEN("libagent: warn: one\nlibagent: warn: two\n");
}
END_TEST

static bool has_pending_sigpipe(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
}

/* As where a filter refuses the call: the write itself must show. */
static bool poll_is_refused(long number, const long args[6], long *result)
{
    (void)args;
    *result = -ENOSYS;
    return number == SYS_ppoll;
}

static void write_to_broken_pipe(void)
{
    close(stderr_pipe_read);
    log_start(LOG_WARN, NULL);
    log_warn("nobody reads this");
    log_flush();
}

START_TEST(without_poll_a_pipe_that_does_not_block_tells_that_it_is_full)
{
    fcntl(2, F_SETFL, O_NONBLOCK);
    sys_override = poll_is_refused;
    check_full_pipe();
    sys_override = NULL;
}
END_TEST

START_TEST(a_broken_pipe_raises_no_signal)
{
    signal(SIGPIPE, SIG_DFL); /* it would end this process */
    write_to_broken_pipe();
    sys_override = poll_is_refused;
    log_warn("nor this");
    sys_override = NULL;
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGPIPE));
    ck_assert(!has_pending_sigpipe());
}
END_TEST

START_TEST(a_blocked_sigpipe_stays_blocked_and_none_is_left)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    write_to_broken_pipe();
    ck_assert(!has_pending_sigpipe());
    sigprocmask(SIG_BLOCK, NULL, &set);
    ck_assert(sigismember(&set, SIGPIPE));
}
END_TEST

START_TEST(a_sigpipe_of_the_apps_stays_pending)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    write_to_broken_pipe();
    ck_assert(has_pending_sigpipe());
}
END_TEST

/* RLIMIT_FSIZE is reached: the write would raise SIGXFSZ, which ends a process. */
START_TEST(a_file_that_may_not_grow_raises_no_signal)
{
    const struct rlimit nothing = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    int fd = open(path_in_folder("limited"), O_WRONLY | O_CREAT, 0600);
    dup2(fd, 2);
    signal(SIGXFSZ, SIG_DFL);
    log_start(LOG_WARN, NULL);
    int refused = setrlimit(RLIMIT_FSIZE, &nothing);
    log_warn("there is no room for this");
    setrlimit(RLIMIT_FSIZE, &all); /* Check writes to a file, too: at each assertion */
    ck_assert_int_eq(refused, 0);
    ck_assert_str_eq(text_of_file(path_in_folder("limited")), "");
    close(fd);
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

/* A job of its own beside the terminal's, on which `stty tostop` is in force; its status. */
static int write_in_background(const char *terminal)
{
    struct termios settings;
    int status = 0, fd = setsid() < 0 ? -1 : open(terminal, O_RDWR);
    if (fd < 0 || tcgetattr(fd, &settings) != 0)
        return -1;
    settings.c_lflag |= TOSTOP;
    if (tcsetattr(fd, TCSANOW, &settings) != 0)
        return -1;
    pid_t job = fork();
    if (job == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_DFL);
        dup2(fd, 2);
        log_start(LOG_WARN, NULL);
        log_warn("written");
        _exit(0);
    }
    if (waitpid(job, &status, WUNTRACED) != job)
        return -1;
    kill(job, SIGKILL);
    return status;
}

START_TEST(a_job_in_the_background_is_not_stopped)
{
    int status, terminal = posix_openpt(O_RDWR | O_NOCTTY);
    char text[64] = {0};
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal) | unlockpt(terminal), 0);
    pid_t leader = fork();
    if (leader == 0)
        _exit(write_in_background(ptsname(terminal)) != 0);
    ck_assert_int_eq(waitpid(leader, &status, 0), leader);
    ck_assert_int_eq(status, 0);
    ck_assert_int_gt(read(terminal, text, sizeof(text) - 1), 0);
    ck_assert_str_eq(text, "libagent: warn: written\r\n");
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

enum { WRITERS = 4, LINES = 500 };

static void *write_lines(void *number)
{
    for (int i = 0; i < LINES; i++)
        log_warn("%c%04d%s", (char)('a' + (intptr_t)number), i, "0123456789012345678901234567");
    return NULL;
}

static void start_writers(pthread_t writers[WRITERS])
{
    log_start(LOG_WARN, NULL);
    for (intptr_t i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_create(&writers[i], NULL, write_lines, (void *)i), 0);
}

/* Each line whole; of each writer in order. Returns their number, the last one may be of losses. */
static int check_lines(const char *text, unsigned *lost)
{
    enum { LINE = 50 };
    int lines = 0, next[WRITERS] = {0}, at, number;
    char writer;
    *lost = 0;
    for (; *text; text = strchr(text, '\n') + 1) {
        if (sscanf(text, "libagent: warn: lines that were lost: %u", lost) == 1)
            continue;
        ck_assert_int_eq(sscanf(text, "libagent: warn: %c%4d%n", &writer, &number, &at), 2);
        ck_assert_int_eq(strncmp(text + at, "0123456789012345678901234567\n", 29), 0);
        ck_assert_int_eq(at + 29, LINE);
        ck_assert_int_ge(number, next[writer - 'a']);
        next[writer - 'a'] = number + 1;
        lines++;
    }
    return lines;
}

START_TEST(lines_of_many_threads_stay_whole)
{
    int fd = open(path_in_folder("out"), O_CREAT | O_RDWR | O_APPEND, 0600);
    dup2(fd, 2);
    pthread_t writers[WRITERS];
    unsigned lost;
    start_writers(writers);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    lseek(fd, 0, SEEK_SET);
    ck_assert_int_eq(check_lines(text_of(fd), &lost), WRITERS * LINES);
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

START_TEST(no_line_is_lost_uncounted_behind_a_slow_reader)
{
    static char all[1 << 18];
    size_t used = 0;
    pthread_t writers[WRITERS];
    size_t filled = stderr_pipe_fill();
    start_writers(writers);
    stderr_pipe_drain(filled);
    /* Full again and again: 100,000 bytes through a pipe of one page. */
    fcntl(2, F_SETPIPE_SZ, 4096);
    for (int joined = 0; joined < WRITERS;) {
        used += (size_t)sprintf(all + used, "%s", text_of(stderr_pipe_read));
        joined += pthread_tryjoin_np(writers[joined], NULL) == 0;
    }
    for (size_t before = SIZE_MAX; used != before;) {
        before = used;
        log_flush();
        used += (size_t)sprintf(all + used, "%s", text_of(stderr_pipe_read));
    }
    /* Several threads may lose lines, and each time they are said they start anew. */
    unsigned last, lost = 0;
    int lines = check_lines(all, &last);
    for (const char *p = all; (p = strstr(p, "warn: ")); p++)
        if (sscanf(p, "warn: lines that were lost: %u", &last) == 1)
            lost += last;
    ck_assert_int_eq(lines + (int)lost, WRITERS * LINES);
    errno = STDERR_PIPE_ERRNO;
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("log_pipe");
    TCase *pipes = tcase_create("pipes");
    tcase_add_checked_fixture(pipes, stderr_pipe_setup, stderr_pipe_teardown);
    tcase_set_timeout(pipes, 20);
    tcase_add_test(pipes, lines_wait_while_a_pipe_is_full);
    tcase_add_test(pipes, lines_wait_while_a_pipe_that_does_not_block_is_full);
    tcase_add_test(pipes, without_poll_a_pipe_that_does_not_block_tells_that_it_is_full);
    tcase_add_test(pipes, no_line_overtakes_one_that_waits);
    tcase_add_test(pipes, a_second_flush_at_the_same_time_writes_nothing_twice);
    tcase_add_test(pipes, what_cannot_wait_is_lost_and_counted);
    tcase_add_test(pipes, a_broken_pipe_raises_no_signal);
    tcase_add_test(pipes, a_blocked_sigpipe_stays_blocked_and_none_is_left);
    tcase_add_test(pipes, a_sigpipe_of_the_apps_stays_pending);
    tcase_add_test(pipes, a_file_that_may_not_grow_raises_no_signal);
    tcase_add_test(pipes, a_job_in_the_background_is_not_stopped);
    tcase_add_test(pipes, lines_of_many_threads_stay_whole);
    tcase_add_test(pipes, no_line_is_lost_uncounted_behind_a_slow_reader);
    suite_add_tcase(suite, pipes);
    return suite;
}
