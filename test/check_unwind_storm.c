/* Objects that come and go under walks: 8 threads are sampled at 2 kHz in code of 50 objects, which
 * another thread opens and closes without pause (four of them at one address, with the same
 * instructions and other frames); a third forks, a fourth throws. 10 s of it, or
 * $UNWIND_STORM_SECONDS. Every rule that the cache gives is compared with the tables of the object
 * that is loaded (rule_checker.h).
 *
 * How code is run that may be closed at any time: each of a few places holds an open object's
 * function and the number of threads inside. The opener takes the function away, waits until nobody
 * is inside, and only then closes; so a frame of a closed object is never on a stack.
 *
 * Here the test does what the shim does around dlopen, dlclose and fork. */
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"
#include "test/preload/program.h"
#include "test/rule_checker.h"
#include "test/temp_folder.h"
#include "test/unwind_reference.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
    WORKERS = 8,
    LIBRARIES = 50,
    OVERLAPPING = 4, /* the first ones; one of them is open at a time, in place 0 */
    PLACES = 6,
    DEPTH = 12,
    PERIOD_NS = 500000,
    DEFAULT_SECONDS = 10,
    HANG_SECONDS = 60, /* a thread without progress for so long hangs, on however busy a machine */
    THROWN_AT_ONCE = 50,
};
/* Of the stacks of the 8; the rest may be cut off in code without rules, or in objects between
 * their being opened and being known. */
#define COMPLETE_MIN 0.995

typedef void frames_fn(unsigned depth);

static const char *folder;
static char paths[LIBRARIES][256];
static struct place {
    frames_fn *work;
    void *handle;
    uint32_t users; /* threads inside */
    int library;
} places[PLACES];
static uintptr_t overlapping[OVERLAPPING];

static bool over;
static uint64_t opened, refused, forked, children_wrong, thrown, thrown_wrong;

/* What a sampled thread knows of itself; written by its own handler alone. */
struct sampled {
    pthread_t thread;
    timer_t timer;
    struct thread_slot *slot;
    uint64_t progress;
    uint64_t samples, complete, wrong;
    struct frames incomplete; /* the last one */
};
static struct sampled workers[WORKERS], opener, thrower, forker;

static void give_up(const char *what)
{
    fprintf(stderr, "storm: %s, errno %d\n", what, errno);
    abort();
}

/* ---- Sampling ---- */

static SITE void *worker(void *data);
static uintptr_t worker_size;

/* The thread's own function is among the frames. */
static bool has_worker(const struct frames *frames)
{
    for (uint32_t i = 0; i < frames->count; i++)
        if (frames->pcs[i] - (uintptr_t)worker < worker_size)
            return true;
    return false;
}

static void sample(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    struct sampled *self = info->si_value.sival_ptr;
    int saved = errno;
    struct frames frames;
    thread_guard_enter(self->slot);
    agent_walk(context, &frames);
    thread_guard_leave(self->slot);
    self->samples++;
    if (!(frames.flags & UNWIND_COMPLETE))
        self->incomplete = frames;
    else if (self >= workers && self < workers + WORKERS && !has_worker(&frames))
        self->wrong++;
    else
        self->complete++;
    errno = saved;
}

static void sampling_starts(struct sampled *self)
{
    self->slot = thread_attach(0, 0);
    test_home_set();
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event.sigev_value.sival_ptr = self;
    event.sigev_notify_thread_id = sys_tid();
    const struct itimerspec period = {{0, PERIOD_NS}, {0, PERIOD_NS}};
    if (!self->slot || timer_create(CLOCK_MONOTONIC, &event, &self->timer) != 0 ||
        timer_settime(self->timer, 0, &period, NULL) != 0)
        give_up("a timer");
}

/* A signal may be pending yet; it is handled when this returns. */
static void sampling_ends(struct sampled *self)
{
    timer_delete(self->timer);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    thread_leave();
}

/* ---- The 8 ---- */

static SITE void recurse(unsigned depth)
{
    if (depth)
        recurse(depth - 1);
    else
        compute();
    keep(&depth);
}

