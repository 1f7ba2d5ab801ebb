/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* Ways to come to a place other than by call and return: jumps, changes of stacks, handlers, tail
 * calls, calls that do not return, code that no object has. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "test/preload/made_code.h"

static jmp_buf jump;
static sigjmp_buf signal_jump;
static ucontext_t main_context, coroutine, other;
static char coroutine_stack[65536], other_stack[65536], alternate[65536];
static volatile int sink;

static __attribute__((noinline, noreturn)) void leave(int value)
{
    if (sink >= 0)
        longjmp(jump, value);
    abort();
}

/* Its last instruction is the call. */
static __attribute__((noinline)) void last_call(int value)
{
    char pad[64];
    keep(pad);
    sink = value;
    leave(value);
}

static __attribute__((noinline)) int tail_end(int value)
{
    sink = value;
    return value + 1;
}

static __attribute__((noinline)) int tail(int value)
{
    char pad[100];
    memset(pad, value, sizeof(pad));
    keep(pad);
    return tail_end(value + pad[3]);
}

static __attribute__((noinline)) void coroutine_main(void)
{
    for (int i = 0; i < 3; i++) {
        sink = i;
        swapcontext(&coroutine, &main_context);
    }
    swapcontext(&coroutine, &other);
}

static __attribute__((noinline)) void other_main(void)
{
    setcontext(&main_context);
}

static __attribute__((noinline)) void contexts(void)
{
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = coroutine_stack;
    coroutine.uc_stack.ss_size = sizeof(coroutine_stack);
    coroutine.uc_link = &main_context;
    makecontext(&coroutine, coroutine_main, 0);
    getcontext(&other);
    other.uc_stack.ss_sp = other_stack;
    other.uc_stack.ss_size = sizeof(other_stack);
    makecontext(&other, other_main, 0);
    for (int i = 0; i < 4; i++)
        swapcontext(&main_context, &coroutine);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    char text[64];
    (void)info;
    (void)context;
    snprintf(text, sizeof(text), "signal %d", number);
    sink = (int)strlen(text);
    if (number == SIGUSR1)
        raise(SIGUSR2);
    if (number == SIGALRM && sink > 1000)
        siglongjmp(signal_jump, 1);
}

static void on_jump_signal(int number)
{
    siglongjmp(signal_jump, number);
}

static __attribute__((noinline)) void handlers(int flags)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    raise(SIGUSR1);
    struct sigaction jumping = {.sa_handler = on_jump_signal, .sa_flags = flags};
    sigaction(SIGWINCH, &jumping, NULL);
    if (sigsetjmp(signal_jump, 1) == 0)
        raise(SIGWINCH);
}

/* gcc realigns this frame, though it needs its arguments on the stack. */
static __attribute__((noinline)) void realigned(char *out, size_t size, ...)
{
    char wide[256] __attribute__((aligned(64)));
    va_list list;
    va_start(list, size);
    char *more = __builtin_alloca(size);
    memset(more, 1, size);
    vsnprintf(wide, sizeof(wide), "%d %s", list);
    va_end(list);
    memcpy(out, wide, size);
    memcpy(out, more, 1);
}

static __attribute__((noinline)) void large_frame(void)
{
    char pad[200000];
    for (size_t i = 0; i < sizeof(pad); i += 4096)
        pad[i] = 1;
    keep(pad);
}

static __attribute__((noinline)) void vdso(void)
{
    struct timespec now;
    struct timeval time;
    for (int i = 0; i < 4; i++) {
        clock_gettime(i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME_COARSE, &now);
        gettimeofday(&time, NULL);
    }
}

static void *from_made_code(size_t size)
{
    sink = (int)size;
    char text[32];
    snprintf(text, sizeof(text), "%zu", size);
    keep(text);
    return NULL;
}

int main(void)
{
    char text[256];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    sigaltstack(&stack, NULL);
    made_code *made = make_code();
    for (volatile int round = 0; round < 12; round++) {
        if (setjmp(jump) == 0)
            last_call(round + 1);
        sink = tail(round);
        contexts();
        handlers(round % 2 ? SA_ONSTACK : 0);
        realigned(text, 100, round, "words");
        large_frame();
        vdso();
        made(from_made_code, 7);
        /* A timer's signal comes where it likes. */
        struct itimerval soon = {.it_value = {.tv_usec = 100}};
        setitimer(ITIMER_REAL, &soon, NULL);
        for (int i = 0; i < 300; i++)
            sink += i;
    }
    return 0;
}
