#include "agent/uploader_thread.h"

#include <errno.h>

#include "agent/base/compiler.h"
#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/flush.h"
#include "agent/thread/own_thread.h"
#include "agent/thread/thread_context.h"
#include "uploader/uploader.h"

static uint32_t state;   /* an enum own_thread_state */
static uint32_t is_held; /* nobody writes until uploader_thread_go_on */

static void *uploader_main(void *unused)
{
    (void)unused;
    own_thread_enter("libagent-up");
    flush_own_thread_begins(FLUSH_OWN_UPLOADER);
    store_release(&state, OWN_THREAD_RUNNING);
    uploader_run(own_thread_is_known_to_libc());
    flush_own_thread_ends(FLUSH_OWN_UPLOADER);
    if (own_threads_are_paused()) /* and not at the end of all */
        flush_own_threads_end();
    own_thread_is_none(&state);
    return NULL;
}

void uploader_thread_need(void)
{
    int error = own_thread_need(&state, uploader_main, own_threads_are_paused);
    if (error && error != -EBUSY)
        log_warn("no uploader thread: %s (errno %d): tried again after the next period",
                 error_text(error), -error);
}

void uploader_thread_say_left(const char *what, const char *besides)
{
    char backends[128];
    routes_left(backends, sizeof(backends));
    log_error("%s: %u%s%s", what, uploader_left(), backends, besides);
}

int uploader_thread_write_all(bool finishes, uint64_t deadline_ns)
{
    bool has_thread = own_thread_is_there(&state);
    /* What waits to be sent does not wait any more. */
    bool hurries = finishes || (has_thread && routes_send());
    if (hurries)
        uploader_finish();
    /* An app's thread may be in the middle of malloc, which libcurl calls. */
    bool may_send = own_thread_is_known_to_libc();
    int error =
        has_thread ? uploader_wait_done(deadline_ns) : uploader_drain(deadline_ns, may_send);
    if (error && (finishes || error != -ETIMEDOUT)) /* else they are written later */
        uploader_thread_say_left("the last profiles were not written in time, lost", "");
    if (hurries && !finishes)
        uploader_resume();
    return error;
}

bool uploader_thread_is_starting(void)
{
    return own_thread_is_starting(&state);
}

bool uploader_thread_is_there(void)
{
    return own_thread_is_there(&state);
}

bool uploader_thread_wait_none(uint64_t deadline_ns)
{
    return own_thread_wait_none(&state, deadline_ns);
}

bool uploader_thread_end(uint64_t deadline_ns)
{
    uploader_finish();
    return own_thread_wait_none(&state, deadline_ns);
}

bool uploader_thread_pause(uint64_t deadline_ns)
{
    uploader_pause(true);
    bool ended = own_thread_wait_none(&state, deadline_ns);
    /* In this order: who ends the pause says so first, and then looks here. */
    __atomic_store_n(&is_held, 1, __ATOMIC_SEQ_CST);
    if (!own_threads_are_paused())
        uploader_thread_go_on();
    return ended;
}

void uploader_thread_go_on(void)
{
    if (__atomic_load_n(&is_held, __ATOMIC_SEQ_CST) && exchange_acq_rel(&is_held, 0))
        uploader_pause(false);
}

void uploader_thread_reset_in_child(void)
{
    state = OWN_THREAD_NONE;
    is_held = 0;
}
