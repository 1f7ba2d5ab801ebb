#include "test/preload/run_program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/check.h"

enum { ENVIRONMENT_MAX = 256, ARGUMENTS_MAX = 64, DEFAULT_SECONDS = 240 };
/* A status that no program here exits with by itself. */
enum { START_FAILED = 199 };

static const char *needed_variable(const char *name)
{
    const char *value = getenv(name);
    if (!value || value[0] != '/')
        ck_abort_msg("%s must be an absolute path", name);
    return value;
}

const char *run_agent_path(void)
{
    return needed_variable("LIBAGENT_SO");
}

const char *run_program_path(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/prog_%s", needed_variable("PROGRAMS"), name);
    return path;
}

/* Ours would reach the program and change what is tested. */
static bool is_inherited(const char *variable)
{
    static const char *const dropped[] = {"LD_PRELOAD=", "LIBAGENT_", "OTEL_", "DD_",
                                          "PYROSCOPE_",  "PARCA_",    "POD_",  "NODE_",
                                          "HOME=",       "TMPDIR="};
    for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
        if (strncmp(variable, dropped[i], strlen(dropped[i])) == 0)
            return false;
    return true;
}

struct environment {
    char *variables[ENVIRONMENT_MAX];
    size_t count;
};

/* Replaces a variable of the same name; a name alone removes it. */
static void add_variable(struct environment *environment, const char *variable)
{
    size_t name = strcspn(variable, "="), i = 0;
    char **variables = environment->variables;
    while (i < environment->count &&
           (strncmp(variables[i], variable, name) != 0 || variables[i][name] != '='))
        i++;
    if (variable[name]) {
        ck_assert(i < ENVIRONMENT_MAX - 1);
        variables[i] = (char *)variable;
        environment->count += i == environment->count;
    } else if (i < environment->count) {
        variables[i] = variables[--environment->count];
        variables[environment->count] = NULL;
    }
}

/* Takes the variable out: "NAME=VALUE", or NULL where it is not set. */
static char *take_variable(struct environment *environment, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < environment->count; i++) {
        char *variable = environment->variables[i];
        if (strncmp(variable, name, length) == 0 && variable[length] == '=') {
            add_variable(environment, name);
            return variable;
        }
    }
    return NULL;
}

/* What runs a program of another processor, with its preload: that of the emulator is not ours.
 * Returns the number of arguments. */
static size_t add_runner(struct environment *environment, char **arguments)
{
    char *runner = getenv("RUNNER");
    if (!runner || !*runner)
        return 0;
    arguments[0] = runner;
    arguments[1] = (char *)"-E";
    arguments[2] = take_variable(environment, "LD_PRELOAD");
    return arguments[2] ? 3 : 1;
}

static void add_joined(struct environment *environment, const char *name, const char *first,
                       const char *second)
{
    char *text = NULL;
    ck_assert(asprintf(&text, "%s=%s%s%s", name, first, first[0] && second[0] ? " " : "", second) >
              0);
    add_variable(environment, text); /* kept until the test's process ends */
}

static void make_environment(const struct run *run, const struct run_request *request,
                             struct environment *environment)
{
    for (char **e = environ; *e; e++)
        if (is_inherited(*e))
            add_variable(environment, *e);
    const char *agent = request->without_agent ? "" : run_agent_path();
    const char *beside = request->beside ? request->beside : "";
    if (agent[0] || beside[0])
        add_joined(environment, "LD_PRELOAD", agent, beside);
    add_joined(environment, "HOME", run->folder, "");
    add_joined(environment, "TMPDIR", run->folder, "");
    add_joined(environment, "LIBAGENT_OUTPUT", run->profiles, "");
    for (size_t i = 0; request->environment && request->environment[i]; i++)
        add_variable(environment, request->environment[i]);
}

static void child_descriptor(const char *folder, const char *name, int target)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, target) < 0)
        _exit(START_FAILED);
    if (fd != target)
        close(fd);
}

/* Whoever runs the suites may ignore some (nohup), even those that libc keeps to itself. */
static void reset_signals(void)
{
    static const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } by_default;
    for (int signal = 1; signal <= 64; signal++)
        syscall(SYS_rt_sigaction, signal, &by_default, NULL, sizeof(by_default.mask));
}

