#include "uploader/upload_config.h"

#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/option_parse.h"
#include "agent/base/options.h"
#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "uploader/container_id.h"

enum { AUTH_FILE_SIZE = 32768, PROC_FILE_SIZE = 32768 };

/* Empty is not set. */
static const char *variable(char *const *environment, const char *name)
{
    const char *text = environment_get(environment, name);
    return text && *text ? text : NULL;
}

/* ---- where ---- */

/* A base URL of a variable, as a destination of that backend. */
static void take_base(struct upload_config *config, const char *name, const char *prefix,
                      const char *base)
{
    char url[UPLOAD_URL_SIZE + 16];
    size_t length = format(url, sizeof(url), "%s%s", prefix, base);
    const char *wrong = upload_url_parse(url, length, &config->destinations[0]);
    if (wrong) {
        log_error_once("nothing is uploaded: %s is not understood: %s", name, wrong);
        return;
    }
    config->variable = name;
    config->count = 1;
}

static void take_datadog(struct upload_config *config, char *const *environment)
{
    bool enabled = false;
    const char *text = variable(environment, "DD_PROFILING_ENABLED");
    if (!text || !parse_bool(text, &enabled) || !enabled)
        return;
    const char *url = variable(environment, "DD_TRACE_AGENT_URL");
    const char *host = variable(environment, "DD_AGENT_HOST");
    const char *port = variable(environment, "DD_TRACE_AGENT_PORT");
    char base[UPLOAD_URL_SIZE];
    if (url) {
        take_base(config, "DD_TRACE_AGENT_URL", "datadog+", url);
    } else if (host || port) {
        format(base, sizeof(base), "http://%s:%s", host ? host : "localhost", port ? port : "8126");
        take_base(config, host ? "DD_AGENT_HOST" : "DD_TRACE_AGENT_PORT", "datadog+", base);
    }
}

static void find_destinations(struct upload_config *config, char *const *environment)
{
    const char *url = config->options.url;
    const char *pyroscope = variable(environment, "PYROSCOPE_SERVER_ADDRESS");
    if (url) {
        const char *wrong = upload_urls_parse(url, config->destinations, &config->count);
        if (wrong) {
            /* Not the URL itself: a password may stand in it. */
            log_error_once("nothing is uploaded: LIBAGENT_UPLOAD_URL's %zu. is not understood: %s",
                           config->count + 1, wrong);
            config->count = 0;
        }
        config->variable = config->count ? "LIBAGENT_UPLOAD_URL" : NULL;
    } else if (pyroscope) {
        take_base(config, "PYROSCOPE_SERVER_ADDRESS", "pyroscope+", pyroscope);
    } else {
        take_datadog(config, environment);
    }
    if (!url && !config->count && config->options.spool.folder) {
        config->destinations[0] = (struct destination){.kind = config->options.spool_kind};
        config->variable = "LIBAGENT_SPOOL";
        config->count = 1;
        config->spools_only = true;
    }
}

static void send_nothing(struct upload_config *config)
{
    const bool has_spool = config->options.spool.folder;
    size_t sent = 0, kept = 0;
    for (size_t i = 0; i < config->count; i++) {
        const bool is_file = config->destinations[i].kind == BACKEND_FILE;
        sent += !is_file;
        if (is_file || has_spool)
            config->destinations[kept++] = config->destinations[i];
    }
    config->count = kept;
    if (!sent || config->spools_only)
        return;
    config->spools_only = has_spool;
    if (has_spool)
        log_info("profiles are not sent from under this sanitizer: libagent-uploader sends them "
                 "from LIBAGENT_SPOOL");
    else
        log_warn_once("profiles are not sent from under this sanitizer, but written to files: set "
                      "LIBAGENT_SPOOL and let libagent-uploader send them");
}

/* ---- as whom ---- */

static bool add(struct tags *tags, const char *name, const char *value)
{
    return !value || tags_add(tags, name, strlen(name), value, strlen(value));
}

static void find_tags(struct upload_config *config, char *const *environment)
{
    struct tags *tags = &config->identity.tags;
    const char *attributes = variable(environment, "OTEL_RESOURCE_ATTRIBUTES");
    const char *datadog = variable(environment, "DD_TAGS");
    const char *left_out = config->options.tags;
    while (left_out && (left_out = tags_add_list(tags, left_out, false))) {
        const char *end = strchr(left_out, ',');
        log_warn_once("LIBAGENT_TAGS: \"%.*s\" is no name:value, or too long, and is left out",
                      (int)(end ? (size_t)(end - left_out) : strlen(left_out)), left_out);
        /* What follows is there already, unless it is wrong, too. */
        left_out = end ? end + 1 : NULL;
    }
    bool all = !attributes || tags_add_attributes(tags, attributes);
    all &= add(tags, "env", variable(environment, "DD_ENV"));
    all &= add(tags, "version", variable(environment, "DD_VERSION"));
    all &= !datadog || !tags_add_list(tags, datadog, true);
    all &= add(tags, "pod_name", variable(environment, "POD_NAME"));
    all &= add(tags, "pod_namespace", variable(environment, "POD_NAMESPACE"));
    all &= add(tags, "node_name", variable(environment, "NODE_NAME"));
    if (!all)
        log_info("a tag of the environment is no name:value, or too long, and is left out");
}

