/* temp_path.h: where a suite's files are. */
#ifndef LIBAGENT_TEST_TEMP_PATH_H
#define LIBAGENT_TEST_TEMP_PATH_H

enum { TEMP_PATH_SIZE = 64 };
/* "${TMPDIR:-/tmp}/libagent-WHAT-XXXXXX", for mkdtemp and mkstemp, in `path`, which it returns.
 * run_suites.sh gives each suite a TMPDIR of its own, and complains of what is left there. */
char *temp_path(char path[TEMP_PATH_SIZE], const char *what);

#endif
