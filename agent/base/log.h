/* log.h: the agent's own lines, "libagent: LEVEL: text", one write(2) each.
 *
 * Where they go: LIBAGENT_LOG_FILE, opened for each line, which has the time (UTC) and the pid
 * before it there; else standard error, and only while descriptor 2 is still the file that it was
 * at start (device and inode are compared), so that a line never lands in a file that the app
 * opened under that number. Nothing here blocks: what a full pipe does not take is kept (bounded)
 * and tried again with the next line. A thread with its own descriptor table calls
 * log_thread_is_detached once: its lines fetch descriptor 2 of the process by pidfd_getfd, or,
 * where the kernel lacks that, are kept as well and written at log_flush, which the exit path calls
 * from the app's thread.
 *
 * Owns: where lines go. Context: INIT, THR, TICK, UP. Locks: LOCK_LOG, never held over I/O. */
#ifndef LIBAGENT_LOG_H
#define LIBAGENT_LOG_H

#include <stdbool.h>

#include "agent/base/compiler.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `path` NULL: standard error. The first one remembers the identity of descriptor 2. The path is
 * copied, and made absolute. Lines before it go to standard error at level warn. */
void log_start(enum log_level level, const char *path);
/* One line of at most 1 KiB of UTF-8; what cannot be printed (from a %s) becomes '?'. `once`: not
 * where the process, or the one that it was forked from, has said the same before: for what each
 * start finds anew. */
void log_line(enum log_level level, bool once, const char *pattern, ...) PRINTF_LIKE(3, 4);
#define log_error(...)      log_line(LOG_ERROR, false, __VA_ARGS__)
#define log_error_once(...) log_line(LOG_ERROR, true, __VA_ARGS__)
#define log_warn(...)       log_line(LOG_WARN, false, __VA_ARGS__)
#define log_warn_once(...)  log_line(LOG_WARN, true, __VA_ARGS__)
#define log_info(...)       log_line(LOG_INFO, false, __VA_ARGS__)
#define log_debug(...)      log_line(LOG_DEBUG, false, __VA_ARGS__)
/* The calling thread has a descriptor table of its own from now on. */
void log_thread_is_detached(void);
/* Has it? */
bool log_thread_has_descriptors(void);
/* While it is true, such threads write nothing into the file: they may be another user's by now. */
void log_bar_file(bool barred);
/* Writes what had to wait. The calling thread has the app's descriptor table. */
void log_flush(void);
/* Writes to standard error as it is, no prefix, whatever the level (help, the line at exit). */
void log_plain(const char *text);
/* True when descriptor 2 is the one of the start, and a terminal. */
bool log_stderr_is_terminal(void);
/* In a fork child. */
void log_reset_in_child(void);

#endif
