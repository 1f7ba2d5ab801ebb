/* CFLAGS: -O2 -fomit-frame-pointer -Wl,-z,lazy */
/* LIBS: -lpthread -Wl,--no-eh-frame-hdr */
/* prog_recursion, linked without .eh_frame_hdr. */
#include "test/preload/prog_recursion.c"
