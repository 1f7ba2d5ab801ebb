/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_harm_stacks CASE NUMBER [MS]: how deep a stack is used, told by paint: what lies below the
 * stack pointer is filled with a pattern, and the lowest word that lost it is looked for. All
 * stacks end at a page without access. Cases:
 *   depth TICK: prints the bytes used below a loop; TICK 1: with a tick whose handler is empty.
 *   coroutines SIZE: works for MS on stacks of SIZE bytes, and prints what they used.
 *   threads: works for MS, and a little more, on stacks of PTHREAD_STACK_MIN. */
#include <alloca.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { PAGE = 4096, LARGE = 128 * 1024, BELOW = 64 * 1024 };
static uint64_t work_time_ns;
static const uint64_t paint = 0x5ca1ab1e0ddba115u;

/* `size` bytes above a page without access, below which lies what is another's, as it does where
 * stacks are allocated side by side. */
static char *guarded_stack(size_t size)
{
    size_t room = (size + PAGE - 1) / PAGE * PAGE;
    char *memory =
        mmap(NULL, BELOW + PAGE + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + BELOW, PAGE, PROT_NONE) != 0)
        exit(1);
    return memory + BELOW + PAGE;
}

/* Bytes below the stack pointer that belong to the function that runs. */
enum { RED_ZONE = 128 };

static inline char *stack_pointer(void)
{
    char *pointer;
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %0" : "=r"(pointer));
#else
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
#endif
    return pointer;
}

/* Calls nothing: its own frame is all that it uses. */
__attribute__((always_inline)) static inline void paint_words(char *from, char *to)
{
    for (volatile uint64_t *word = (uint64_t *)from; word < (uint64_t *)to; word++)
        *word = paint;
}

__attribute__((always_inline)) static inline size_t used_below(const char *low, const char *high)
{
    const volatile uint64_t *word = (const uint64_t *)low;
    while (word < (const uint64_t *)high && *word == paint)
        word++;
    return (size_t)(high - (const char *)word);
}

/* ---- depth ---- */

static char *stack_low;
static timer_t tick;

/* Nothing is called, so that all that is touched is a handler's. */
__attribute__((always_inline)) static inline void compute_here(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        compute();
}

SITE static void only_compute(void)
{
    compute_here(150000);
}

/* Blocks that libc serves from its caches, with a few words of stack. */
SITE static void allocate_cached(void)
{
    for (int i = 0; i < 100000; i++) {
        void *block = malloc(100);
        keep(block);
        free(block);
    }
}

/* All ways to get a block, of sizes that libc serves from caches, lists and maps. */
SITE static void allocate_all(void)
{
    for (size_t i = 0; i < 10000; i++) {
        size_t size = i % 100 == 0 ? 300000 : 16 + i % 1500;
        void *block = malloc(size), *zeroed = calloc(1, size), *aligned = NULL;
        if (posix_memalign(&aligned, 64, size) != 0)
            exit(1);
        block = realloc(block, size + 100);
        keep(block), keep(zeroed), keep(aligned);
        free(block), free(zeroed), free(aligned);
    }
}

SITE static size_t depth_of(void (*work)(void))
{
    char *here = stack_pointer() - RED_ZONE;
    paint_words(stack_low, here);
    work();
    return used_below(stack_low, here);
}

static void empty(int signal)
{
    (void)signal;
}

/* The kernel's frame alone: a timer like the agent's, and a handler that does nothing. */
static void start_tick(void)
{
    struct sigaction action = {.sa_handler = empty, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    struct itimerspec times = {{0, 4000000}, {0, 4000000}};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    sigaction(SIGPROF, &action, NULL);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &tick) != 0 ||
        timer_settime(tick, 0, &times, NULL) != 0)
        exit(1);
}

static void *measure(void *with_tick)
{
    /* Names are looked up before, on whatever stack that takes. */
    allocate_cached();
    allocate_all();
    if (with_tick)
        start_tick();
    size_t in_compute = depth_of(only_compute), in_cached = depth_of(allocate_cached),
           in_all = depth_of(allocate_all);
    if (with_tick)
        timer_delete(tick);
    printf("compute %zu\ncached %zu\nall %zu\n", in_compute, in_cached, in_all);
    return NULL;
}

