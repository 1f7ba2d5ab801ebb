/* CFLAGS: -O2 */
/* Assembly without call frame information, with room on the stack in which the return address of an
 * earlier call to it lies. x86-64. */
#include "test/preload/program.h"

#if defined(__x86_64__)
void spin_without_rules(uint64_t rounds);
__asm__(".type spin_without_rules, @function\n"
        "spin_without_rules:\n"
        "    pushq %rbx\n"
        "    subq $200, %rsp\n"
        "1:  decq %rdi\n"
        "    jne 1b\n"
        "    addq $200, %rsp\n"
        "    popq %rbx\n"
        "    ret\n"
        ".size spin_without_rules, . - spin_without_rules\n");

static volatile int sum;

SITE void liar(void)
{
    spin_without_rules(1);
    sum++;
}

SITE void above_liar(void)
{
    volatile char room[96] __attribute__((unused));
    room[0] = 1;
    liar();
    room[1] = 2;
}

SITE void truth(void)
{
    spin_without_rules(1000000000);
    sum++;
}

int main(void)
{
    above_liar();
    truth();
    return 0;
}
#else
int main(void)
{
    return 0;
}
#endif
