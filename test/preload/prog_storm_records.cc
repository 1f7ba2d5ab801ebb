/* CFLAGS: -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer */
/* LIBS: -ldl -lpthread */
/* prog_storm_records: prog_storm with frame pointers. */
#include "test/preload/prog_storm.cc" /* NOLINT(bugprone-suspicious-include) */
