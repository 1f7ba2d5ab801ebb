#include "agent/control.h"

#include <errno.h>
#include <string.h>

#include "agent/agent_thread.h"
#include "agent/base/error_text.h"
#include "agent/base/format.h"
#include "agent/base/log.h"
#include "agent/base/option_pairs.h"
#include "agent/base/option_parse.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/control_signals.h"
#include "agent/life.h"

static char path[4096]; /* PATH_MAX; empty: no file */
static struct option_pairs pairs[2];
static int current;
static char seen[OPTION_PAIRS_BYTES]; /* the file's bytes at the last look */
static long seen_size;
static bool said_unreadable, said_unwritten;
static bool tries_again; /* to be on: what was recorded before was still being written */

/* True: pairs[!current] has what is new. */
static bool read_file(void)
{
    static char text[OPTION_PAIRS_BYTES];
    long size = sys_read_file(path, text, sizeof(text));
    int error = size + 1 == (long)sizeof(text) ? -EFBIG : (int)MIN_OF(size, 0L);
    if (error) {
        if (!said_unreadable)
            log_error("LIBAGENT_CONFIG: %s cannot be read: %s (errno %d): nothing is changed", path,
                      error_text(error), -error);
        said_unreadable = true;
        return false;
    }
    said_unreadable = false;
    if (size == seen_size && memcmp(text, seen, (size_t)size) == 0)
        return false;
    memcpy(seen, text, (size_t)size);
    seen_size = size;
    /* What comes before it would be all that is read: an empty file, say, which sets nothing. */
    if (memchr(text, 0, (size_t)size)) {
        log_error("LIBAGENT_CONFIG: %s is no text, it holds a byte 0: nothing is changed", path);
        return false;
    }
    return option_pairs_from_lines(&pairs[!current], text, path) == 0 &&
           !option_pairs_equal(&pairs[0], &pairs[1]);
}

static void take_new(void)
{
    current = !current;
    options_overlay(OVERLAY_FILE, pairs[current].list);
}

static bool says_enabled(int which)
{
    const char *text = option_pairs_get(&pairs[which], "LIBAGENT_ENABLED");
    bool enabled = true;
    return !text || !*text || !parse_bool(text, &enabled) || enabled;
}

bool control_is_enabled(void)
{
    return says_enabled(current);
}

static void follow_file(void)
{
    if (!path[0] || !read_file())
        return;
    bool enabled = says_enabled(!current), is_switch = enabled != control_is_enabled();
    /* Off at first: it would start with what is new, to be stopped at once. */
    int error = is_switch && !enabled ? life_switch(false) : 0;
    int not_taken = life_change(take_new);
    if (!error)
        error = not_taken;
    if (!error && is_switch && enabled)
        error = life_switch(true);
    tries_again = error == -EBUSY;
    if (error)
        log_error("LIBAGENT_CONFIG: %s could not be followed: %s (errno %d)%s", path,
                  error_text(error), -error, tries_again ? "; tried again at the next look" : "");
}

/* TICK. */
static void control(void)
{
    if (control_signals_toggled()) {
        bool on = true;
        int error = life_toggle(&on);
        if (error)
            log_error("LIBAGENT_TOGGLE_SIGNAL: not switched %s: %s (errno %d)", on ? "on" : "off",
                      error_text(error), -error);
    }
    if (control_signals_unwritten() && !said_unwritten && !life_is_on()) {
        log_warn("LIBAGENT_FLUSH_SIGNAL: nothing is written: profiling has not started, or is off");
        said_unwritten = true;
    }
    if (tries_again && life_is_switched_on())
        tries_again = life_switch(true) == -EBUSY;
    follow_file();
}

bool control_begin(void)
{
    /* The program may change its folder, and the options' texts are read anew. */
    if (options.config)
        (void)!sys_absolute(options.config, path, sizeof(path));
    if (!path[0] || !read_file())
        return false;
    take_new();
    return true;
}

bool control_is_asked_for(void)
{
    return path[0] || options.toggle_signal || options.flush_signal;
}

void control_start(void)
{
    agent_thread_control(control, path[0] != 0);
    /* While it is off no sample makes the thread. */
    if (path[0] && !life_is_on())
        agent_thread_want_control();
}
