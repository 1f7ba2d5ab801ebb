#include "uploader/sender.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "uploader/compress.h"
#include "uploader/delivery.h"
#include "uploader/http_client.h"
#include "uploader/retry.h"
#include "uploader/spool_log.h"

/* A try's limit. */
#define POST_LIMIT_NS (10 * NS_PER_SEC)
/* Of a long period a minute is enough to spread processes over. */
#define SPREAD_LIMIT_NS (60 * NS_PER_SEC)

/* A look costs a system call for each file in the spool. */
#define SPOOL_LOOK_NS (15 * NS_PER_SEC)

enum {
    ANSWER_SHOWN = 200,
    SENT_BEFORE_MORE = 16, /* some minutes of some families */
    SIZE_LEAST = 16384,    /* mappings and comments alone have some KiB */
    SIZE_FREE = 32 << 20,  /* above, there is no limit again */
};

struct item {
    struct spool_entry entry; /* its name is set where it comes from the spool */
    unsigned attempt;
    uint64_t due_ns;
};

struct queue {
    struct item items[SENDER_QUEUE_LENGTH]; /* the oldest first */
    size_t bytes;
    size_t max_bytes;       /* of what comes next; read by other threads */
    uint64_t not_before_ns; /* the destination waits */
    uint64_t spool_look_ns; /* when the spool is looked at next */
    uint64_t given_back;    /* random[0] of the profile that went back to the spool last */
    unsigned given_back_attempt;
    unsigned count;      /* read by other threads, as max_bytes */
    unsigned sent_since; /* max_bytes changed */
    bool is_posting;     /* the first is in libcurl's hands and stays; read by others */
    bool in_failure;     /* the row of failures that has been logged */
    bool refused;        /* it takes nothing; what comes before not_before_ns is dropped */
};

static const struct upload_config *config;
static unsigned in_doubt; /* may have arrived; not yet said; read by other threads */
static enum compression compression;
static bool (*stop)(void);
static struct queue queues[UPLOAD_DESTINATIONS];
static size_t used;        /* of them, since the last start; others stay untouched pages */
static uint64_t spread_ns; /* from a window's end to its upload */
static struct rng rng;

static void start_process(void)
{
    memset(queues, 0, used * sizeof(queues[0]));
    spool_log_start();
    in_doubt = 0;
    rng_split(&rng);
    spread_ns = (uint64_t)((double)MIN_OF(config->options.period_ns, SPREAD_LIMIT_NS) *
                           (1 - rng_unit(&rng)));
}

void sender_reset_in_child(void)
{
    http_client_reset_in_child();
    /* What is queued is the parent's. Its memory stays mapped here: the parent's thread may have
     * been in the middle of a change. */
    if (used)
        start_process();
}

/* ---- the queues ---- */

static const char *dialect_of(enum backend_kind kind)
{
    static const char *const dialects[] = {
        [BACKEND_PYROSCOPE] = "pyroscope", [BACKEND_PARCA] = "parca", [BACKEND_DATADOG] = "datadog",
        [BACKEND_POST] = "pprof",          [BACKEND_FILE] = "",
    };
    return dialects[kind];
}

static bool wants(size_t index, const char *dialect)
{
    return strcmp(dialect_of(config->destinations[index].kind), dialect) == 0;
}

bool sender_wants(const char *dialect)
{
    for (size_t i = 0; config && i < config->count; i++)
        if (wants(i, dialect))
            return true;
    return false;
}

size_t sender_max_bytes(const char *dialect)
{
    size_t least = 0;
    for (size_t i = 0; config && i < config->count; i++) {
        size_t limit = wants(i, dialect) ? load_relaxed(&queues[i].max_bytes) : 0;
        if (limit && (!least || limit < least))
            least = limit;
    }
    return least;
}

/* After a refusal half of it; after a row of profiles that were taken twice as much again. */
static void learn_size(struct queue *queue, const struct verdict *verdict, size_t size)
{
    if (verdict->too_large) {
        store_relaxed(&queue->max_bytes, MAX_OF(size / 2, (size_t)SIZE_LEAST));
        queue->sent_since = 0;
    } else if (verdict->outcome == OUTCOME_SENT && queue->max_bytes &&
               ++queue->sent_since == SENT_BEFORE_MORE) {
        store_relaxed(&queue->max_bytes, queue->max_bytes < SIZE_FREE ? queue->max_bytes * 2 : 0);
        queue->sent_since = 0;
    }
}

