#include "agent/export/symbols.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/sys.h"
#include "agent/export/elf_file.h"

enum {
    CHUNK_SYMBOLS = 2048,   /* 48 KiB a read */
    SECTION_BITS = 1 << 16, /* st_shndx has 16 bits */
    NAME_FIRST_READ = 256,  /* most names are shorter: one read each */
    STEPS_MAX = 64 << 20,   /* addresses looked at, all symbols together: about 0.3 s */
    COMPARE_STEPS = 500,    /* two names read cost as much */
    TEXTS_MAX = 16 << 20,   /* bytes of names; a usual window has under 1 MiB from all objects */
};

/* A symbol that was the best for some address when it was seen. */
struct candidate {
    uint64_t value;
    uint32_t name; /* offset in the file's strings */
    uint8_t type, binding;
    bool is_written;         /* `text` is valid */
    struct symbol_name text; /* once it is written */
};

/* What one pass needs, in one mapping. */
struct work {
    Elf64_Sym chunk[CHUNK_SYMBOLS];
    uint8_t executable[SECTION_BITS / 8]; /* a bit a section */
    char name[SYMBOL_NAME_MAX + 1];
    char other_name[SYMBOL_NAME_MAX + 1];
};

struct pass {
    struct elf_file file;
    struct elf_extent symbols, strings;
    struct work *work;
    const uint64_t *addresses;
    size_t count;
    uint32_t *best;           /* by address: number of its candidate + 1, or 0 */
    struct buffer candidates; /* struct candidate */
    struct buffer *texts;
    size_t texts_at_start;
    uint64_t steps;
};

static struct candidate *candidate_at(const struct pass *pass, uint32_t number)
{
    return (struct candidate *)(void *)pass->candidates.data + number;
}

static void note_executable(const Elf64_Shdr *section, uint32_t index, void *data)
{
    struct work *work = data;
    if (section->sh_flags & SHF_EXECINSTR && index < SECTION_BITS)
        work->executable[index / 8] |= (uint8_t)(1u << (index % 8));
}

/* Reads a name without its version, ends it with 0. Its length; 0 when there is none. */
static size_t read_name(const struct pass *pass, uint32_t at, char *name)
{
    size_t length = 0, want = NAME_FIRST_READ;
    while (length < SYMBOL_NAME_MAX) {
        long got = elf_read_some(&pass->file, pass->strings, (uint64_t)at + length, name + length,
                                 want - length);
        if (got <= 0)
            break; /* the table ends, or the file was cut: what stands there is the name */
        const char *end = memchr(name + length, 0, (size_t)got);
        if (end) {
            length = (size_t)(end - name);
            break;
        }
        length += (size_t)got;
        want = SYMBOL_NAME_MAX;
    }
    const char *version = length ? memchr(name + 1, '@', length - 1) : NULL;
    if (version)
        length = (size_t)(version - name);
    name[length] = 0;
    return length;
}

/* Rules 2 and 3: the greater the better. */
static int rank(const struct candidate *candidate)
{
    return (candidate->type != STT_NOTYPE) * 2 + (candidate->binding != STB_LOCAL);
}

static size_t leading_underscores(const char *name)
{
    size_t count = 0;
    while (name[count] == '_')
        count++;
    return count;
}

/* Rules 4 to 6. */
static bool has_better_name(struct pass *pass, const struct candidate *a, const struct candidate *b)
{
    pass->steps += COMPARE_STEPS;
    const char *name_a = pass->work->name, *name_b = pass->work->other_name;
    size_t length_a = read_name(pass, a->name, pass->work->name);
    size_t length_b = read_name(pass, b->name, pass->work->other_name);
    if (length_a == 0 || length_b == 0)
        return length_a > length_b;
    size_t underscores_a = leading_underscores(name_a);
    size_t underscores_b = leading_underscores(name_b);
    if (underscores_a != underscores_b)
        return underscores_a < underscores_b;
    if (a->binding != b->binding)
        return a->binding == STB_GLOBAL;
    if (length_a != length_b)
        return length_a < length_b;
    return strcmp(name_a, name_b) < 0;
}

static bool is_better(struct pass *pass, const struct candidate *a, const struct candidate *b)
{
    if (a->value != b->value)
        return a->value > b->value;
    if (rank(a) != rank(b))
        return rank(a) > rank(b);
    return has_better_name(pass, a, b);
}

static bool is_function(const struct work *work, const Elf64_Sym *symbol)
{
    if (symbol->st_size == 0 || symbol->st_name == 0 || symbol->st_shndx == SHN_UNDEF ||
        symbol->st_shndx == SHN_ABS || symbol->st_shndx == SHN_COMMON)
        return false;
    switch (ELF64_ST_TYPE(symbol->st_info)) {
    case STT_FUNC:
    case STT_GNU_IFUNC:
        return true;
    case STT_NOTYPE:
        return work->executable[symbol->st_shndx / 8] >> (symbol->st_shndx % 8) & 1;
    default:
        return false;
    }
}

