#include "agent/thread/captures.h"

#include <errno.h>
#include <string.h>

#include "agent/base/stats.h"

struct capture *captures_process;

static struct capture captures[CAPTURES_MAX];
static struct capture capture_spent;
static uint32_t last_number;

static const char *const keys[CAPTURE_SCOPES] = {CAPTURE_KEYS};
static const char *const number_keys[CAPTURE_SCOPES] = {CAPTURE_NUMBER_KEYS};

const char *capture_key(enum capture_scope scope)
{
    return keys[scope];
}

const char *capture_number_key(enum capture_scope scope)
{
    return number_keys[scope];
}

/* The name and then the number, which is the order of their keys. */
static void fill(struct capture *capture, enum capture_scope scope, const uint64_t *name)
{
    uint32_t number = 0;
    while (number == 0) /* after 2^32 of them */
        number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
    const int64_t value = number;
    uint32_t words = label_size(name);
    memcpy(capture->set.data, name, words * sizeof(name[0]));
    (void)!label_make(capture->set.data + words, capture_number_key(scope), NULL, &value);
    capture->set.words = words + label_size(capture->set.data + words);
    capture->set.count = 2;
    capture->scope = scope;
    store_relaxed(&capture->number, number);
}

static struct capture *take(void)
{
    for (size_t i = 0; i < CAPTURES_MAX; i++) {
        uint32_t free = CAPTURE_FREE;
        if (__atomic_compare_exchange_n(&captures[i].state, &free, CAPTURE_FILLED, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &captures[i];
    }
    return NULL;
}

/* By whoever took it out of its holder. */
static void finish(struct capture *capture, uint64_t at_ns)
{
    if (at_ns < capture->until_ns)
        store_relaxed(&capture->until_ns, at_ns);
    store_release(&capture->state, CAPTURE_ENDED);
}

int capture_begin(struct capture **holder, enum capture_scope scope, const uint64_t *name,
                  uint64_t now_ns)
{
    struct capture *before = load_acquire(holder);
    if (before && now_ns < load_relaxed(&before->until_ns))
        return -EBUSY;
    struct capture *capture = take();
    if (!capture) {
        stats_add(STAT_CAPTURES_REFUSED, 1);
        return -ENOSPC;
    }
    fill(capture, scope, name);
    store_relaxed(&capture->begin_ns, now_ns);
    store_relaxed(&capture->until_ns, now_ns + CAPTURE_LIMIT_NS);
    store_relaxed(&capture->holder, holder);
    if (!__atomic_compare_exchange_n(holder, &before, capture, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        store_release(&capture->state, CAPTURE_FREE);
        return -EBUSY;
    }
    /* Unless another thread has ended it by now. */
    uint32_t filled = CAPTURE_FILLED;
    (void)!__atomic_compare_exchange_n(&capture->state, &filled, CAPTURE_OPEN, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    if (before && before != &capture_spent)
        finish(before, now_ns);
    return 0;
}

int capture_end(struct capture **holder, uint64_t now_ns)
{
    struct capture *capture = exchange_acq_rel(holder, (struct capture *)NULL);
    if (!capture)
        return -EALREADY;
    if (capture == &capture_spent)
        return -ETIMEDOUT;
    bool in_time = now_ns < load_relaxed(&capture->until_ns);
    finish(capture, now_ns);
    return in_time ? 0 : -ETIMEDOUT;
}

/* A holder may be older than the table: the place is another's by then. */
void capture_forget(struct capture **holder)
{
    struct capture *capture = load_relaxed(holder);
    if (!capture)
        return;
    capture = exchange_acq_rel(holder, (struct capture *)NULL);
    if (capture && capture != &capture_spent && load_relaxed(&capture->holder) == holder)
        finish(capture, clock_monotonic_ns());
}

const struct label_set *capture_here(struct capture *const *holder)
{
    const struct capture *capture = load_acquire(holder);
    if (likely(!capture) || clock_monotonic_ns() >= load_relaxed(&capture->until_ns))
        return NULL;
    return &capture->set;
}

const struct label_set *captures_at(uint64_t at_ns, uint64_t *until_ns)
{
    for (size_t i = 0; i < CAPTURES_MAX; i++) {
        const struct capture *capture = &captures[i];
        if (load_acquire(&capture->state) < CAPTURE_OPEN || capture->scope != CAPTURE_OF_PROCESS)
            continue;
        uint64_t begin = load_relaxed(&capture->begin_ns), end = load_relaxed(&capture->until_ns);
        if (at_ns < begin)
            *until_ns = MIN_OF(*until_ns, begin);
        else if (at_ns < end) {
            *until_ns = MIN_OF(*until_ns, end);
            return &capture->set;
        }
    }
    return NULL;
}

const struct capture *capture_of_number(uint32_t number)
{
    for (size_t i = 0; i < CAPTURES_MAX; i++)
        if (load_acquire(&captures[i].state) >= CAPTURE_OPEN &&
            load_relaxed(&captures[i].number) == number)
            return &captures[i];
    return NULL;
}

void captures_end_late(uint64_t now_ns)
{
    for (size_t i = 0; i < CAPTURES_MAX; i++) {
        struct capture *capture = &captures[i];
        if (load_acquire(&capture->state) != CAPTURE_OPEN ||
            now_ns < load_relaxed(&capture->until_ns))
            continue;
        struct capture *held = capture;
        if (__atomic_compare_exchange_n(load_relaxed(&capture->holder), &held, &capture_spent,
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            finish(capture, now_ns);
    }
}

void captures_free(uint64_t ended_ns)
{
    for (size_t i = 0; i < CAPTURES_MAX; i++)
        if (load_acquire(&captures[i].state) == CAPTURE_ENDED &&
            load_relaxed(&captures[i].until_ns) <= ended_ns)
            store_release(&captures[i].state, CAPTURE_FREE);
}

void captures_reset(void)
{
    store_release(&captures_process, (struct capture *)NULL);
    for (size_t i = 0; i < CAPTURES_MAX; i++) {
        store_relaxed(&captures[i].holder, (struct capture **)NULL);
        store_release(&captures[i].state, CAPTURE_FREE);
    }
}