unsigned sender_pending(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < used; i++)
        count += load_relaxed(&queues[i].count);
    return count;
}

static bool has_spool(void)
{
    return config->options.spool.folder != NULL;
}

static struct item take_at(struct queue *queue, size_t place)
{
    struct item *at = &queue->items[place], item = *at;
    queue->bytes -= item.entry.body.size;
    store_relaxed(&queue->count, queue->count - 1);
    memmove(at, at + 1, (queue->count - place) * sizeof(item));
    queue->items[queue->count] = (struct item){.attempt = 0};
    return item;
}

/* The destination's, as the log has it; of the one thread that sends. */
static const char *name_of(const struct spool_entry *entry)
{
    static char name[DESTINATION_NAME_SIZE];
    struct destination destination = {.kind = entry->kind};
    for (size_t i = 0; i < config->count; i++)
        if (config->destinations[i].kind == entry->kind &&
            config->destinations[i].place == entry->place)
            destination = config->destinations[i];
    destination_name(&destination, name, sizeof(name));
    return name;
}

/* The item ends as the statistic says. */
static void end_item(struct item *item, enum stat_id end, const char *word)
{
    stats_add(end, 1);
    log_debug("%s %u for %s: %s", item->entry.header.family, item->entry.header.sequence,
              name_of(&item->entry), word);
    if (item->entry.name[0])
        spool_end(&config->options.spool, item->entry.name);
    buffer_free(&item->entry.body);
}

static void end_first(struct queue *queue, enum stat_id end, const char *word)
{
    struct item item = take_at(queue, 0);
    end_item(&item, end, word);
}

void sender_start(const struct upload_config *upload, enum compression post_compression,
                  bool (*has_to_stop)(void))
{
    config = upload;
    compression = post_compression;
    stop = has_to_stop;
    /* Of an earlier start, whose destinations these may not be. */
    for (size_t i = 0; i < used; i++)
        while (queues[i].count)
            end_first(&queues[i], STAT_UPLOADS_DROPPED, "dropped");
    used = config->count;
    if (used)
        start_process();
}

/* To the spool where there is one. False: it is dropped. */
static bool keep_item(struct item *item)
{
    const struct spool *spool = &config->options.spool;
    struct spool_losses losses = {0};
    if (item->entry.name[0]) { /* it has been counted as kept */
        spool_give_back(spool, item->entry.name);
        buffer_free(&item->entry.body);
        return true;
    }
    int error = -ENOENT;
    if (has_spool()) {
        error = spool_put(spool, &item->entry, clock_realtime_ns(), &losses);
        spool_log_put(spool, error, &losses);
    }
    if (error)
        end_item(item, STAT_UPLOADS_DROPPED, "dropped");
    else
        end_item(item, STAT_UPLOADS_SPOOLED, "kept in the spool");
    return !error;
}

static bool keep_at(struct queue *queue, size_t place)
{
    struct item item = take_at(queue, place);
    return keep_item(&item);
}

static enum compression compression_for(enum backend_kind kind)
{
    if (kind == BACKEND_DATADOG)
        return COMPRESSION_ZSTD;
    return kind == BACKEND_POST ? compression : COMPRESSION_GZIP;
}

static bool has_room(const struct queue *queue, size_t size)
{
    return queue->count < SENDER_QUEUE_LENGTH && queue->bytes + size <= SENDER_QUEUE_BYTES;
}

static void put_last(struct queue *queue, const struct item *item)
{
    queue->items[queue->count] = *item;
    store_relaxed(&queue->count, queue->count + 1);
    queue->bytes += item->entry.body.size;
}

