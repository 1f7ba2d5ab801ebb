/* CFLAGS: -O1 -fno-omit-frame-pointer */
/* prog_many_stacks BITS: an allocation under each of 2^BITS stacks, which differ in the two
 * functions that call each other, one bit of a number a frame; then the end. */
#include "test/preload/program.h"

static void *kept;

SITE static void zero(unsigned bits, unsigned left);
SITE static void one(unsigned bits, unsigned left);

/* Inlined: zero and one are the only frames. */
static inline __attribute__((always_inline)) void go_on(unsigned bits, unsigned left, size_t size)
{
    if (left == 0)
        kept = malloc(size);
    else if (bits & 1)
        one(bits >> 1, left - 1);
    else
        zero(bits >> 1, left - 1);
    free(kept);
    kept = NULL;
}

SITE static void zero(unsigned bits, unsigned left)
{
    go_on(bits, left, 100);
}

SITE static void one(unsigned bits, unsigned left)
{
    go_on(bits, left, 200);
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    for (unsigned number = 0; number < 1u << count; number++)
        zero(number, count);
    return 0;
}
