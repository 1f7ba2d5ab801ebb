/* CFLAGS: -O2 -fno-builtin -fcf-protection=none -Wl,-z,lazy */
/* LIBS: -lm */
/* .plt alone, bound lazily. */
#include "test/unwind/plt_program.h"