static void put(size_t index, const struct blob_header *header, const struct buffer *body)
{
    struct queue *queue = &queues[index];
    uint64_t now = clock_monotonic_ns();
    struct item item = {.entry = {.kind = config->destinations[index].kind,
                                  .place = config->destinations[index].place,
                                  .header = *header,
                                  .identity = config->identity,
                                  .plain_size = body->size},
                        .due_ns = now + spread_ns};
    item.entry.random[0] = rng_next(&rng);
    item.entry.random[1] = rng_next(&rng);
    int error =
        compress_bytes(compression_for(item.entry.kind), body->data, body->size, &item.entry.body);
    if (error || (queue->refused && now < queue->not_before_ns)) {
        end_item(&item, STAT_UPLOADS_DROPPED, "dropped");
        return;
    }
    if (config->spools_only || item.entry.body.size > SENDER_QUEUE_BYTES) {
        (void)keep_item(&item);
        return;
    }
    const size_t oldest = queue->is_posting;
    while (!has_room(queue, item.entry.body.size) && queue->count > oldest)
        (void)keep_at(queue, oldest);
    if (has_room(queue, item.entry.body.size))
        put_last(queue, &item);
    else
        (void)keep_item(&item);
}

void sender_take(const struct blob_header *header, const struct buffer *body)
{
    struct blob_header clean = *header;
    /* It will stand in headers and in texts that have to be UTF-8. */
    clean.service[make_printable(clean.service, strlen(clean.service))] = 0;
    for (size_t i = 0; config && i < config->count; i++)
        if (wants(i, clean.dialect))
            put(i, &clean, body);
}

/* ---- a try ---- */

static bool never_stops(void)
{
    return false;
}

static void log_verdict(size_t index, const struct verdict *verdict, struct http_response *response)
{
    struct queue *queue = &queues[index];
    char name[DESTINATION_NAME_SIZE];
    destination_name(&config->destinations[index], name, sizeof(name));
    if (verdict->outcome == OUTCOME_SENT) {
        if (queue->in_failure)
            log_info("profiles reach %s again", name);
        queue->in_failure = queue->refused = false;
        return;
    }
    bool is_news = !queue->in_failure || (verdict->refused && !queue->refused);
    queue->in_failure = true;
    queue->refused = verdict->refused;
    if (!is_news || response->result == HTTP_NO_CLIENT || response->result == HTTP_GIVEN_UP)
        return;
    size_t shown = 0;
    if (verdict->shows_answer)
        shown = make_printable(response->body, MIN_OF(response->body_size, ANSWER_SHOWN));
    const char *then = verdict->outcome == OUTCOME_AGAIN     ? "; it is tried again"
                       : verdict->outcome == OUTCOME_UNKNOWN ? "; it may have arrived"
                       : verdict->refused ? "; profiles are dropped, one is tried each 5 minutes"
                                          : "; it is dropped";
    log_warn("a profile was not taken by %s: %s (status %d%s%.*s)%s", name,
             verdict->reason ? verdict->reason : response->reason, verdict->status,
             shown ? ": " : "", (int)shown, response->body, then);
}

static void try_first(size_t index, uint64_t deadline_ns, bool (*stops)(void))
{
    static struct http_response response; /* 2 KiB */
    struct queue *queue = &queues[index];
    struct item *item = &queue->items[0];
    store_relaxed(&queue->is_posting, true);
    delivery_post(config, index, &item->entry, deadline_ns, stops, &response);
    store_relaxed(&queue->is_posting, false);
    const struct verdict verdict = retry_decide(item->entry.kind, &response, item->entry.plain_size,
                                                item->attempt, rng_unit(&rng), clock_realtime_ns());
    log_verdict(index, &verdict, &response);
    learn_size(queue, &verdict, item->entry.plain_size);
    queue->not_before_ns = clock_monotonic_ns() + verdict.wait_ns;
    switch (verdict.outcome) {
    case OUTCOME_SENT:
        end_first(queue, STAT_UPLOADS_SENT, "sent");
        break;
    case OUTCOME_UNKNOWN:
        end_first(queue, STAT_UPLOADS_UNKNOWN, "unknown");
        store_relaxed(&in_doubt, in_doubt + 1);
        break;
    case OUTCOME_DROPPED:
        end_first(queue, STAT_UPLOADS_DROPPED, "dropped");
        /* It would take none of the others either. */
        while (verdict.refused && queue->count)
            end_first(queue, STAT_UPLOADS_DROPPED, "dropped");
        break;
    case OUTCOME_AGAIN:
        item->attempt += response.result != HTTP_GIVEN_UP;
        stats_add(STAT_UPLOADS_REPEATED, response.result != HTTP_GIVEN_UP);
        if (item->entry.name[0]) {
            queue->given_back = item->entry.random[0];
            queue->given_back_attempt = item->attempt;
            (void)keep_at(queue, 0);
        }
        break;
    }
}

