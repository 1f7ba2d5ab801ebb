/* Names of addresses: every function of the libraries that are loaded here against readelf, and
 * their linkage entries against objdump. */
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/options.h"
#include "agent/export/symbols.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/modules.h"
#include "test/map_faults.h"
#include "test/temp_folder.h"

/* That of the processor, also where it is emulated. */
#if defined(__x86_64__)
#define OBJDUMP "x86_64-linux-gnu-objdump"
#elif defined(__aarch64__)
#define OBJDUMP "aarch64-linux-gnu-objdump"
#endif

/* ---- What readelf says ---------------------------------------------------------------------- */

struct truth_symbol {
    uint64_t value, size, section_end;
    bool has_type, is_local, is_global;
    char *name;
};

struct truth {
    struct truth_symbol *symbols;
    size_t count;
};

/* NULL for a section without code. */
static const Elf64_Shdr *code_section(const char *elf, unsigned index)
{
    const Elf64_Ehdr *header = (const void *)elf;
    const Elf64_Shdr *sections = (const void *)(elf + header->e_shoff);
    return index < header->e_shnum && sections[index].sh_flags & SHF_EXECINSTR ? &sections[index]
                                                                               : NULL;
}

static void forget_names(struct truth *truth)
{
    for (size_t i = 0; i < truth->count; i++)
        free(truth->symbols[i].name);
}

/* The functions of .symtab, or else of .dynsym. */
static struct truth read_truth(const char *path)
{
    size_t elf_size;
    char *elf = read_file(path, &elf_size);
    char command[512];
    snprintf(command, sizeof(command), "readelf -sW '%s' 2>&1", path);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    struct truth truth = {.symbols = calloc(200000, sizeof(struct truth_symbol))};
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, pipe) > 0) {
        if (strncmp(line, "Symbol table '.symtab'", 22) == 0) {
            forget_names(&truth); /* better than .dynsym, which stands before */
            truth.count = 0;
        }
        unsigned long long value;
        char size[32], type[32], binding[32], section[32], name[4096] = "";
        if (sscanf(line, " %*u: %llx %31s %31s %31s %*s %31s %4095s", &value, size, type, binding,
                   section, name) != 6)
            continue;
        bool has_type = strcmp(type, "FUNC") == 0 || strcmp(type, "IFUNC") == 0;
        if (section[0] < '0' || section[0] > '9' || !(has_type || strcmp(type, "NOTYPE") == 0))
            continue;
        const Elf64_Shdr *code = code_section(elf, (unsigned)atoi(section));
        bool has_size = strtoull(size, NULL, 0) != 0;
        uint64_t section_end = code ? code->sh_addr + code->sh_size : 0;
        if (has_size ? !has_type && !code
                     : !code || value < code->sh_addr || value >= section_end || name[0] == '.' ||
                           name[0] == '$')
            continue;
        name[1 + strcspn(name + 1, "@")] = 0;
        truth.symbols[truth.count++] = (struct truth_symbol){
            .value = value,
            .size = strtoull(size, NULL, 0),
            .section_end = section_end,
            .has_type = has_type,
            .is_local = strcmp(binding, "LOCAL") == 0,
            .is_global = strcmp(binding, "GLOBAL") == 0,
            .name = strdup(name),
        };
    }
    free(line);
    free(elf);
    ck_assert_int_eq(pclose(pipe), 0);
    return truth;
}

static bool covers(const struct truth_symbol *symbol, uint64_t address)
{
    return address >= symbol->value && address - symbol->value < symbol->size;
}

/* The rules of symbols.h, as plainly as can be. */
static bool is_preferred(const struct truth_symbol *a, const struct truth_symbol *b)
{
    long order[] = {
        (long)a->value - (long)b->value, a->has_type - b->has_type,
        b->is_local - a->is_local,       (long)strspn(b->name, "_") - (long)strspn(a->name, "_"),
        a->is_global - b->is_global,     (long)strlen(b->name) - (long)strlen(a->name),
        strcmp(b->name, a->name),
    };
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        if (order[i])
            return order[i] > 0;
    return false;
}

