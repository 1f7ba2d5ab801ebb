/* CFLAGS: -O2 -fomit-frame-pointer -rdynamic */
/* LIBS: -Wl,-rpath,$ORIGIN/sub -Wl,--enable-new-dtags -ldl */
/* prog_unwatched CASE: all of its work is in code that came past dlopen's wrapper (iconv,
 * deepbind), or that runs before dlopen has returned (constructor by PATH or by name). */
#include <dlfcn.h>
#include <iconv.h>
#include <string.h>

#include "test/preload/program.h"

enum { TEXT = 1 << 20 };

/* libc loads the converter by its own dlopen; the work is in that object alone. */
SITE static int convert(uint64_t ns)
{
    static char from[TEXT], to[3 * TEXT];
    iconv_t converter = iconv_open("UTF-8", "EUC-JP");
    if (converter == (iconv_t)-1)
        return 1;
    for (int i = 0; i < TEXT; i += 2)
        memcpy(from + i, "\xc6\xfc", 2);
    for (uint64_t end = thread_cpu_ns() + ns; thread_cpu_ns() < end;) {
        char *in = from, *out = to;
        size_t in_left = sizeof(from), out_left = sizeof(to);
        if (iconv(converter, &in, &in_left, &out, &out_left) == (size_t)-1)
            return 1;
    }
    return iconv_close(converter);
}

/* Bound to libc first, the plugin calls libc's dlopen, and no wrapper. */
SITE static int deep(uint64_t ns)
{
    void *plugin = dlopen("libdeep.so", RTLD_NOW | RTLD_DEEPBIND);
    uint64_t (*work)(const char *, uint64_t) = NULL;
    if (plugin)
        *(void **)&work = dlsym(plugin, "deep_work");
    return !work || !work("libother.so", ns);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int failed = 2;
    if (strcmp(what, "iconv") == 0)
        failed = convert(1000000000);
    else if (strcmp(what, "deepbind") == 0)
        failed = deep(1000000000);
    else if (strcmp(what, "constructor") == 0 && argc > 2)
        failed = !dlopen(argv[2], RTLD_NOW);
    keep(argv);
    return failed;
}