static int compare(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static SITE void *worker(void *data)
{
    struct sampled *self = data;
    struct rng rng = {.state = (uint64_t)(self - workers) + 1};
    sampling_starts(self);
    while (!load_relaxed(&over)) {
        uint64_t draw = rng_next(&rng);
        struct place *place = &places[draw % 4 ? (draw >> 8) % PLACES : 0];
        __atomic_add_fetch(&place->users, 1, __ATOMIC_SEQ_CST);
        frames_fn *work = __atomic_load_n(&place->work, __ATOMIC_SEQ_CST);
        for (int i = 0; work && i < 20; i++)
            work((unsigned)(draw >> 16) % DEPTH);
        __atomic_sub_fetch(&place->users, 1, __ATOMIC_SEQ_CST);
        if (draw >> 32 & 1) {
            uint32_t numbers[64];
            for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                numbers[i] = (uint32_t)rng_next(&rng);
            qsort(numbers, ARRAY_SIZE(numbers), sizeof(numbers[0]), compare);
            keep(numbers);
        } else {
            recurse((unsigned)(draw >> 24) % 64);
        }
        store_relaxed(&self->progress, self->progress + 1);
    }
    sampling_ends(self);
    return NULL;
}

/* ---- The others ---- */

/* The list is at most full of lists that walkers hold: the next rescan finds one that is free. */
static void rescan(void)
{
    int error;
    while ((error = modules_rescan()) != 0) {
        if (error != -EAGAIN && error != -ETIMEDOUT)
            give_up("a rescan");
        refused++;
        sched_yield();
    }
}

static void open_at(struct place *place, int library)
{
    place->library = library;
    place->handle = dlopen(paths[library], RTLD_NOW);
    frames_fn *work = place->handle ? (frames_fn *)dlsym(place->handle, "storm_frames") : NULL;
    if (!work)
        give_up(dlerror());
    rescan();
    if (library < OVERLAPPING)
        overlapping[library] = (uintptr_t)work;
    opened++;
    work(DEPTH);
    __atomic_store_n(&place->work, work, __ATOMIC_SEQ_CST);
}

/* False while a thread is inside. */
static bool close_at(struct place *place)
{
    __atomic_store_n(&place->work, NULL, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&place->users, __ATOMIC_SEQ_CST) != 0)
        return false;
    if (dlclose(place->handle) != 0 || dlopen(paths[place->library], RTLD_NOW | RTLD_NOLOAD))
        give_up("closing");
    rescan();
    place->handle = NULL;
    return true;
}

/* The next one of those that do not overlap, and that is not open (a place may stay in use long).
 */
static int next_other(void)
{
    static int next = OVERLAPPING - 1;
    bool is_open = true;
    while (is_open) {
        next = next + 1 < LIBRARIES ? next + 1 : OVERLAPPING;
        is_open = false;
        for (struct place *place = places; place < places + PLACES; place++)
            is_open = is_open || (place->handle && place->library == next);
    }
    return next;
}

static void *open_and_close(void *data)
{
    (void)data;
    int next_overlapping = 0;
    sampling_starts(&opener);
    while (!load_relaxed(&over)) {
        bool worked = false;
        for (struct place *place = places; place < places + PLACES; place++) {
            if (place->handle && !close_at(place))
                continue;
            worked = true;
            open_at(place, place == places ? next_overlapping++ % OVERLAPPING : next_other());
        }
        if (!worked)
            sched_yield();
        store_relaxed(&opener.progress, opener.progress + 1);
    }
    sampling_ends(&opener);
    return NULL;
}

static SITE bool walk_at_depth(struct thread_slot *slot, unsigned depth)
{
    bool good;
    if (depth) {
        good = walk_at_depth(slot, depth - 1);
    } else {
        struct frames frames;
        thread_guard_enter(slot);
        walk_here(&frames);
        thread_guard_leave(slot);
        good = frames.flags & UNWIND_COMPLETE && frames.count > 10;
    }
    keep(&depth);
    return good;
}

static void run_child(struct thread_slot *slot)
{
    thread_reset_in_child();
    modules_distrust_loader();
    modules_unlock_after_fork();
    bool good = true;
    for (unsigned i = 0; i < 50; i++)
        good = walk_at_depth(slot, 10 + i) && good;
    _exit(good && rule_checks.stale == 0 ? 0 : 1);
}

static void *fork_on(void *data)
{
    (void)data;
    struct thread_slot *slot = thread_attach(0, 0);
    test_home_set();
    while (!load_relaxed(&over)) {
        modules_lock_for_fork();
        pid_t child = fork();
        if (child == 0)
            run_child(slot);
        modules_unlock_after_fork();
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child)
            give_up("a child");
        forked++;
        children_wrong += status != 0;
        store_relaxed(&forker.progress, forker.progress + 1);
    }
    thread_leave();
    return NULL;
}

static void *throw_on(void *throws)
{
    unsigned long (*storm_throw)(unsigned long) =
        (unsigned long (*)(unsigned long))(uintptr_t)throws;
    sampling_starts(&thrower);
    while (!load_relaxed(&over)) {
        thrown += THROWN_AT_ONCE;
        thrown_wrong += THROWN_AT_ONCE - storm_throw(THROWN_AT_ONCE);
        store_relaxed(&thrower.progress, thrower.progress + 1);
    }
    sampling_ends(&thrower);
    return NULL;
}

/* ---- The test ---- */

static void nothing_leaves(void) {}

