/* bench_names: what names cost: 500 objects with 2,000 functions each, a million symbols; a window
 * meets 20 functions of each object, at 40 addresses. Milliseconds of CPU time for the first
 * window, for a later one that is alike, and for one that meets one more function in each tenth
 * object; what stays in memory, and how much more was in use meanwhile. It fails beyond the limits:
 * 300 ms, 20 ms, 20 ms, 16 MiB.
 *
 * Then the same of files, lines and inlined functions: 100 objects whose debugging information is
 * this program's, each met at 200 addresses (of which a fifth has such; the rest is of archives),
 * which takes several windows, as each has a budget. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/options.h"
#include "agent/export/line_cache.h"
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

/* From here on the process's peak is counted anew. */
static void reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file || fputs("5", file) < 0 || fclose(file))
        exit(2);
}

/* A figure of /proc/self/status, in MiB. */
static double memory_mib(const char *key)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtod(line + strlen(key) + 1, NULL);
    if (!file || fclose(file))
        exit(2);
    return kib / 1024;
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
    name_cache_begin(NAME_CACHE_MAX);
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

/* ---- Files and lines ----------------------------------------------------------------------- */

enum {
    LINE_OBJECTS = 100,
    LINE_ADDRESSES = 200,
    LIMIT_MIB = 16, /* LIBAGENT_SYMBOL_LIMIT's default */
    WINDOWS_MAX = 1000,
};

static struct object line_objects[LINE_OBJECTS];

struct line_window {
    double ms;
    size_t put_off, found;
};

/* As location_lines.c does it; `more`: so many objects are met at one more address. */
static struct line_window line_window(size_t more)
{
    extern const char __executable_start[], etext[];
    static struct line_answer answers[LINE_ADDRESSES + 1];
    static uint64_t addresses[LINE_ADDRESSES + 1];
    uint64_t size = (uint64_t)(etext - __executable_start), code = 0x10000;
    struct line_window window = {.ms = cpu_ms()};
    struct buffer frames = {0}, texts = {0};
    struct known_lines known;
    line_cache_begin((size_t)LIMIT_MIB << 18);
    struct line_budget budget = {.steps = LINES_PROFILE_STEPS,
                                 .is_first = true,
                                 .room = ((size_t)LIMIT_MIB << 20) - name_cache_size() -
                                         line_cache_size()};
    for (size_t i = 0; i < LINE_OBJECTS; i++) {
        size_t count = 0, met = LINE_ADDRESSES + (i < more);
        for (size_t k = 0; k < met; k++) {
            uint64_t at = code + (size - code) / (LINE_ADDRESSES + 1) * k + i;
            if (!line_cache_get(&line_objects[i], at, &known))
                addresses[count++] = at;
        }
        frames.size = texts.size = 0;
        if (lines_find(&line_objects[i], addresses, count, &budget, answers, &frames, &texts) ||
            line_cache_add(&line_objects[i], addresses, count, answers, &frames, &texts,
                           &demangler))
            exit(2);
        for (size_t k = 0; k < count; k++) {
            window.put_off += answers[k].state == LINES_PUT_OFF;
            window.found += answers[k].state == LINES_FOUND;
        }
    }
    buffer_free(&frames);
    buffer_free(&texts);
    window.ms = cpu_ms() - window.ms;
    return window;
}

/* False beyond the limits. */
static bool lines(void)
{
    for (size_t i = 0; i < LINE_OBJECTS; i++)
        line_objects[i] = (struct object){.path = "/proc/self/exe"};
    double most = 0, before = memory_mib("VmRSS");
    reset_peak();
    size_t windows = 0, found = 0;
    struct line_window window;
    do {
        window = line_window(0);
        most = window.ms > most ? window.ms : most;
        found += window.found;
    } while (window.put_off && ++windows < WINDOWS_MAX);
    struct line_window later = line_window(0), more = line_window(1);
    double mib = (double)(name_cache_size() + line_cache_size()) / (1 << 20);
    printf("lines: %zu of %d addresses have some, in %zu windows\n", found,
           LINE_OBJECTS * LINE_ADDRESSES, windows + 1);
    printf("the longest     %8.2f ms (limit 300)\n", most);
    printf("a later one     %8.2f ms (limit 20)\n", later.ms);
    printf("with 1 more     %8.2f ms (limit 20)\n", more.ms);
    double peak = memory_mib("VmHWM") - before;
    printf("kept with names %8.2f MiB (limit 16)\n", mib);
    printf("at most more    %8.2f MiB (limit 16)\n", peak);
    return peak <= LIMIT_MIB && most <= 300 && later.ms <= 20 && more.ms <= 20 &&
           mib <= LIMIT_MIB && windows < WINDOWS_MAX && found * 10 > LINE_OBJECTS * LINE_ADDRESSES;
}

int main(void)
{
    char folder[] = "/tmp/bench_names.XXXXXX";
    if (!mkdtemp(folder))
        return 2;
    options.debug_path = "/usr/lib/debug";
    make_objects(folder);
    demangle_start(&demangler, DEMANGLE_TEXT_MAX);
    double before = memory_mib("VmRSS");
    reset_peak();
    double first = window(0), later = window(0), more = window(10);
    double mib = (double)name_cache_size() / (1 << 20), peak = memory_mib("VmHWM") - before;
    printf("first window    %8.2f ms (limit 300)\n", first);
    printf("a later one     %8.2f ms (limit 20)\n", later);
    printf("with 50 more    %8.2f ms (limit 20)\n", more);
    printf("kept            %8.2f MiB (limit 16)\n", mib);
    printf("at most more    %8.2f MiB (limit 16)\n", peak);
    for (size_t i = 0; i < OBJECTS; i++)
        unlink(paths[i]);
    rmdir(folder);
    bool lines_good = lines();
    demangle_stop(&demangler);
    return !lines_good || first > 300 || later > 20 || more > 20 || mib > 16 || peak > 16;
}
