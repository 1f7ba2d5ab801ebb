#include "shim/next_lookup.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>

/* NOLINTBEGIN(clang-analyzer-core.CallAndMessage): every libc has these four */
/* What the hooks that every nanosecond counts for call, until the table is filled: so they need
 * not ask. libc, the last in line, has all of them. */
static void *first_malloc(size_t size)
{
    next_lookup();
    return next.malloc(size);
}

static void *first_calloc(size_t count, size_t size)
{
    next_lookup();
    return next.calloc(count, size);
}

static void *first_realloc(void *old, size_t size)
{
    next_lookup();
    return next.realloc(old, size);
}

static void first_free(void *pointer)
{
    next_lookup();
    next.free(pointer);
}
/* NOLINTEND(clang-analyzer-core.CallAndMessage) */

struct next_functions next = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
};
void *next_first_malloc;

extern ElfW(Dyn) _DYNAMIC[] HIDDEN;

enum { VERSION_HIDDEN = 0x8000 };

/* The dynamic symbol table of one object. */
struct symbols {
    uintptr_t bias;
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const uint16_t *versions;
};

static const struct link_map *first_object(void)
{
    const ElfW(Phdr) *headers = (const void *)getauxval(AT_PHDR);
    size_t count = getauxval(AT_PHNUM);
    uintptr_t bias = 0;
    const ElfW(Dyn) *dynamic = NULL;
    for (size_t i = 0; headers && i < count; i++) {
        if (headers[i].p_type == PT_PHDR)
            bias = (uintptr_t)headers - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(bias + headers[i].p_vaddr);
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr)
            return ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map;
    }
    return NULL;
}

/* glibc relocates most pointers of the dynamic section in place, musl none. */
static const void *pointer_of(uintptr_t bias, ElfW(Addr) value)
{
    return (const void *)(value < bias ? value + bias : value);
}

static void read_dynamic(const struct link_map *object, struct symbols *symbols)
{
    *symbols = (struct symbols){.bias = object->l_addr};
    for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        const void *pointer = pointer_of(object->l_addr, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            symbols->table = pointer;
            break;
        case DT_STRTAB:
            symbols->strings = pointer;
            break;
        case DT_GNU_HASH:
            symbols->gnu_hash = pointer;
            break;
        case DT_HASH:
            symbols->sysv_hash = pointer;
            break;
        case DT_VERSYM:
            symbols->versions = pointer;
            break;
        }
    }
}

/* Not strcmp: a sanitizer's run-time library has its own, which wants to be set up first, and it is
 * in its setting up that it calls malloc. */
static bool is_same(const char *a, const char *b)
{
    for (; *a && *a == *b; a++)
        b++;
    return *a == *b;
}

/* Keeps the best match so far: one of the default version ends the search. */
static bool consider(const struct symbols *symbols, uint32_t index, const char *name,
                     const ElfW(Sym) * *best)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    if (symbol->st_shndx == SHN_UNDEF || (symbol->st_info & 15) != STT_FUNC ||
        !is_same(symbols->strings + symbol->st_name, name))
        return false;
    bool is_default = !symbols->versions || !(symbols->versions[index] & VERSION_HIDDEN);
    if (is_default || !*best)
        *best = symbol;
    return is_default;
}

static void search_gnu(const struct symbols *symbols, const char *name, const ElfW(Sym) * *best)
{
    const uint32_t *table = symbols->gnu_hash;
    uint32_t bucket_count = table[0];
    uint32_t first = table[1];
    uint32_t bloom_words = table[2];
    const uint32_t *buckets = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chains = buckets + bucket_count;
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    if (index < first)
        return;
    for (;; index++) {
        uint32_t chain = chains[index - first];
        if ((chain | 1) == (hash | 1) && consider(symbols, index, name, best))
            return;
        if (chain & 1)
            return;
    }
}

static void search_sysv(const struct symbols *symbols, const char *name, const ElfW(Sym) * *best)
{
    uint32_t bucket_count = symbols->sysv_hash[0];
    const uint32_t *buckets = symbols->sysv_hash + 2;
    const uint32_t *chains = buckets + bucket_count;
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    for (; index; index = chains[index]) {
        if (consider(symbols, index, name, best))
            return;
    }
}

static void *find_in(const struct symbols *symbols, const char *name)
{
    const ElfW(Sym) *best = NULL;
    if (!symbols->table || !symbols->strings)
        return NULL;
    if (symbols->gnu_hash)
        search_gnu(symbols, name, &best);
    else if (symbols->sysv_hash)
        search_sysv(symbols, name, &best);
    return best ? (void *)(symbols->bias + best->st_value) : NULL;
}

/* Looks up what `table` does not have yet. */
static void fill_from(const struct symbols *symbols, struct next_functions *table)
{
/* NOLINTBEGIN(bugprone-macro-parentheses): a type can have none */
#define X(type, name, parameters)                                                                  \
    if (!table->name)                                                                              \
        table->name = (type(*) parameters)find_in(symbols, #name);
    /* NOLINTEND(bugprone-macro-parentheses) */
    NEXT_LIST(X)
#undef X
}

void next_lookup(void)
{
    struct next_functions table = next;
    if (table.malloc == first_malloc)
        table.malloc = NULL;
    if (table.calloc == first_calloc)
        table.calloc = NULL;
    if (table.realloc == first_realloc)
        table.realloc = NULL;
    if (table.free == first_free)
        table.free = NULL;
    bool behind_us = false;
    for (const struct link_map *object = first_object(); object; object = object->l_next) {
        struct symbols symbols;
        read_dynamic(object, &symbols);
        if (!next_first_malloc)
            next_first_malloc = find_in(&symbols, "malloc");
        if (behind_us)
            fill_from(&symbols, &table);
        behind_us |= object->l_ld == _DYNAMIC;
    }
    next = table;
}
