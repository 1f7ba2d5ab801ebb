/* How the state is guarded:
 *
 *   1. All members of `state` below `lock` change under it only, and so do `queue`, `work` and
 *      `last_files`; only by plain stores and short copies. Blobs are moved, never shared: a blob
 *      is in the queue, or it is `work`, the one that the run loop has in hand. The loop reads
 *      the bytes of `work` without the lock; nobody else touches them.
 *   2. Nothing is freed or mapped under the lock, and a buffer is taken out of these under the
 *      lock before it is freed. So whenever the lock is free, each buffer in them is whole,
 *      also in the memory image that a fork makes: uploader_reset_in_child frees them if the
 *      lock was free at the fork, and forgets them if not.
 *   3. One thread at a time is in the run loop: the uploader's own, or one that has to write
 *      itself. It puts its id into `runner`, and takes it out under the lock with the look that
 *      finds nothing left: what was submitted before that look is written by it.
 *   4. `submitted` and `settled` are futex words that only grow. Who waits reads the word first,
 *      then looks at the state, then sleeps unless the word has changed. */
#include "uploader/uploader.h"

#include <errno.h>
#include <string.h>

#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/lock.h"
#include "agent/base/log.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "uploader/compress.h"
#include "uploader/file_backend.h"
#include "uploader/file_log.h"
#include "uploader/last_files.h"
#include "uploader/routes.h"
#include "uploader/sender.h"
#include "uploader/spool_log.h"

static struct {
    uint32_t submitted; /* a blob came, or the end was asked for */
    uint32_t settled;   /* the answer of uploader_wait_done may have changed */
    struct lock lock;
    int runner;           /* id of the thread that is in the run loop, 0: none */
    bool sending;         /* a profile is queued for a backend */
    bool busy;            /* the run loop is between taking a blob and finding none left */
    bool stuck;           /* the first of the queue has failed and waits for its next try */
    uint32_t stuck_at;    /* `submitted` before it was tried */
    bool finishing;       /* uploader_finish was called */
    uint64_t last_try_ns; /* when the last tries of the backends end */
    bool pausing;         /* the loop ends, blobs stay */
    bool ended;           /* uploader_run has returned since, and no blob came after */
} state = {.lock = LOCK_INIT(LOCK_UPLOADER)};
/* 130 KiB, which are not among the variables that have a value at the start: those make the file
 * longer, and pages of each process's own. */
static struct blob_queue queue;
static struct blob work;
static struct last_files last_files;

/* The run loop's own; written by others only while it does not run. */
static struct file_backend backend;
static enum compression compression;
static uint32_t lost_at_end; /* not yet said */
static bool has_sent;        /* routes_rest is due before the loop ends */
static struct file_report report;

static void bump(uint32_t *word)
{
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
    sys_futex_wake(word, INT32_MAX);
}

/* These two under the lock. */
static bool is_done_locked(void)
{
    return state.ended || (blob_queue_count(&queue) == 0 && !state.busy && !state.sending);
}

static bool is_stuck_locked(void)
{
    return state.stuck && state.stuck_at == load_acquire(&state.submitted);
}

static bool has_to_stop(void)
{
    lock_acquire(&state.lock);
    bool stop = state.pausing ||
                (state.finishing && clock_monotonic_ns() >= routes_before_end(state.last_try_ns));
    lock_release(&state.lock);
    return stop;
}

static void try_what_came(void);

/* Asked all along a post, which may take 10 s: what comes meanwhile goes its way, and the post ends
 * where the run loop has to. */
static bool during_post(void)
{
    try_what_came();
    return has_to_stop();
}

int uploader_start(const struct uploader_config *config)
{
    const char *folder = routes_start(&config->routes, config->folder, config->compression,
                                      config->pid, during_post);
    compression = config->compression;
    file_log_start();
    lost_at_end = 0;
    int error = file_backend_init(&backend, folder, config->tmpdir, config->output_limit,
                                  config->program, config->pid);
    uploader_resume();
    return error;
}

