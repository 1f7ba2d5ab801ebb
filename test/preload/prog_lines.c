/* CFLAGS: -O2 */
/* prog_lines: prints the lines at which it burns time in functions that are inlined into one
 * another, then does so. */
#include "test/preload/program.h"

#define INLINED static inline __attribute__((always_inline))

enum { INNER_START = __LINE__ + 2 };

INLINED uint64_t inner(uint64_t n)
{
    uint64_t value = 1;
    for (uint64_t i = 0; i < n; i++) {
        value = value * 6364136223846793005u + 1;
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

enum { MIDDLE_START = __LINE__ + 2 };

INLINED uint64_t middle(uint64_t n)
{
    return inner(n);
}

enum { OUTER_START = __LINE__ + 2 };

SITE static uint64_t outer(uint64_t n)
{
    uint64_t value = middle(n);
    __asm__ volatile("" : "+r"(value));
    return value;
}

int main(void)
{
    printf("inner %d\nmiddle %d\nouter %d\n", INNER_START, MIDDLE_START, OUTER_START);
    uint64_t sum = 0;
    for (int i = 0; i < 600; i++)
        sum += outer(1000000);
    return sum == 7;
}
