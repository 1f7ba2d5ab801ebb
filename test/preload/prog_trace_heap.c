/* prog_trace_heap: a preload, behind the agent's, that knows the size of each live block, and tells
 * how many bytes are live in $LIBAGENT_OUTPUT/trace.PID.N (heap_trace.h). Of blocks that were
 * allocated before its constructor, which runs next before the agent's, it knows nothing, as the
 * agent does.
 *
 * A block is in the table from before the program has its address until before it is given back; a
 * call that ends in another hook of this file (calloc in malloc) just writes the same entry twice.
 * One lock for all: exact, not fast. It is held over fork. */
/* CFLAGS: -O2 -fPIC -shared -fno-builtin */
/* LIBS: -lm -ldl -lpthread */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test/preload/heap_trace.h"

enum { TABLE_BITS = 23 };
static const uint32_t table_size = 1u << TABLE_BITS;

static struct entry {
    uintptr_t address; /* 0: none */
    size_t size;
} * table;

static uint32_t entries;
static struct trace_file *file;
static struct trace_tick live; /* its `last`, samples and variance: now */
static double interval = 1;
static char lock;

/* ---- the next definitions ---- */

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);

/* For dlsym, while it looks for them. */
static _Alignas(16) char arena[8192];
static size_t arena_used;

static void *arena_take(size_t size)
{
    size_t at = arena_used;
    arena_used += (size + 15) & ~(size_t)15;
    return arena_used <= sizeof(arena) ? arena + at : NULL;
}

static bool is_of_arena(const void *block)
{
    return (uintptr_t)block - (uintptr_t)arena < sizeof(arena);
}

static bool look_up(void)
{
    static bool under_way;
    if (next_malloc || under_way)
        return next_malloc != NULL;
    under_way = true;
    *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    *(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&next_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&next_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    under_way = false;
    return true;
}

/* ---- the table; the lock is held ---- */

static void take_lock(void)
{
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void release_lock(void)
{
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static uint32_t home_of(uintptr_t address)
{
    return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15u >> (64 - TABLE_BITS));
}

/* Where it is, or where it would be. */
static uint32_t find(uintptr_t address)
{
    uint32_t at = home_of(address);
    while (table[at].address && table[at].address != address)
        at = (at + 1) % table_size;
    return at;
}

static void erase(uint32_t hole)
{
    for (uint32_t at = (hole + 1) % table_size; table[at].address; at = (at + 1) % table_size) {
        uint32_t home = home_of(table[at].address);
        if ((at - home) % table_size >= (at - hole) % table_size) {
            table[hole] = table[at];
            hole = at;
        }
    }
    table[hole].address = 0;
    entries--;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct trace_tick tick_of_now(void)
{
    return (struct trace_tick){live.last, live.last, live.last, 1, live.samples, live.variance};
}

/* `size` bytes more, or less. */
static void change(size_t size, int by)
{
    uint64_t number = (now_ns() - file->start_ns) >> TRACE_TICK_BITS;
    struct trace_tick *tick = &file->ticks[number < TRACE_TICKS ? number : TRACE_TICKS - 1];
    if (!tick->written)
        *tick = tick_of_now();
    double bytes = (double)size;
    double p = interval > 1 ? -expm1(-bytes / interval) : 1;
    live.last += by > 0 ? size : -size;
    live.samples += by * p;
    live.variance += by * bytes * bytes * (1 - p) / p;
    tick->last = live.last;
    tick->least = live.last < tick->least ? live.last : tick->least;
    tick->most = live.last > tick->most ? live.last : tick->most;
    tick->samples = live.samples;
    tick->variance = fmax(tick->variance, live.variance);
    if (by > 0 && bytes <= TRACE_CERTAIN * interval)
        file->largest = fmax(file->largest, bytes / p);
}

static void insert(uintptr_t address, size_t size)
{
    uint32_t at = find(address);
    if (table[at].address) {
        change(table[at].size, -1);
    } else if (entries >= table_size / 2) {
        file->lost++;
        return;
    } else {
        entries++;
    }
    table[at] = (struct entry){address, size};
    change(size, 1);
}

/* A block of no bytes is one of one byte, as for the agent. */
static void add(const void *block, size_t size)
{
    if (!block || !file)
        return;
    take_lock();
    insert((uintptr_t)block, size + !size);
    release_lock();
}

/* Its size, 0: not known. */
static size_t take(const void *block)
{
    size_t size = 0;
    if (!block || !file)
        return 0;
    take_lock();
    uint32_t at = find((uintptr_t)block);
    if (table[at].address) {
        size = table[at].size;
        change(size, -1);
        erase(at);
    }
    release_lock();
    return size;
}

/* ---- the file ---- */

static struct trace_file *make_file(const char *folder)
{
    char path[512];
    int fd = -1;
    for (int i = 0; fd < 0 && i < 100; i++) {
        snprintf(path, sizeof(path), "%s/trace.%d.%d", folder, getpid(), i);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 && errno != EEXIST)
            return NULL;
    }
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(*file)) == 0)
        memory = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return NULL;
    struct trace_file *made = memory;
    made->start_ns = now_ns();
    made->ticks[0] = tick_of_now();
    return made;
}

static void begin_in_child(void)
{
    double largest = file ? file->largest : 0;
    if (file) {
        munmap(file, sizeof(*file));
        file = make_file(getenv("LIBAGENT_OUTPUT"));
    }
    if (file)
        file->largest = largest;
    release_lock();
}

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("LIBAGENT_OUTPUT"), *given = getenv("LIBAGENT_ALLOC_INTERVAL");
    look_up();
    if (!folder || !given)
        return;
    interval = atof(given);
    table = mmap(NULL, sizeof(*table) << TABLE_BITS, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return;
    pthread_atfork(take_lock, release_lock, begin_in_child);
    file = make_file(folder);
}

/* ---- the hooks ---- */

void *malloc(size_t size)
{
    if (!look_up())
        return arena_take(size);
    void *block = next_malloc(size);
    add(block, size);
    return block;
}

void free(void *block)
{
    if (is_of_arena(block) || !look_up())
        return;
    take(block);
    next_free(block);
}

void *calloc(size_t count, size_t size)
{
    if (!look_up())
        return arena_take(count * size);
    void *block = next_calloc(count, size);
    add(block, count * size);
    return block;
}

void *realloc(void *old, size_t size)
{
    if (!look_up())
        return NULL;
    size_t before = take(old);
    void *block = next_realloc(old, size);
    if (block)
        add(block, size);
    else if (size && before)
        add(old, before);
    return block;
}

void *reallocarray(void *old, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, total);
}

void *memalign(size_t alignment, size_t size)
{
    if (!look_up())
        return NULL;
    void *block = next_memalign(alignment, size);
    add(block, size);
    return block;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (!look_up())
        return NULL;
    void *block = next_aligned_alloc(alignment, size);
    add(block, size);
    return block;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!look_up())
        return ENOMEM;
    int error = next_posix_memalign(out, alignment, size);
    if (error == 0)
        add(*out, size);
    return error;
}
