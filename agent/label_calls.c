/* label_calls.c: the public functions that label what a thread does (libagent.h). */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/label_words.h"
#include "agent/base/log.h"
#include "agent/libagent.h"
#include "agent/life.h"
#include "agent/thread/captures.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/user_labels.h"

/* What the agent writes itself. */
static bool is_reserved(const char *key)
{
    static const char *const keys[] = {"thread name", "thread id",        "state",
                                       "approximate", "age_seconds",      "bytes",
                                       CAPTURE_KEYS,  CAPTURE_NUMBER_KEYS};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (key[0] == keys[i][0] && strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* Nothing is cut or left out in silence: the caller has the error, and people a line. */
static int refuse(const char *function, int error)
{
    static uint32_t is_said;
    bool is_wrong = error == -EINVAL || error == -E2BIG || error == -ENOSPC;
    if (!is_wrong || thread_tls.entered || thread_tls.inside || !life_is_on() ||
        exchange_acq_rel(&is_said, 1))
        return error;
    thread_tls.inside++;
    log_warn("%s: refused: %s; others like it are not told", function,
             error == -EINVAL  ? "no such name or text is allowed"
             : error == -E2BIG ? "a name or text is too long"
                               : "there are as many as allowed");
    thread_tls.inside--;
    return error;
}

/* The calling thread's slot; 0 or a negative errno. life_leave follows a 0. */
static int begin(struct thread_slot **slot)
{
    if (thread_tls.entered || thread_tls.inside)
        return -EDEADLK;
    if (!life_enter())
        return -ENOTCONN;
    *slot = thread_current();
    if (!*slot) {
        thread_tls.inside = 1;
        *slot = thread_tls.left ? NULL : thread_attach_late();
        thread_tls.inside = 0;
    }
    if (*slot)
        return 0;
    life_leave();
    return -ENOMEM;
}

static int set(const char *key, const char *text, const int64_t *number)
{
    uint64_t label[LABEL_WORDS_MAX];
    struct thread_slot *slot;
    int error = label_make(label, key, text, number);
    if (!error && is_reserved(key))
        error = -EINVAL;
    if (!error)
        error = begin(&slot);
    if (error)
        return error;
    error = user_labels_set(slot, label);
    life_leave();
    return error;
}

EXPORT int libagent_label_set(const char *key, const char *value)
{
    int error = set(key, value, NULL);
    return unlikely(error) ? refuse("libagent_label_set", error) : 0;
}

EXPORT int libagent_label_set_number(const char *key, int64_t value)
{
    int error = set(key, NULL, &value);
    return unlikely(error) ? refuse("libagent_label_set_number", error) : 0;
}

EXPORT int libagent_label_clear(const char *key)
{
    static const int64_t any;
    uint64_t label[LABEL_WORDS_MAX];
    struct thread_slot *slot;
    int error = label_make(label, key, NULL, &any);
    if (!error)
        error = begin(&slot);
    if (error)
        return error;
    error = user_labels_clear(slot, label);
    life_leave();
    return error;
}

/* ---- captures ---- */

/* A file is named after it. */
static bool is_name(const char *name)
{
    for (; *name; name++)
        if (!((*name >= '0' && *name <= '9') || ((*name | 32) >= 'a' && (*name | 32) <= 'z') ||
              *name == '.' || *name == '_' || *name == '-'))
            return false;
    return true;
}

static int make_name(uint64_t label[LABEL_WORDS_MAX], enum capture_scope scope, const char *name)
{
    int error = label_make(label, capture_key(scope), name, NULL);
    if (!error && strlen(name) > LABEL_KEY_MAX)
        error = -E2BIG;
    return error ? error : is_name(name) ? 0 : -EINVAL;
}

/* Where the scope's capture is held; NULL: no memory. */
static struct capture **holder_of(struct thread_slot *slot, enum capture_scope scope)
{
    if (scope == CAPTURE_OF_PROCESS)
        return &captures_process;
    struct label_room *room = user_labels_room(slot);
    return room ? &room->capture : NULL;
}

static int begin_capture(enum capture_scope scope, const char *name)
{
    uint64_t label[LABEL_WORDS_MAX];
    struct thread_slot *slot;
    int error = make_name(label, scope, name);
    if (!error)
        error = begin(&slot);
    if (error)
        return error;
    struct capture **holder = holder_of(slot, scope);
    error = holder ? capture_begin(holder, scope, label, clock_monotonic_ns()) : -ENOMEM;
    life_leave();
    return error;
}

static int end_capture(enum capture_scope scope)
{
    struct thread_slot *slot;
    int error = begin(&slot);
    if (error)
        return error;
    struct capture **holder = holder_of(slot, scope);
    error = holder ? capture_end(holder, clock_monotonic_ns()) : -EALREADY;
    life_leave();
    return error;
}

EXPORT int libagent_capture_begin(const char *name)
{
    return refuse("libagent_capture_begin", begin_capture(CAPTURE_OF_THREAD, name));
}

EXPORT int libagent_capture_end(void)
{
    return end_capture(CAPTURE_OF_THREAD);
}

EXPORT int libagent_process_capture_begin(const char *name)
{
    return refuse("libagent_process_capture_begin", begin_capture(CAPTURE_OF_PROCESS, name));
}

EXPORT int libagent_process_capture_end(void)
{
    return end_capture(CAPTURE_OF_PROCESS);
}
