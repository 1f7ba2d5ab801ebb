/* CFLAGS: -O1 -fsanitize=memory */
/* LIBS: -lpthread */
/* prog_gcc_tsan, under the memory sanitizer, which is clang's. */
#include "test/preload/prog_gcc_tsan.c"
