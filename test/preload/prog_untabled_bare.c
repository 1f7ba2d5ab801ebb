/* CFLAGS: -O2 -g0 -fno-asynchronous-unwind-tables -fomit-frame-pointer */
#include "test/preload/untabled.h"
