/* CFLAGS: -O2 -g0 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer */
#include "test/preload/untabled.h"