/* Is there a start or end of another symbol in (symbol, address], or of one with a size at its
 * start? */
static bool is_bounded(const struct truth *truth, const struct truth_symbol *symbol,
                       uint64_t address)
{
    for (size_t i = 0; i < truth->count; i++) {
        const struct truth_symbol *other = &truth->symbols[i];
        uint64_t end = other->value + other->size;
        if ((other->value > symbol->value && other->value <= address) ||
            (other->size && end > symbol->value && end <= address) ||
            (other->size && other->value == symbol->value))
            return true;
    }
    return false;
}

static const char *true_name(const struct truth *truth, uint64_t address)
{
    const struct truth_symbol *best = NULL;
    for (size_t i = 0; i < truth->count; i++)
        if (covers(&truth->symbols[i], address) &&
            (!best || is_preferred(&truth->symbols[i], best)))
            best = &truth->symbols[i];
    for (size_t i = 0; i < truth->count && !(best && best->size); i++) {
        const struct truth_symbol *symbol = &truth->symbols[i];
        if (symbol->size == 0 && address >= symbol->value && address < symbol->section_end &&
            !is_bounded(truth, symbol, address) && (!best || is_preferred(symbol, best)))
            best = symbol;
    }
    return best ? best->name : "";
}

static bool is_linkage_entry(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, "@plt") == 0;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* First, middle and last byte of each function, and the bytes before and behind it. */
static size_t make_addresses(const struct truth *truth, uint64_t **addresses)
{
    size_t count = 0;
    *addresses = calloc(truth->count * 5 + 1, sizeof(uint64_t));
    for (size_t i = 0; i < truth->count; i++) {
        const struct truth_symbol *s = &truth->symbols[i];
        const uint64_t of_one[] = {s->value - 1, s->value, s->value + s->size / 2,
                                   s->value + s->size - 1, s->value + s->size};
        memcpy(*addresses + count, of_one, sizeof(of_one));
        count += ARRAY_SIZE(of_one);
    }
    qsort(*addresses, count, sizeof(uint64_t), compare);
    return count;
}

/* The numbers of addresses that have a name, and that have none. */
static void check_object(const struct object *object, size_t *named, size_t *unnamed)
{
    struct truth truth = read_truth(object->path);
    uint64_t *addresses;
    size_t count = make_addresses(&truth, &addresses);
    struct symbol_name *names = calloc(count + 1, sizeof(names[0]));
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(object, SYMBOLS_NOT_LOADED, addresses, count, names, &texts), 0);
    for (size_t i = 0; i < count; i++) {
        const char *expected = true_name(&truth, addresses[i]);
        const char *got = names[i].length ? (const char *)texts.data + names[i].offset : "";
        ck_assert_uint_eq(strlen(got), names[i].length);
        ck_assert_msg(strcmp(got, expected) == 0 || (!expected[0] && is_linkage_entry(got)),
                      "%s %lx: '%s' instead of '%s'", object->path, (unsigned long)addresses[i],
                      got, expected);
        ck_assert(names[i].low <= addresses[i] && addresses[i] < names[i].high);
        if (i % 16 == 0 && !is_linkage_entry(got)) { /* the answer holds as far as it says */
            ck_assert_str_eq(true_name(&truth, names[i].low), expected);
            ck_assert_str_eq(true_name(&truth, names[i].high - 1), expected);
        }
        *(got[0] ? named : unnamed) += 1;
    }
    buffer_free(&texts);
    free(names);
    free(addresses);
    forget_names(&truth);
    free(truth.symbols);
}

static const void *vdso_function(void)
{
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(vdso);
    const void *function = dlsym(vdso, "__vdso_clock_gettime");
    return function ? function : dlsym(vdso, "__kernel_clock_gettime");
}

static void setup(void)
{
    options.debug_path = "/nowhere"; /* where the machine has debug files, readelf tells less */
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
}