int uploader_submit(const struct blob_header *header, struct buffer *body)
{
    struct blob blob = {.header = *header, .body = *body};
    *body = (struct buffer){0};
    blob.header.dialect[sizeof blob.header.dialect - 1] = 0;
    blob.header.family[sizeof blob.header.family - 1] = 0;
    blob.header.service[sizeof blob.header.service - 1] = 0;
    blob.header.capture[sizeof blob.header.capture - 1] = 0;
    enum stat_id dropped = blob.header.capture[0] ? STAT_CAPTURES_DROPPED : STAT_WINDOWS_DROPPED;
    if (blob.body.error) {
        buffer_free(&blob.body);
        stats_add(dropped, 1);
        return -ENOMEM;
    }
    if (blob.body.size == 0) {
        buffer_free(&blob.body);
        return 0;
    }

    for (bool is_full = true; is_full;) {
        struct blob oldest = {.handed = false};
        lock_acquire(&state.lock);
        is_full = blob_queue_put(&queue, &blob, &oldest);
        if (!is_full)
            state.ended = false;
        lock_release(&state.lock);
        buffer_free(&oldest.body);
        stats_add(dropped, is_full);
    }
    bump(&state.submitted);
    return 0;
}

/* --- The run loop ------------------------------------------------------------------------- */

/* Of the profile in hand. */
static enum compression file_compression(void)
{
    return profile_name_is_text(work.header.dialect) ? COMPRESSION_NONE : compression;
}

static int compress_work(void)
{
    if (work.compressed)
        return 0;
    struct buffer packed = {0};
    int error = compress_bytes(file_compression(), work.body.data, work.body.size, &packed);
    if (error)
        return error;
    lock_acquire(&state.lock);
    struct buffer plain = work.body;
    work.body = packed;
    work.compressed = true;
    lock_release(&state.lock);
    buffer_free(&plain);
    return 0;
}

/* To the backends' queues, once. */
static void hand_work_over(void)
{
    if (work.handed || work.header.capture[0])
        return;
    sender_take(&work.header, &work.body);
    lock_acquire(&state.lock);
    work.handed = true;
    state.sending = sender_pending() != 0;
    lock_release(&state.lock);
}

/* What a backend needs is here, the header and the bytes; what the loop needs is the answer, kept
 * in `report`. */
static int ship_work(void)
{
    report = (struct file_report){0};
    hand_work_over();
    if (!routes_to_files(work.header.dialect))
        return 0;
    int error = compress_work();
    if (error) {
        format(report.folder, sizeof report.folder, "%s", backend.folder);
        report.reason = error_text(error);
        return error;
    }
    return file_backend_write(&backend, &work.header, file_compression(), work.body.data,
                              work.body.size, clock_realtime_ns(), &report);
}

/* Ends a try. True when the loop should wait before the next. */
static bool settle_work(int error, bool last_try, uint32_t seen)
{
    bool keep = error && !report.hopeless && !last_try;
    struct buffer gone = {0};
    lock_acquire(&state.lock);
    struct blob blob = work;
    work = (struct blob){0};
    state.stuck = keep;
    state.stuck_at = seen;
    if (!keep || !blob_queue_put_back(&queue, &blob)) {
        gone = blob.body;
        if (!error && report.name[0])
            last_files_add(&last_files, &blob.header, &report);
        else if (error && blob.header.capture[0])
            stats_add(STAT_CAPTURES_DROPPED, 1);
        else if (error)
            stats_add(keep ? STAT_WINDOWS_DROPPED : STAT_WINDOWS_FAILED, 1);
    }
    lock_release(&state.lock);
    buffer_free(&gone);
    lost_at_end += error && last_try;
    return keep;
}

