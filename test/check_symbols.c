/* Names of addresses: every function of the libraries that are loaded here against readelf, and
 * the rules for the best name on small files made for them. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/export/symbols.h"
#include "agent/unwind/modules.h"
#include "test/elf_builder.h"
#include "test/map_faults.h"
#include "test/temp_folder.h"

/* ---- What readelf says ---------------------------------------------------------------------- */

struct truth_symbol {
    uint64_t value, size;
    bool has_type, is_local, is_global;
    char *name;
};

struct truth {
    struct truth_symbol *symbols;
    size_t count;
};

static bool in_executable_section(const char *elf, unsigned index)
{
    const Elf64_Ehdr *header = (const void *)elf;
    const Elf64_Shdr *sections = (const void *)(elf + header->e_shoff);
    return index < header->e_shnum && sections[index].sh_flags & SHF_EXECINSTR;
}

static void forget_names(struct truth *truth)
{
    for (size_t i = 0; i < truth->count; i++)
        free(truth->symbols[i].name);
}

/* The sized functions of .symtab, or else of .dynsym. */
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
        if (strtoull(size, NULL, 0) == 0 || section[0] < '0' || section[0] > '9' ||
            !(has_type ||
              (strcmp(type, "NOTYPE") == 0 && in_executable_section(elf, (unsigned)atoi(section)))))
            continue;
        name[1 + strcspn(name + 1, "@")] = 0;
        truth.symbols[truth.count++] = (struct truth_symbol){
            .value = value,
            .size = strtoull(size, NULL, 0),
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

static const char *true_name(const struct truth *truth, uint64_t address)
{
    const struct truth_symbol *best = NULL;
    for (size_t i = 0; i < truth->count; i++)
        if (covers(&truth->symbols[i], address) &&
            (!best || is_preferred(&truth->symbols[i], best)))
            best = &truth->symbols[i];
    return best ? best->name : "";
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
    ck_assert_int_eq(symbols_find(object, addresses, count, names, &texts), 0);
    for (size_t i = 0; i < count; i++) {
        const char *expected = true_name(&truth, addresses[i]);
        const char *got = names[i].length ? (const char *)texts.data + names[i].offset : "";
        ck_assert_uint_eq(strlen(got), names[i].length);
        ck_assert_msg(strcmp(got, expected) == 0, "%s %lx: '%s' instead of '%s'", object->path,
                      (unsigned long)addresses[i], got, expected);
        *(got[0] ? named : unnamed) += 1;
    }
    buffer_free(&texts);
    free(names);
    free(addresses);
    forget_names(&truth);
    free(truth.symbols);
}

static void setup(void)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
}

START_TEST(all_functions_of_what_is_loaded)
{
    size_t named = 0, unnamed = 0;
    bool has_main = false, has_libc = false;
    for (uint32_t i = 0; i < modules_list->count; i++) {
        const struct object *object = modules_list->modules[i].object;
        if (object->is_vdso) {
            struct symbol_name name;
            uint64_t address = object->segments[0].vaddr;
            struct buffer texts = {0};
            ck_assert_int_eq(symbols_find(object, &address, 1, &name, &texts), -ENOENT);
            ck_assert_uint_eq(name.length, 0);
            continue;
        }
        check_object(object, &named, &unnamed);
        has_main |= object->is_main;
        has_libc |= strstr(object->path, "libc.so") != NULL;
    }
    ck_assert(has_main && has_libc);
    ck_assert_uint_gt(named, 5000);
    ck_assert_uint_gt(unnamed, 50); /* libc's gaps: its local functions have no names */
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
    ck_assert_int_eq(symbols_find(object, &address, 1, &name, &texts), 0);
    ck_assert_str_eq((char *)texts.data + name.offset, "local_function");
    buffer_free(&texts);
    /* The main program is read also when its path is another's by now. */
    struct object moved = *object;
    (void)vaddr_of((const void *)fopen, &object);
    moved.path = object->path;
    ck_assert_int_eq(symbols_find(&moved, &address, 1, &name, &texts), 0);
    ck_assert_str_eq((char *)texts.data + name.offset, "local_function");
    buffer_free(&texts);
    moved.is_main = false;
    ck_assert_int_eq(symbols_find(&moved, &address, 1, &name, &texts), -ESTALE);
}
END_TEST

