#include "agent/export/page_parts.h"

/* Paths are those of make's folder. */
#define PART(name)                                                                                 \
    ".globl " name ", " name "_size\n"                                                             \
    ".hidden " name ", " name "_size\n"                                                            \
    ".balign 8\n" name "_size: .quad 1f - " name "\n" name ": .incbin \"build/generated/" name     \
    ".html\"\n"                                                                                    \
    "1:\n"

__asm__(".pushsection .rodata.page, \"a\", @progbits\n" PART("page_head")
            PART("page_tail") ".popsection\n");