START_TEST(all_functions_of_what_is_loaded)
{
    size_t named = 0, unnamed = 0;
    bool has_main = false, has_libc = false;
    for (uint32_t i = 0; i < modules_list->count; i++) {
        const struct object *object = modules_list->modules[i].object;
        if (object->is_vdso)
            continue;
        check_object(object, &named, &unnamed);
        has_main |= object->is_main;
        has_libc |= strstr(object->path, "libc.so") != NULL;
    }
    ck_assert(has_main && has_libc);
    ck_assert_uint_gt(named, 5000);
    ck_assert_uint_gt(unnamed, 50); /* libc's gaps: its local functions have no names */
}
END_TEST

/* "0000000000001030 <malloc@plt>:" begins each entry that objdump knows. */
static void check_linkage(const struct object *object, size_t *named)
{
    char command[512], *line = NULL;
    size_t room = 0;
    snprintf(command, sizeof(command), OBJDUMP " -d -j .plt -j .plt.sec -j .plt.got '%s' 2>&1",
             object->path);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    while (getline(&line, &room, pipe) > 0) {
        unsigned long long at;
        char expected[4096];
        if (sscanf(line, "%llx <%4095[^>]>:", &at, expected) != 2 || !is_linkage_entry(expected))
            continue;
        char *version = strchr(expected + 1, '@'); /* f@VERSION@plt */
        strcpy(version, "@plt");
        uint64_t addresses[] = {at, at + 7};
        struct symbol_name names[2];
        struct buffer texts = {0};
        ck_assert_int_eq(symbols_find(object, SYMBOLS_NOT_LOADED, addresses, 2, names, &texts), 0);
        const char *got = names[0].length ? (char *)texts.data + names[0].offset : "";
        /* Where the function is chosen at the start objdump knows just its resolver. */
        if (expected[0] == '*')
            ck_assert_msg(!got[0] || is_linkage_entry(got), "%llx: '%s'", at, got);
        else
            ck_assert_msg(strcmp(got, expected) == 0, "%s %llx: '%s' instead of '%s'", object->path,
                          at, got, expected);
        ck_assert_uint_eq(names[1].offset, names[0].offset);
        ck_assert_uint_eq(names[1].length, names[0].length);
        ck_assert_uint_eq(strlen(got), names[0].length);
        *named += got[0] != 0;
        buffer_free(&texts);
    }
    int status = pclose(pipe);
    ck_assert_msg(status == 0, "%s: %d: %s", command, status, line);
    free(line);
}

START_TEST(linkage_entries_of_what_is_loaded)
{
    size_t named = 0;
    for (uint32_t i = 0; i < modules_list->count; i++)
        if (!modules_list->modules[i].object->is_vdso)
            check_linkage(modules_list->modules[i].object, &named);
    ck_assert_uint_gt(named, 100);
}
END_TEST

/* The vdso has no file: its image is read. */
START_TEST(functions_of_the_vdso)
{
    for (uint32_t i = 0; i < modules_list->count; i++) {
        const struct module *module = &modules_list->modules[i];
        if (!module->object->is_vdso)
            continue;
        struct buffer texts = {0};
        struct symbol_name name;
        uint64_t address = (uintptr_t)vdso_function() - module->bias + 1;
        ck_assert_int_eq(
            symbols_find(module->object, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts), 0);
        ck_assert_uint_gt(name.length, 0);
        ck_assert_ptr_nonnull(strstr((char *)texts.data + name.offset, "clock_gettime"));
        buffer_free(&texts);
        return;
    }
    ck_assert(test_is_emulated()); /* which has none */
}
END_TEST

/* memcpy and its like are chosen at the start; what was chosen has the name that programs know.
 * What was chosen is what a pointer to the function leads to. */
