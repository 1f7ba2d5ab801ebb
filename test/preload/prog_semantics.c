/* CFLAGS: -O0 */
/* LIBS: -ldl -lpthread */
/* prog_semantics [x]: what the allocation functions answer at their edges, as far as it does not
 * hang on addresses; the same with the agent as without. With an argument pvalloc is left out:
 * some allocators do not have it, so that libc's would come in between. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { NO_ERROR = 4321 };

static bool has_pvalloc;

/* What the compiler would warn of, or know the answer to. */
static volatile size_t huge = SIZE_MAX, half = SIZE_MAX / 2 + 1, nothing = 0, three = 3;

static void answer(const char *call, const void *block)
{
    printf("%s: %s, errno %d\n", call, block ? "a block" : "NULL", errno == NO_ERROR ? 0 : errno);
    errno = NO_ERROR;
}

#define ANSWER(call)                                                                               \
    do {                                                                                           \
        errno = NO_ERROR;                                                                          \
        void *block_ = (call);                                                                     \
        answer(#call, block_);                                                                     \
        free(block_);                                                                              \
    } while (0)

static void sizes_of_nothing(void)
{
    ANSWER(malloc(nothing));
    ANSWER(calloc(nothing, 0));
    ANSWER(calloc(three, nothing));
    ANSWER(realloc(NULL, nothing));
    ANSWER(realloc(malloc(three), nothing));
    ANSWER(realloc(malloc(nothing), 10));
    ANSWER(reallocarray(NULL, nothing, three));
    ANSWER(reallocarray(malloc(three), nothing, three));
    ANSWER(aligned_alloc(64, nothing));
    ANSWER(memalign(64, nothing));
    ANSWER(valloc(nothing));
    if (has_pvalloc)
        ANSWER(pvalloc(nothing));
    free(NULL);
    printf("free(NULL): errno %d\n", errno);
}

static void sizes_too_large(void)
{
    ANSWER(malloc(huge));
    ANSWER(malloc(half));
    ANSWER(calloc(huge, three));
    ANSWER(calloc(half, 2));
    ANSWER(calloc(1, huge));
    ANSWER(realloc(NULL, huge));
    ANSWER(reallocarray(NULL, huge, three));
    ANSWER(reallocarray(NULL, half, 2));
    ANSWER(aligned_alloc(64, huge));
    ANSWER(aligned_alloc(half, 64));
    ANSWER(memalign(64, huge));
    ANSWER(memalign(huge, 64));
    ANSWER(valloc(huge));
    if (has_pvalloc) {
        ANSWER(pvalloc(huge));
        ANSWER(pvalloc(huge - 4096));
    }
}

static void failed_realloc_keeps_the_block(void)
{
    char *block = malloc(100);
    memset(block, 'x', 100);
    for (int i = 0; i < 1000; i++) {
        errno = NO_ERROR;
        if (realloc(block, i % 2 ? huge : half) || reallocarray(block, huge, three))
            printf("a huge block\n");
        if (errno != ENOMEM)
            printf("errno %d\n", errno);
    }
    size_t kept = 0;
    while (kept < 100 && block[kept] == 'x')
        kept++;
    printf("%zu bytes kept\n", kept);
    block = realloc(block, 1000000);
    printf("moved: %d\n", memcmp(block, "xxxx", 4) == 0);
    free(block);
}

static void alignments(void)
{
    static const size_t alignments[] = {
        0, 1, 2, 3, 4, 8, 16, 24, 32, 48, 100, 4096, 65536, 1 << 20, 1 << 26, (size_t)1 << 62};
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        size_t alignment = alignments[i];
        void *block = &block;
        errno = NO_ERROR;
        int result = posix_memalign(&block, alignment, 300);
        printf("posix_memalign %zu: %d, errno %d, ", alignment, result, errno);
        if (result == 0) {
            printf("aligned %d\n", (uintptr_t)block % alignment == 0);
            free(block);
        } else {
            printf("pointer kept %d\n", block == &block);
        }
        errno = NO_ERROR;
        block = aligned_alloc(alignment, 300);
        printf("aligned_alloc: %d, errno %d\n", block != NULL, errno);
        free(block);
        errno = NO_ERROR;
        block = memalign(alignment, 300);
        printf("memalign: %d, errno %d\n", block != NULL, errno);
        free(block);
    }
    void *page = valloc(10), *pages = has_pvalloc ? pvalloc(10) : valloc(4096);
    long size = sysconf(_SC_PAGESIZE);
    printf("valloc %d, pvalloc %d, size %d\n", (uintptr_t)page % (uintptr_t)size == 0,
           (uintptr_t)pages % (uintptr_t)size == 0, malloc_usable_size(pages) >= (size_t)size);
    free(page);
    free(pages);
}

