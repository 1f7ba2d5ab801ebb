/* CFLAGS: -O2 */
/* LIBS: -ldl -lpthread */
/* prog_storm SECONDS PLUGIN...: everything at once. 50 threads allocate and free each other's
 * blocks; one opens and closes the plugins without pause; one forks; two make threads that soon
 * end, half of them cancelled; one throws; one has a timer of its own with SIGPROF, beside the
 * process's ITIMER_PROF. Tells what was allocated (by way and size), what of CPU time was used, and
 * the same of each child that ends by exit. */
#include <atomic>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"
#include "test/preload/storm_allocations.h"

enum { ALLOCATORS = 50, SPAWNERS = 2, SPAWNED_AT_ONCE = 4, CHILDREN_AT_ONCE = 6 };

/* So much later than the end a thread that is still there hangs. */
enum { HANG_SECONDS = 60 };

static std::atomic<bool> over;
static std::atomic<unsigned long> wrong, opened, forked, spawned, cancelled, destroyed, thrown;
static std::atomic<unsigned long> own_ticks, process_ticks;
static char **plugins;
static unsigned plugin_count;
/* A child's exit needs locks of libc and of the loader that an opener may hold at the fork, with or
 * without an agent. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static void expect(bool good, const char *what)
{
    if (good)
        return;
    wrong++;
    char line[128];
    int length = std::snprintf(line, sizeof(line), "wrong: %s, errno %d\n", what, errno);
    (void)!write(2, line, (size_t)length);
}

static void *allocator(void *number)
{
    StormTally tally(1 + (uintptr_t)number);
    while (!over) {
        storm_allocate(tally);
        compute();
    }
    return nullptr;
}

static void *opener(void *)
{
    for (unsigned i = 0; !over; i++) {
        pthread_mutex_lock(&opening);
        void *handle = dlopen(plugins[i % plugin_count], i % 3 ? RTLD_NOW : RTLD_LAZY);
        pthread_mutex_unlock(&opening);
        expect(handle, "dlopen");
        if (!handle)
            continue;
        auto *work = (storm_plugin_work_fn *)dlsym(handle, "storm_plugin_work");
        auto *spin_there = (uint64_t(*)(uint64_t))dlsym(handle, "plugin_work");
        expect(work ? work(i) == 1 : spin_there && spin_there(20000) >= 20000, "plugin");
        pthread_mutex_lock(&opening);
        expect(dlclose(handle) == 0, "dlclose");
        expect(!dlopen(plugins[i % plugin_count], RTLD_NOW | RTLD_NOLOAD), "unloading");
        pthread_mutex_unlock(&opening);
        opened++;
    }
    return nullptr;
}

/* ---- threads that come and go ---- */

struct Guard {
    ~Guard() { destroyed++; }
};

static pthread_key_t key;
static thread_local std::string local_text;

/* Allocates in a thread's last moments. */
static void at_thread_end(void *block)
{
    free(block);
    free(malloc(200));
}

enum spawned_way { RETURNS, EXITS, CANCELLED_AT_WORK, CANCELLED_IN_WAIT, SPAWNED_WAYS };

/* Allocations: about 8 ms of CPU time, of which a thread's last 0.1 to 0.4 ms are a small part,
 * when libc gives back the blocks that it kept for the thread and calls nothing of the agent's any
 * more. */
enum { SPAWNED_WORK = 2000 };

SITE static void spawned_work(StormTally &tally, spawned_way way)
{
    Guard guard;
    pthread_setspecific(key, malloc(100));
    local_text = "a text of a thread's own, long enough that it is allocated";
    for (int i = 0; i < SPAWNED_WORK; i++) {
        storm_allocate(tally);
        compute();
    }
    if (way == EXITS)
        pthread_exit(nullptr);
    while (way == CANCELLED_AT_WORK) {
        storm_allocate(tally);
        pthread_testcancel();
    }
    if (way == CANCELLED_IN_WAIT)
        pause();
}

static void *spawned_main(void *number)
{
    StormTally tally(1000 + (uintptr_t)number);
    spawned_work(tally, (spawned_way)((uintptr_t)number % SPAWNED_WAYS));
    return nullptr;
}