START_TEST(functions_that_are_chosen_at_the_start)
{
#if defined(__x86_64__)
    static const char *const names[] = {"strlen", "memchr", "strcmp", "memset", "strcspn"};
#else
    static const char *const names[] = {"strlen", "memchr"};
#endif
    size_t chosen = 0;
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD); /* a sanitizer has some, too */
    ck_assert_ptr_nonnull(libc);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const void *function = dlsym(libc, names[i]);
        struct module_address found =
            modules_resolve(modules_list->generation, (uintptr_t)function);
        const struct object *object = found.object;
        struct cfi_row row;
        struct symbol_name got[2];
        struct buffer texts = {0};
        ck_assert_ptr_nonnull(object);
        ck_assert_int_eq(cfi_row_at(object, found.vaddr, &row), 0);
        uint64_t addresses[] = {found.vaddr, found.vaddr + row.size - 1};
        ck_assert_int_eq(symbols_find(object, SYMBOLS_NOT_LOADED, addresses, 2, got, &texts), 0);
        bool is_plain = got[0].length != 0; /* this machine has one of it, or a libc with names */
        ck_assert_int_eq(
            symbols_find(object, (uintptr_t)function - found.vaddr, addresses, 2, got, &texts), 0);
        for (size_t k = 0; k < 2 && !is_plain; k++) {
            ck_assert_uint_gt(got[k].length, 0);
            ck_assert_str_eq((char *)texts.data + got[k].offset, names[i]);
            ck_assert(got[k].low == found.vaddr && got[k].high == found.vaddr + row.size);
        }
        chosen += !is_plain;
        buffer_free(&texts);
    }
    ck_assert_uint_ge(chosen, 2);
}
END_TEST

static uint64_t vaddr_of(const void *function, const struct object **object)
{
    struct module_address found = modules_resolve(modules_list->generation, (uintptr_t)function);
    *object = found.object;
    return found.vaddr;
}

static __attribute__((noinline)) int local_function(int x)
{
    return x * 3 + 1;
}

START_TEST(own_local_function)
{
    const struct object *object;
    ck_assert_int_eq(local_function(1), 4);
    uint64_t address = vaddr_of((const void *)local_function, &object) + 1;
    ck_assert(object == modules_main());
    struct symbol_name name;
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(object, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts), 0);
    ck_assert_str_eq((char *)texts.data + name.offset, "local_function");
    buffer_free(&texts);
    /* The main program is read also when its path is another's by now. */
    struct object moved = *object;
    (void)vaddr_of((const void *)fopen, &object);
    moved.path = object->path;
    ck_assert_int_eq(symbols_find(&moved, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts), 0);
    ck_assert_str_eq((char *)texts.data + name.offset, "local_function");
    buffer_free(&texts);
    moved.is_main = false;
    ck_assert_int_eq(symbols_find(&moved, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts), -ESTALE);
}
END_TEST

START_TEST(no_memory)
{
    const struct object *object;
    uint64_t address = vaddr_of((const void *)local_function, &object);
    int descriptors = count_descriptors();
    bool failed = true;
    for (int i = 0; failed; i++) {
        struct symbol_name name;
        struct buffer texts = {0};
        map_faults_begin(i);
        int result = symbols_find(object, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts);
        buffer_free(&texts);
        ck_assert_int_eq(map_faults_end(&failed), 0);
        ck_assert_int_eq(result, failed ? -ENOMEM : 0);
        ck_assert_uint_eq(name.length, failed ? 0 : strlen("local_function"));
        ck_assert_int_le(i, 100);
    }
    ck_assert_int_eq(count_descriptors(), descriptors);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("symbols");
    TCase *real = tcase_create("real");
    tcase_add_checked_fixture(real, setup, modules_forget);
    tcase_add_test(real, all_functions_of_what_is_loaded);
    tcase_add_test(real, linkage_entries_of_what_is_loaded);
    tcase_add_test(real, functions_of_the_vdso);
    tcase_add_test(real, functions_that_are_chosen_at_the_start);
    tcase_add_test(real, own_local_function);
    tcase_add_test(real, no_memory);
    tcase_set_timeout(real, 60);
    suite_add_tcase(suite, real);
    return suite;
}
