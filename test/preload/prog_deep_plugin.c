/* CFLAGS: -O2 -fomit-frame-pointer -shared -fPIC */
/* LIBS: -Wl,-rpath,$ORIGIN -Wl,--enable-new-dtags -ldl */
/* prog_deep_plugin: not a program but an object for dlopen, which opens another one itself and has
 * it work. */
#include <dlfcn.h>

#include "test/preload/program.h"

uint64_t deep_work(const char *path, uint64_t ns);

SITE uint64_t deep_work(const char *path, uint64_t ns)
{
    void *other = dlopen(path, RTLD_NOW);
    uint64_t (*work)(uint64_t) = NULL;
    if (other)
        *(void **)&work = dlsym(other, "other_plugin_work");
    uint64_t done = work ? work(ns) : 0;
    keep(&done);
    return done;
}