static void errno_is_kept(void)
{
    int changed = 0;
    for (size_t size = 1; size < ((size_t)64 << 20); size = size * 5 / 4 + 1) {
        errno = NO_ERROR;
        char *block = malloc(size);
        changed += errno != NO_ERROR;
        block = realloc(block, size + size / 3);
        changed += errno != NO_ERROR;
        block[size - 1] = 1;
        free(block);
        changed += errno != NO_ERROR;
        block = calloc(size, 1);
        changed += errno != NO_ERROR || block[size - 1];
        free(block);
        changed += errno != NO_ERROR;
    }
    printf("errno changed: %d\n", changed);
}

static void usable_size_is_usable(void)
{
    int wrong = 0;
    for (size_t size = 0; size < 300000; size = size * 9 / 8 + 1) {
        char *block = malloc(size);
        size_t usable = malloc_usable_size(block);
        wrong += usable < size || usable != malloc_usable_size(block);
        memset(block, 'u', usable);
        block = realloc(block, usable);
        wrong += malloc_usable_size(block) < usable;
        free(block);
    }
    printf("usable sizes wrong: %d, of NULL %zu\n", wrong, malloc_usable_size(NULL));
}

/* Not in every libc; a block of malloc is good for each. */
static void rare_functions(void)
{
    void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    void (*free_sized)(void *, size_t) =
        (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    for (int i = 0; i < 1000; i++) {
        if (cfree)
            cfree(malloc(50));
        if (free_sized)
            free_sized(malloc(50), 50);
        if (free_aligned_sized)
            free_aligned_sized(aligned_alloc(64, 128), 64, 128);
    }
    printf("mallopt %d\n", mallopt(M_MMAP_THRESHOLD, 1 << 20));
    printf("malloc_trim %d\n", malloc_trim(0) >= 0);
}

enum { BLOCKS = 20000 };
static char *handed[BLOCKS];

static void *free_elsewhere(void *data)
{
    unsigned long *sum = data;
    for (int i = 0; i < BLOCKS; i++) {
        *sum += (unsigned char)handed[i][i % 40];
        free(handed[i]);
    }
    return NULL;
}

static void blocks_freed_by_another_thread(void)
{
    unsigned long sum = 0;
    pthread_t thread;
    for (int i = 0; i < BLOCKS; i++) {
        handed[i] = malloc(40 + (size_t)i % 1000);
        memset(handed[i], i, 40);
    }
    pthread_create(&thread, NULL, free_elsewhere, &sum);
    pthread_join(thread, NULL);
    printf("sum %lu\n", sum);
}

static void contents_survive(void)
{
    uint64_t random = 7;
    enum { RING = 300 };
    static unsigned char *blocks[RING];
    static size_t sizes[RING];
    int wrong = 0;
    for (int i = 0; i < 200000; i++) {
        uint64_t r = next_random(&random);
        size_t at = r % RING, size = 1 + (r >> 32) % ((r >> 20) % 50 ? 600 : 300000);
        unsigned char mark = (unsigned char)at;
        if (blocks[at])
            wrong += blocks[at][0] != mark || blocks[at][sizes[at] - 1] != mark;
        if (r >> 60 & 1) {
            free(blocks[at]);
            blocks[at] = malloc(size);
        } else {
            blocks[at] = realloc(blocks[at], size);
            wrong += blocks[at][0] != mark && sizes[at];
        }
        blocks[at][0] = blocks[at][size - 1] = mark;
        sizes[at] = size;
    }
    for (int i = 0; i < RING; i++)
        free(blocks[i]);
    printf("contents wrong: %d\n", wrong);
}

int main(int argc, char **argv)
{
    (void)argv;
    has_pvalloc = argc < 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    sizes_of_nothing();
    sizes_too_large();
    failed_realloc_keeps_the_block();
    alignments();
    errno_is_kept();
    usable_size_is_usable();
    rare_functions();
    blocks_freed_by_another_thread();
    contents_survive();
    return 0;
}
