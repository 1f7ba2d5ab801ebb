/* CFLAGS: -O2 -std=c++17 */
/* LIBS: -lpthread */
/* prog_new_exact: known allocations by C++'s operators and library, in threads and their
 * destructors too. Prints "under FUNCTION OBJECTS BYTES" for each. */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "test/preload/program.h"

static const unsigned long count = 500;

struct alignas(128) Wide {
    char bytes[256];
};

static void told(const char *site, unsigned long objects, unsigned long bytes)
{
    std::printf("under %s %lu %lu\n", site, objects, bytes);
}

extern "C" {

SITE void site_new()
{
    for (unsigned long i = 0; i < count; i++) {
        char *block = static_cast<char *>(operator new(48));
        keep(block);
        operator delete(block);
    }
    told("site_new", count, count * 48);
}

SITE void site_new_array()
{
    for (unsigned long i = 0; i < count; i++) {
        int *block = new int[i + 1];
        keep(block);
        delete[] block;
    }
    told("site_new_array", count, count * (count + 1) / 2 * sizeof(int));
}

SITE void site_new_nothrow()
{
    for (unsigned long i = 0; i < count; i++) {
        char *block = new (std::nothrow) char[33];
        keep(block);
        delete[] block;
    }
    told("site_new_nothrow", count, count * 33);
}

SITE void site_new_aligned()
{
    for (unsigned long i = 0; i < count; i++) {
        Wide *block = new Wide;
        keep(block);
        delete block;
    }
    told("site_new_aligned", count, count * sizeof(Wide));
}

SITE void site_vector()
{
    for (unsigned long i = 0; i < count; i++) {
        std::vector<long> numbers(100);
        keep(numbers.data());
    }
    told("site_vector", count, count * 100 * sizeof(long));
}

/* operator new asks malloc, fails, throws; the exception must come through. */
SITE void site_new_fails()
{
    unsigned long caught = 0;
    for (volatile unsigned long huge = 1ul << 62, i = 0; i < 3; i = i + 1) {
        try {
            keep(operator new(huge));
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    if (caught != 3)
        std::abort();
}

SITE void site_thread_local()
{
    for (unsigned long i = 0; i < count; i++) {
        char *block = static_cast<char *>(operator new(72));
        keep(block);
        operator delete(block);
    }
}

SITE void site_static()
{
    for (unsigned long i = 0; i < count; i++) {
        char *block = static_cast<char *>(operator new(56));
        keep(block);
        operator delete(block);
    }
}

} // extern "C"

namespace shapes
{

/* In the profile by the name that people know it by. */
SITE void site_demangled(unsigned long size)
{
    for (unsigned long i = 0; i < count; i++) {
        char *block = static_cast<char *>(operator new(size));
        keep(block);
        operator delete(block);
    }
    told("shapes::site_demangled(unsigned long)", count, count * size);
}

} // namespace shapes

struct AtThreadEnd {
    bool used = false;
    ~AtThreadEnd() { site_thread_local(); }
};

static thread_local AtThreadEnd at_thread_end;

static struct AroundMain {
    AroundMain() { site_static(); }
    ~AroundMain() { site_static(); }
} around_main;

int main()
{
    site_new();
    site_new_array();
    site_new_nothrow();
    site_new_aligned();
    site_vector();
    site_new_fails();
    shapes::site_demangled(90);
    for (int i = 0; i < 3; i++)
        std::thread([] { at_thread_end.used = true; }).join();
    told("site_thread_local", 3 * count, 3 * count * 72);
    told("site_static", 2 * count, 2 * count * 56);
    return 0;
}
