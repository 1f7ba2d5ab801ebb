#include "uploader/sender.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "uploader/compress.h"
#include "uploader/http_client.h"
#include "uploader/retry.h"
#include "uploader/shipment.h"

/* A try's limit. */
#define POST_LIMIT_NS (10 * NS_PER_SEC)
/* Of a long period a minute is enough to spread processes over. */
#define SPREAD_LIMIT_NS (60 * NS_PER_SEC)

enum {
    ANSWER_SHOWN = 200,
    SENT_BEFORE_MORE = 16, /* some minutes of some families */
    SIZE_LEAST = 16384,    /* mappings and comments alone have some KiB */
    SIZE_FREE = 32 << 20,  /* above, there is no limit again */
};

struct item {
    struct blob_header header;
    struct buffer body; /* compressed */
    size_t plain_size;
    uint64_t random[2]; /* the same at each try */
    unsigned attempt;
    uint64_t due_ns;
};

struct queue {
    struct item items[SENDER_QUEUE_LENGTH]; /* the oldest first */
    unsigned count;
    size_t bytes;
    uint64_t not_before_ns; /* the destination waits */
    size_t max_bytes;       /* of what comes next; read by other threads */
    unsigned sent_since;    /* max_bytes changed */
    bool in_failure;        /* the row of failures that has been logged */
    bool refused;           /* it takes nothing; what comes before not_before_ns is dropped */
};

static const struct upload_config *config;
static enum compression compression;
static bool (*stop)(void);
static struct queue queues[UPLOAD_DESTINATIONS];
static uint64_t spread_ns; /* from a window's end to its upload */
static struct rng rng;

static void start_process(void)
{
    rng_split(&rng);
    spread_ns = (uint64_t)((double)MIN_OF(config->options.period_ns, SPREAD_LIMIT_NS) *
                           (1 - rng_unit(&rng)));
}

void sender_start(const struct upload_config *upload, enum compression post_compression,
                  bool (*has_to_stop)(void))
{
    config = upload;
    compression = post_compression;
    stop = has_to_stop;
    memset(queues, 0, sizeof(queues));
    if (config->count)
        start_process();
}

void sender_reset_in_child(void)
{
    /* What is queued is the parent's. Its memory stays mapped here: the parent's thread may have
     * been in the middle of a change. */
    memset(queues, 0, sizeof(queues));
    http_client_reset_in_child();
    if (config && config->count)
        start_process();
}

/* ---- the queues ---- */

