/* CFLAGS: -O2 -fno-builtin -fcf-protection=none -Wl,-z,now */
/* LIBS: -lm */
/* .plt.got: bound at the start. */
#include "test/unwind/plt_program.h"
