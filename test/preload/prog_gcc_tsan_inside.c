/* CFLAGS: -O1 -fsanitize=thread -static-libtsan */
/* LIBS: -lpthread */
/* prog_gcc_tsan, with the sanitizer's run-time library in the program itself, which exports only
 * what stands before libc's. */
#include "test/preload/prog_gcc_tsan.c"