/* True when the loop should wait before the next. */
static bool try_work(bool last_try, uint32_t seen)
{
    int error = ship_work();
    last_try &= error != -ECANCELED; /* this thread's, of a pause that it is late for */
    if (error)
        file_log_failed(&report, &work, error, last_try);
    else if (report.name[0])
        file_log_written(&report, &work);
    return settle_work(error, last_try, seen);
}

/* Under the lock, where there is one. */
static void take_work(void)
{
    work = blob_queue_take(&queue);
    state.busy = true;
    state.stuck = false;
}

/* False: nothing came, or it has failed and waits for its next try. */
static bool take_what_came(bool was_busy, uint32_t *seen)
{
    lock_acquire(&state.lock);
    *seen = load_acquire(&state.submitted);
    bool came = !state.pausing && blob_queue_count(&queue) > 0 && !is_stuck_locked();
    if (came)
        take_work();
    else
        state.busy = was_busy;
    lock_release(&state.lock);
    return came;
}

/* While the loop waits for a post, and so has no work in hand. */
static void try_what_came(void)
{
    const bool was_busy = state.busy; /* changed by this thread alone */
    bool tried = false;
    for (uint32_t seen; take_what_came(was_busy, &seen); tried = true)
        (void)try_work(false, seen);
    if (tried)
        bump(&state.settled);
}

enum step { STEP_TRY, STEP_LAST_TRY, STEP_LAST_SEND, STEP_SAY, STEP_REST, STEP_WAIT, STEP_END };

/* `drains`: the loop is to end when nothing is left. */
static enum step next_step(bool drains)
{
    enum step step;
    lock_acquire(&state.lock);
    if (state.pausing) {
        state.busy = has_sent;
        step = has_sent ? STEP_REST : STEP_END;
    } else if (blob_queue_count(&queue) > 0) {
        take_work();
        step = drains || state.finishing ? STEP_LAST_TRY : STEP_TRY;
    } else if ((drains || state.finishing) && state.sending) {
        state.busy = true;
        step = STEP_LAST_SEND;
    } else if (lost_at_end > 0 || ((drains || state.finishing) && spool_log_has_losses())) {
        /* Still busy: who waits for the end may end the process, so the line comes first. */
        step = STEP_SAY;
    } else if ((drains || state.finishing) && has_sent) {
        state.busy = true;
        step = STEP_REST;
    } else {
        state.busy = false;
        state.ended = state.finishing;
        step = drains || state.finishing ? STEP_END : STEP_WAIT;
    }
    if (step == STEP_END)
        state.runner = 0;
    lock_release(&state.lock);
    return step;
}

/* Serves the backends, and waits for news, or until something is due. */
static void wait_for_news(uint32_t seen, uint64_t limit_ns, bool may_send)
{
    uint64_t due = may_send ? sender_run() : UINT64_MAX;
    has_sent |= may_send;
    lock_acquire(&state.lock);
    state.sending = sender_pending() != 0;
    lock_release(&state.lock);
    bump(&state.settled);
    due = MIN_OF(due, limit_ns);
    sys_futex_wait(&state.submitted, seen, due == UINT64_MAX ? 0 : due);
}

static void finish_sending(bool may_send)
{
    lock_acquire(&state.lock);
    uint64_t deadline_ns = routes_before_end(state.last_try_ns);
    lock_release(&state.lock);
    sender_finish(deadline_ns, may_send);
    has_sent |= may_send;
    lock_acquire(&state.lock);
    state.sending = false;
    lock_release(&state.lock);
}

static void say_losses(void)
{
    if (lost_at_end)
        log_error("profiles that could not be written and are lost: %u", lost_at_end);
    lost_at_end = 0;
    sender_say_losses();
}

