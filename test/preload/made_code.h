/* made_code.h: code that no object has, as a compiler at run time makes it.
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_MADE_CODE_H
#define LIBAGENT_TEST_MADE_CODE_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/preload/program.h"

typedef void *made_code(void *(*function)(size_t), size_t size);

/* function(size), called by code in a mapping of its own, with a frame. */
static inline made_code *make_code(void)
{
    static const unsigned char code[] = {0x55,             /* push %rbp */
                                         0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
                                         0x48, 0x89, 0xf8, /* mov %rdi, %rax */
                                         0x48, 0x89, 0xf7, /* mov %rsi, %rdi */
                                         0xff, 0xd0,       /* call *%rax */
                                         0x5d, 0xc3};      /* pop %rbp, ret */
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        abort();
    memcpy(page, code, sizeof(code));
    return (made_code *)page;
}

/* For two seconds: computes and allocates, with that code and without, in the caller's own frame.
 */
static inline __attribute__((always_inline)) void use_made_code(made_code *made)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + 2000000000;
    while (clock_ns(CLOCK_MONOTONIC) < end) {
        free(made(malloc, 3000));
        void *block = malloc(3000);
        keep(block);
        free(block);
        compute();
    }
}

#endif
