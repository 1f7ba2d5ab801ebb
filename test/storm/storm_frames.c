/* An object for dlopen: storm_frames(depth) calls itself `depth` times, and computes for some 100
 * ns at the bottom. ROOM is what each frame takes of the stack; nothing else differs between
 * objects with another ROOM, so that at one address all have the same instruction, but other rules.
 */
void storm_frames(unsigned depth);

#if defined(__x86_64__)
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
/* By hand: a compiler would choose shorter instructions for a small frame. 0x48 0x81: with 32 bits
 * of operand. */
__asm__(".text\n"
        ".globl storm_frames\n"
        ".type storm_frames, @function\n"
        "storm_frames: 2:\n"
        ".cfi_startproc\n"
        ".byte 0x48, 0x81, 0xec\n.long " TEXT(
            ROOM) "\n" /* sub $ROOM, %rsp */
                  ".cfi_adjust_cfa_offset " TEXT(
                      ROOM) "\n"
                            "testl %edi, %edi\n"
                            "jz 1f\n"
                            "decl %edi\n"
                            "call 2b\n"
                            "jmp 3f\n"
                            "1: movl $200, %ecx\n"
                            "4: decl %ecx\n"
                            "jnz 4b\n"
                            "3:\n"
                            ".byte 0x48, 0x81, 0xc4\n.long " TEXT(
                                ROOM) "\n" /* add $ROOM, %rsp */
                                      ".cfi_adjust_cfa_offset -" TEXT(
                                          ROOM) "\n"
                                                "ret\n"
                                                ".cfi_endproc\n"
                                                ".size storm_frames, . - storm_frames\n");
#else
#include "test/preload/program.h"

SITE void storm_frames(unsigned depth)
{
    volatile char room[ROOM];
    room[0] = (char)depth;
    if (depth)
        storm_frames(depth - 1);
    else
        compute();
    keep((const void *)room);
}
#endif
