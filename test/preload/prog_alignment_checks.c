/* CFLAGS: -O1 */
/* prog_alignment_checks: has the processor check the alignment of what it reads, in its own code
 * and in calls of malloc. Prints whether it still does behind each of these. */
#include <stdbool.h>

#include "test/preload/program.h"

#if defined(__x86_64__)
static const uint64_t alignment_check_flag = 1 << 18;

static void set_checks(bool on)
{
    uint64_t flags = __builtin_ia32_readeflags_u64() & ~alignment_check_flag;
    __builtin_ia32_writeeflags_u64(flags | (on ? alignment_check_flag : 0));
}

static bool has_checks(void)
{
    return __builtin_ia32_readeflags_u64() & alignment_check_flag;
}
#else
static void set_checks(bool on)
{
    (void)on;
}

static bool has_checks(void)
{
    return true;
}
#endif

int main(void)
{
    enum { BLOCKS = 2000 };
    uint32_t lost = 0;
    uint64_t begin = thread_cpu_ns();
    do {
        set_checks(true);
        for (volatile uint32_t i = 0; i < 100000000; i++) {
        }
        lost += !has_checks();
        set_checks(false);
    } while (thread_cpu_ns() - begin < 500000000);
    for (int i = 0; i < BLOCKS; i++) {
        set_checks(true);
        void *block = malloc(600);
        lost += !has_checks();
        set_checks(false);
        free(block);
    }
    printf("lost %u\n", (unsigned)lost);
    return 0;
}