void run_start(struct run *run, const struct run_request *request)
{
    *run = (struct run){.seconds = request->seconds ? request->seconds : DEFAULT_SECONDS};
    if (request->folder) {
        snprintf(run->folder, sizeof(run->folder), "%s", request->folder);
    } else {
        const char *tmp = getenv("TMPDIR");
        snprintf(run->folder, sizeof(run->folder), "%s/libagent-test-XXXXXX", tmp ? tmp : "/tmp");
        ck_assert_ptr_nonnull(mkdtemp(run->folder));
        run->own_folder = true;
    }
    size_t room = sizeof(run->profiles) - 1;
    ck_assert(strlen(run->folder) + sizeof("/profiles") <= room);
    strcpy(stpcpy(run->profiles, run->folder), "/profiles");
    ck_assert(mkdir(run->profiles, 0700) == 0 || errno == EEXIST);
    if (run->own_folder) {
        ck_assert_int_eq(chmod(run->folder, 0755), 0);
        ck_assert_int_eq(chmod(run->profiles, 01777), 0);
    }

    struct environment environment = {.count = 0};
    make_environment(run, request, &environment);
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s",
             strchr(request->program, '/') ? request->program : run_program_path(request->program));
    char *arguments[ARGUMENTS_MAX] = {NULL};
    size_t count = add_runner(&environment, arguments);
    arguments[count++] = path;
    for (size_t i = 0; request->arguments && request->arguments[i]; i++) {
        ck_assert(count + 1 < ARGUMENTS_MAX);
        arguments[count++] = (char *)request->arguments[i];
    }

    run->pid = fork();
    ck_assert(run->pid >= 0);
    if (run->pid == 0) {
        setpgid(0, 0);
        /* A killed suite takes its program along. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (chdir(run->folder) < 0)
            _exit(START_FAILED);
        child_descriptor("/dev", "null", 0);
        child_descriptor(run->folder, "stdout", 1);
        child_descriptor(run->folder, "stderr", 2);
        reset_signals();
        execve(arguments[0], arguments, environment.variables);
        perror(path);
        _exit(START_FAILED);
    }
    setpgid(run->pid, run->pid);
}

static char *read_whole(const char *folder, const char *name, size_t *size)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s is gone", path);
    size_t capacity = 4096, length = 0;
    char *data = malloc(capacity);
    for (;;) {
        length += fread(data + length, 1, capacity - length - 1, file);
        if (length < capacity - 1)
            break;
        data = realloc(data, capacity *= 2);
        ck_assert_ptr_nonnull(data);
    }
    fclose(file);
    data[length] = 0;
    if (size)
        *size = length;
    return data;
}

void run_wait(struct run *run)
{
    int fd = (int)syscall(SYS_pidfd_open, run->pid, 0);
    ck_assert_msg(fd >= 0, "pidfd_open: %s", strerror(errno));
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    bool late = poll(&poll_fd, 1, (int)run->seconds * 1000) == 0;
    close(fd);
    if (late)
        kill(-run->pid, SIGKILL);
    struct rusage usage;
    ck_assert_int_eq(wait4(run->pid, &run->status, 0, &usage), run->pid);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    run->end_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    run->resident_kib = usage.ru_maxrss;
    run->cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    run->out = read_whole(run->folder, "stdout", &run->out_size);
    run->err = read_whole(run->folder, "stderr", &run->err_size);
    ck_assert_msg(!late, "still running after %u s\nstdout: %s\nstderr: %s", run->seconds, run->out,
                  run->err);
    ck_assert_msg(!WIFEXITED(run->status) || WEXITSTATUS(run->status) != START_FAILED,
                  "could not be started: %s", run->err);
}

void run_program(struct run *run, const struct run_request *request)
{
    run_start(run, request);
    run_wait(run);
}

void run_in_own_mounts(struct run *run, const char *script, const char *const *environment)
{
    run_program(
        run, &(struct run_request){.program = "/usr/bin/unshare",
                                   .arguments = (const char *[]){"-m", "sh", "-ec", script, NULL},
                                   .environment = environment,
                                   .without_agent = true,
                                   .seconds = 60});
}

void run_stop(struct run *run, int signal)
{
    kill(run->pid, signal);
    run_wait(run);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void run_free(struct run *run)
{
    if (run->own_folder)
        nftw(run->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(run->out);
    free(run->err);
    run->out = run->err = NULL;
}

void run_expect_success(const struct run *run)
{
    ck_assert_msg(WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0,
                  "wait status %#x\nstdout: %.2000s\nstderr: %.2000s", run->status, run->out,
                  run->err);
}

void run_expect_quiet_success(const struct run *run)
{
    run_expect_success(run);
    ck_assert_msg(run->err_size == 0, "stderr: %.2000s", run->err);
}

void run_expect_same(const struct run *with, const struct run *without)
{
    ck_assert_msg(with->status == without->status, "wait status %#x, without %#x\n%.2000s\n%.2000s",
                  with->status, without->status, with->out, with->err);
    ck_assert_msg(with->out_size == without->out_size &&
                      memcmp(with->out, without->out, with->out_size) == 0,
                  "stdout differs\nwith: %.1500s\nwithout: %.1500s", with->out, without->out);
    ck_assert_msg(with->err_size == without->err_size &&
                      memcmp(with->err, without->err, with->err_size) == 0,
                  "stderr differs\nwith: %.1500s\nwithout: %.1500s", with->err, without->err);
}

static size_t count_files(const struct run *run, const char *suffix, char *names, size_t size)
{
    DIR *folder = opendir(run->profiles);
    ck_assert_msg(folder != NULL, "%s: %s", run->profiles, strerror(errno));
    size_t count = 0, end = strlen(suffix), used = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        size_t length = strlen(name);
        if (length < end || strcmp(name + length - end, suffix) != 0)
            continue;
        count++;
        if (used < size)
            used += (size_t)snprintf(names + used, size - used, " %s", name);
    }
    closedir(folder);
    return count;
}

size_t run_file_count(const struct run *run, const char *suffix)
{
    return count_files(run, suffix, NULL, 0);
}

void run_expect_no_file(const struct run *run)
{
    char names[1024] = "";
    size_t count = count_files(run, "", names, sizeof(names));
    ck_assert_msg(count == 0, "%zu files were left:%s", count, names);
}

int64_t run_number(const struct run *run, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = run->out; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoll(line + length + 1, NULL, 10);
    }
    ck_abort_msg("no line '%s NUMBER' in: %.2000s", key, run->out);
}
