/* routes.h: which ways profiles go from the uploader: into files, to backends, or both.
 *
 * Files are written where a folder is given, by LIBAGENT_OUTPUT or a file:// URL, and where there
 * is no other way; in the formats that LIBAGENT_FORMAT names, which is of no concern to backends.
 *
 * Owns: the configuration of uploads. Context: routes_load, routes_start, routes_reset_in_child
 * INIT; the others any, afterwards. Locks: none. */
#ifndef LIBAGENT_ROUTES_H
#define LIBAGENT_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/options.h"
#include "uploader/upload_config.h"

struct routes_config {
    uint32_t formats; /* FORMAT_ bits: what files are written as; 0: FORMAT_PPROF */
    struct upload_options upload;
    char *const *environment; /* for what variables of other tools say of uploads */
    void (*is_open)(void);    /* http_client.h */
};

/* What is to be, before a start or without one. Returns the folder for files: `folder`, that of a
 * file:// URL, or NULL, the default one. */
const char *routes_load(const struct routes_config *config, const char *folder, int pid);
/* routes_load, and the start. `stop`: has a post under way to end soon? */
const char *routes_start(const struct routes_config *config, const char *folder,
                         enum compression compression, int pid, bool (*stop)(void)) MUST_USE;
/* Are profiles of this dialect wanted anywhere; in files? */
bool routes_want(const char *dialect);
bool routes_to_files(const char *dialect);
/* Is anything? */
bool routes_have_files(void);
/* What routes_load returned. */
const char *routes_folder(void);
/* What a receiver of this dialect has asked for: bytes of a profile at most, not compressed; 0: no
 * limit. */
size_t routes_max_bytes(const char *dialect);
/* Profiles are sent, by libcurl: the thread of the run loop has to be one that libc knows. */
bool routes_send(void);
/* The thread that has sent is about to end, or to leave the run loop: closes what it keeps. */
void routes_rest(void);
/* For last tries. */
uint64_t routes_exit_timeout_ns(void);
/* The process ends at this CLOCK_MONOTONIC deadline, or sooner. SIG. */
void routes_end_by(uint64_t deadline_ns);
/* `time_ns`, or what is sooner: some time before that end, for what is to be done with what is left
 * then. */
uint64_t routes_before_end(uint64_t time_ns);
/* What an end that came too soon leaves of those for backends, in words; nothing: empty. */
void routes_left(char *out, size_t size);
/* Where profiles are sent, for people: upload_config_describe. */
size_t routes_describe(char *out, size_t size);
/* What is in force: the URLs, in `out`, and the labels; NULL: none. */
const char *routes_urls(char *out, size_t size);
const char *routes_tags(void);
void routes_reset_in_child(int pid);

#endif