static void *spawner(void *number)
{
    uintptr_t count = (uintptr_t)number << 32;
    while (!over) {
        pthread_t threads[SPAWNED_AT_ONCE];
        for (pthread_t &thread : threads)
            expect(pthread_create(&thread, nullptr, spawned_main, (void *)count++) == 0, "thread");
        for (unsigned i = 0; i < SPAWNED_AT_ONCE; i++)
            if (i % SPAWNED_WAYS >= CANCELLED_AT_WORK)
                expect(pthread_cancel(threads[i]) == 0, "cancel");
        for (pthread_t thread : threads) {
            void *result = nullptr;
            expect(pthread_join(thread, &result) == 0, "join");
            cancelled += result == PTHREAD_CANCELED;
        }
        spawned += SPAWNED_AT_ONCE;
    }
    return nullptr;
}

/* ---- children ---- */

/* Without stdio, whose locks another thread of the parent may have held. */
static void tell_counts(uint64_t cpu_ns)
{
    char line[512];
    int length = std::snprintf(line, sizeof(line), "child %d %lu", getpid(), (unsigned long)cpu_ns);
    for (int i = 0; i < STORM_SIZES; i++) {
        uint64_t count = 0;
        for (const auto &of_way : storm_counted)
            count += of_way[i];
        length += std::snprintf(line + length, sizeof(line) - (size_t)length, " %lu",
                                (unsigned long)count);
    }
    line[length++] = '\n';
    (void)!write(1, line, (size_t)length);
}

static void *child_allocator(void *number)
{
    StormTally tally(2000 + (uintptr_t)number);
    for (int i = 0; i < 4000; i++)
        storm_allocate(tally);
    return nullptr;
}

[[noreturn]] static void child(storm_end end, uintptr_t number)
{
    uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    std::memset(storm_counted, 0, sizeof(storm_counted));
    wrong = 0;
    pthread_t thread;
    expect(pthread_create(&thread, nullptr, child_allocator, (void *)(2 * number)) == 0,
           "thread in child");
    child_allocator((void *)(2 * number + 1));
    expect(pthread_join(thread, nullptr) == 0, "join in child");
    if (wrong || storm_failed)
        _exit(99);
    if (end == STORM_EXEC) {
        execl("/bin/true", "true", (char *)nullptr);
        _exit(98);
    }
    if (end == STORM_EXIT_AT_ONCE)
        _exit(40 + end);
    tell_counts(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin);
    std::exit(40 + end);
}

static void wait_for_child()
{
    int status = 0;
    struct rusage usage;
    pid_t pid = wait4(-1, &status, 0, &usage);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    expect(pid > 0 && (code == 0 || code == 40 + STORM_EXIT || code == 40 + STORM_EXIT_AT_ONCE),
           "status of a child");
    uint64_t us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    char line[64];
    int length = 0;
    if (code == 40 + STORM_EXIT)
        length = std::snprintf(line, sizeof(line), "ended %d %lu\n", pid, (unsigned long)us * 1000);
    length += std::snprintf(line + length, sizeof(line) - (size_t)length, "reaped %d\n", pid);
    (void)!write(1, line, (size_t)length);
}

static void *forker(void *)
{
    unsigned alive = 0;
    for (uintptr_t i = 0; !over || alive; i++) {
        if (alive == CHILDREN_AT_ONCE || over) {
            wait_for_child();
            alive--;
        }
        if (over)
            continue;
        storm_end end = (storm_end)(i % STORM_ENDS);
        if (end == STORM_EXIT)
            pthread_mutex_lock(&opening);
        pid_t pid = fork();
        if (pid == 0)
            child(end, i);
        if (end == STORM_EXIT)
            pthread_mutex_unlock(&opening);
        expect(pid > 0, "fork");
        alive += pid > 0;
        forked += pid > 0;
    }
    return nullptr;
}

/* ---- exceptions and timers ---- */

SITE static void throw_from(unsigned long i, unsigned depth)
{
    Guard guard;
    std::string text = "thrown, and long enough that it is allocated";
    keep(&text);
    if (depth)
        throw_from(i, depth - 1);
    else if (i % 2)
        throw std::runtime_error(text);
    else
        keep(&text.at(1000));
    keep(&text);
}

static void *thrower(void *)
{
    for (unsigned long i = 0; !over; i++) {
        try {
            throw_from(i, STORM_THROW_FRAMES - 1);
        } catch (const std::runtime_error &) {
            expect(i % 2 == 1, "runtime_error");
        } catch (const std::out_of_range &) {
            expect(i % 2 == 0, "out_of_range");
        }
        thrown++;
        for (int k = 0; k < 10; k++)
            compute();
    }
    return nullptr;
}

