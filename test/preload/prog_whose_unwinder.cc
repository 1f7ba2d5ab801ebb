/* CFLAGS: -O2 */
/* LIBS: -ldl */
/* prog_whose_unwinder MS: throws for MS of CPU time, and tells which objects the unwinding of its
 * exceptions and backtrace() come from, by the address it was linked to and by its name; whether
 * libunwind is in the process; and what dlerror says at first. */
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unwind.h>

#include "test/preload/program.h"

static void tell(const char *what, void *address)
{
    Dl_info info;
    const char *path = dladdr(address, &info) ? info.dli_fname : "nowhere";
    const char *slash = std::strrchr(path, '/');
    std::printf("%s %s\n", what, slash ? slash + 1 : path);
}

SITE static unsigned long throw_often(unsigned long ms)
{
    unsigned long caught = 0;
    for (uint64_t end = thread_cpu_ns() + ms * 1000000; thread_cpu_ns() < end;) {
        try {
            throw std::runtime_error("one of many");
        } catch (const std::exception &error) {
            caught += error.what()[0] == 'o';
        }
    }
    return caught;
}

int main(int argc, char **argv)
{
    const char *error = dlerror();
    std::printf("error %s\n", error ? error : "none");
    std::printf("caught %d\n", throw_often(number_argument(argc, argv, 1, 100)) > 0);
    void *pcs[4];
    std::printf("frames %d\n", backtrace(pcs, 4) > 0);
    tell("linked", reinterpret_cast<void *>(&_Unwind_RaiseException));
    tell("linked_backtrace", reinterpret_cast<void *>(&backtrace));
    tell("named", dlsym(RTLD_DEFAULT, "_Unwind_RaiseException"));
    tell("named_backtrace", dlsym(RTLD_DEFAULT, "backtrace"));
    std::printf("next %s\n", dlsym(RTLD_DEFAULT, "unw_backtrace") ? "seen" : "unseen");
    std::ifstream maps("/proc/self/maps");
    bool has = false;
    for (std::string line; std::getline(maps, line);)
        has |= line.find("/libunwind-") != std::string::npos;
    std::printf("libunwind %s\n", has ? "there" : "absent");
    return 0;
}
