/* upload_config.h: where profiles are sent, as whom, with which labels: options and the variables
 * that people have set already.
 *
 * LIBAGENT_UPLOAD_URL says where; without it PYROSCOPE_SERVER_ADDRESS; without that, where
 * DD_PROFILING_ENABLED is true, DD_TRACE_AGENT_URL or DD_AGENT_HOST and DD_TRACE_AGENT_PORT. Labels
 * come from LIBAGENT_TAGS, OTEL_RESOURCE_ATTRIBUTES, DD_ENV, DD_VERSION, DD_TAGS, POD_NAME,
 * POD_NAMESPACE, NODE_NAME: the first that has a name gives its value.
 *
 * Owns: nothing (what it reads is copied: a program may change its environment). Context: INIT.
 * Locks: none. */
#ifndef LIBAGENT_UPLOAD_CONFIG_H
#define LIBAGENT_UPLOAD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "uploader/credentials.h"
#include "uploader/shipment.h"
#include "uploader/spool.h"
#include "uploader/upload_url.h"

/* The options; texts stay. */
struct upload_options {
    const char *url;              /* LIBAGENT_UPLOAD_URL, NULL: none */
    bool is_off;                  /* an option is wrong: nothing is sent, whatever says where */
    bool lacks_client;            /* libcurl may not run in this process */
    const char *tags;             /* LIBAGENT_TAGS, NULL: none */
    const char *auth_file;        /* LIBAGENT_AUTH_FILE, NULL: none */
    const char *ca_file;          /* LIBAGENT_CA_FILE, NULL: the system's */
    struct spool spool;           /* LIBAGENT_SPOOL, folder NULL: none */
    enum backend_kind spool_kind; /* LIBAGENT_DIALECT: of what goes nowhere else */
    uint64_t exit_timeout_ns;
    uint64_t period_ns;
};

struct upload_config {
    struct destination destinations[UPLOAD_DESTINATIONS];
    struct credentials credentials[UPLOAD_DESTINATIONS]; /* of the environment */
    size_t count;
    const char *variable; /* that says where, NULL: nowhere */
    bool spools_only;     /* nothing is sent: what is for a backend goes to the spool */
    struct upload_identity identity;
    struct upload_options options;
};

/* Reads options, environment and, where there is a destination, what tells of the host. What is not
 * understood is said in the log; a wrong LIBAGENT_UPLOAD_URL sends nothing. */
void upload_config_load(struct upload_config *config, const struct upload_options *options,
                        char *const *environment, int pid);
/* What is in force, for people, without a secret. Returns the length; 0: nothing is sent. */
size_t upload_config_describe(const struct upload_config *config, char *out, size_t size);
/* The credentials of a destination as they are now: the file is read. */
void upload_config_credentials(const struct upload_config *config, size_t index,
                               struct credentials *out);
/* Another id for the process. */
void upload_config_new_process(struct upload_config *config, int pid);

#endif
