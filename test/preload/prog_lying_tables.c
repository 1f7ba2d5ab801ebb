/* CFLAGS: -O2 -fno-omit-frame-pointer */
/* prog_lying_tables MS: computes for about so long under a function that keeps a frame record, but
 * of which the call frame information says that nobody called it. */
#include "test/preload/program.h"

void liar(void (*function)(void));
__asm__(".pushsection .text\n"
        ".globl liar\n"
        ".type liar, @function\n"
        "liar:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    call *%rdi\n"
        "    popq %rbp\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size liar, . - liar\n"
        ".popsection\n");

static uint64_t work_ms;

SITE static void under_liar(void)
{
    /* Looks at no clock: libc has no frame records. */
    for (uint64_t i = 0; i < work_ms * 500; i++)
        compute();
    keep(&work_ms);
}

SITE static void above_liar(void)
{
    liar(under_liar);
    keep(&work_ms);
}

int main(int argc, char **argv)
{
    work_ms = number_argument(argc, argv, 1, 100);
    above_liar();
    keep(argv);
    return 0;
}