/* ---- The rules ------------------------------------------------------------------------------ */

enum {
    FUNC = STT_FUNC,
    NONE = STT_NOTYPE,
    LOCAL = STB_LOCAL,
    GLOBAL = STB_GLOBAL,
    WEAK_ONE = STB_WEAK
};

/* The name that a file of these symbols gives to ELF_CODE + `at`; static storage. */
static const char *name_at(const struct elf_symbol *symbols, size_t count, uint64_t at)
{
    static char text[256];
    char path[TEMP_PATH_SIZE];
    close(mkstemp(temp_path(path, "elf")));
    struct elf_parts e = elf_build(symbols, count, SHT_SYMTAB);
    write_file(path, e.data, e.size);
    free(e.data);
    struct object object = elf_built_object(path);
    uint64_t address = ELF_CODE + at;
    struct symbol_name name;
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(&object, &address, 1, &name, &texts), 0);
    snprintf(text, sizeof(text), "%.*s", (int)name.length,
             name.length ? (char *)texts.data + name.offset : "");
    buffer_free(&texts);
    unlink(path);
    return text;
}

/* Of two symbols the first wins, in whatever order they stand. */
static const struct {
    struct elf_symbol symbols[2];
    uint64_t at;
} preferred[] = {
    {{{"inner", ELF_CODE + 8, 8, FUNC, LOCAL, 0}, {"outer", ELF_CODE, 64, FUNC, GLOBAL, 0}}, 8},
    {{{"outer", ELF_CODE, 64, FUNC, GLOBAL, 0}, {"inner", ELF_CODE + 8, 8, FUNC, LOCAL, 0}}, 16},
    {{{"typed", ELF_CODE, 8, FUNC, LOCAL, 0}, {"untyped", ELF_CODE, 8, NONE, GLOBAL, 0}}, 1},
    {{{"__exported", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"local", ELF_CODE, 8, FUNC, LOCAL, 0}}, 1},
    {{{"write", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"__write", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"global", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"weak", ELF_CODE, 8, FUNC, WEAK_ONE, 0}}, 1},
    {{{"short", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"longer", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"_ZC1", ELF_CODE, 8, FUNC, WEAK_ONE, 0}, {"_ZC2", ELF_CODE, 8, FUNC, WEAK_ONE, 0}}, 1},
    {{{"f@@VERS_2", ELF_CODE, 8, FUNC, GLOBAL, 0}, {"ff", ELF_CODE, 8, FUNC, GLOBAL, 0}}, 1},
    {{{"ifunc", ELF_CODE, 8, STT_GNU_IFUNC, GLOBAL, 0}, {"untyped", ELF_CODE, 8, NONE, GLOBAL, 0}},
     1},
};

START_TEST(the_better_of_two)
{
    const struct elf_symbol *both = preferred[_i].symbols;
    const struct elf_symbol reversed[] = {both[1], both[0]};
    char expected[64];
    strcpy(expected, both[0].name);
    expected[1 + strcspn(expected + 1, "@")] = 0;
    ck_assert_str_eq(name_at(both, 2, preferred[_i].at), expected);
    ck_assert_str_eq(name_at(reversed, 2, preferred[_i].at), expected);
}
END_TEST

