/* CFLAGS: -O2 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer */
#include "test/preload/untabled.h"
