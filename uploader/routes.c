#include "uploader/routes.h"

#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "uploader/http_client.h"
#include "uploader/sender.h"

/* A connection that is kept for longer is closed by one of the many on its way. */
#define KEPT_LONGEST_NS (60 * NS_PER_SEC)
/* A post ends 100 ms late, and what is left is written into the spool, by a machine that may be
 * busy. */
#define KEEPING_NS (NS_PER_SEC * 2 / 5)

static struct upload_config upload;
static const char *files_folder;
static bool to_files;
static uint32_t formats;
static uint64_t end_ns; /* of the process, 0: not in sight */

const char *routes_load(const struct routes_config *config, const char *folder, int pid)
{
    upload_config_load(&upload, &config->upload, config->environment, pid);
    for (size_t i = 0; i < upload.count; i++) {
        const struct destination *destination = &upload.destinations[i];
        if (destination->kind != BACKEND_FILE)
            continue;
        if (folder && strcmp(folder, destination->url) != 0)
            log_warn_once("LIBAGENT_OUTPUT=%s is the one folder of files: nothing is written into "
                          "file://%s of LIBAGENT_UPLOAD_URL",
                          folder, destination->url);
        folder = folder ? folder : destination->url;
    }
    files_folder = folder;
    to_files = folder || !upload.count;
    return folder;
}

const char *routes_start(const struct routes_config *config, const char *folder,
                         enum compression compression, int pid, bool (*stop)(void))
{
    folder = routes_load(config, folder, pid);
    formats = config->formats ? config->formats : FORMAT_PPROF;
    store_relaxed(&end_ns, 0);
    sender_start(&upload, compression, stop);
    uint64_t period_ns = config->upload.period_ns;
    struct http_client_config client = {.ca_file = config->upload.ca_file,
                                        .is_open = config->is_open,
                                        .keeps_connections =
                                            period_ns && period_ns <= KEPT_LONGEST_NS,
                                        .owns_descriptors = log_thread_has_descriptors};
    proxies_find(&client.proxies, config->environment);
    http_client_start(&client);
    return folder;
}

bool routes_to_files(const char *dialect)
{
    static const struct {
        const char *dialect;
        uint32_t format;
    } files[] = {{"pprof", FORMAT_PPROF}, {"html", FORMAT_HTML}, {"collapsed", FORMAT_COLLAPSED}};
    for (size_t i = 0; to_files && i < ARRAY_SIZE(files); i++)
        if (strcmp(dialect, files[i].dialect) == 0)
            return formats & files[i].format;
    return false;
}

const char *routes_folder(void)
{
    return files_folder;
}

bool routes_have_files(void)
{
    return to_files;
}

bool routes_want(const char *dialect)
{
    return routes_to_files(dialect) || sender_wants(dialect);
}

size_t routes_max_bytes(const char *dialect)
{
    /* A file has no such limit. */
    return routes_to_files(dialect) ? 0 : sender_max_bytes(dialect);
}

bool routes_send(void)
{
    for (size_t i = 0; i < upload.count && !upload.spools_only; i++)
        if (upload.destinations[i].kind != BACKEND_FILE)
            return true;
    return false;
}

void routes_rest(void)
{
    http_client_rest();
}

uint64_t routes_exit_timeout_ns(void)
{
    return upload.options.exit_timeout_ns;
}

void routes_end_by(uint64_t deadline_ns)
{
    uint64_t before = load_relaxed(&end_ns);
    if (!before || deadline_ns < before)
        store_relaxed(&end_ns, deadline_ns);
}

uint64_t routes_before_end(uint64_t time_ns)
{
    uint64_t end = load_relaxed(&end_ns);
    return end ? MIN_OF(time_ns, end - KEEPING_NS) : time_ns;
}

void routes_left(char *out, size_t size)
{
    unsigned queued, in_doubt;
    sender_left(&queued, &in_doubt);
    out[0] = 0;
    if (queued || in_doubt)
        format(out, size, ", and for backends, once for each: %u; sent without an answer: %u",
               queued, in_doubt);
}

const char *routes_urls(char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < upload.count && !upload.spools_only; i++) {
        used += format(out + used, size - used, "%s", i ? "," : "");
        used += upload_url_show(&upload.destinations[i], out + used, size - used);
    }
    return used ? out : NULL;
}

const char *routes_tags(void)
{
    return upload.count && upload.identity.tags.length ? upload.identity.tags.text : NULL;
}

size_t routes_describe(char *out, size_t size)
{
    return upload_config_describe(&upload, out, size);
}

void routes_reset_in_child(int pid)
{
    end_ns = 0;
    if (upload.count)
        upload_config_new_process(&upload, pid);
    sender_reset_in_child();
}
