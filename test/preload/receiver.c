#include "test/preload/receiver.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"
#include "test/temp_path.h"

/* A busy machine needs some seconds to start python and protoc. */
enum { START_TRIES = 3000, TRY_NS = 10000000, TEXTS = 16, TEXT_SIZE = 1024, CASE_S = 120 };

struct receiver receiver;

static void make_certificate(const struct receiver *receiver)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test "
             "-addext subjectAltName=IP:127.0.0.1 -keyout %s/key.pem -out %s/ca.pem 2> /dev/null",
             receiver->folder, receiver->folder);
    ck_assert_int_eq(system(command), 0);
}

static void run_server(const struct receiver *receiver, enum receiver_kind kind)
{
    char script[] = "test/preload/receiver_backends.py", address[sizeof(receiver->socket)] = "0";
    char certificate[128], key[128];
    snprintf(certificate, sizeof(certificate), "%s/ca.pem", receiver->folder);
    snprintf(key, sizeof(key), "%s/key.pem", receiver->folder);
    if (kind == RECEIVER_UNIX)
        memcpy(address, receiver->socket, sizeof(address));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    execl("/usr/bin/python3", "python3", script, receiver->folder, address,
          kind == RECEIVER_TLS ? certificate : NULL, key, (char *)NULL);
    _exit(127);
}

/* The text of a file of the server's folder, to be freed; "" where there is none. */
static char *read_text(const struct receiver *receiver, const char *name)
{
    char path[160];
    char *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/%s", receiver->folder, name);
    FILE *file = fopen(path, "r");
    if (file) {
        ck_assert_int_ge(getdelim(&text, &size, 0, file), -1);
        fclose(file);
    }
    return text ? text : calloc(1, 1);
}

void receiver_start(struct receiver *receiver, enum receiver_kind kind)
{
    *receiver = (struct receiver){.pid = -1};
    temp_path(receiver->folder, "receiver");
    ck_assert_ptr_nonnull(mkdtemp(receiver->folder));
    snprintf(receiver->socket, sizeof(receiver->socket), "%s/socket", receiver->folder);
    if (kind == RECEIVER_TLS)
        make_certificate(receiver);
    receiver->pid = fork();
    ck_assert_int_ge(receiver->pid, 0);
    if (receiver->pid == 0)
        run_server(receiver, kind);
    for (int i = 0; receiver->port == 0; i++) {
        ck_assert_msg(i < START_TRIES && waitpid(receiver->pid, NULL, WNOHANG) == 0,
                      "the receiver does not start");
        nanosleep(&(struct timespec){0, TRY_NS}, NULL);
        char *text = read_text(receiver, "address");
        receiver->port = atoi(text);
        free(text);
    }
}

void receiver_read(struct receiver *receiver)
{
    free(receiver->log);
    receiver->log = read_text(receiver, "log");
    ck_assert_msg(receiver_count(receiver, "BAD") == 0, "%s", receiver->log);
}

/* The text behind the first `mark` of the next line that begins with the words and has it; *place
 * goes behind that line. NULL: there is none. */
static const char *next_marked(const char **place, const char *words, const char *mark)
{
    size_t length = strlen(words);
    for (const char *line = *place; *line;) {
        size_t size = strcspn(line, "\n");
        bool begins = size >= length && strncmp(line, words, length) == 0 &&
                      (size == length || line[length] == ' ');
        const char *found = begins ? strstr(line, mark) : NULL;
        const char *end = line + size;
        line = end + (*end == '\n');
        if (found && found <= end) {
            *place = line;
            return found + strlen(mark);
        }
    }
    return NULL;
}

int receiver_count_with(const struct receiver *receiver, const char *words, const char *text)
{
    int count = 0;
    for (const char *place = receiver->log; next_marked(&place, words, text);)
        count++;
    return count;
}

int64_t receiver_sum(const struct receiver *receiver, const char *words, const char *name)
{
    int64_t sum = 0;
    char mark[64];
    snprintf(mark, sizeof(mark), " %s=", name);
    const char *place = receiver->log;
    for (const char *value; (value = next_marked(&place, words, mark));)
        sum += strtoll(value, NULL, 10);
    return sum;
}

int receiver_count(const struct receiver *receiver, const char *words)
{
    return receiver_count_with(receiver, words, "");
}

void receiver_wait_with(struct receiver *receiver, const char *words, const char *text, int count)
{
    for (int i = 0;; i++) {
        receiver_read(receiver);
        int seen = receiver_count_with(receiver, words, text);
        if (seen >= count)
            return;
        ck_assert_msg(i < START_TRIES, "%d of %d %s %s:\n%s", seen, count, words, text,
                      receiver->log);
        nanosleep(&(struct timespec){0, TRY_NS}, NULL);
    }
}

void receiver_wait(struct receiver *receiver, const char *words, int count)
{
    receiver_wait_with(receiver, words, "", count);
}

int receiver_expect_each_once(const struct receiver *receiver, const char *words)
{
    static const char mark[] = " id=";
    enum { ID_LENGTH = 36 };
    for (const char *id = receiver->log; (id = strstr(id, mark)); id++) {
        char text[sizeof(mark) + ID_LENGTH];
        snprintf(text, sizeof(text), "%s", id);
        int same = receiver_count_with(receiver, words, text);
        ck_assert_msg(same <= 1, "%s: %d times%s\n%s", words, same, text, receiver->log);
    }
    return receiver_count(receiver, words);
}

void receiver_stop(struct receiver *receiver)
{
    kill(receiver->pid, SIGKILL);
    waitpid(receiver->pid, NULL, 0);
    char command[160];
    snprintf(command, sizeof(command), "rm -rf %s", receiver->folder);
    ck_assert_int_eq(system(command), 0);
    free(receiver->log);
}

/* ---- the one that a case shares ---- */

static void start_http(void)
{
    receiver_start(&receiver, RECEIVER_HTTP);
}

static void start_unix(void)
{
    receiver_start(&receiver, RECEIVER_UNIX);
}

static void start_tls(void)
{
    receiver_start(&receiver, RECEIVER_TLS);
}

static void stop(void)
{
    receiver_stop(&receiver);
}

/* All but what the server made at its start. */
static void forget(void)
{
    char command[320];
    snprintf(command, sizeof(command),
             "find %s -mindepth 1 -maxdepth 1 ! -name address ! -name '*.pem' ! -name socket "
             "-exec rm -rf {} +",
             receiver.folder);
    ck_assert_int_eq(system(command), 0);
    free(receiver.log);
    receiver.log = NULL;
}

TCase *receiver_case(Suite *suite, const char *name, enum receiver_kind kind)
{
    static void (*const starts[])(void) = {
        [RECEIVER_HTTP] = start_http, [RECEIVER_UNIX] = start_unix, [RECEIVER_TLS] = start_tls};
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, CASE_S);
    tcase_add_unchecked_fixture(tcase, starts[kind], stop);
    tcase_add_checked_fixture(tcase, forget, NULL);
    suite_add_tcase(suite, tcase);
    return tcase;
}

const char *receiver_text(const char *pattern, ...)
{
    static char texts[TEXTS][TEXT_SIZE];
    static unsigned next;
    char *text = texts[next++ % TEXTS];
    va_list list;
    va_start(list, pattern);
    vsnprintf(text, TEXT_SIZE, pattern, list);
    va_end(list);
    return text;
}