static void find_container(struct upload_identity *identity)
{
    static char text[PROC_FILE_SIZE];
    bool found = sys_read_file("/proc/self/cgroup", text, sizeof(text)) > 0 &&
                 container_id_of_cgroup(text, identity->container);
    if (!found)
        found = sys_read_file("/proc/self/mountinfo", text, sizeof(text)) > 0 &&
                container_id_of_mountinfo(text, identity->container);
    if (found)
        format(identity->entity, sizeof(identity->entity), "ci-%s", identity->container);
}

static void find_host(struct upload_identity *identity)
{
    struct utsname name;
    if (sys_call1(SYS_uname, &name) == 0)
        format(identity->host, sizeof(identity->host), "%s", name.nodename);
    identity->host[make_printable(identity->host, strlen(identity->host))] = 0;
}

void upload_config_new_process(struct upload_config *config, int pid)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)pid);
    const uint64_t random[2] = {rng_next(&rng), rng_next(&rng)};
    uuid_text(config->identity.runtime, random);
    config->identity.pid = pid;
}

void upload_config_load(struct upload_config *config, const struct upload_options *options,
                        char *const *environment, int pid)
{
    config->options = *options;
    config->count = 0;
    config->variable = NULL;
    config->spools_only = false;
    if (!options->is_off)
        find_destinations(config, environment);
    if (options->lacks_client)
        send_nothing(config);
    if (!config->count)
        return;
    config->identity = (struct upload_identity){.pid = pid};
    find_tags(config, environment);
    find_host(&config->identity);
    find_container(&config->identity);
    upload_config_new_process(config, pid);
    for (size_t i = 0; i < config->count; i++)
        if (!credentials_take(&config->credentials[i], config->destinations[i].kind, environment))
            log_warn_once(
                "a credential for %s in the environment is no line of text, and is left out",
                backend_name(config->destinations[i].kind));
}

/* ---- credentials, and what is shown ---- */

/* A file that stays wrong is told once; no text of it, which may be a secret in the wrong place. */
static void tell_auth_file(const char *path, long error, struct wrong_lines wrong)
{
    static bool told;
    char what[96], names[512];
    bool is_wrong = error || wrong.count, is_news = is_wrong && !told;
    told = is_wrong;
    if (!is_news)
        return;
    if (error)
        format(what, sizeof(what), "cannot be read: %s (errno %ld)", error_text((int)error),
               -error);
    else if (wrong.count == 1)
        format(what, sizeof(what), "line %u is not understood and left out", wrong.first);
    else
        format(what, sizeof(what),
               "lines that are not understood and left out: %u, the first is %u", wrong.count,
               wrong.first);
    credentials_names(names, sizeof(names));
    log_warn("LIBAGENT_AUTH_FILE=%s: %s; accepted is a file of lines NAME=VALUE, # COMMENT or "
             "[HOST:PORT], with a NAME of %s",
             path, what, names);
}

void upload_config_credentials(const struct upload_config *config, size_t index,
                               struct credentials *out)
{
    const char *path = config->options.auth_file;
    *out = config->credentials[index];
    if (!path)
        return;
    struct buffer text = {0};
    char *room = buffer_room(&text, AUTH_FILE_SIZE);
    long size = -ENOMEM;
    struct wrong_lines wrong = {0};
    if (room) {
        size = sys_read_file(path, room, AUTH_FILE_SIZE);
        if (size > 0)
            wrong = credentials_read(out, &config->destinations[index], room);
        memset(room, 0, AUTH_FILE_SIZE);
    }
    tell_auth_file(path, MIN_OF(size, 0L), wrong);
    buffer_free(&text);
}

size_t upload_config_describe(const struct upload_config *config, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < config->count; i++) {
        const struct destination *destination = &config->destinations[i];
        if (config->spools_only && destination->kind != BACKEND_FILE) {
            used += format(out + used, size - used,
                           "profiles for %s are left in %s (by LIBAGENT_SPOOL)\n",
                           backend_name(destination->kind), config->options.spool.folder);
            continue;
        }
        struct credentials credentials;
        char known[128];
        upload_config_credentials(config, i, &credentials);
        size_t length = credentials_describe(&credentials, known, sizeof(known));
        used += format(out + used, size - used, "profiles are sent to %s, %s (by %s)%s%s\n",
                       backend_name(destination->kind),
                       destination->socket[0] ? destination->socket : destination->url,
                       config->variable, length ? "; with " : "", known);
    }
    if (config->count && config->identity.tags.length)
        used += format(out + used, size - used, "tags: %s\n", config->identity.tags.text);
    return used;
}
