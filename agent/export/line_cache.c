#include "agent/export/line_cache.h"

#include <errno.h>
#include <string.h>

#include "agent/base/pair_map.h"

/* A name with what it reads as, or a path. */
struct text {
    uint32_t offset, length;
    uint32_t readable, readable_length; /* length 0: as it is */
};

/* Texts are numbers + 1; 0: not known. */
struct frame {
    uint32_t name, file, line, start_line;
};

static struct {
    struct pair_map by_address; /* (object, address) to its number in `found` + 1 */
    struct buffer found;        /* struct known_lines */
    struct buffer frames;       /* struct frame */
    struct buffer texts;        /* struct text */
    struct pair_map by_text;    /* (hash, length and kind) to its number in `texts` + 1 */
    struct buffer bytes;        /* of texts */
    struct pair_map fresh;      /* (offset in the buffer that is added, 0) to text + 1 */
    bool has_none;              /* an address without lines */
    unsigned profiles;          /* since then */
    char readable[DEMANGLE_OUTPUT_MAX + 1]; /* not on the stack, which may be small */
} cache;

static size_t map_size(const struct pair_map *map)
{
    return map->size * sizeof(map->slots[0]);
}

size_t line_cache_size(void)
{
    return cache.found.size + cache.frames.size + cache.texts.size + cache.bytes.size +
           map_size(&cache.by_address) + map_size(&cache.by_text);
}

void line_cache_clear(void)
{
    pair_map_free(&cache.by_address);
    pair_map_free(&cache.by_text);
    pair_map_free(&cache.fresh);
    buffer_free(&cache.found);
    buffer_free(&cache.frames);
    buffer_free(&cache.texts);
    buffer_free(&cache.bytes);
    cache.has_none = false;
    cache.profiles = 0;
}

void line_cache_abandon(void)
{
    memset(&cache, 0, sizeof(cache));
}

void line_cache_begin(size_t most)
{
    if (cache.has_none)
        cache.profiles++;
    if (cache.profiles > LINE_CACHE_RETRY || line_cache_size() > most)
        line_cache_clear();
}

bool line_cache_get(const struct object *object, uint64_t address, struct known_lines *lines)
{
    uint32_t number = pair_map_get(&cache.by_address, (uintptr_t)object, address);
    if (!number)
        return false;
    *lines = ((const struct known_lines *)(const void *)cache.found.data)[number - 1];
    return true;
}

static const struct text *text_at(uint32_t number)
{
    return (const struct text *)(const void *)cache.texts.data + number - 1;
}

struct known_frame line_cache_frame(uint32_t number)
{
    struct frame frame = ((const struct frame *)(const void *)cache.frames.data)[number];
    const char *bytes = (const char *)cache.bytes.data;
    struct known_frame known = {.line = frame.line, .start_line = frame.start_line};
    if (frame.name) {
        struct text text = *text_at(frame.name);
        known.name = (struct known_name){.system = bytes + text.offset,
                                         .system_length = text.length,
                                         .readable_length = text.readable_length};
        known.name.readable = text.readable_length ? bytes + text.readable : NULL;
    }
    if (frame.file) {
        known.file = bytes + text_at(frame.file)->offset;
        known.file_length = text_at(frame.file)->length;
    }
    return known;
}

static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = hash_mix(hash, (uint8_t)text[i]);
    return hash;
}

/* The number + 1 of a text, which is demangled where a demangler is given; 0: no memory. */
static uint32_t text_number(const char *text, const struct demangler *demangler)
{
    size_t length = strlen(text);
    uint64_t hash = hash_text(text, length), kind = (uint64_t)length << 1 | (demangler != NULL);
    for (uint32_t number; (number = pair_map_get(&cache.by_text, hash, kind)); hash++)
        if (memcmp(cache.bytes.data + text_at(number)->offset, text, length) == 0)
            return number;
    struct text added = {.offset = buffer_append_text(&cache.bytes, text, length),
                         .length = (uint32_t)length};
    if (demangler)
        added.readable_length = (uint32_t)demangle(demangler, text, cache.readable);
    if (added.readable_length)
        added.readable = buffer_append_text(&cache.bytes, cache.readable, added.readable_length);
    buffer_append(&cache.texts, &added, sizeof(added));
    uint32_t number = (uint32_t)(cache.texts.size / sizeof(added));
    return cache.texts.error || cache.bytes.error ||
                   pair_map_add(&cache.by_text, hash, kind, number)
               ? 0
               : number;
}

/* The same of a text in the buffer, each once. */
static int number_of(const struct buffer *texts, uint32_t offset, const struct demangler *demangler,
                     uint32_t *number)
{
    *number = 0;
    if (offset == LINES_NO_TEXT)
        return 0;
    *number = pair_map_get(&cache.fresh, offset, demangler != NULL);
    if (*number)
        return 0;
    *number = text_number((const char *)texts->data + offset, demangler);
    return *number ? pair_map_add(&cache.fresh, offset, demangler != NULL, *number) : -ENOMEM;
}

static int add_frames(const struct line_answer *answer, const struct buffer *frames,
                      const struct buffer *texts, const struct demangler *demangler)
{
    const struct line_frame *from = (const void *)frames->data;
    int error = 0;
    for (uint32_t i = 0; i < answer->count && !error; i++) {
        struct line_frame frame = from[answer->first + i];
        struct frame kept = {.line = frame.line, .start_line = frame.start_line};
        error = number_of(texts, frame.name, demangler, &kept.name);
        if (!error)
            error = number_of(texts, frame.file, NULL, &kept.file);
        buffer_append(&cache.frames, &kept, sizeof(kept));
    }
    return error;
}

int line_cache_add(const struct object *object, const uint64_t *addresses, size_t count,
                   const struct line_answer *answers, const struct buffer *frames,
                   const struct buffer *texts, const struct demangler *demangler)
{
    int error = 0;
    pair_map_free(&cache.fresh);
    for (size_t i = 0; i < count && !error; i++) {
        if (answers[i].state == LINES_PUT_OFF)
            continue;
        struct known_lines known = {
            .first = (uint32_t)(cache.frames.size / sizeof(struct frame)),
            .count = answers[i].count,
        };
        cache.has_none |= known.count == 0;
        error = add_frames(&answers[i], frames, texts, demangler);
        buffer_append(&cache.found, &known, sizeof(known));
        if (!error)
            error = cache.frames.error ? cache.frames.error : cache.found.error;
        if (!error)
            error = pair_map_add(&cache.by_address, (uintptr_t)object, addresses[i],
                                 (uint32_t)(cache.found.size / sizeof(known)));
    }
    pair_map_free(&cache.fresh);
    if (error)
        line_cache_clear(); /* errors of buffers are remembered; the next profile begins anew */
    return error;
}
