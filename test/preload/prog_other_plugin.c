/* CFLAGS: -O2 -shared -fPIC -Wl,-Ttext-segment=0x5a0000000000 -Wl,-soname,libother.so */
/* prog_other_plugin: not a program but an object for dlopen, which asks for
 * the same address as prog_plugin. */
#include "test/preload/program.h"

uint64_t other_plugin_work(uint64_t ns);

SITE uint64_t other_plugin_work(uint64_t ns)
{
    uint64_t begin = thread_cpu_ns();
    spin(ns);
    return thread_cpu_ns() - begin;
}
