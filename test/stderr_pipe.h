/* stderr_pipe.h: a pipe behind descriptor 2, for suites about what is written there.
 * One a process: Check runs each test in a process of its own. */
#ifndef LIBAGENT_TEST_STDERR_PIPE_H
#define LIBAGENT_TEST_STDERR_PIPE_H

#include <stddef.h>

#include "test/temp_path.h"

extern int stderr_pipe_read;               /* the other end, does not block */
extern char stderr_folder[TEMP_PATH_SIZE]; /* an empty folder for files */

/* Fixtures: errno is set to a number that must still stand there at the end. */
enum { STDERR_PIPE_ERRNO = 4711 };
void stderr_pipe_setup(void);
void stderr_pipe_teardown(void);

/* What can be read from `fd` now; valid until the next call. Keeps errno. */
const char *text_of(int fd);
const char *text_of_file(const char *path);
/* The path of a file in the folder; valid until the next call. */
const char *path_in_folder(const char *name);

/* Fills the pipe to its last byte with zeroes; returns how many. Keeps errno. */
size_t stderr_pipe_fill(void);
/* Reads that many bytes and forgets them. Keeps errno. */
void stderr_pipe_drain(size_t size);

#define CHECK_WRITTEN(want) ck_assert_str_eq(text_of(stderr_pipe_read), want)

#endif
