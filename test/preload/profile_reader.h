/* profile_reader.h: an independent reader of profiles (libprotobuf-c), and the sums that the truth
 * tests judge by.
 *
 * A `struct profile` is all windows of one family that a program wrote, put together: stacks with
 * names, leaf first, their values and thread. Reading holds every file against the rules of
 * profile_is_valid, and fails the test where one is broken.
 *
 * Owns: a profile's memory, until profile_free. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_PROFILE_READER_H
#define LIBAGENT_TEST_PROFILE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile.pb-c.h"

enum { PROFILE_VALUES = 4, PROFILE_FILES_MAX = 2048 };
/* Index of values: what the families count, and what they measure. Of heap files that have no
 * values of the window, or none of what is live, these are 0. */
enum {
    CPU_SAMPLES = 0,
    CPU_NS = 1,
    ALLOC_OBJECTS = 0,
    ALLOC_BYTES = 1,
    LIVE_OBJECTS = 2,
    LIVE_BYTES = 3,
    WALL_SAMPLES = 0,
    WALL_NS = 1
};

struct frame {
    const char *function;
    const char *object; /* path of the mapping's file, "": none */
    uint64_t address;
};

struct stack {
    uint32_t depth;
    uint32_t file;        /* index of the window */
    struct frame *frames; /* leaf first */
    int64_t values[PROFILE_VALUES];
    const char *thread;                        /* label `thread name`, "": none */
    int64_t tid;                               /* label `thread id`, 0: none */
    int64_t age_s, bytes;                      /* labels of what is live, -1: none */
    const char *state;                         /* label `state`, "": none */
    bool approximate;                          /* label `approximate` */
    const Perftools__Profiles__Sample *sample; /* as it was read */
};

struct profile {
    uint32_t file_count;
    Perftools__Profiles__Profile *files[PROFILE_FILES_MAX];
    char *paths[PROFILE_FILES_MAX];
    struct stack *stacks;
    size_t stack_count;
    struct frame *frames;
};

/* Reads a file (.pb.gz, .pb.zst or .pb) into a message; NULL, with the reason in `why`. */
Perftools__Profiles__Profile *profile_read(const char *path, char *why, size_t size);
/* The rules of pprof and of the receivers that are stricter, and those of the families.
 * `family` is "cpu", "heap" or "wall". False, with the reason in `why`. */
bool profile_is_valid(const Perftools__Profiles__Profile *message, const char *family, char *why,
                      size_t size);
/* The windows of `family` in a folder, of process `pid` (0: all); or the parts of a capture,
 * "cpu@NAME.NUMBER". An empty profile if there is no
 * file. Fails the test at a file that cannot be read or is not valid. */
void profile_load(struct profile *profile, const char *folder, const char *file_part, int pid);
void profile_free(struct profile *profile);

/* Sums of values[value]. */
int64_t profile_total(const struct profile *profile, int value);
/* Where the leaf is `function`. */
int64_t profile_self(const struct profile *profile, int value, const char *function);
/* Where `function` is anywhere in the stack. */
int64_t profile_under(const struct profile *profile, int value, const char *function);
/* The same two of the last window alone: what was live at its end. "": all. */
int64_t profile_last_self(const struct profile *profile, int value, const char *function);
int64_t profile_last_under(const struct profile *profile, int value, const char *function);
int64_t profile_of_tid(const struct profile *profile, int value, int64_t tid);
int64_t profile_of_thread(const struct profile *profile, int value, const char *name);
int64_t profile_of_state(const struct profile *profile, int value, const char *state);

/* Where `function` is anywhere in the stack (NULL: all) and the sample has a label `key` of that
 * text (NULL: of that number). */
int64_t profile_under_label(const struct profile *profile, int value, const char *function,
                            const char *key, const char *text, int64_t number);

/* Times that `function` stands in the stack. */
uint32_t stack_depth_of(const struct stack *stack, const char *function);
static inline bool stack_has(const struct stack *stack, const char *function)
{
    return stack_depth_of(stack, function) != 0;
}
/* Whether the stack goes down to where libc calls main, or a thread's start routine. That is
 * known by address: libc's functions there have no names in a stripped libc. The rest of a
 * thread's time, "[thread end]", is whole where it says whose. */
bool stack_is_whole(const struct stack *stack);
/* Not whole, and no time of the agent's own, which nobody walks for. */
bool stack_is_broken(const struct stack *stack);
/* The leaf is no code, but one of the agent's words, such as "libagent overhead" or "[thread end]";
 * below it may stand who it is for. */
bool stack_is_pseudo(const struct stack *stack);
/* Share of the program's own values, not the agent's overhead, in stacks that are whole. */
double profile_whole_share(const struct profile *profile, int value);
/* The first comment in some file that has the text `part`, from there on; NULL: there is none. */
const char *profile_comment(const struct profile *profile, const char *part);
static inline bool profile_has_comment(const struct profile *profile, const char *part)
{
    return profile_comment(profile, part) != NULL;
}
/* Sum over all files of the agent's figure `text` (agent/base/stats.h). The files of a window's
 * families all have the same comments. */
int64_t profile_figure(const struct profile *profile, const char *text);

/* Prints stacks to standard error, largest first: those that are not whole, or all. */
void profile_print(const struct profile *profile, int value, bool broken_only, size_t count);

#endif
