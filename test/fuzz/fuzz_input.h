/* fuzz_input.h: what the fuzz targets share. A target is one file test/fuzz/fuzz_NAME.c that
 * defines LLVMFuzzerTestOneInput; libFuzzer has main (see `make fuzz`).
 *
 * What must not be read past its end is in memory of exactly its size: on the heap, where
 * AddressSanitizer sees the first byte outside; or, where code reads that sanitizers leave alone
 * (stacks, machine code), right below a page that cannot be read. */
#ifndef LIBAGENT_TEST_FUZZ_INPUT_H
#define LIBAGENT_TEST_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/compiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A result that must not be: libFuzzer keeps the input. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (unlikely(!(condition)))                                                                \
            __builtin_trap();                                                                      \
    } while (0)

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* The next `size` bytes; 0 where the input is over. */
static inline void fuzz_take(struct fuzz_input *input, void *to, size_t size)
{
    size_t have = MIN_OF(size, input->left);
    memset(to, 0, size);
    if (have)
        memcpy(to, input->at, have);
    input->at += have;
    input->left -= have;
}

/* Memory between two pages that cannot be read; what is put there ends at `end`. */
struct fuzz_region {
    uint8_t *base, *end;
};

static inline struct fuzz_region fuzz_region_make(size_t size)
{
    size = ALIGN_UP(size, (size_t)PAGE_SIZE_MIN);
    size_t whole = size + 2 * (size_t)PAGE_SIZE_MIN;
    uint8_t *at = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(at != MAP_FAILED);
    EXPECT(mprotect(at + PAGE_SIZE_MIN, size, PROT_READ | PROT_WRITE) == 0);
    return (struct fuzz_region){at + PAGE_SIZE_MIN, at + PAGE_SIZE_MIN + size};
}

static inline int fuzz_region_holds(const struct fuzz_region *region, uintptr_t address)
{
    return address >= (uintptr_t)region->base && address < (uintptr_t)region->end;
}

#endif