/* The objects that are built beside this program, as LIBRARIES files. */
static void *make_libraries(void)
{
    char own[PATH_MAX], command[PATH_MAX + 512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    ck_assert_int_gt(length, 0);
    own[length] = 0;
    *strrchr(own, '/') = 0;
    folder = temp_folder_make();
    for (int i = 0; i < LIBRARIES; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s", in_folder(folder, "frames"));
        snprintf(paths[i] + strlen(paths[i]), 16, "%d.so", i);
        snprintf(command, sizeof(command), "cp '%s/storm_frames%d.so' '%s'", own,
                 i < OVERLAPPING ? i : OVERLAPPING, paths[i]);
        ck_assert_int_eq(system(command), 0);
    }
    snprintf(command, sizeof(command), "%s/storm_throws.so", own);
    void *throws = dlopen(command, RTLD_NOW);
    ck_assert_msg(throws, "%s", dlerror());
    return dlsym(throws, "storm_throw");
}

static unsigned storm_seconds(void)
{
    const char *text = getenv("UNWIND_STORM_SECONDS");
    return text && atoi(text) > 0 ? (unsigned)atoi(text) : DEFAULT_SECONDS;
}

/* Waits for the end; a thread that makes no progress meanwhile hangs. */
static void watch(void)
{
    struct sampled *all[WORKERS + 3] = {&opener, &thrower, &forker};
    uint64_t last[WORKERS + 3] = {0}, since[WORKERS + 3];
    for (int i = 0; i < WORKERS; i++)
        all[3 + i] = &workers[i];
    uint64_t now = clock_ns(CLOCK_MONOTONIC), end = now + storm_seconds() * 1000000000ull;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        since[i] = now;
    while (now < end) {
        usleep(100000);
        now = clock_ns(CLOCK_MONOTONIC);
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
            uint64_t progress = load_relaxed(&all[i]->progress);
            if (progress != last[i])
                since[i] = now;
            last[i] = progress;
            if (now - since[i] > HANG_SECONDS * 1000000000ull)
                give_up(i == 0 ? "the opener hangs" : "a thread hangs");
        }
    }
}

static void print_share(const char *who, const struct sampled *s)
{
    printf("%s: %llu samples, %.3f %% complete\n", who, (unsigned long long)s->samples,
           s->samples ? 100.0 * (double)s->complete / (double)s->samples : 0.0);
    if (s->incomplete.count)
        print_frames(stdout, "one that is not", &s->incomplete);
}

static void judge(void)
{
    struct sampled sum = {.samples = 0};
    for (int i = 0; i < WORKERS; i++) {
        sum.samples += workers[i].samples;
        sum.complete += workers[i].complete;
        sum.wrong += workers[i].wrong;
        if (workers[i].incomplete.count)
            sum.incomplete = workers[i].incomplete;
    }
    print_share("the 8", &sum);
    print_share("opener", &opener);
    print_share("thrower", &thrower);
    printf("opened %llu, rescans refused %llu, forked %llu, thrown %llu, misses %llu\n",
           (unsigned long long)opened, (unsigned long long)refused, (unsigned long long)forked,
           (unsigned long long)thrown, (unsigned long long)stats_get(STAT_UNWIND_CACHE_MISSES));
    printf("rules: %llu right, %llu of a list that was replaced, %llu not compared, %llu stale\n",
           (unsigned long long)rule_checks.equal, (unsigned long long)rule_checks.outdated,
           (unsigned long long)rule_checks.left_out, (unsigned long long)rule_checks.stale);
    if (rule_checks.stale)
        printf("at %llx: %llx, right is %llx\n", (unsigned long long)rule_checks.stale_pc,
               (unsigned long long)rule_checks.stale_rule,
               (unsigned long long)rule_checks.right_rule);
    fflush(stdout);
    ck_assert_uint_eq(rule_checks.stale, 0);
    ck_assert_uint_gt(rule_checks.equal, sum.samples);
    ck_assert_uint_eq(sum.wrong, 0);
    ck_assert_uint_gt(sum.samples, 1000);
    ck_assert_double_ge((double)sum.complete, COMPLETE_MIN * (double)sum.samples);
    ck_assert_uint_gt(opened, 2 * LIBRARIES);
    ck_assert_uint_gt(forked, 0);
    ck_assert_uint_eq(children_wrong, 0);
    ck_assert_uint_gt(thrown, 0);
    ck_assert_uint_eq(thrown_wrong, 0);
    for (int i = 1; i < OVERLAPPING; i++)
        ck_assert_uint_eq(overlapping[i], overlapping[0]);
}

START_TEST(a_storm)
{
    void *throws = make_libraries();
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    worker_size =
        dladdr1((void *)(uintptr_t)worker, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol
            ? symbol->st_size
            : 4096;
    struct sigaction action = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    ck_assert_int_eq(thread_start(nothing_leaves), 0);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    rule_checker_start();
    ck_assert_int_eq(pthread_create(&opener.thread, NULL, open_and_close, NULL), 0);
    ck_assert_int_eq(pthread_create(&forker.thread, NULL, fork_on, NULL), 0);
    ck_assert_int_eq(pthread_create(&thrower.thread, NULL, throw_on, throws), 0);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker, &workers[i]), 0);
    watch();
    store_relaxed(&over, true);
    pthread_join(opener.thread, NULL);
    pthread_join(forker.thread, NULL);
    pthread_join(thrower.thread, NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    temp_folder_remove(folder);
    judge();
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("unwind_storm");
    TCase *t = tcase_create("unwind_storm");
    tcase_set_timeout(t, 2 * HANG_SECONDS + storm_seconds());
    tcase_add_test(t, a_storm);
    suite_add_tcase(s, t);
    return s;
}
