/* plugin_hot.h: an object for dlopen with one busy function that .dynsym does not have. PLUGIN_HOT
 * is its name, so that each object has its own; PLUGIN_SECTION an attribute of it, or nothing.
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_PLUGIN_HOT_H
#define LIBAGENT_TEST_PLUGIN_HOT_H

#include "test/preload/program.h"

#ifndef PLUGIN_SECTION
#define PLUGIN_SECTION
#endif

uint64_t plugin_run(uint64_t ns);

static SITE PLUGIN_SECTION uint64_t PLUGIN_HOT(uint64_t rounds)
{
    uint64_t value = 1;
    while (rounds--)
        compute();
    __asm__ volatile("" : "+r"(value));
    return value;
}

SITE uint64_t plugin_run(uint64_t ns)
{
    uint64_t begin = thread_cpu_ns(), sum = 0;
    while (thread_cpu_ns() - begin < ns)
        sum += PLUGIN_HOT(1000);
    return sum;
}

#endif
