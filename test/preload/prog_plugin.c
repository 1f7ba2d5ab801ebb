/* CFLAGS: -O2 -shared -fPIC -Wl,-Ttext-segment=0x5a0000000000 -Wl,-soname,libplugin.so */
/* LIBS: -Wl,-rpath,$ORIGIN/deeper -Wl,--enable-new-dtags -ldl */
/* prog_plugin: not a program but an object for dlopen, which opens another one by its own RUNPATH.
 */
#include <dlfcn.h>

#include "test/preload/program.h"

uint64_t plugin_work(uint64_t ns);
const char *plugin_open_other(const char *name);

__attribute__((constructor)) static void loaded(void)
{
    keep(malloc(100));
    free(malloc(100));
}

SITE uint64_t plugin_work(uint64_t ns)
{
    uint64_t begin = thread_cpu_ns();
    spin(ns);
    return thread_cpu_ns() - begin;
}

SITE const char *plugin_open_other(const char *name)
{
    void *other = dlopen(name, RTLD_NOW);
    return other ? "opened" : dlerror();
}
