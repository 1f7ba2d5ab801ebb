/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_go_stacks MS: what Go's runtime does to run goroutines on stacks of a page: it adds
 * SA_ONSTACK to the handler of signal 32 that it finds, past libc, and has an alternate stack in
 * each thread. Then a thread is cancelled, which changes that signal's handler, and main computes
 * on a small stack, with pages that nothing may touch on both sides. */
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "test/preload/program.h"

enum { SIGNAL = 32, PAGE = 4096, ALTERNATE = 65536 };

/* The kernel's. */
struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static ucontext_t main_context, small_context;
static uint64_t work_ns;

static struct action action_of_signal(const struct action *next)
{
    struct action old = {0};
    if (syscall(SYS_rt_sigaction, SIGNAL, next, &old, sizeof(old.mask)) != 0)
        exit(1);
    return old;
}

static void *wait_for_the_end(void *data)
{
    pause();
    return data;
}

SITE static void on_small_stack(void)
{
    spin(work_ns);
    keep(&work_ns);
}

int main(int argc, char **argv)
{
    work_ns = number_argument(argc, argv, 1, 100) * 1000000;
    stack_t alternate = {.ss_sp = malloc(ALTERNATE), .ss_size = ALTERNATE};
    char *pages = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigaltstack(&alternate, NULL) != 0 || pages == MAP_FAILED ||
        mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
        return 1;
    struct action found = action_of_signal(NULL);
    if (found.handler != SIG_DFL) {
        found.flags |= SA_ONSTACK;
        action_of_signal(&found);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_the_end, NULL) != 0)
        return 1;
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    getcontext(&small_context);
    small_context.uc_stack.ss_sp = pages + PAGE;
    small_context.uc_stack.ss_size = PAGE;
    small_context.uc_link = &main_context;
    makecontext(&small_context, on_small_stack, 0);
    swapcontext(&main_context, &small_context);
    printf("end\n");
    return 0;
}