/* The first address that is not below `value`. */
static size_t lower_bound(const struct pass *pass, uint64_t value)
{
    size_t low = 0, high = pass->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pass->addresses[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int add_symbol(struct pass *pass, const Elf64_Sym *symbol)
{
    const struct candidate candidate = {
        .value = symbol->st_value,
        .name = symbol->st_name,
        .type = ELF64_ST_TYPE(symbol->st_info),
        .binding = ELF64_ST_BIND(symbol->st_info),
    };
    uint32_t number = 0;   /* + 1, once it is kept */
    uint32_t compared = 0; /* the last one that it was compared with: neighbours share it */
    bool is_best = true;
    for (size_t i = lower_bound(pass, symbol->st_value);
         i < pass->count && pass->addresses[i] - symbol->st_value < symbol->st_size; i++) {
        if (++pass->steps > STEPS_MAX)
            return 0;
        if (pass->best[i] != compared) {
            compared = pass->best[i];
            is_best = !compared || is_better(pass, &candidate, candidate_at(pass, compared - 1));
        }
        if (!is_best)
            continue;
        if (!number) {
            number = (uint32_t)(pass->candidates.size / sizeof(candidate)) + 1;
            buffer_append(&pass->candidates, &candidate, sizeof(candidate));
            if (pass->candidates.error)
                return pass->candidates.error;
        }
        pass->best[i] = number;
    }
    return 0;
}

static int scan_table(struct pass *pass)
{
    uint64_t total = MIN_OF(pass->symbols.size / sizeof(Elf64_Sym), (uint64_t)SYMBOLS_MAX);
    for (uint64_t first = 0; first < total && pass->steps <= STEPS_MAX; first += CHUNK_SYMBOLS) {
        size_t count = (size_t)MIN_OF(total - first, (uint64_t)CHUNK_SYMBOLS);
        int error = elf_read(&pass->file, pass->symbols.offset + first * sizeof(Elf64_Sym),
                             pass->work->chunk, count * sizeof(Elf64_Sym));
        for (size_t i = 0; !error && i < count; i++)
            if (is_function(pass->work, &pass->work->chunk[i]))
                error = add_symbol(pass, &pass->work->chunk[i]);
        if (error)
            return error;
    }
    return 0;
}

static int write_text(struct pass *pass, struct candidate *candidate)
{
    candidate->is_written = true;
    if (pass->texts->size - pass->texts_at_start > TEXTS_MAX)
        return 0;
    size_t length = read_name(pass, candidate->name, pass->work->name);
    if (length == 0)
        return 0;
    candidate->text =
        (struct symbol_name){.offset = (uint32_t)pass->texts->size, .length = (uint32_t)length};
    buffer_append(pass->texts, pass->work->name, length + 1);
    return pass->texts->size > UINT32_MAX ? -ENOMEM : pass->texts->error;
}

static int write_names(struct pass *pass, struct symbol_name *names)
{
    for (size_t i = 0; i < pass->count; i++) {
        if (!pass->best[i])
            continue;
        struct candidate *candidate = candidate_at(pass, pass->best[i] - 1);
        int error = candidate->is_written ? 0 : write_text(pass, candidate);
        if (error)
            return error;
        names[i] = candidate->text;
    }
    return 0;
}

static int find_in_file(struct pass *pass, struct symbol_name *names)
{
    int error = elf_find_symbols(&pass->file, SHT_SYMTAB, &pass->symbols, &pass->strings);
    if (error)
        error = elf_find_symbols(&pass->file, SHT_DYNSYM, &pass->symbols, &pass->strings);
    if (!error)
        error = elf_each_section(&pass->file, note_executable, pass->work);
    if (!error)
        error = scan_table(pass);
    if (!error)
        error = write_names(pass, names);
    return error;
}

/* Opens the object's file, checked to be the one that was loaded. */
static int open_object(struct elf_file *file, const struct object *object)
{
    /* The main program can be read though its path is not its own any more. */
    const char *const paths[] = {object->path, object->is_main ? "/proc/self/exe" : NULL};
    int error = -ENOENT;
    for (size_t i = 0; i < ARRAY_SIZE(paths) && paths[i]; i++) {
        int opened = elf_open(file, paths[i]);
        error = opened ? opened : elf_check_identity(file, object);
        if (!error)
            break;
        if (!opened)
            elf_close(file);
    }
    return error;
}

int symbols_find(const struct object *object, const uint64_t *addresses, size_t count,
                 struct symbol_name *names, struct buffer *texts)
{
    memset(names, 0, count * sizeof(names[0]));
    if (count == 0)
        return 0;
    if (object->is_vdso)
        return -ENOENT; /* no file has it */
    struct pass pass = {
        .addresses = addresses, .count = count, .texts = texts, .texts_at_start = texts->size};
    int error = open_object(&pass.file, object);
    if (error)
        return error;
    size_t best_size = count * sizeof(pass.best[0]);
    pass.work = sys_map(sizeof(*pass.work));
    pass.best = sys_map(best_size);
    error = pass.work && pass.best ? find_in_file(&pass, names) : -ENOMEM;
    if (error)
        memset(names, 0, count * sizeof(names[0]));
    if (pass.work)
        sys_unmap(pass.work, sizeof(*pass.work));
    if (pass.best)
        sys_unmap(pass.best, best_size);
    buffer_free(&pass.candidates);
    elf_close(&pass.file);
    return error;
}
