/* CFLAGS: -O2 -fno-omit-frame-pointer */
/* LIBS: -lpthread */
/* prog_busy_register stack|above MS: computes for about so long, in a thread, under a function that
 * keeps no frame record but a value in the frame pointer's register, as code compiled without frame
 * pointers does; its call frame information says so. The value is the address of two words, on the
 * stack or above it, of which the second points to a function: a frame record, for all that can be
 * seen. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "test/preload/program.h"

void keeper(void (*function)(void), const void *value);
__asm__(".pushsection .text\n"
        ".globl keeper\n"
        ".type keeper, @function\n"
        "keeper:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset rbp, -16\n"
        "    movq %rsi, %rbp\n"
        "    call *%rdi\n"
        "    popq %rbp\n"
        "    .cfi_restore rbp\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size keeper, . - keeper\n"
        ".popsection\n");

enum { STACK_SIZE = 256 << 10, GUARD = 64 << 10 };

struct words {
    const void *first;
    void (*second)(void);
};

static uint64_t work_ms;
static struct words *above; /* NULL: on the stack */

SITE static void under_keeper(void)
{
    /* Looks at no clock: libc has no frame records. */
    for (uint64_t i = 0; i < work_ms * 500; i++)
        compute();
    keep(&work_ms);
}

SITE static void above_keeper(void)
{
    struct words own;
    struct words *words = above ? above : &own;
    *words = (struct words){NULL, under_keeper};
    keeper(under_keeper, words);
    keep(words);
}

static void *work(void *argument)
{
    above_keeper();
    keep(argument);
    return NULL;
}

int main(int argc, char **argv)
{
    work_ms = number_argument(argc, argv, 2, 100);
    /* A stack with readable memory above it, not adjoining. */
    char *memory = mmap(NULL, STACK_SIZE + 2 * GUARD, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || memory == MAP_FAILED || mprotect(memory + STACK_SIZE, GUARD, PROT_NONE) != 0)
        return 2;
    if (strcmp(argv[1], "above") == 0)
        above = (struct words *)(void *)(memory + STACK_SIZE + GUARD);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, memory, STACK_SIZE) != 0 ||
        pthread_create(&thread, &attributes, work, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    return 0;
}
