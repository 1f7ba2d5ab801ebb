/* CFLAGS: -O2 -shared -fPIC -Wl,--section-start=.far_text=0x800000 -Wl,--build-id */
/* prog_segments_plugin: an object with two executable segments that lie far apart. */
#define PLUGIN_HOT     segments_hot
#define PLUGIN_SECTION __attribute__((section(".far_text")))
#include "test/preload/plugin_hot.h"
