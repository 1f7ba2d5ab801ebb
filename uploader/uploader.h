/* uploader.h: takes encoded profiles, compresses them, writes them out, from a thread of its own.
 *
 * The uploader gets bytes and a header and never looks inside. It knows agent/base alone: its
 * thread is made by agent.c, which runs uploader_run in it.
 *
 *   1. TICK (or the exit path) calls uploader_submit: the blob goes to the end of a bounded
 *      queue; when the queue is full the oldest goes, counted (STAT_WINDOWS_DROPPED, and of
 *      captures, which have room of their own, STAT_CAPTURES_DROPPED).
 *   2. UP wakes, takes the head, compresses it (uploader/compress), writes it
 *      (uploader/file_backend: temporary name, then rename). A blob that could not be written
 *      (full disk, folder gone) stays at the head and is tried again at the next submit, every
 *      UPLOADER_RETRY_NS, and at the end; the first failure of a row is logged once.
 *      Before that it goes to the backends' own queues (uploader/sender.h), which the loop serves
 *      whenever nothing else is to be done; not what is of a capture, as they have it as a part of
 *      the window's. A post may take 10 s: meanwhile blobs go on to files and to these queues, or
 *      to the spool, as those of short periods would fill the queue of step 1.
 *   3. At exit uploader_finish asks for an end; whoever runs uploader_run tries each blob once
 *      more and returns. What is left then is counted (STAT_WINDOWS_FAILED) and said.
 *
 * Owns: the queue, the blobs in it, the output folder's state. Context: uploader_submit TICK,
 * INIT; uploader_run UP; uploader_drain whoever has no thread of ours to write. Locks:
 * LOCK_UPLOADER, held for queue pointers only, never over compression or I/O. */
#ifndef LIBAGENT_UPLOADER_H
#define LIBAGENT_UPLOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/options.h"
#include "uploader/blob.h"
#include "uploader/blob_queue.h"
#include "uploader/folder_file.h"
#include "uploader/routes.h"

#define UPLOADER_RETRY_NS (10 * NS_PER_SEC) /* a try costs one failed system call or two */

struct uploader_config {
    const char *folder; /* NULL: ${TMPDIR:-/tmp}/libagent-UID, made 0700; none where profiles are
                         * uploaded */
    const char *tmpdir; /* value of TMPDIR or NULL */
    uint64_t output_limit;
    enum compression compression;
    const char *program; /* as in the file's name; bytes outside [A-Za-z0-9._-] become _ */
    int pid;
    struct routes_config routes;
};

/* Remembers the configuration (texts copied, a relative folder made absolute). Touches no file.
 * 0 or a negative errno. */
int uploader_start(const struct uploader_config *config) MUST_USE;
/* Takes over `body` (left empty, also on failure). 0, or -ENOMEM (counted as dropped). */
int uploader_submit(const struct blob_header *header, struct buffer *body) MUST_USE;
/* The run loop of the uploader's thread: until uploader_finish, and the queue is done. Returns at
 * once where another thread is in the loop, which then writes all that is queued. `may_send`:
 * libcurl may be called by the thread. */
void uploader_run(bool may_send);
/* Without the uploader's thread: the calling one tries all that is queued once more, or waits until
 * the one that is in the run loop has. 0; -ETIMEDOUT; -EAGAIN as uploader_wait_done; -EDEADLK where
 * the caller is a handler above the run loop. */
int uploader_drain(uint64_t deadline_ns, bool may_send) MUST_USE;
/* The run loop is to end once it has tried everything that is queued. */
void uploader_finish(void);
/* After a finish that was not the end (exec failed): uploader_run may be called again. */
void uploader_resume(void);
/* True: the run loop is to end with the file in hand, and what is queued stays. False: it may be
 * called again. */
void uploader_pause(bool pausing);
/* True once uploader_run has returned after uploader_finish, or nothing is queued. */
bool uploader_is_done(void);
/* So many profiles are not written, and not given to the backends' queues yet. */
uint32_t uploader_left(void);
/* Waits for that until the CLOCK_MONOTONIC deadline: 0 or -ETIMEDOUT; or -EAGAIN at once when all
 * that is left has failed since the last submit (a full disk: more waiting would be in vain). */
int uploader_wait_done(uint64_t deadline_ns) MUST_USE;
/* The program's part of the names of files. */
const char *uploader_program(void);
/* Files written so far, and the path of the last one of each family and format joined by spaces,
 * for the line at exit. Returns the number of files. */
uint32_t uploader_last_files(char *out, size_t size);
/* In a fork child: nothing queued (the parent ships its own), new pid, state as after start. */
void uploader_reset_in_child(int pid);

#endif
