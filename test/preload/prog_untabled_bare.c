/* CFLAGS: -O2 -fno-asynchronous-unwind-tables -fomit-frame-pointer */
#include "test/preload/untabled.h"
