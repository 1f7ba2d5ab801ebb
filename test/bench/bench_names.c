/* bench_names: what names cost: 500 objects with 2,000 functions each, a million symbols; a window
 * meets 20 functions of each object, at 40 addresses. Milliseconds of CPU time for the first
 * window, for a later one that is alike, and for one that meets one more function in each tenth
 * object; and what stays in memory. It fails beyond the limits: 300 ms, 20 ms, 20 ms, 16 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/options.h"
#include "agent/export/name_cache.h"
#include "agent/export/symbols.h"
#include "test/elf_builder.h"

enum { OBJECTS = 500, SYMBOLS = 2000, SYMBOL_SIZE = 64, MET = 20, ADDRESSES = 2 * MET + 1 };

static struct object objects[OBJECTS];
static char paths[OBJECTS][64];
static struct demangler demangler;

static double cpu_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void make_objects(const char *folder)
{
    static char texts[SYMBOLS][48];
    static struct elf_symbol symbols[SYMBOLS];
    for (size_t i = 0; i < OBJECTS; i++) {
        for (size_t k = 0; k < SYMBOLS; k++) {
            snprintf(texts[k], sizeof(texts[k]), "_ZN6module8function%05zuEiSt6vectorIiEv", k);
            symbols[k] = (struct elf_symbol){.name = texts[k],
                                             .value = ELF_CODE + k * SYMBOL_SIZE,
                                             .size = SYMBOL_SIZE - 4,
                                             .type = STT_FUNC,
                                             .binding = STB_GLOBAL};
        }
        struct elf_parts e = elf_build(symbols, SYMBOLS, SHT_SYMTAB);
        snprintf(paths[i], sizeof(paths[i]), "%s/%zu", folder, i);
        FILE *file = fopen(paths[i], "w");
        if (!file || fwrite(e.data, 1, e.size, file) != e.size || fclose(file))
            exit(2);
        free(e.data);
        objects[i] = elf_built_object(paths[i]);
    }
}

/* As locations.c does it; `more`: objects whose number it divides meet one more function. */
static double window(size_t more)
{
    double start = cpu_ms();
    struct buffer texts = {0};
    name_cache_begin();
    for (size_t i = 0; i < OBJECTS; i++) {
        uint64_t addresses[ADDRESSES];
        struct symbol_name names[ADDRESSES];
        struct known_name known;
        size_t count = 0;
        for (size_t k = 0; k < ADDRESSES; k++) {
            if (k == ADDRESSES - 1 && (!more || i % more))
                continue;
            uint64_t address =
                ELF_CODE + (k / 2 * 97 + i) % SYMBOLS * SYMBOL_SIZE + (k % 2 ? 30 : 5);
            if (!name_cache_get(&objects[i], address, &known)) {
                size_t at = count++;
                for (; at > 0 && addresses[at - 1] > address; at--)
                    addresses[at] = addresses[at - 1];
                addresses[at] = address;
            }
        }
        texts.size = 0;
        if (symbols_find(&objects[i], SYMBOLS_NOT_LOADED, addresses, count, names, &texts) ||
            (count && name_cache_add(&objects[i], names, count, &texts, &demangler)))
            exit(2);
    }
    buffer_free(&texts);
    return cpu_ms() - start;
}

int main(void)
{
    char folder[] = "/tmp/bench_names.XXXXXX";
    if (!mkdtemp(folder))
        return 2;
    options.debug_path = "/usr/lib/debug";
    make_objects(folder);
    demangle_start(&demangler, DEMANGLE_TEXT_MAX);
    double first = window(0), later = window(0), more = window(10);
    demangle_stop(&demangler);
    double mib = (double)name_cache_size() / (1 << 20);
    printf("first window    %8.2f ms (limit 300)\n", first);
    printf("a later one     %8.2f ms (limit 20)\n", later);
    printf("with 50 more    %8.2f ms (limit 20)\n", more);
    printf("kept            %8.2f MiB (limit 16)\n", mib);
    for (size_t i = 0; i < OBJECTS; i++)
        unlink(paths[i]);
    rmdir(folder);
    return first > 300 || later > 20 || more > 20 || mib > 16;
}
