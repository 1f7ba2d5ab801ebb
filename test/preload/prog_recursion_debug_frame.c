/* CFLAGS: -O2 -fomit-frame-pointer -Wl,-z,lazy -fno-asynchronous-unwind-tables -fno-unwind-tables
 */
/* LIBS: -lpthread */
/* prog_recursion, with call frame information in .debug_frame alone. */
#include "test/preload/prog_recursion.c"
