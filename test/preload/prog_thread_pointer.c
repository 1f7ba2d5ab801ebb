/* CFLAGS: -O2 -fno-stack-protector */
/* LIBS: -lpthread */
/* prog_thread_pointer POINTER [SIGNAL]: computes with another thread pointer than libc's, as
 * threads of user-level runtimes and emulators do: none ("none"), a block of zeros ("zeros"), one
 * of ones
 * ("ones"). 50 times, for 10 ms of CPU time each; first the main thread, then another one. SIGNAL:
 * the process is ended by that one meanwhile. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <asm/prctl.h>
#endif

#include "agent/base/sys.h"
#include "test/preload/program.h"

enum { ROUNDS = 50, BLOCK_SIZE = 1 << 16 };

static const uint64_t round_ns = 10000000;
static _Alignas(64) unsigned char block[BLOCK_SIZE];
static uintptr_t other;
static int end_signal;

static uintptr_t own_pointer(void)
{
#if defined(__x86_64__)
    uintptr_t value;
    sys_raw6(SYS_arch_prctl, ARCH_GET_FS, (long)&value, 0, 0, 0, 0);
    return value;
#else
    return (uintptr_t)__builtin_thread_pointer();
#endif
}

static void set_pointer(uintptr_t value)
{
#if defined(__x86_64__)
    sys_raw6(SYS_arch_prctl, ARCH_SET_FS, (long)value, 0, 0, 0, 0);
#else
    __asm__ volatile("msr tpidr_el0, %0" : : "r"(value) : "memory");
#endif
}

/* libc may not be asked. */
static uint64_t bare_cpu_ns(void)
{
    struct timespec time;
    sys_raw6(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&time, 0, 0, 0, 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

SITE void elsewhere(void)
{
    for (uint64_t end = bare_cpu_ns() + round_ns; bare_cpu_ns() < end;)
        for (int i = 0; i < 100; i++)
            compute();
    if (end_signal)
        sys_raw6(SYS_tgkill, sys_raw6(SYS_getpid, 0, 0, 0, 0, 0, 0),
                 sys_raw6(SYS_gettid, 0, 0, 0, 0, 0, 0), end_signal, 0, 0, 0);
}

static void *run(void *unused)
{
    uintptr_t own = own_pointer();
    for (int i = 0; i < ROUNDS; i++) {
        set_pointer(other);
        elsewhere();
        set_pointer(own);
        free(malloc(1000));
    }
    return unused;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "none";
    if (strcmp(which, "none") != 0)
        other = (uintptr_t)block + BLOCK_SIZE / 2;
    if (strcmp(which, "ones") == 0)
        memset(block, 0xff, sizeof(block));
    end_signal = (int)number_argument(argc, argv, 2, 0);
    unsigned char before[BLOCK_SIZE];
    memcpy(before, block, sizeof(before));
    run(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    printf("block is as it was: %d\n", memcmp(before, block, sizeof(before)) == 0);
    return 0;
}