static void *nothing(void *data)
{
    return data;
}

static void on_thread(void *(*routine)(void *), void *data, size_t size)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack_low, size) != 0 ||
        pthread_create(&thread, &attributes, routine, data) != 0)
        exit(1);
    pthread_join(thread, NULL);
}

/* What a thread that does nothing uses of its stack in all, then what its work does. */
static void depth(bool with_tick)
{
    stack_low = guarded_stack(LARGE);
    on_thread(nothing, NULL, LARGE);
    paint_words(stack_low, stack_low + LARGE);
    on_thread(nothing, NULL, LARGE);
    printf("thread %zu\n", used_below(stack_low, stack_low + LARGE));
    on_thread(measure, with_tick ? &tick : NULL, LARGE);
}

/* ---- stacks without a byte to spare ---- */

enum { COROUTINES = 20 };
static ucontext_t main_context, contexts[COROUTINES];
static uint64_t work_ns, blocks;

SITE static void allocate_and_compute(void)
{
    for (int i = 0; i < 20; i++, blocks++) {
        void *block = malloc(300);
        keep(block);
        free(block);
        compute();
    }
}

static void coroutine(int self)
{
    for (;;) {
        allocate_and_compute();
        swapcontext(&contexts[self], &contexts[(self + 1) % COROUTINES]);
        if (self == 0 && thread_cpu_ns() > work_ns)
            setcontext(&main_context);
    }
}

/* Calls what the coroutines will, so that its names are looked up on a stack with room. */
static void warm_up(void)
{
    volatile bool back = false;
    allocate_and_compute();
    getcontext(&main_context);
    if (!back) {
        back = true;
        swapcontext(&contexts[0], &main_context);
    }
}

static void coroutines(size_t size)
{
    char *stacks[COROUTINES];
    warm_up();
    for (int i = 0; i < COROUTINES; i++) {
        stacks[i] = guarded_stack(size);
        paint_words(stacks[i], stacks[i] + size);
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = size;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    volatile bool done = false;
    blocks = 0;
    work_ns = thread_cpu_ns() + work_time_ns;
    getcontext(&main_context);
    if (!done) {
        done = true;
        setcontext(&contexts[0]);
    }
    size_t most = 0;
    for (int i = 0; i < COROUTINES; i++) {
        size_t used = used_below(stacks[i], stacks[i] + size);
        most = used > most ? used : most;
    }
    printf("used %zu\nframe %lu\nblocks %lu\n", most, getauxval(AT_MINSIGSTKSZ),
           (unsigned long)blocks);
}

/* What the work needs by itself: see the case `coroutines`, whose `used` is more. */
enum { OWN_NEED = 512, OURS = 2048 };

/* Works where the stack has just what is promised to be enough: the thread used the rest. */
SITE static void *on_smallest_stack(void *data)
{
    size_t needed = getauxval(AT_MINSIGSTKSZ) + OURS + OWN_NEED;
    keep(alloca((size_t)(stack_pointer() - stack_low) - needed));
    uint64_t end = thread_cpu_ns() + *(uint64_t *)data;
    while (thread_cpu_ns() < end)
        allocate_and_compute();
    return NULL;
}

static void threads(void)
{
    uint64_t ns = work_time_ns, short_ns = work_time_ns / 50;
    warm_up();
    stack_low = guarded_stack(PTHREAD_STACK_MIN);
    on_thread(on_smallest_stack, &ns, PTHREAD_STACK_MIN);
    for (int i = 0; i < 10; i++)
        on_thread(on_smallest_stack, &short_ns, PTHREAD_STACK_MIN);
    printf("done\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    work_time_ns = number_argument(argc, argv, 3, 1500) * 1000000;
    if (strcmp(name, "depth") == 0)
        depth(number_argument(argc, argv, 2, 0) != 0);
    else if (strcmp(name, "coroutines") == 0)
        coroutines(number_argument(argc, argv, 2, 65536));
    else if (strcmp(name, "threads") == 0)
        threads();
    else
        return 2;
    return 0;
}
