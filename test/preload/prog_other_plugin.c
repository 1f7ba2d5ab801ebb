/* CFLAGS: -O2 -shared -fPIC -Wl,-Ttext-segment=0x5a0000000000 -Wl,-soname,libother.so */
/* LIBS: -ldl */
/* prog_other_plugin: not a program but an object for dlopen, which asks for
 * the same address as prog_plugin. It has no RUNPATH. */
#include <dlfcn.h>

#include "test/preload/program.h"

uint64_t other_plugin_work(uint64_t ns);
const char *other_plugin_open(const char *name);

SITE uint64_t other_plugin_work(uint64_t ns)
{
    uint64_t begin = thread_cpu_ns();
    spin(ns);
    return thread_cpu_ns() - begin;
}

SITE const char *other_plugin_open(const char *name)
{
    void *third = dlopen(name, RTLD_NOW);
    return third ? "opened" : dlerror();
}
