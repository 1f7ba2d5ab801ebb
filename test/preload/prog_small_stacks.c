/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_small_stacks MS: allocates and computes on coroutines' stacks (16 KiB, a page without access
 * below), on a signal's stack, on the smallest thread's stack, and while another thread's stack
 * is unmapped. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { COROUTINES = 20, STACK = 16384, PAGE = 4096, ALT_STACK = 16384 };

static uint64_t work_ns;
static ucontext_t main_context, contexts[COROUTINES];

static void *guarded_stack(size_t size)
{
    char *memory =
        mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0)
        exit(1);
    return memory + PAGE;
}

SITE static void allocate_and_compute(void)
{
    for (int i = 0; i < 50; i++) {
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

static void handle(int signal)
{
    (void)signal;
    spin(20000000);
    allocate_and_compute();
}

static void *on_smallest_stack(void *data)
{
    allocate_and_compute();
    spin(20000000);
    return data;
}

int main(int argc, char **argv)
{
    work_ns = number_argument(argc, argv, 1, 300) * 1000000;
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = guarded_stack(STACK);
        contexts[i].uc_stack.ss_size = STACK;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    volatile int done = 0;
    getcontext(&main_context);
    if (!done) {
        done = 1;
        setcontext(&contexts[0]);
    }
    sigaltstack(&(stack_t){.ss_sp = guarded_stack(ALT_STACK), .ss_size = ALT_STACK}, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_ONSTACK}, NULL);
    for (int i = 0; i < 5; i++)
        raise(SIGUSR1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, guarded_stack(PTHREAD_STACK_MIN), PTHREAD_STACK_MIN))
        return 1;
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, on_smallest_stack, NULL))
            return 1;
        pthread_join(thread, NULL);
    }
    printf("done\n");
    return 0;
}