static void on_sigprof(int, siginfo_t *info, void *)
{
    int saved = errno;
    if (info->si_code == SI_TIMER)
        own_ticks += info->si_value.sival_ptr == &own_ticks;
    else
        process_ticks++;
    compute();
    errno = saved;
}

static void *ticker(void *)
{
    struct sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event.sigev_value.sival_ptr = &own_ticks;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    const struct itimerspec each = {{0, 5000000}, {0, 5000000}};
    timer_t timer;
    expect(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0, "timer_create");
    expect(timer_settime(timer, 0, &each, nullptr) == 0, "timer_settime");
    while (!over)
        compute();
    expect(timer_delete(timer) == 0, "timer_delete");
    return nullptr;
}

/* ---- all of them ---- */

struct Role {
    const char *name;
    void *(*routine)(void *);
    unsigned count;
};

static const Role roles[] = {
    {"allocator", allocator, ALLOCATORS}, {"opener", opener, 1},   {"forker", forker, 1},
    {"spawner", spawner, SPAWNERS},       {"thrower", thrower, 1}, {"ticker", ticker, 1}};

enum { THREADS = ALLOCATORS + SPAWNERS + 4 };

static struct Start {
    const Role *role;
    uintptr_t number;
    pthread_t thread;
    std::atomic<bool> done;
} starts[THREADS];

static std::atomic<bool> clock_is_read;

/* Threads that are done wait until the process's clock is read: what their ends take is after it.
 */
static void *role_main(void *argument)
{
    Start *start = static_cast<Start *>(argument);
    start->role->routine((void *)start->number);
    start->done = true;
    while (!clock_is_read)
        usleep(1000);
    return nullptr;
}

static void start_all()
{
    unsigned started = 0;
    for (const Role &role : roles)
        for (unsigned i = 0; i < role.count; i++) {
            Start &start = starts[started++];
            start.role = &role;
            start.number = i;
            expect(pthread_create(&start.thread, nullptr, role_main, &start) == 0, role.name);
        }
}

/* The process's CPU clock when all are done. */
static uint64_t end_all()
{
    over = true;
    uint64_t limit = clock_ns(CLOCK_MONOTONIC) + HANG_SECONDS * 1000000000ull;
    for (Start &start : starts)
        while (!start.done) {
            usleep(1000);
            if (clock_ns(CLOCK_MONOTONIC) < limit)
                continue;
            std::fprintf(stderr, "hangs: %s\n", start.role->name);
            abort();
        }
    uint64_t clock = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    clock_is_read = true;
    for (Start &start : starts)
        expect(pthread_join(start.thread, nullptr) == 0, "join");
    return clock;
}

static void tell(uint64_t process_ns)
{
    static const char *const ways[] = {
#define X(name) "storm_" #name,
        STORM_WAYS(X)
#undef X
    };
    for (int way = 0; way < STORM_WAYS_COUNT; way++) {
        std::printf("%s", ways[way]);
        for (uint64_t count : storm_counted[way])
            std::printf(" %lu", (unsigned long)count);
        std::printf("\n");
    }
    const struct {
        const char *name;
        unsigned long value;
    } values[] = {{"wrong", wrong + storm_failed},
                  {"opened", opened},
                  {"forked", forked},
                  {"spawned", spawned},
                  {"cancelled", cancelled},
                  {"destroyed", destroyed},
                  {"thrown", thrown},
                  {"own_ticks", own_ticks},
                  {"process_ticks", process_ticks},
                  {"process", process_ns},
                  {"process_with_ends", clock_ns(CLOCK_PROCESS_CPUTIME_ID)}};
    for (const auto &value : values)
        std::printf("%s %lu\n", value.name, value.value);
}

int main(int argc, char **argv)
{
    unsigned seconds = (unsigned)number_argument(argc, argv, 1, 10);
    plugins = argv + 2;
    plugin_count = (unsigned)(argc - 2);
    if (argc < 3 || pthread_key_create(&key, at_thread_end) != 0)
        return 2;
    struct sigaction action = {};
    action.sa_sigaction = on_sigprof;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    const struct itimerval each = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_PROF, &each, nullptr);

    start_all();
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) == EINTR)
        continue;
    tell(end_all());
    return 0;
}