/* Symbols that name nothing at ELF_CODE + 8, and ends of those that name something. */
static const struct {
    struct elf_symbol symbol;
    const char *at_7, *at_8, *at_15, *at_16;
} alone[] = {
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "f", "f", ""},
    {{"f", ELF_CODE + 8, 1, FUNC, GLOBAL, 0}, "", "f", "", ""},
    {{"f", ELF_CODE + 8, 0, FUNC, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, UINT64_MAX, FUNC, GLOBAL, 0}, "", "f", "f", "f"}, /* no wrapping around */
    {{"f", 0, UINT64_MAX, FUNC, GLOBAL, 0}, "f", "f", "f", "f"},
    {{"f", UINT64_MAX, UINT64_MAX, FUNC, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_OBJECT, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_TLS, GLOBAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, STT_SECTION, LOCAL, 0}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, ELF_TEXT}, "", "f", "f", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, ELF_DATA}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, NONE, LOCAL, 999}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, SHN_ABS}, "", "", "", ""},
    {{"f", ELF_CODE + 8, 8, FUNC, GLOBAL, SHN_COMMON}, "", "", "", ""},
    {{"", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "", "", ""},
    {{"f@VERSION", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "f", "f", ""},
    {{"@", ELF_CODE + 8, 8, FUNC, GLOBAL, 0}, "", "@", "@", ""},
};

START_TEST(one_symbol)
{
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 7), alone[_i].at_7);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 8), alone[_i].at_8);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 15), alone[_i].at_15);
    ck_assert_str_eq(name_at(&alone[_i].symbol, 1, 16), alone[_i].at_16);
}
END_TEST

/* Three around each other and a lesser one that begins with the outer, in all orders in the file;
 * addresses that share a name share its text. */
START_TEST(nested)
{
    static const struct elf_symbol symbols[] = {
        {"middle", ELF_CODE + 10, 80, FUNC, GLOBAL, 0},
        {"outer", ELF_CODE, 100, FUNC, GLOBAL, 0},
        {"inner", ELF_CODE + 20, 10, FUNC, GLOBAL, 0},
        {"a", ELF_CODE, 95, FUNC, LOCAL, 0},
    };
    int first = _i % 4, second = _i / 4 % 4, third = _i / 16;
    if (first == second || second == third || first == third)
        return;
    const struct elf_symbol ordered[] = {symbols[first], symbols[second], symbols[third],
                                         symbols[6 - first - second - third]};
    char path[TEMP_PATH_SIZE];
    close(mkstemp(temp_path(path, "elf")));
    struct elf_parts e = elf_build(ordered, 4, SHT_DYNSYM);
    write_file(path, e.data, e.size);
    free(e.data);
    struct object object = elf_built_object(path);
    uint64_t addresses[101];
    struct symbol_name names[101];
    for (size_t i = 0; i < 101; i++)
        addresses[i] = ELF_CODE + i;
    struct buffer texts = {0};
    ck_assert_int_eq(symbols_find(&object, addresses, 101, names, &texts), 0);
    ck_assert_uint_eq(texts.size, sizeof("outer") + sizeof("middle") + sizeof("inner"));
    for (size_t i = 0; i < 100; i++)
        ck_assert_str_eq((char *)texts.data + names[i].offset, i >= 20 && i < 30   ? "inner"
                                                               : i >= 10 && i < 90 ? "middle"
                                                                                   : "outer");
    ck_assert_uint_eq(names[100].length, 0);
    buffer_free(&texts);
    ck_assert_int_eq(symbols_find(&object, addresses, 0, names, &texts), 0);
    unlink(path);
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
        int result = symbols_find(object, &address, 1, &name, &texts);
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
    tcase_add_test(real, own_local_function);
    tcase_add_test(real, no_memory);
    tcase_set_timeout(real, 60);
    suite_add_tcase(suite, real);
    TCase *rules = tcase_create("rules");
    tcase_add_loop_test(rules, the_better_of_two, 0, ARRAY_SIZE(preferred));
    tcase_add_loop_test(rules, one_symbol, 0, ARRAY_SIZE(alone));
    tcase_add_loop_test(rules, nested, 0, 64);
    suite_add_tcase(suite, rules);
    return suite;
}
