/* CFLAGS: -O2 -rdynamic */
/* LIBS: -ldl */
/* prog_own_malloc: an executable with malloc and free of its own, which look up the next ones as
 * wrappers do: the agent's are behind them. */
#include <dlfcn.h>

#include "test/preload/program.h"

static unsigned long calls;
static char early[4096];
static size_t early_used;

void *malloc(size_t size)
{
    static void *(*next)(size_t);
    static int looking;
    if (looking) { /* dlsym allocates */
        void *block = early + early_used;
        early_used += (size + 15) & ~(size_t)15;
        return early_used <= sizeof(early) ? block : NULL;
    }
    if (!next) {
        looking = 1;
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        looking = 0;
    }
    calls++;
    return next(size);
}

void free(void *block)
{
    static void (*next)(void *);
    if ((char *)block >= early && (char *)block < early + sizeof(early))
        return;
    if (!next)
        next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next(block);
}

int main(void)
{
    for (int i = 0; i < 100000; i++) {
        char *block = malloc(100 + (size_t)i % 5000);
        keep(block);
        block = realloc(block, 10000);
        keep(block);
        free(block);
    }
    printf("%d\n", calls >= 100000);
    return 0;
}
