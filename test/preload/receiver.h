/* receiver.h: a server that takes uploads by the rules of the backends (receiver_backends.py), for
 * suites that run whole programs.
 *
 * Owns: the server and its folder, from receiver_start to receiver_stop. Context: suites, one
 * thread. Locks: none. */
#ifndef LIBAGENT_TEST_RECEIVER_H
#define LIBAGENT_TEST_RECEIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "test/check.h"
#include "test/temp_path.h"

struct receiver {
    char folder[TEMP_PATH_SIZE]; /* the profiles that were taken lie here */
    char socket[108];
    int port;
    pid_t pid;
    char *log; /* what receiver_read found */
};

/* As which process's the profiles lie in the folder. */
enum { RECEIVED_BY_PYROSCOPE = 1, RECEIVED_BY_PARCA, RECEIVED_LIVE_BY_PARCA = 5 };
enum receiver_kind { RECEIVER_HTTP, RECEIVER_UNIX, RECEIVER_TLS };

/* Returns once it listens. RECEIVER_TLS: its certificate is FOLDER/ca.pem, for 127.0.0.1. */
void receiver_start(struct receiver *receiver, enum receiver_kind kind);
/* Reads its log; fails the test where a request broke a rule. */
void receiver_read(struct receiver *receiver);
/* Lines of the log that begin with `words` and a blank or their end. */
int receiver_count(const struct receiver *receiver, const char *words);
/* The same, and in which `text` stands. */
int receiver_count_with(const struct receiver *receiver, const char *words, const char *text);
/* Of these lines, the sum of the numbers behind " NAME=". */
int64_t receiver_sum(const struct receiver *receiver, const char *words, const char *name);
/* Reads its log until there are so many, for half a minute. */
void receiver_wait(struct receiver *receiver, const char *words, int count);
void receiver_wait_with(struct receiver *receiver, const char *words, const char *text, int count);
/* Fails the test where two lines that begin with the words have one id: a profile was sent twice.
 * Returns their number. */
int receiver_expect_each_once(const struct receiver *receiver, const char *words);
void receiver_stop(struct receiver *receiver);

/* The one that the tests of a case share: python and protoc take a second to start. */
extern struct receiver receiver;
/* A case whose tests find `receiver` there, with nothing in its log and its folder. */
TCase *receiver_case(Suite *suite, const char *name, enum receiver_kind kind);
/* printf's text; good for the next 16 calls. */
const char *receiver_text(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

#endif
