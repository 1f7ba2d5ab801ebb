#include "agent/ways_out.h"

#include <signal.h>

#include "agent/base/clock.h"
#include "agent/base/environment_table.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/nap.h"
#include "agent/base/next.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/life.h"
#include "agent/thread/own_thread.h"
#include "uploader/uploader.h"

static const uint64_t exit_limit_ns = 3 * NS_PER_SEC;

/* exit's list of functions. Not `atexit`, which glibc links into each object. */
extern int add_to_exit(void (*function)(void *), void *argument,
                       void *dso) __asm__("__cxa_atexit") WEAK;

/* How old the program is when `end_agent` is registered with exit, and then twice as old each time.
 */
static const uint64_t first_age_ns = 10 * NS_PER_MS;

static bool is_known; /* where profiles go */
static void (*end_agent)(void);
static uint64_t born_ns, register_ns = UINT64_MAX; /* CLOCK_MONOTONIC; the next time */

/* exit's list has a lock, which a fork child has as it was: where one of ours held it, the child's
 * exit would wait for ever. Who registers counts itself and then looks whether a fork is under way;
 * who forks counts itself and then waits for the others. One of the two sees the other. */
static uint32_t registering, forks;
/* It takes less than a microsecond of a processor, which may have to be waited for. */
static const uint64_t registered_in_ns = 100 * NS_PER_MS;

static void print_where(void)
{
    static char text[4096];
    if (routes_describe(text, sizeof(text)))
        log_plain(text);
}

static struct routes_config routes_of_options(char *const *environment)
{
    return (struct routes_config){
        .upload = {.url = options.upload_url,
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
    };
}

static void run_before_exit(void *unused)
{
    (void)unused;
    end_agent();
}

/* False: a fork is under way. */
static bool register_unless_fork(void)
{
    static const uint64_t all = ~(uint64_t)0;
    uint64_t mask;
    /* A handler in between that forks would wait for the frame under it. */
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(mask));
    __atomic_fetch_add(&registering, 1, __ATOMIC_SEQ_CST);
    bool is_free = __atomic_load_n(&forks, __ATOMIC_SEQ_CST) == 0;
    if (is_free && add_to_exit)
        add_to_exit(run_before_exit, NULL, NULL);
    __atomic_fetch_sub(&registering, 1, __ATOMIC_SEQ_CST);
    sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
    return is_free;
}

static void register_end(void)
{
    while (!register_unless_fork())
        (void)!nap_before(UINT64_MAX);
}

void ways_out_fork_prepare(void)
{
    uint64_t deadline_ns = clock_monotonic_ns() + registered_in_ns;
    __atomic_fetch_add(&forks, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&registering, __ATOMIC_SEQ_CST) != 0 && nap_before(deadline_ns))
        ;
}

void ways_out_fork_parent(void)
{
    __atomic_fetch_sub(&forks, 1, __ATOMIC_SEQ_CST);
}

void ways_out_fork_child(bool had_threads)
{
    registering = forks = 0;
    if (had_threads)
        register_ns = UINT64_MAX;
}

uint64_t ways_out_moment(uint64_t now_ns)
{
    uint64_t due = load_relaxed(&register_ns);
    if (now_ns < due)
        return due;
    uint64_t next_ns = now_ns + MAX_OF(now_ns - born_ns, first_age_ns);
    if (!__atomic_compare_exchange_n(&register_ns, &due, next_ns, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) ||
        register_unless_fork())
        return next_ns;
    store_relaxed(&register_ns, now_ns);
    return now_ns;
}

int ways_out_start(char *const *environment, const char *program, void (*before_exit)(void))
{
    struct uploader_config config = {
        .folder = options.output,
        .tmpdir = environment_get(environment, "TMPDIR"),
        .output_limit = options.output_limit,
        .compression = options.compression,
        .program = program,
        .pid = sys_pid(),
        .routes = routes_of_options(environment),
    };
    config.routes.is_open = register_end;
    end_agent = before_exit;
    int error = uploader_start(&config);
    bool sends = !error && routes_send();
    own_thread_use_libc(sends);
    if (sends)
        environment_hold();
    if (born_ns == 0)
        born_ns = clock_monotonic_ns();
    store_relaxed(&register_ns, sends ? born_ns + first_age_ns : UINT64_MAX);
    if (!error && options_is_set(&options.formats) && !routes_have_files())
        log_warn_once(
            "LIBAGENT_FORMAT is of files, of which there are none without LIBAGENT_OUTPUT");
    is_known = true;
    return error;
}

/* NULL: the default one. */
static const char *folder_in_force(void)
{
    return routes_folder() || routes_have_files() ? routes_folder() : "(no files)";
}

void ways_out_print_help(char *const *environment)
{
    static char text[16384], urls[UPLOAD_DESTINATIONS * UPLOAD_URL_SIZE];
    if (!is_known) {
        const struct routes_config config = routes_of_options(environment);
        (void)!routes_load(&config, options.output, sys_pid());
    }
    const char *where = routes_urls(urls, sizeof(urls));
    const struct option_shown shown[] = {
        {&options.upload_url, where || !options.upload_url ? where : "(nothing is sent)"},
        {&options.tags, routes_tags()},
        {&options.output, folder_in_force()},
        {&options.scheduler, life_scheduler ? life_scheduler->name : NULL},
        {NULL, NULL},
    };
    options_help(environment, shown, text, sizeof(text));
    log_plain(text);
    print_where();
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
