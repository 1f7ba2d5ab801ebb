/* run_program.h: runs a program as a user would, with libagent.so preloaded or without, in a fresh
 * folder, under a watchdog, and keeps all that can be seen of it from outside.
 *
 * The built programs are in $PROGRAMS, the agent is $LIBAGENT_SO, and $RUNNER, if set, is the
 * emulator to run programs in (all set by the Makefile).
 * What goes wrong in running (not in the program) fails the test that runs.
 *
 * Owns: the folder of each run, until run_free. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_RUN_PROGRAM_H
#define LIBAGENT_TEST_RUN_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct run_request {
    const char *program;            /* NAME of prog_NAME, or a path */
    const char *const *arguments;   /* after argv[0], NULL at the end; NULL: none */
    const char *const *environment; /* NAME=VALUE to set, NAME to remove, NULL at the end */
    bool without_agent;             /* not preloaded */
    const char *beside;             /* more of LD_PRELOAD, after the agent; NULL: nothing */
    const char *folder;             /* to run in, not removed; NULL: a fresh one, which programs
                                     * that change their user can read, and write profiles in */
    unsigned seconds;               /* the watchdog's limit; 0: 240 */
};

struct run {
    char folder[PATH_MAX];   /* where it runs, HOME and TMPDIR for it */
    char profiles[PATH_MAX]; /* its LIBAGENT_OUTPUT, in that folder */
    bool own_folder;
    pid_t pid;
    unsigned seconds;
    int status; /* as wait tells it */
    char *out;  /* standard output and error, 0-terminated */
    size_t out_size;
    char *err;
    size_t err_size;
    double cpu_seconds; /* of it and the children it waited for */
    long resident_kib;  /* at most */
    uint64_t end_ns;    /* CLOCK_MONOTONIC, when it had ended */
};

/* Starts; the program's input is empty. Several runs can be under way. */
void run_start(struct run *run, const struct run_request *request);
/* Waits for the end; past the limit kills the program and fails the test. */
void run_wait(struct run *run);
/* run_start and run_wait. */
void run_program(struct run *run, const struct run_request *request);
/* Runs a script of sh, without the agent, where its mounts are its own: namespaces of mounts are
 * root's. */
void run_in_own_mounts(struct run *run, const char *script, const char *const *environment);
/* Ends a program that runs until told, and waits for it. */
void run_stop(struct run *run, int signal);
/* Removes the folder. */
void run_free(struct run *run);

/* Fails the test, with what the program wrote, unless it exited with 0. */
void run_expect_success(const struct run *run);
/* The same, and it wrote nothing to standard error. */
void run_expect_quiet_success(const struct run *run);
/* Fails the test unless output, error output and status are alike. */
void run_expect_same(const struct run *with, const struct run *without);
/* Fails the test if the output folder holds anything. */
void run_expect_no_file(const struct run *run);
/* Number of files in the output folder whose name ends in `suffix` ("": all). */
size_t run_file_count(const struct run *run, const char *suffix);

/* The number after `key` and a space at a line's beginning of the output; fails without it. */
int64_t run_number(const struct run *run, const char *key);

/* Absolute path of prog_NAME. */
const char *run_program_path(const char *name);
const char *run_agent_path(void);

#endif
