/* CFLAGS: -O2 -fno-omit-frame-pointer -Wl,-z,lazy */
/* LIBS: -lpthread */
/* prog_recursion_records: prog_recursion with frame pointers in every function of its own. */
#include "test/preload/prog_recursion.c" /* NOLINT(bugprone-suspicious-include) */
