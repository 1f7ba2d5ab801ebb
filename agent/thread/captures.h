/* captures.h: slices of time that the program has named: of one thread, or of the whole process.
 *
 * Protocol:
 *  1. A capture lies in a small fixed table. Who begins one takes a free place, fills it, and
 *     publishes it by a compare-and-swap in its holder: a thread's (in its label_room), or the
 *     process's. What a holder holds is in force until its `until_ns`.
 *  2. An end takes it out of its holder and sets `until_ns` to that moment: the place is
 * CAPTURE_ENDED. What nobody ends is in force until its limit; a flush then puts `capture_spent` in
 * its holder, which tells the end that comes late.
 *  3. Samples look at the holders inside a guard, and point to the place's labels no longer than
 *     that. So a flush frees the places that had ended when the windows turned, once the guards
 * that were open then are closed; until that they keep, for the file, when the slice began and
 * ended.
 *  4. Each has a number of its own in the process, by which it is known in a window that outlives
 * its place.
 *
 * Owns: the table, the process's holder. Context: as said. Locks: none. */
#ifndef LIBAGENT_CAPTURES_H
#define LIBAGENT_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/label_words.h"

/* Each is a file a family in a window's time, and its labels are more rows of the window: enough to
 * look at some requests, not to follow all. */
enum { CAPTURES_MAX = 16 };
/* A slice that is longer is a profile like any window's. */
#define CAPTURE_LIMIT_NS (60 * NS_PER_SEC)

enum capture_scope { CAPTURE_OF_THREAD, CAPTURE_OF_PROCESS, CAPTURE_SCOPES };
enum capture_state { CAPTURE_FREE, CAPTURE_FILLED, CAPTURE_OPEN, CAPTURE_ENDED };

struct capture {
    uint32_t state;
    uint32_t number; /* from 1 */
    enum capture_scope scope;
    uint64_t begin_ns, until_ns; /* CLOCK_MONOTONIC */
    struct capture **holder;
    struct label_set set; /* its name and its number */
};

extern HIDDEN struct capture *captures_process; /* the process's holder */

/* The keys of a capture's labels: of its name, and of its number. */
#define CAPTURE_KEYS        "capture", "process_capture"
#define CAPTURE_NUMBER_KEYS "capture_number", "process_capture_number"
const char *capture_key(enum capture_scope scope);
const char *capture_number_key(enum capture_scope scope);

/* `name`: by label_make, under the scope's key. 0; -EBUSY: the holder holds one that is in force;
 * -ENOSPC: CAPTURES_MAX are open or not yet in a file, counted. THR. */
int capture_begin(struct capture **holder, enum capture_scope scope, const uint64_t *name,
                  uint64_t now_ns) MUST_USE;
/* 0; -EALREADY: it holds none; -ETIMEDOUT: that ended at its limit. THR. */
int capture_end(struct capture **holder, uint64_t now_ns) MUST_USE;
/* The holder's thread is no more. THR, HOOK, INIT, TICK. */
void capture_forget(struct capture **holder);

/* The labels of what the holder holds; NULL: of nothing that is in force. SIG, HOOK, TICK, inside a
 * guard, or under LOCK_FLUSH; so are the next two. */
const struct label_set *capture_here(struct capture *const *holder);
/* The process's at that time, which was behind the last flush; *until_ns, which the caller sets to
 * the end of the time that it asks for, becomes the end of what the answer holds for. */
const struct label_set *captures_at(uint64_t at_ns, uint64_t *until_ns);
/* What has that number; NULL: its place is another's, or free. */
const struct capture *capture_of_number(uint32_t number);

/* TICK, INIT under LOCK_FLUSH: those beyond their limit have ended. Before guards are waited for.
 */
void captures_end_late(uint64_t now_ns);
/* Behind the wait: what had ended at that time is in no window but the one that is written. */
void captures_free(uint64_t ended_ns);
/* No captures: at a start, when nobody is inside, and in a fork child. INIT. */
void captures_reset(void);

#endif
