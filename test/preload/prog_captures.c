/* A program that captures slices of what it does: `in` works in one, `out` outside, `both` in one
 * of the thread and one of the process; `waits` is another thread, which does nothing all the time.
 */
/* CFLAGS: -O1 */
/* LIBS: -lpthread */
#define LIBAGENT_WEAK
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/libagent.h"
#include "test/preload/program.h"

static const uint64_t part_ns = 300000000;

SITE static void in(void)
{
    allocate_and_spin(part_ns);
    keep("in");
}

SITE static void out(void)
{
    allocate_and_spin(part_ns);
    keep("out");
}

SITE static void both(void)
{
    allocate_and_spin(part_ns);
    keep("both");
}

static int pipe_ends[2];
static pthread_t waiter;

SITE static void waits(void)
{
    char byte;
    keep((const void *)read(pipe_ends[0], &byte, 1));
}

static void *wait_in_thread(void *inherited)
{
    waits();
    return inherited;
}

static void start_waiter(void)
{
    if (pipe(pipe_ends) == 0 && pthread_create(&waiter, NULL, wait_in_thread, NULL) == 0)
        out();
}

static void end_waiter(void)
{
    close(pipe_ends[1]);
    pthread_join(waiter, NULL);
}

static void thread_slice(void)
{
    out();
    printf("end-of-none %d\n", libagent_capture_end());
    printf("wrong-name %d\n", libagent_capture_begin("a/b"));
    printf("no-name %d\n", libagent_capture_begin(NULL));
    printf("empty-name %d\n", libagent_capture_begin(""));
    printf("long-name %d\n", libagent_capture_begin("a2345678901234567890123456789012x"));
    printf("begin %d\n", libagent_capture_begin("order"));
    printf("nested %d\n", libagent_capture_begin("other"));
    in();
    printf("end %d\n", libagent_capture_end());
    out();
    printf("flush %d\n", libagent_flush(20000));
    printf("again %d\n", libagent_capture_begin("order"));
    in();
    printf("end-again %d\n", libagent_capture_end());
}

/* How long the slice is lies between two figures. */
static void process_slice(void)
{
    start_waiter();
    uint64_t before = clock_ns(CLOCK_MONOTONIC);
    printf("begin %d\n", libagent_process_capture_begin("all"));
    uint64_t begun = clock_ns(CLOCK_MONOTONIC);
    printf("nested %d\n", libagent_process_capture_begin("all-again"));
    in();
    printf("begin-one %d\n", libagent_capture_begin("one"));
    both();
    printf("end-one %d\n", libagent_capture_end());
    uint64_t ends = clock_ns(CLOCK_MONOTONIC);
    printf("end %d\n", libagent_process_capture_end());
    uint64_t ended = clock_ns(CLOCK_MONOTONIC);
    printf("end-again %d\n", libagent_process_capture_end());
    out();
    end_waiter();
    printf("least %llu\n", (unsigned long long)(ends - begun));
    printf("most %llu\n", (unsigned long long)(ended - before));
}

static void *end_both(void *inherited)
{
    printf("end-elsewhere %d\n", libagent_capture_end());
    printf("end-process-elsewhere %d\n", libagent_process_capture_end());
    printf("begin-elsewhere %d\n", libagent_capture_begin("left"));
    out();
    return inherited; /* in it */
}

/* Another thread ends the process's, not this one's; that of its own ends with it. */
static void other_thread(void)
{
    pthread_t thread;
    printf("begin %d\n", libagent_capture_begin("mine"));
    printf("begin-process %d\n", libagent_process_capture_begin("all"));
    in();
    pthread_create(&thread, NULL, end_both, NULL);
    pthread_join(thread, NULL);
    in();
    printf("end %d\n", libagent_capture_end());
}

/* Both are in the parent alone. */
static void fork_child(void)
{
    libagent_capture_begin("mine");
    libagent_process_capture_begin("all");
    in();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        out();
        printf("child-end %d\n", libagent_capture_end());
        printf("child-end-process %d\n", libagent_process_capture_end());
        exit(0);
    }
    waitpid(pid, NULL, 0);
    in();
    printf("child %d\n", (int)pid);
    printf("end %d\n", libagent_capture_end());
    printf("end-process %d\n", libagent_process_capture_end());
}

/* A stop ends both; after the start there are none. */
static void restart(void)
{
    libagent_capture_begin("mine");
    libagent_process_capture_begin("all");
    in();
    printf("stop %d\n", libagent_stop());
    printf("off %d\n", libagent_capture_begin("off"));
    printf("start %d\n", libagent_start(NULL));
    out();
    printf("end %d\n", libagent_capture_end());
    printf("end-process %d\n", libagent_process_capture_end());
    /* To the exit. */
    printf("begin %d\n", libagent_capture_begin("last"));
    in();
}

/* ---- everything at once ---- */

enum { STORMERS = 4, ROUNDS = 5000, CAPTURED_ONE_IN = 100, CHILDREN = 5, FLUSHES_MAX = 60 };
static int storming = STORMERS;

SITE static void labelled(void)
{
    void *block = malloc(100);
    keep(block);
    free(block);
}

SITE static void unlabelled(void)
{
    void *block = malloc(100);
    keep(block);
    free(block);
}

static void must(int error, const char *what)
{
    if (error)
        printf("%s: %d\n", what, error);
}

static void *storm_in_thread(void *number)
{
    char name[] = "a";
    name[0] = (char)(name[0] + (long)number);
    for (int i = 0; i < ROUNDS; i++) {
        bool is_captured = i % CAPTURED_ONE_IN == 0 && libagent_capture_begin(name) == 0;
        bool is_process_s = i % CAPTURED_ONE_IN == 50 && libagent_process_capture_begin("all") == 0;
        must(libagent_label_set_number("round", i % 50), "number");
        must(libagent_label_set("work", name), "set");
        labelled();
        must(libagent_label_clear("work"), "clear");
        unlabelled();
        if (is_captured)
            must(libagent_capture_end(), "end");
        if (is_process_s)
            must(libagent_process_capture_end(), "end of the process's");
    }
    __atomic_fetch_sub(&storming, 1, __ATOMIC_RELEASE);
    return number;
}

/* Windows end and children are born meanwhile. */
static void storm(void)
{
    pthread_t threads[STORMERS];
    for (long i = 0; i < STORMERS; i++)
        pthread_create(&threads[i], NULL, storm_in_thread, (void *)i);
    for (int i = 0; i < FLUSHES_MAX && __atomic_load_n(&storming, __ATOMIC_ACQUIRE); i++) {
        must(libagent_flush(20000), "flush");
        if (i < CHILDREN) {
            pid_t pid = fork();
            if (pid == 0) {
                unlabelled();
                _exit(libagent_capture_end() != -EALREADY);
            }
            int status = 0;
            waitpid(pid, &status, 0);
            must(status, "child");
        }
    }
    for (int i = 0; i < STORMERS; i++)
        pthread_join(threads[i], NULL);
    printf("rounds %d\n", ROUNDS);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*part)(void);
    } parts[] = {{"thread", thread_slice}, {"process", process_slice}, {"elsewhere", other_thread},
                 {"fork", fork_child},     {"restart", restart},       {"storm", storm}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0)
            parts[i].part();
    return 0;
}
