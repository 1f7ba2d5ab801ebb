#include "uploader/sidecar/metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>

#include "agent/base/format.h"
#include "agent/base/stats.h"

enum { CONNECTIONS = 16, CONNECTION_SECONDS = 10 };

static bool spool_is_usable;
static uint64_t spooled_for_others;
static uint64_t untaken;

void metrics_note_spool(bool is_usable, uint64_t for_others)
{
    store_relaxed(&spool_is_usable, is_usable);
    store_relaxed(&spooled_for_others, for_others);
}

void metrics_note_untaken(uint64_t count)
{
    store_relaxed(&untaken, count);
}

static size_t make_metrics(char *out, size_t size)
{
    static const struct {
        enum stat_id stat;
        const char *name, *help;
    } metrics[] = {
        {STAT_UPLOADS_SENT, "sent", "Profiles that a backend has taken."},
        {STAT_UPLOADS_DROPPED, "dropped", "Profiles that no backend takes, or over a limit."},
        {STAT_UPLOADS_UNKNOWN, "unknown", "Profiles of which nobody knows whether they arrived."},
        {STAT_UPLOADS_REPEATED, "repeated", "Tries that failed and are repeated."},
    };
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
        used += format(out + used, size - used,
                       "# HELP libagent_uploader_%s_total %s\n"
                       "# TYPE libagent_uploader_%s_total counter\n"
                       "libagent_uploader_%s_total %lu\n",
                       metrics[i].name, metrics[i].help, metrics[i].name, metrics[i].name,
                       stats_get(metrics[i].stat));
    return used + format(out + used, size - used,
                         "# HELP libagent_uploader_for_others Profiles in the spool that none of "
                         "the URLs is for.\n"
                         "# TYPE libagent_uploader_for_others gauge\n"
                         "libagent_uploader_for_others %lu\n"
                         "# HELP libagent_uploader_untaken Profiles in the spool that cannot be "
                         "read.\n"
                         "# TYPE libagent_uploader_untaken gauge\n"
                         "libagent_uploader_untaken %lu\n",
                         load_relaxed(&spooled_for_others), load_relaxed(&untaken));
}

/* A pod restarts what is not healthy: for one odd file among others that would help nobody. */
static bool nothing_can_be_taken(void)
{
    return load_relaxed(&untaken) && stats_get(STAT_UPLOADS_SENT) == 0;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **request)
{
    (void)context, (void)version, (void)upload, (void)upload_size, (void)request;
    char text[2048] = "ok\n";
    size_t size = strlen(text);
    unsigned status = MHD_HTTP_OK;
    if (strcmp(method, "GET") != 0)
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
    else if (strcmp(url, "/metrics") == 0)
        size = make_metrics(text, sizeof(text));
    else if (strcmp(url, "/healthz") != 0)
        status = MHD_HTTP_NOT_FOUND;
    else if (!load_relaxed(&spool_is_usable) || nothing_can_be_taken()) {
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
        size =
            format(text, sizeof(text), "LIBAGENT_SPOOL %s\n",
                   load_relaxed(&spool_is_usable) ? "has profiles that cannot be read: see the log"
                                                  : "is not there, or cannot be used");
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

int metrics_start(uint16_t port)
{
    errno = 0;
    /* Its thread inherits the blocked signals of the caller. */
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD, port, NULL, NULL, answer, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)CONNECTION_SECONDS, MHD_OPTION_END);
    return daemon ? 0 : -(errno ? errno : ENOMEM);
}
