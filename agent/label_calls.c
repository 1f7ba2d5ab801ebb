/* label_calls.c: the public functions that label what a thread does (libagent.h). */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/compiler.h"
#include "agent/base/label_words.h"
#include "agent/libagent.h"
#include "agent/life.h"
#include "agent/thread/thread_context.h"
#include "agent/thread/user_labels.h"

static const uint64_t capture_limit_ns = 60 * NS_PER_SEC;
static const char capture_key[] = "capture";

/* What the agent writes itself. */
static bool is_reserved(const char *key)
{
    static const char *const keys[] = {"thread name", "thread id", "state",    "approximate",
                                       "age_seconds", "bytes",     capture_key};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (key[0] == keys[i][0] && strcmp(key, keys[i]) == 0)
            return true;
    return false;
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
        *slot = thread_tls.left ? NULL : thread_attach(0, 0);
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
    if (error || is_reserved(key))
        return error ? error : -EINVAL;
    error = begin(&slot);
    if (error)
        return error;
    error = user_labels_set(slot, label);
    life_leave();
    return error;
}

EXPORT int libagent_label_set(const char *key, const char *value)
{
    return set(key, value, NULL);
}

EXPORT int libagent_label_set_number(const char *key, int64_t value)
{
    return set(key, NULL, &value);
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

static bool is_name(const char *name)
{
    for (; *name; name++)
        if (!((*name >= '0' && *name <= '9') || ((*name | 32) >= 'a' && (*name | 32) <= 'z') ||
              *name == '.' || *name == '_' || *name == '-'))
            return false;
    return true;
}

EXPORT int libagent_capture_begin(const char *name)
{
    uint64_t label[LABEL_WORDS_MAX];
    struct thread_slot *slot;
    int error = label_make(label, capture_key, name, NULL);
    if (!error && strlen(name) > LABEL_KEY_MAX)
        error = -E2BIG;
    if (!error)
        error = is_name(name) ? begin(&slot) : -EINVAL;
    if (error)
        return error;
    error = user_labels_capture(slot, label, clock_monotonic_ns() + capture_limit_ns);
    life_leave();
    return error;
}

EXPORT int libagent_capture_end(void)
{
    struct thread_slot *slot;
    int error = begin(&slot);
    if (error)
        return error;
    error = user_labels_capture_end(slot, clock_monotonic_ns());
    life_leave();
    return error;
}