static const char *dialect_of(enum backend_kind kind)
{
    static const char *const dialects[] = {
        [BACKEND_PYROSCOPE] = "pyroscope", [BACKEND_PARCA] = "pprof", [BACKEND_DATADOG] = "datadog",
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
    for (size_t i = 0; i < UPLOAD_DESTINATIONS; i++)
        count += queues[i].count;
    return count;
}

/* The first ends as the statistic says. */
static void end_first(size_t index, enum stat_id end, const char *word)
{
    struct queue *queue = &queues[index];
    struct item item = queue->items[0];
    stats_add(end, 1);
    log_debug("%s %u for %s: %s", item.header.family, item.header.sequence,
              backend_name(config->destinations[index].kind), word);
    queue->bytes -= item.body.size;
    queue->count--;
    memmove(&queue->items[0], &queue->items[1], queue->count * sizeof(item));
    queue->items[queue->count] = (struct item){0};
    buffer_free(&item.body);
}

static void drop_first(size_t index)
{
    end_first(index, STAT_UPLOADS_DROPPED, "dropped");
}

static enum compression compression_for(enum backend_kind kind)
{
    if (kind == BACKEND_DATADOG)
        return COMPRESSION_ZSTD;
    return kind == BACKEND_POST ? compression : COMPRESSION_GZIP;
}

static void put(size_t index, const struct blob_header *header, const struct buffer *body)
{
    struct queue *queue = &queues[index];
    uint64_t now = clock_monotonic_ns();
    struct item item = {.header = *header, .plain_size = body->size, .due_ns = now + spread_ns};
    item.random[0] = rng_next(&rng);
    item.random[1] = rng_next(&rng);
    int error = compress_bytes(compression_for(config->destinations[index].kind), body->data,
                               body->size, &item.body);
    if (error || (queue->refused && now < queue->not_before_ns) ||
        item.body.size > SENDER_QUEUE_BYTES) {
        stats_add(STAT_UPLOADS_DROPPED, 1);
        buffer_free(&item.body);
        return;
    }
    while (queue->count == SENDER_QUEUE_LENGTH ||
           queue->bytes + item.body.size > SENDER_QUEUE_BYTES)
        drop_first(index);
    queue->items[queue->count++] = item;
    queue->bytes += item.body.size;
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

static void post_first(size_t index, uint64_t deadline_ns, bool (*stops)(void),
                       struct http_response *response)
{
    static struct credentials credentials; /* 10 KiB, of one thread */
    const struct item *item = &queues[index].items[0];
    upload_config_credentials(config, index, &credentials);
    const struct shipment shipment = {
        .destination = &config->destinations[index],
        .credentials = &credentials,
        .identity = &config->identity,
        .header = &item->header,
        .data = item->body.data,
        .size = item->body.size,
        .random = {item->random[0], item->random[1]},
    };
    struct http_request request;
    http_request_begin(&request);
    shipment_request(&shipment, &request);
    if (http_request_error(&request))
        *response = (struct http_response){.result = HTTP_NOT_SENT, .reason = "no memory"};
    else
        http_client_post(&request, deadline_ns, stops, response);
    http_request_free(&request);
    memset(&credentials, 0, sizeof(credentials));
}

static void log_verdict(size_t index, const struct verdict *verdict, struct http_response *response)
{
    struct queue *queue = &queues[index];
    const char *name = backend_name(config->destinations[index].kind);
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

/* True when the destination may be asked again at once. */
static bool try_first(size_t index, uint64_t deadline_ns, bool (*stops)(void))
{
    static struct http_response response; /* 2 KiB */
    struct queue *queue = &queues[index];
    struct item *item = &queue->items[0];
    post_first(index, deadline_ns, stops, &response);
    const struct verdict verdict =
        retry_decide(config->destinations[index].kind, &response, item->plain_size, item->attempt,
                     rng_unit(&rng), clock_realtime_ns());
    log_verdict(index, &verdict, &response);
    learn_size(queue, &verdict, item->plain_size);
    queue->not_before_ns = clock_monotonic_ns() + verdict.wait_ns;
    switch (verdict.outcome) {
    case OUTCOME_SENT:
        end_first(index, STAT_UPLOADS_SENT, "sent");
        return true;
    case OUTCOME_UNKNOWN:
        end_first(index, STAT_UPLOADS_UNKNOWN, "unknown");
        break;
    case OUTCOME_DROPPED:
        drop_first(index);
        /* It would take none of the others either. */
        while (verdict.refused && queue->count)
            drop_first(index);
        break;
    case OUTCOME_AGAIN:
        item->attempt += response.result != HTTP_GIVEN_UP;
        stats_add(STAT_UPLOADS_REPEATED, response.result != HTTP_GIVEN_UP);
        break;
    }
    return verdict.wait_ns == 0 && !stops();
}

static uint64_t due(const struct queue *queue)
{
    return queue->count ? MAX_OF(queue->items[0].due_ns, queue->not_before_ns) : UINT64_MAX;
}

uint64_t sender_run(void)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; config && i < config->count; i++) {
        uint64_t now;
        while (due(&queues[i]) <= (now = clock_monotonic_ns()))
            if (!try_first(i, now + POST_LIMIT_NS, stop))
                break;
        next = MIN_OF(next, due(&queues[i]));
    }
    return next;
}

void sender_finish(uint64_t deadline_ns, bool may_send)
{
    unsigned lost = 0;
    for (size_t i = 0; config && i < config->count; i++) {
        /* Each once, and none after one to which nobody answered. */
        while (may_send && queues[i].count && clock_monotonic_ns() < deadline_ns) {
            unsigned before = queues[i].count;
            (void)try_first(i, deadline_ns, never_stops);
            if (queues[i].count == before)
                break;
        }
        for (; queues[i].count; lost++)
            drop_first(i);
    }
    if (lost)
        log_error("%u profiles could not be sent before the end, and are lost", lost);
}
