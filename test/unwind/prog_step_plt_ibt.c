/* CFLAGS: -O2 -fno-builtin -fcf-protection=full -Wl,-z,lazy -Wl,-z,ibtplt */
/* LIBS: -lm */
/* .plt and .plt.sec, as for processors that check indirect jumps. */
#include "test/unwind/plt_program.h"
