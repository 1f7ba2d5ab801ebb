/* CFLAGS: -O2 -shared -fPIC -Wl,-z,notext -Wl,--build-id */
/* prog_textrel_plugin: an object whose code the loader relocates (DT_TEXTREL). */
#define PLUGIN_HOT textrel_hot
#include "test/preload/plugin_hot.h"

__asm__(".text\n.p2align 3\ntextrel_pointer: .8byte plugin_run\n");
