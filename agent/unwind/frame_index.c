#include "agent/unwind/frame_index.h"

#include <errno.h>

#include "agent/base/arena.h"

enum {
    RADIX_BITS = 8,
    RADIX = 1 << RADIX_BITS,
    /* FDEs that one address may be within; more are met in no file but a malformed one. */
    NESTING_MAX = 32,
    /* Entries looked at: also CIEs and terminators. */
    ENTRIES_MAX = 2 * FRAME_INDEX_MAX,
};

struct pair {
    int32_t code, entry;
};

/* Goes from entry to entry of a section; CIEs are read once for the FDEs that follow each other. */
struct reader {
    const struct object *object;
    const struct cfi_section *section;
    bool is_whole;
    bool cie_is_good;
    uint64_t at, cie_at;
    uint32_t entries;
    struct cfi_cie cie;
};

static bool is_code(const struct object *object, uint64_t vaddr)
{
    for (uint32_t i = 0; i < object->segment_count; i++)
        if (vaddr - object->segments[i].vaddr < object->segments[i].size)
            return true;
    return false;
}

static bool read_fde(struct reader *r, const struct cfi_entry *entry, struct cfi_fde *fde)
{
    if (entry->cie != r->cie_at) {
        r->cie_at = entry->cie;
        r->cie_is_good = cfi_read_cie(r->section, entry->cie, &r->cie);
    }
    return r->cie_is_good && cfi_read_fde(r->section, entry, &r->cie, fde);
}

static bool counts(const struct reader *r, const struct cfi_fde *fde, struct pair *pair)
{
    int64_t code = (int64_t)(fde->start - r->section->code_base);
    int64_t entry = (int64_t)(r->at - r->section->entry_base);
    *pair = (struct pair){(int32_t)code, (int32_t)entry};
    return fde->start != 0 && fde->size != 0 && code == pair->code && entry == pair->entry &&
           is_code(r->object, fde->start);
}

/* The next FDE that counts; false at the end. */
static bool next_fde(struct reader *r, struct pair *pair)
{
    struct cfi_entry entry;
    while (r->entries < ENTRIES_MAX && cfi_open_entry(r->section, r->at, &entry)) {
        r->entries++;
        struct cfi_fde fde;
        if (entry.kind == CFI_TERMINATOR && !r->is_whole)
            return false;
        bool found = entry.kind == CFI_FDE && read_fde(r, &entry, &fde) && counts(r, &fde, pair);
        r->at = cfi_entry_end(&entry);
        if (found)
            return true;
    }
    return false;
}

static struct reader reader_of(const struct object *object, const struct cfi_section *section,
                               bool is_whole)
{
    return (struct reader){.object = object,
                           .section = section,
                           .is_whole = is_whole,
                           .at = section->table->vaddr,
                           .cie_at = UINT64_MAX};
}

static bool is_sorted(const struct pair *pairs, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (pairs[i].code < pairs[i - 1].code)
            return false;
    return true;
}

/* Sorts by address, what is alike in the order of the section. The result is in `pairs`; `other`
 * has as much room. */
static void sort_pairs(struct pair *pairs, struct pair *other, uint32_t count)
{
    if (is_sorted(pairs, count))
        return;
    for (uint32_t shift = 0; shift < 32; shift += RADIX_BITS) {
        uint32_t place[RADIX] = {0};
        for (uint32_t i = 0; i < count; i++)
            place[((uint32_t)pairs[i].code ^ 1u << 31) >> shift & (RADIX - 1)]++;
        for (uint32_t i = 0, sum = 0; i < RADIX; i++) {
            uint32_t here = place[i];
            place[i] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < count; i++)
            other[place[((uint32_t)pairs[i].code ^ 1u << 31) >> shift & (RADIX - 1)]++] = pairs[i];
        struct pair *sorted = other;
        other = pairs;
        pairs = sorted;
    }
}

/* Where the code of an FDE ends, from code_base on. */
static int64_t end_of(struct reader *r, const struct pair *pair)
{
    struct cfi_entry entry;
    struct cfi_fde fde;
    uint64_t at = r->section->entry_base + (uint64_t)(int64_t)pair->entry;
    if (!cfi_open_entry(r->section, at, &entry) || !read_fde(r, &entry, &fde))
        return pair->code;
    return pair->code + (int64_t)MIN_OF(fde.size, (uint64_t)INT32_MAX);
}

struct open_fde {
    int64_t end;
    int32_t entry;
};

/* Writes for each stretch of code which FDE it belongs to: at most two for each FDE. */
static uint32_t flatten(struct reader *r, const struct pair *pairs, uint32_t count,
                        struct pair *out)
{
    struct open_fde open[NESTING_MAX];
    uint32_t depth = 0, written = 0;
    for (uint32_t i = 0; i <= count; i++) {
        int64_t next = i < count ? pairs[i].code : INT64_MAX;
        /* Behind what has ended by then, what it was within goes on. */
        while (depth && open[depth - 1].end <= next) {
            int64_t end = open[--depth].end;
            if (depth && end < next && end <= INT32_MAX)
                out[written++] = (struct pair){(int32_t)end, open[depth - 1].entry};
        }
        if (i == count)
            break;
        int64_t end = end_of(r, &pairs[i]);
        /* The first of those for the same code, as in a search from the section's begin. */
        bool is_double = written && out[written - 1].code == pairs[i].code && depth &&
                         open[depth - 1].end >= end;
        if (is_double)
            continue;
        out[written++] = pairs[i];
        /* What ends before this one does not come back: ends grow from the top down. */
        while (depth && open[depth - 1].end <= end)
            depth--;
        if (depth < NESTING_MAX)
            open[depth++] = (struct open_fde){end, pairs[i].entry};
    }
    return written;
}

int frame_index_build(const struct object *object, bool is_whole, struct cfi_section *section)
{
    struct pair pair;
    uint32_t count = 0;
    struct reader r = reader_of(object, section, is_whole);
    while (count < FRAME_INDEX_MAX && next_fde(&r, &pair))
        count++;
    if (count == 0)
        return -ENOENT;
    size_t size = (size_t)count * sizeof(pair);
    struct pair *pairs = arena_reserve(4 * size);
    if (!pairs)
        return -ENOMEM;
    r = reader_of(object, section, is_whole);
    uint32_t seen = 0;
    while (seen < count && next_fde(&r, &pairs[seen]))
        seen++;
    sort_pairs(pairs, pairs + count, seen);
    struct pair *flat = pairs + 2 * (size_t)count;
    uint32_t written = flatten(&r, pairs, seen, flat);
    uint8_t *index = arena_reserve(written * sizeof(pair));
    if (index) {
        memcpy(index, flat, written * sizeof(pair));
        section->index = index;
        section->count = written;
    }
    arena_release(pairs, 4 * size);
    return index ? 0 : -ENOMEM;
}