static void run(bool drains, bool may_send)
{
    for (;;) {
        uint32_t seen = load_acquire(&state.submitted);
        enum step step = next_step(drains);
        switch (step) {
        case STEP_TRY:
        case STEP_LAST_TRY:
            if (try_work(step == STEP_LAST_TRY, seen))
                wait_for_news(seen, clock_monotonic_ns() + UPLOADER_RETRY_NS, may_send);
            break;
        case STEP_LAST_SEND:
            finish_sending(may_send);
            break;
        case STEP_SAY:
            say_losses();
            break;
        case STEP_REST:
            routes_rest();
            has_sent = false;
            break;
        case STEP_WAIT:
            wait_for_news(seen, UINT64_MAX, may_send);
            break;
        case STEP_END:
            bump(&state.settled);
            return;
        }
    }
}

/* Who is in the loop now: 0: the calling thread, which was not before. */
static int enter_run(void)
{
    lock_acquire(&state.lock);
    int runner = state.runner;
    if (!runner)
        state.runner = sys_tid();
    lock_release(&state.lock);
    return runner;
}

void uploader_run(bool may_send)
{
    if (enter_run() == 0)
        run(false, may_send);
}

int uploader_drain(uint64_t deadline_ns, bool may_send)
{
    int runner = enter_run();
    if (runner == sys_tid()) /* under the handler that this is called from: it will not go on */
        return -EDEADLK;
    if (runner)
        return uploader_wait_done(deadline_ns);
    lock_acquire(&state.lock);
    state.last_try_ns = clock_monotonic_ns() + routes_exit_timeout_ns();
    lock_release(&state.lock);
    run(true, may_send);
    return 0;
}

/* ------------------------------------------------------------------------------------------ */

void uploader_finish(void)
{
    lock_acquire(&state.lock);
    state.finishing = true;
    state.last_try_ns = clock_monotonic_ns() + routes_exit_timeout_ns();
    lock_release(&state.lock);
    bump(&state.submitted);
}

void uploader_pause(bool pausing)
{
    lock_acquire(&state.lock);
    state.pausing = pausing;
    lock_release(&state.lock);
    bump(&state.submitted);
}

void uploader_resume(void)
{
    lock_acquire(&state.lock);
    state.finishing = state.ended = false;
    lock_release(&state.lock);
}

bool uploader_is_done(void)
{
    lock_acquire(&state.lock);
    bool done = is_done_locked();
    lock_release(&state.lock);
    return done;
}

uint32_t uploader_left(void)
{
    lock_acquire(&state.lock);
    uint32_t left = blob_queue_count(&queue) + (work.body.size != 0);
    lock_release(&state.lock);
    return left;
}

int uploader_wait_done(uint64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = load_acquire(&state.settled);
        int error = lock_acquire_until(&state.lock, deadline_ns);
        if (error)
            return error;
        bool done = is_done_locked();
        bool stuck = is_stuck_locked();
        lock_release(&state.lock);
        if (done)
            return 0;
        if (stuck)
            return -EAGAIN;
        if (clock_monotonic_ns() >= deadline_ns)
            return -ETIMEDOUT;
        sys_futex_wait(&state.settled, seen, deadline_ns);
    }
}

const char *uploader_program(void)
{
    return backend.program;
}

uint32_t uploader_last_files(char *out, size_t size)
{
    lock_acquire(&state.lock);
    last_files_text(&last_files, out, size);
    uint32_t files = last_files.written;
    lock_release(&state.lock);
    return files;
}

void uploader_reset_in_child(int pid)
{
    bool whole = load_acquire(&state.lock.word) == 0;
    lock_reset(&state.lock);
    if (whole) {
        buffer_free(&work.body);
        while (blob_queue_count(&queue) > 0) {
            struct blob blob = blob_queue_take(&queue);
            buffer_free(&blob.body);
        }
    }
    blob_queue_forget(&queue);
    memset(&work, 0, sizeof work);
    last_files_forget(&last_files);
    state.runner = 0;
    state.busy = state.sending = state.stuck = state.finishing = state.ended = state.pausing =
        false;
    file_log_start();
    has_sent = false;
    lost_at_end = 0;
    (void)folder_bar(false);
    backend.pid = pid;
    routes_reset_in_child(pid);
}
