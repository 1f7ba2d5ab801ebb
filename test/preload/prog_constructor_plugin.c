/* CFLAGS: -O2 -fomit-frame-pointer -shared -fPIC */
/* prog_constructor_plugin: not a program but an object for dlopen, which works and allocates while
 * it is being opened. */
#include "test/preload/program.h"

enum { BLOCKS = 1000, BLOCK = 100000 };

SITE static void allocate_blocks(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        void *block = malloc(BLOCK);
        keep(block);
        free(block);
    }
}

SITE static void allocate_once(void)
{
    allocate_blocks();
    keep(allocate_blocks);
}

SITE static void compute_first(void)
{
    spin(500000000);
    keep(compute_first);
}

__attribute__((constructor)) static void constructor(void)
{
    allocate_once();
    compute_first();
    keep(constructor);
}
