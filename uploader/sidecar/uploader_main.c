/* libagent-uploader: sends what processes under libagent.so leave in a spool, from outside of them.
 *
 *     libagent-uploader [PORT]
 *
 * The options are libagent's own, from the environment: LIBAGENT_SPOOL and LIBAGENT_UPLOAD_URL have
 * to be set; credentials, certificates, limits, log as there. With PORT it answers /healthz and
 * /metrics.
 *
 *   1. What is in the spool is sent, the oldest first.
 *   2. A rename into the folder (inotify) wakes it; and it looks each 15 seconds, in case that the
 *      folder is on a file system that tells nothing. One that is not there, or may not be used, is
 *      told in a line and by /healthz, and looked for each 5 seconds; so is what may not be read.
 *   3. SIGTERM or SIGINT: what is there is sent within LIBAGENT_EXIT_TIMEOUT; the rest stays in the
 *      spool. It ends with 0. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/error_text.h"
#include "agent/base/log.h"
#include "agent/base/next.h"
#include "agent/base/option_parse.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "uploader/http_client.h"
#include "uploader/sender.h"
#include "uploader/sidecar/metrics.h"
#include "uploader/spool.h"
#include "uploader/spool_log.h"

#define FOLDER_RETRY_NS (5 * NS_PER_SEC)
#define FOLDER_LOOK_NS  (15 * NS_PER_SEC)

enum { BAD_USE = 2, LONGEST_POLL_MS = 3600 * 1000, PORT_MAX = 65535 };

/* What the agent gets from the shim; here it is libc's own. */
struct next_functions next = {.dlopen = dlopen, .dlsym = dlsym};

static struct upload_config config;
static int signals = -1, watch = -1;
static uint64_t end_ns;  /* 0: not asked for */
static uint64_t look_ns; /* when the folder itself is looked at next */
static unsigned places[BACKEND_FILE];

/* The signal may come in the middle of a post. */
static void note_signal(void)
{
    struct signalfd_siginfo info;
    if (!end_ns && read(signals, &info, sizeof(info)) > 0)
        end_ns = clock_monotonic_ns() + config.options.exit_timeout_ns;
}

static bool has_to_stop(void)
{
    note_signal();
    return end_ns && clock_monotonic_ns() >= end_ns;
}

static int start_signals(void)
{
    const uint64_t set = 1ull << (SIGTERM - 1) | 1ull << (SIGINT - 1); /* the kernel's form */
    sys_call4(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof(set));
    signals = (int)sys_call4(SYS_signalfd4, -1, &set, sizeof(set), SFD_NONBLOCK | SFD_CLOEXEC);
    return MIN_OF(signals, 0);
}

/* Of what keeps profiles from being sent the programs that leave them know nothing. */
static void look_at_folder(void)
{
    static bool is_away, has_others;
    const struct spool *spool = &config.options.spool;
    struct spool_others others;
    uint64_t now = clock_monotonic_ns();
    if (watch >= 0 && now < look_ns)
        return;
    int error = spool_look(spool, places, &others);
    if (error && !is_away)
        log_error("%s (LIBAGENT_SPOOL) cannot be used: %s (errno %d); it is tried again",
                  spool->folder, error_text(error), -error);
    else if (!error && is_away)
        log_info("%s (LIBAGENT_SPOOL) can be used", spool->folder);
    if (others.count && !has_others)
        log_warn("%s has profiles for a %s that LIBAGENT_UPLOAD_URL does not name: they stay there",
                 spool->folder, backend_name(others.kind));
    is_away = error != 0;
    has_others = others.count != 0;
    metrics_note_spool(!is_away, others.count);
    look_ns = now + FOLDER_LOOK_NS;
}

/* The folder may come later, or be made anew. */
static void watch_folder(void)
{
    look_at_folder();
    if (watch >= 0)
        return;
    watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch >= 0 && inotify_add_watch(watch, config.options.spool.folder,
                                        IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF) < 0) {
        close(watch);
        watch = -1;
    }
}

static void read_watch(void)
{
    _Alignas(struct inotify_event) char events[4096];
    long size;
    bool is_gone = false;
    while ((size = read(watch, events, sizeof(events))) > 0) {
        for (long at = 0; at < size;) {
            const struct inotify_event *event = (const void *)(events + at);
            is_gone |= (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) != 0;
            at += (long)(sizeof(*event) + event->len);
        }
    }
    if (is_gone) {
        close(watch);
        watch = -1;
    }
    sender_look_into_spool();
}

static void wait_until(uint64_t due_ns)
{
    uint64_t now = clock_monotonic_ns();
    if (watch < 0)
        due_ns = MIN_OF(due_ns, now + FOLDER_RETRY_NS);
    uint64_t ms = due_ns > now ? (due_ns - now) / NS_PER_MS + 1 : 0;
    struct pollfd events[] = {{.fd = signals, .events = POLLIN}, {.fd = watch, .events = POLLIN}};
    poll(events, ARRAY_SIZE(events), (int)MIN_OF(ms, (uint64_t)LONGEST_POLL_MS));
    if (events[1].revents)
        read_watch();
}

static void run(void)
{
    for (note_signal(); !end_ns; note_signal()) {
        watch_folder();
        uint64_t due_ns = sender_run();
        metrics_note_untaken(spool_log_untaken());
        note_signal();
        if (!end_ns)
            wait_until(due_ns);
    }
    sender_look_into_spool();
    while (!has_to_stop() && sender_run() <= clock_monotonic_ns())
        ;
    sender_finish(end_ns, true);
}

static int start(char **environment)
{
    options_load(environment, "libagent-uploader");
    if (!options_ok(PART_UPLOAD)) /* which has been told */
        return -EINVAL;
    if (!options.spool || !options.upload_url) {
        log_error("libagent-uploader needs LIBAGENT_SPOOL and LIBAGENT_UPLOAD_URL");
        return -EINVAL;
    }
    const struct upload_options upload = {
        .url = options.upload_url,
        .auth_file = options.auth_file,
        .ca_file = options.ca_file,
        .spool = {options.spool, options.spool_limit},
        .exit_timeout_ns = options.exit_timeout_ns,
    };
    upload_config_load(&config, &upload, environment, sys_pid());
    if (!config.count)
        return -EINVAL;
    for (size_t i = 0; i < config.count; i++)
        if (config.destinations[i].kind < BACKEND_FILE)
            places[config.destinations[i].kind]++;
    sender_start(&config, options.compression, has_to_stop);
    struct http_client_config client = {.ca_file = options.ca_file, .keeps_connections = true};
    proxies_find(&client.proxies, environment);
    http_client_start(&client);
    return start_signals();
}

int main(int argc, char **argv)
{
    uint64_t port = 0;
    if (argc > 2 || (argc == 2 && (!parse_count(argv[1], &port) || !port || port > PORT_MAX))) {
        log_plain("usage: libagent-uploader [PORT]\n");
        return BAD_USE;
    }
    if (start(environ) != 0)
        return BAD_USE;
    look_at_folder();
    int error = port ? metrics_start((uint16_t)port) : 0;
    if (error) {
        log_error("libagent-uploader cannot listen on port %lu: %s (errno %d)", port,
                  error_text(error), -error);
        return BAD_USE;
    }
    run();
    log_flush();
    return 0;
}
