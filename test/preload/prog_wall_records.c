/* CFLAGS: -O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls */
/* LIBS: -lpthread */
/* prog_wall_records: prog_wall_threads with frame pointers. */
#include "test/preload/prog_wall_threads.c"
