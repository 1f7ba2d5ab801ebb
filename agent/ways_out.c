#include "agent/ways_out.h"

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/thread/own_thread.h"
#include "uploader/uploader.h"

static const uint64_t exit_limit_ns = 3 * NS_PER_SEC;

static void print_where(void)
{
    static char text[4096];
    if (routes_describe(text, sizeof(text)))
        log_plain(text);
}

int ways_out_start(char *const *environment, const char *program, void (*before_exit)(void))
{
    const struct uploader_config config = {
        .folder = options.output,
        .tmpdir = environment_get(environment, "TMPDIR"),
        .output_limit = options.output_limit,
        .compression = options.compression,
        .program = program,
        .pid = sys_pid(),
        .routes = {.upload = {.url = options.upload_url,
                              .is_off = !options_ok(PART_UPLOAD),
                              .lacks_client = next_is_sanitized,
                              .tags = options.tags,
                              .auth_file = options.auth_file,
                              .ca_file = options.ca_file,
                              .spool = {options.spool, options.spool_limit},
                              .spool_kind = (enum backend_kind)options.dialect,
                              .exit_timeout_ns = options.exit_timeout_ns,
                              .period_ns = options.period_ns},
                   .formats = options.formats,
                   .environment = environment,
                   .before_exit = before_exit},
    };
    int error = uploader_start(&config);
    if (!error && routes_send())
        own_thread_use_libc();
    if (!error && options_is_set(&options.formats) && !routes_have_files())
        log_warn("LIBAGENT_FORMAT is of files, of which there are none without LIBAGENT_OUTPUT");
    if (options.help)
        print_where();
    return error;
}

void ways_out_print_help(char *const *environment)
{
    static char text[16384];
    options_help(environment, text, sizeof(text));
    log_plain(text);
}

/* Last tries to send take their time; what is then left is counted. */
uint64_t ways_out_exit_deadline_ns(void)
{
    uint64_t sending_ns = routes_send() ? routes_exit_timeout_ns() + NS_PER_SEC : 0;
    return clock_monotonic_ns() + MAX_OF(exit_limit_ns, sending_ns);
}

void ways_out_say_where(void)
{
    char files[1024];
    char line[1200];
    if (!log_stderr_is_terminal() || uploader_last_files(files, sizeof(files)) == 0)
        return;
    const char *how = "open with: pprof -http=: FILE";
    if (options.formats & FORMAT_HTML)
        how = "open .html in a browser";
    else if (!(options.formats & FORMAT_PPROF))
        how = "for flamegraph.pl, speedscope";
    format(line, sizeof(line), "libagent: profiles: %s (%s)\n", files, how);
    log_plain(line);
}
