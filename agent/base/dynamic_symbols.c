#include "agent/base/dynamic_symbols.h"

#include <stdbool.h>
#include <stddef.h>

enum { VERSION_HIDDEN = 0x8000 };

/* glibc relocates most pointers of the dynamic section in place, musl none, and the kernel's own
 * object keeps what it was linked with: until Linux 3.16 the end of the address space. */
static const void *pointer_of(uintptr_t bias, ElfW(Addr) value)
{
    bool is_relocated = value >= bias && value <= INTPTR_MAX;
    return (const void *)(is_relocated ? value : value + bias);
}

void dynamic_symbols_read(uintptr_t bias, const ElfW(Dyn) * dynamic,
                          struct dynamic_symbols *symbols)
{
    *symbols = (struct dynamic_symbols){.bias = bias};
    for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        const void *pointer = pointer_of(bias, entry->d_un.d_ptr);
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
static bool consider(const struct dynamic_symbols *symbols, uint32_t index, const char *name,
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

static void search_gnu(const struct dynamic_symbols *symbols, const char *name,
                       const ElfW(Sym) * *best)
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

static void search_sysv(const struct dynamic_symbols *symbols, const char *name,
                        const ElfW(Sym) * *best)
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

void *dynamic_symbols_find(const struct dynamic_symbols *symbols, const char *name)
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
