#include "agent/export/symbols.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/export/address_search.h"
#include "agent/export/debug_file.h"
#include "agent/export/elf_file.h"
#include "agent/export/ifunc.h"
#include "agent/export/mini_debug.h"
#include "agent/export/object_file.h"
#include "agent/export/plt.h"

static const char plt_suffix[] = "@plt";

/* The files of one object, and the tables of symbols in them that count. */
struct files {
    struct elf_file own, debug;
    struct mini_debug mini;
    bool has_own, has_debug;
    struct symbol_source sources[SYMBOL_SOURCES_MAX];
    uint32_t source_count;
};

static int add_source(struct files *files, const struct elf_file *file, uint32_t type)
{
    struct symbol_source *source = &files->sources[files->source_count];
    source->file = file;
    int error = elf_find_symbols(file, type, &source->symbols, &source->strings);
    if (!error)
        files->source_count++;
    return error;
}

/* Finds the tables. 0, or why there is none. */
static int open_files(struct files *files, const struct object *object)
{
    int error = object_file_open(&files->own, object);
    files->has_own = !error;
    if (files->has_own && add_source(files, &files->own, SHT_SYMTAB) == 0)
        return 0;
    int found = object->is_vdso
                    ? -ENOENT
                    : debug_file_open(&files->debug, object, files->has_own ? &files->own : NULL);
    files->has_debug = !found;
    if (found == -ENOMEM)
        return found;
    if (files->has_debug && add_source(files, &files->debug, SHT_SYMTAB) == 0)
        return 0;
    if (!files->has_own)
        return error;
    error = add_source(files, &files->own, SHT_DYNSYM);
    found = mini_debug_open(&files->mini, &files->own);
    if (found == -ENOMEM)
        return found;
    if (!found && add_source(files, &files->mini.file, SHT_SYMTAB) == 0)
        return 0;
    return error;
}

static void close_files(struct files *files)
{
    mini_debug_close(&files->mini);
    if (files->has_debug)
        elf_close(&files->debug);
    if (files->has_own)
        elf_close(&files->own);
}

static int find_in_tables(const struct files *files, const uint64_t *addresses, size_t count,
                          struct symbol_name *names, struct buffer *texts)
{
    struct symbol_pass pass;
    int error = symbol_pass_begin(&pass, addresses, count);
    for (uint32_t i = 0; !error && i < files->source_count; i++)
        error = symbol_pass_scan(&pass, files->sources[i]);
    if (!error)
        error = symbol_pass_write(&pass, names, texts);
    symbol_pass_end(&pass);
    return error;
}

/* ---- Procedure linkage tables -------------------------------------------------------------- */

/* Appends the name of .dynsym's symbol, and "@plt". */
static int write_plt_name(const struct symbol_source *table, uint32_t symbol,
                          struct symbol_name *name, struct buffer *texts)
{
    Elf64_Sym entry;
    uint64_t at = (uint64_t)symbol * sizeof(entry);
    if (elf_read_some(table->file, table->symbols, at, &entry, sizeof(entry)) !=
        (long)sizeof(entry))
        return 0;
    char *text = buffer_room(texts, SYMBOL_NAME_MAX + sizeof(plt_suffix));
    if (!text)
        return -ENOMEM;
    long got = elf_read_some(table->file, table->strings, entry.st_name, text, SYMBOL_NAME_MAX);
    size_t length = 0;
    while ((long)length < got && text[length])
        length++;
    if (length == 0)
        return 0;
    memcpy(text + length, plt_suffix, sizeof(plt_suffix));
    name->offset = (uint32_t)texts->size;
    name->length = (uint32_t)(length + sizeof(plt_suffix) - 1);
    texts->size += name->length + 1;
    return texts->size > UINT32_MAX ? -ENOMEM : 0;
}

/* The same of a function that the object itself defines, by its resolver, with that suffix. */
static int write_resolver_name(const struct files *files, uint64_t resolver, const char *suffix,
                               struct symbol_name *name, struct buffer *texts)
{
    struct symbol_name found;
    int error = find_in_tables(files, &resolver, 1, &found, texts);
    if (error || found.length == 0)
        return error;
    texts->size--; /* the suffix takes the place of the 0 */
    buffer_append(texts, suffix, strlen(suffix) + 1);
    name->offset = found.offset;
    name->length = found.length + (uint32_t)strlen(suffix);
    return texts->error;
}

