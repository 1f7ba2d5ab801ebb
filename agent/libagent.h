/* libagent.h: the public functions of libagent.so, for programs that know it is there.
 *
 * A program is not linked with libagent.so: it finds them by dlsym(RTLD_DEFAULT, "libagent_start"),
 * or as weak references, and works alike without the agent:
 *
 *     #define LIBAGENT_WEAK
 *     #include "libagent.h"
 *     if (libagent_start)
 *         libagent_start(NULL);
 *
 * (Not weak references in code compiled with -fno-pie: the linker settles those as absent.)
 *
 * None may be called from a signal's handler (-EDEADLK where it interrupted the agent), nor in a
 * child of vfork. All may be called by any thread, also by several at once. Errors are negative
 * errno codes. The agent's log tells which option is wrong, why it could not start, which files are
 * lost, and the first of the labels and captures that are refused (-EINVAL, -E2BIG, -ENOSPC); the
 * other codes are for the caller alone.
 *
 * Owns: nothing. Context: THR. Locks: LOCK_LIFE in start and stop. */
#ifndef LIBAGENT_H
#define LIBAGENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIBAGENT_VERSION "0.1.0"

#ifdef LIBAGENT_WEAK
#define LIBAGENT_FUNCTION __attribute__((weak))
#else
#define LIBAGENT_FUNCTION
#endif

/* The version of the library in force, "MAJOR.MINOR.PATCH". */
LIBAGENT_FUNCTION const char *libagent_version(void);

/* Starts and stops are counted; where the agent starts with the program (LIBAGENT_START is not
 * manual) that is the first start. The first one starts, the last stop stops.
 *
 * `options`: NULL: those of the environment; else "key=value,key=value" over these, keys as in the
 * README's table, in small letters and without LIBAGENT_: "frequency=500,profiles=cpu,alloc". They
 * hold until the stop, and only for a start that does start; where others have started it they are
 * checked, and not used, which the log says once.
 *
 * 0: started (or switched off from outside, and will be on when that ends); 1: it was started
 * before, and this one is counted. Else it is not counted: -EINVAL: wrong options; -EBUSY: an
 * earlier stop is not at its end, since its files are still being written (a disk, a backend that
 * does not answer) or a thread was stopped in the middle of a sample: try again later; -ESHUTDOWN:
 * this process is not to be profiled (LIBAGENT_ENABLED=0, LIBAGENT_PROCESSES), or is at its end, or
 * under a filter of system calls; -ENOMEM. */
LIBAGENT_FUNCTION int libagent_start(const char *options);

/* 0: stopped: no sample is taken any more, no timer is armed, the agent's threads have ended and
 * the last window is written, or said in the log to be lost (a full disk); 1: others have started
 * it, too, and it goes on; -EALREADY: one stop too many, nothing is done; -ESHUTDOWN as above;
 * -ETIMEDOUT: stopped, but what was recorded could not all be written within 3 s, or a thread is
 * stopped in the middle of its last sample. */
LIBAGENT_FUNCTION int libagent_stop(void);

/* What was recorded so far is written, or said to be lost, when it returns, and a new window has
 * begun. 0; -ETIMEDOUT after `timeout_ms`; -ENOTCONN: the agent is not on. */
LIBAGENT_FUNCTION int libagent_flush(int timeout_ms);

/* What is live now is what heap-growth counts from, which each window has from now on; in the place
 * of an earlier mark. Takes a tenth of a second with 500,000 records (the comments of a profile
 * tell how many there are). 0; -ENOTCONN: the agent is not on; -ENODATA: no live heap is recorded;
 * -ENOMEM: LIBAGENT_MEMORY has no room, and the mark before stays. */
LIBAGENT_FUNCTION int libagent_heap_mark(void);

/* Labels of the calling thread: what it does from here on, until the label is cleared or set to
 * another value, has them in the profile (time, and allocations of the window; not what is live).
 * A thread has 8 at most; a key has 1 to 32 bytes without control characters, a text 1 to 128
 * bytes. They are inherited by no thread and no fork child, and gone when the agent stops.
 *
 * 0; -EINVAL: no such key or text is allowed ("thread name", "thread id", "state", "approximate",
 * "age_seconds", "bytes", "capture", "process_capture", "capture_number" and
 * "process_capture_number" are the agent's); -E2BIG: too long; -ENOSPC: the thread has
 * 8; -ENOENT (clear): it has no such label; -ENOTCONN: the agent is not on; -ENOMEM; -EDEADLK: in a
 * handler that interrupted the agent. The labels are then as they were. */
LIBAGENT_FUNCTION int libagent_label_set(const char *key, const char *value);
LIBAGENT_FUNCTION int libagent_label_set_number(const char *key, int64_t value);
LIBAGENT_FUNCTION int libagent_label_clear(const char *key);

/* A capture is a slice of time as a profile of its own: what the calling thread does between these
 * two, or (process_) the whole process; begun by one thread, the latter may be ended by another.
 * Its files, PROGRAM.PID.SEQ.FAMILY@NAME.NUMBER.pb.gz, come with those of the window in which it
 * lies, at the end of that, or at libagent_flush. Where it reaches over a window's end each window
 * has a part. They are copies: the window's own files have these samples, too, with the labels
 * capture=NAME and capture_number=NUMBER (process_capture, process_capture_number). NUMBER counts
 * the captures of the process. A slice in which no sample fell has no file.
 *
 * One at a time a thread, and one of the process beside it; each for a minute at most. A thread's
 * end, a stop and an exit end it; a fork child is in none. There are 16 at most that are open or
 * not in a file yet. A name has 1 to 32 letters, digits, and . _ -.
 *
 * Errors as above, and -EBUSY (begin): the thread, or the process, is in a capture; -ENOSPC
 * (begin): there are 16, which a flush mends, and comments count; -EALREADY (end): it is in none;
 * -ETIMEDOUT (end): the capture ended after its minute. */
LIBAGENT_FUNCTION int libagent_capture_begin(const char *name);
LIBAGENT_FUNCTION int libagent_capture_end(void);
LIBAGENT_FUNCTION int libagent_process_capture_begin(const char *name);
LIBAGENT_FUNCTION int libagent_process_capture_end(void);

#ifdef __cplusplus
}
#endif

#endif
