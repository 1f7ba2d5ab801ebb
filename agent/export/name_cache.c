#include "agent/export/name_cache.h"

#include <errno.h>
#include <string.h>

#include "agent/base/pair_map.h"

/* Lengths 0: no name, or nothing to demangle. */
struct entry {
    uint64_t low, high;
    uint32_t system, system_length;
    uint32_t readable, readable_length;
};

/* Of one object, by `low`. */
struct object_names {
    struct buffer entries;
};

static struct {
    struct pair_map by_object; /* (object, 0) to its number + 1 */
    struct buffer objects;     /* struct object_names */
    struct buffer texts;
    struct buffer fresh;                    /* entries that are added */
    char readable[DEMANGLE_OUTPUT_MAX + 1]; /* not on the stack, which may be small */
    size_t entry_bytes;                     /* of all objects */
    unsigned profiles;                      /* since names that are none were forgotten */
} cache;

static struct object_names *object_at(uint32_t number)
{
    return (struct object_names *)(void *)cache.objects.data + number;
}

static uint32_t object_count(void)
{
    return (uint32_t)(cache.objects.size / sizeof(struct object_names));
}

size_t name_cache_size(void)
{
    return cache.entry_bytes + cache.texts.size + cache.objects.size +
           cache.by_object.size * sizeof(cache.by_object.slots[0]);
}

void name_cache_clear(void)
{
    for (uint32_t i = 0; i < object_count(); i++)
        buffer_free(&object_at(i)->entries);
    buffer_free(&cache.objects);
    buffer_free(&cache.texts);
    buffer_free(&cache.fresh);
    pair_map_free(&cache.by_object);
    cache.entry_bytes = 0;
}

void name_cache_abandon(void)
{
    memset(&cache, 0, sizeof(cache));
}

static void forget_no_names(struct object_names *names)
{
    struct entry *entries = (struct entry *)(void *)names->entries.data;
    size_t kept = 0;
    for (size_t i = 0; i < names->entries.size / sizeof(*entries); i++)
        if (entries[i].system_length)
            entries[kept++] = entries[i];
    cache.entry_bytes -= names->entries.size - kept * sizeof(*entries);
    names->entries.size = kept * sizeof(*entries);
}

void name_cache_begin(size_t most)
{
    if (name_cache_size() > most)
        name_cache_clear();
    if (++cache.profiles <= NAME_CACHE_RETRY)
        return;
    cache.profiles = 0;
    for (uint32_t i = 0; i < object_count(); i++)
        forget_no_names(object_at(i));
}

bool name_cache_get(const struct object *object, uint64_t address, struct known_name *name)
{
    uint32_t number = pair_map_get(&cache.by_object, (uintptr_t)object, 0);
    if (!number)
        return false;
    const struct buffer *buffer = &object_at(number - 1)->entries;
    const struct entry *entries = (const void *)buffer->data;
    size_t low = 0, high = buffer->size / sizeof(*entries);
    while (low < high) { /* the first entry that begins above the address */
        size_t middle = low + (high - low) / 2;
        if (entries[middle].low <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || address >= entries[low - 1].high)
        return false;
    const struct entry *entry = &entries[low - 1];
    const char *texts = (const char *)cache.texts.data;
    *name = (struct known_name){
        .system = entry->system_length ? texts + entry->system : NULL,
        .system_length = entry->system_length,
        .readable = entry->readable_length ? texts + entry->readable : NULL,
        .readable_length = entry->readable_length,
    };
    return true;
}

/* The object's names, or NULL when there is no memory. */
static struct object_names *names_of(const struct object *object)
{
    uint32_t number = pair_map_get(&cache.by_object, (uintptr_t)object, 0);
    if (!number) {
        static const struct object_names none;
        buffer_append(&cache.objects, &none, sizeof(none));
        number = object_count();
        if (cache.objects.error || pair_map_add(&cache.by_object, (uintptr_t)object, 0, number))
            return NULL;
    }
    return object_at(number - 1);
}

/* Puts those that were added among the object's, from the end. One that begins where an older one
 * does takes its place. */
static int merge(struct object_names *names)
{
    const struct entry *fresh = (const void *)cache.fresh.data;
    size_t more = cache.fresh.size / sizeof(*fresh);
    size_t old = names->entries.size / sizeof(*fresh);
    if (!buffer_room(&names->entries, cache.fresh.size))
        return -ENOMEM;
    struct entry *entries = (struct entry *)(void *)names->entries.data;
    size_t to = old + more, from = old;
    while (more > 0) {
        if (from > 0 && entries[from - 1].low == fresh[more - 1].low)
            from--;
        else if (from > 0 && entries[from - 1].low > fresh[more - 1].low)
            entries[--to] = entries[--from];
        else
            entries[--to] = fresh[--more];
    }
    /* What was replaced has left a gap between `from` and `to`. */
    size_t all = old + cache.fresh.size / sizeof(*fresh);
    memmove(entries + from, entries + to, (all - to) * sizeof(*entries));
    cache.entry_bytes -= names->entries.size;
    names->entries.size = (from + all - to) * sizeof(*entries);
    cache.entry_bytes += names->entries.size;
    return 0;
}

int name_cache_add(const struct object *object, const struct symbol_name *names, size_t count,
                   const struct buffer *texts, const struct demangler *demangler)
{
    struct object_names *known = names_of(object);
    if (!known)
        return -ENOMEM;
    cache.fresh.size = 0;
    struct entry entry = {.low = UINT64_MAX};
    uint32_t offset = UINT32_MAX; /* of the last name in `texts` */
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && names[i].low == names[i - 1].low)
            continue; /* the same answer */
        entry.low = names[i].low;
        entry.high = names[i].high;
        if (names[i].length == 0) {
            offset = UINT32_MAX;
            entry.system_length = entry.readable_length = 0;
        } else if (names[i].offset != offset) {
            const char *name = (const char *)texts->data + names[i].offset;
            offset = names[i].offset;
            entry.system = buffer_append_text(&cache.texts, name, names[i].length);
            entry.system_length = names[i].length;
            entry.readable_length = (uint32_t)demangle(demangler, name, cache.readable);
            if (entry.readable_length)
                entry.readable =
                    buffer_append_text(&cache.texts, cache.readable, entry.readable_length);
        }
        buffer_append(&cache.fresh, &entry, sizeof(entry));
    }
    int error = cache.fresh.error ? cache.fresh.error : cache.texts.error;
    if (!error && cache.fresh.size)
        error = merge(known);
    if (error)
        name_cache_clear(); /* errors of buffers are remembered; the next profile begins anew */
    return error;
}
