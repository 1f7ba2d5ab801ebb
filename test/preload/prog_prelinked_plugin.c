/* CFLAGS: -O2 -shared -fPIC -Wl,-Ttext-segment=0x3a00000000 -Wl,--build-id=none */
/* prog_prelinked_plugin: an object that was linked for an address, as prelink did, and has no build
 * id. */
#define PLUGIN_HOT prelinked_hot
#include "test/preload/plugin_hot.h"