/* Gives the name to all addresses within its bounds that have none. */
static void spread_name(const uint64_t *addresses, size_t count, struct symbol_name name,
                        struct symbol_name *names)
{
    for (size_t i = address_lower_bound(addresses, count, name.low);
         i < count && addresses[i] < name.high; i++)
        if (names[i].length == 0)
            names[i] = name;
}

static int name_entry(const struct files *files, const struct symbol_source *table,
                      const struct plt_entry *entry, struct symbol_name *name, struct buffer *texts)
{
    *name = (struct symbol_name){.low = entry->low, .high = entry->high};
    if (entry->symbol)
        return table->file ? write_plt_name(table, entry->symbol, name, texts) : 0;
    return entry->resolver ? write_resolver_name(files, entry->resolver, plt_suffix, name, texts)
                           : 0;
}

/* Names what lies in entries of procedure linkage tables, and has no name yet. */
static int name_plt(const struct files *files, const uint64_t *addresses, size_t count,
                    struct symbol_name *names, struct buffer *texts)
{
    struct buffer entries = {0};
    struct symbol_source table = {.file = &files->own};
    int error = plt_find(&files->own, addresses, names, count, &entries);
    if (!error && elf_find_symbols(&files->own, SHT_DYNSYM, &table.symbols, &table.strings))
        table.file = NULL;
    const struct plt_entry *found = (const void *)entries.data;
    for (size_t i = 0; !error && i < entries.size / sizeof(found[0]); i++) {
        struct symbol_name name;
        error = name_entry(files, &table, &found[i], &name, texts);
        if (!error)
            spread_name(addresses, count, name, names);
    }
    buffer_free(&entries);
    return error == -ENOMEM ? error : 0; /* without it there are fewer names */
}

/* ---- Chosen functions ---------------------------------------------------------------------- */

/* By the rules of symbol_table.h, as far as two names alone tell: several are often one function
 * (memcpy and memmove). */
static bool is_better_name(const char *a, const char *b)
{
    size_t underscores_a = 0, underscores_b = 0;
    while (a[underscores_a] == '_')
        underscores_a++;
    while (b[underscores_b] == '_')
        underscores_b++;
    size_t length_a = strlen(a), length_b = strlen(b);
    if (underscores_a != underscores_b)
        return underscores_a < underscores_b;
    return length_a != length_b ? length_a < length_b : strcmp(a, b) < 0;
}

static int name_chosen(const struct files *files, const struct object *object, uintptr_t bias,
                       const uint64_t *addresses, size_t count, struct symbol_name *names,
                       struct buffer *texts)
{
    struct buffer list = {0};
    int error = ifunc_find(&files->own, object, bias, addresses, names, count, &list);
    const struct ifunc *found = (const void *)list.data;
    size_t total = error ? 0 : list.size / sizeof(found[0]);
    for (size_t i = 0; !error && i < total; i++) {
        struct symbol_name best = {.length = 0};
        /* All that led to the same function; its other ones find no address without a name. */
        for (size_t k = i; !error && k < total; k++) {
            struct symbol_name name = {.length = 0};
            if (found[k].low != found[i].low)
                continue;
            error = write_resolver_name(files, found[k].resolver, "", &name, texts);
            if (!error && name.length &&
                (!best.length || is_better_name((char *)texts->data + name.offset,
                                                (char *)texts->data + best.offset)))
                best = name;
        }
        best.low = found[i].low;
        best.high = found[i].high;
        if (!error && best.length)
            spread_name(addresses, count, best, names);
    }
    buffer_free(&list);
    return error == -ENOMEM ? error : 0;
}

int symbols_find(const struct object *object, uintptr_t bias, const uint64_t *addresses,
                 size_t count, struct symbol_name *names, struct buffer *texts)
{
    memset(names, 0, count * sizeof(names[0]));
    if (count == 0)
        return 0;
    struct files files = {.source_count = 0};
    int error = open_files(&files, object);
    if (files.source_count && error != -ENOMEM)
        error = find_in_tables(&files, addresses, count, names, texts);
    if (!error && files.has_own)
        error = name_plt(&files, addresses, count, names, texts);
    if (!error && files.has_own && object->in_place && bias != SYMBOLS_NOT_LOADED)
        error = name_chosen(&files, object, bias, addresses, count, names, texts);
    for (size_t i = 0; i < count; i++)
        if (names[i].length == 0) /* a gap may have an entry of a linkage table beside it */
            names[i] = (struct symbol_name){.low = addresses[i], .high = addresses[i] + 1};
    if (error)
        memset(names, 0, count * sizeof(names[0]));
    close_files(&files);
    return error;
}