/* What waits in the spool is sent where nothing newer waits, one after the other. */
static void look_into_spool(size_t index, uint64_t now)
{
    struct queue *queue = &queues[index];
    if (!has_spool() || queue->count || now < MAX_OF(queue->spool_look_ns, queue->not_before_ns))
        return;
    struct spool_losses losses = {0};
    struct item item = {.due_ns = now};
    int found =
        spool_claim(&config->options.spool, config->destinations[index].kind,
                    config->destinations[index].place, clock_realtime_ns(), &item.entry, &losses);
    spool_log_claim(&config->options.spool, index, &losses);
    if (found > 0 && item.entry.random[0] == queue->given_back)
        item.attempt = queue->given_back_attempt;
    if (found > 0)
        put_last(queue, &item);
    else
        queue->spool_look_ns = now + SPOOL_LOOK_NS;
}

static uint64_t due(const struct queue *queue)
{
    return queue->count ? MAX_OF(queue->items[0].due_ns, queue->not_before_ns) : UINT64_MAX;
}

/* True: there was a try. Else *next is when something is due, if that is sooner. */
static bool run_queue(size_t index, uint64_t *next)
{
    struct queue *queue = &queues[index];
    uint64_t now = clock_monotonic_ns();
    look_into_spool(index, now);
    if (due(queue) <= now) {
        try_first(index, now + POST_LIMIT_NS, stop);
        return true;
    }
    uint64_t look = MAX_OF(queue->spool_look_ns, queue->not_before_ns);
    *next = MIN_OF(*next, has_spool() && !queue->count ? look : due(queue));
    return false;
}

void sender_look_into_spool(void)
{
    for (size_t i = 0; i < UPLOAD_DESTINATIONS; i++)
        queues[i].spool_look_ns = 0;
}

/* Of the destinations that are in a row of failures, or that are not. */
static bool run_one_of(bool in_failure, uint64_t *next)
{
    static size_t turn; /* who has been served comes last */
    for (size_t i = 0; i < config->count; i++) {
        size_t index = (turn + i) % config->count;
        if (config->destinations[index].kind == BACKEND_FILE ||
            queues[index].in_failure != in_failure || !run_queue(index, next))
            continue;
        turn = index + 1;
        return true;
    }
    return false;
}

uint64_t sender_run(void)
{
    uint64_t next = UINT64_MAX;
    if (!config || config->spools_only)
        return next;
    return run_one_of(false, &next) || run_one_of(true, &next) ? clock_monotonic_ns() : next;
}

/* Each once, and none after one to which nobody answered. */
static void try_last(size_t index, uint64_t deadline_ns)
{
    while (queues[index].count && clock_monotonic_ns() < deadline_ns) {
        unsigned before = queues[index].count;
        try_first(index, deadline_ns, never_stops);
        if (queues[index].count == before)
            return;
    }
}

void sender_finish(uint64_t deadline_ns, bool may_send)
{
    unsigned lost = 0;
    bool failing[UPLOAD_DESTINATIONS];
    for (size_t i = 0; i < UPLOAD_DESTINATIONS; i++)
        failing[i] = i < used && queues[i].in_failure;
    /* As in sender_run. */
    for (size_t i = 0; i < used && may_send; i++)
        if (!failing[i])
            try_last(i, deadline_ns);
    for (size_t i = 0; i < used && may_send; i++)
        if (failing[i])
            try_last(i, deadline_ns);
    for (size_t i = 0; i < used; i++)
        while (queues[i].count)
            lost += !keep_at(&queues[i], 0) && !has_spool();
    if (lost)
        log_error(
            "profiles that could not be sent before the end and are lost: %u; sent without an "
            "answer: %u",
            lost, in_doubt);
    else if (in_doubt)
        log_warn("profiles that were sent without an answer: %u", in_doubt);
    store_relaxed(&in_doubt, 0);
}

void sender_left(unsigned *queued, unsigned *sent_in_doubt)
{
    unsigned posting = 0;
    for (size_t i = 0; i < used; i++)
        posting += load_relaxed(&queues[i].is_posting);
    *queued = sender_pending() - posting;
    *sent_in_doubt = load_relaxed(&in_doubt) + posting;
}

void sender_say_losses(void)
{
    spool_log_say_losses(&config->options.spool);
}
