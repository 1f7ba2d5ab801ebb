/* The rules a profile must keep, gathered from pprof's own check, Parca (dense ids) and Pyroscope
 * (UTF-8, names without '-', no location without meaning), and the shape of our two families. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "test/preload/profile_reader.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;

enum { PAGE = 4096 };

struct check {
    const Profile *profile;
    char *why;
    size_t size;
};

static bool __attribute__((format(printf, 2, 3))) broken(struct check *check, const char *text, ...)
{
    va_list list;
    va_start(list, text);
    vsnprintf(check->why, check->size, text, list);
    va_end(list);
    return false;
}

static bool is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        unsigned follow = *p < 0x80 ? 0 : *p < 0xc2 ? 9 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
        uint32_t code = follow == 0 ? *p : *p & (0x3fu >> follow);
        if (follow == 9 || *p > 0xf4)
            return false;
        for (unsigned i = 0; i < follow; i++) {
            if ((*++p & 0xc0) != 0x80)
                return false;
            code = code << 6 | (*p & 0x3f);
        }
        p++;
        bool is_long = (follow == 2 && code < 0x800) || (follow == 3 && code < 0x10000);
        if (is_long || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
    }
    return true;
}

static bool is_string(const Profile *profile, int64_t index)
{
    return index >= 0 && (uint64_t)index < profile->n_string_table;
}

/* "" for an index out of range, which no rule takes for good. */
static const char *string_at(const Profile *profile, int64_t index)
{
    return is_string(profile, index) ? profile->string_table[index] : "";
}

static bool is_type(const Profile *profile, const ValueType *type, const char *name,
                    const char *unit)
{
    return type && strcmp(string_at(profile, type->type), name) == 0 &&
           strcmp(string_at(profile, type->unit), unit) == 0;
}

static bool check_strings(struct check *check)
{
    const Profile *profile = check->profile;
    if (profile->n_string_table == 0 || profile->string_table[0][0])
        return broken(check, "string 0 is not the empty one");
    for (size_t i = 0; i < profile->n_string_table; i++)
        if (!is_utf8(profile->string_table[i]))
            return broken(check, "string %zu is not UTF-8", i);
    return true;
}

/* The values of the files that there are; each has all those of one row. */
static const struct shape {
    const char *family, *unit, *period;
    const char *types[PROFILE_VALUES];
} shapes[] = {
    {"cpu", "nanoseconds", "cpu", {"samples", "cpu"}},
    {"wall", "nanoseconds", "wall", {"samples", "wall"}},
    {"heap", "bytes", "space", {"alloc_objects", "alloc_space"}},
    {"heap", "bytes", "space", {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"}},
    {"heap", "bytes", "space", {"inuse_objects", "inuse_space"}},
    {"heap-growth", "bytes", "space", {"inuse_objects", "inuse_space"}},
    {"heap-peak", "bytes", "space", {"inuse_objects", "inuse_space"}},
};

static bool has_shape(const Profile *profile, const char *family, const struct shape *shape)
{
    size_t count = 0;
    if (strcmp(shape->family, family) != 0)
        return false;
    for (; count < PROFILE_VALUES && shape->types[count]; count++)
        if (count >= profile->n_sample_type ||
            !is_type(profile, profile->sample_type[count], shape->types[count],
                     count % 2 == 0 ? "count" : shape->unit))
            return false;
    return count == profile->n_sample_type &&
           strcmp(string_at(profile, profile->default_sample_type), shape->types[count - 1]) == 0;
}

static bool check_header(struct check *check, const char *family)
{
    const Profile *profile = check->profile;
    const struct shape *types = shapes;
    while (!has_shape(profile, family, types))
        if (++types == shapes + sizeof(shapes) / sizeof(shapes[0]))
            return broken(check, "sample types, or the default one, are none of %s", family);
    if (!is_type(profile, profile->period_type, types->period, types->unit))
        return broken(check, "period type");
    if (profile->period <= 0)
        return broken(check, "period %lld", (long long)profile->period);
    /* What is live alone may be of an instant, as Parca wants it. */
    bool only_live =
        strcmp(string_at(profile, profile->sample_type[0]->type), "inuse_objects") == 0;
    if (profile->time_nanos <= 0 || profile->duration_nanos < !only_live)
        return broken(check, "no time or no duration");
    for (size_t i = 0; i < profile->n_comment; i++)
        if (!string_at(profile, profile->comment[i])[0])
            return broken(check, "comment %zu is empty", i);
    if (!is_string(profile, profile->default_sample_type) ||
        !is_string(profile, profile->drop_frames) || !is_string(profile, profile->keep_frames) ||
        !is_string(profile, profile->doc_url))
        return broken(check, "a string index is out of range");
    return true;
}

static bool check_mappings(struct check *check)
{
    const Profile *profile = check->profile;
    if (profile->n_mapping == 0)
        return broken(check, "no mapping");
    for (size_t i = 0; i < profile->n_mapping; i++) {
        const Mapping *mapping = profile->mapping[i];
        if (mapping->id != i + 1)
            return broken(check, "mapping %zu has id %llu", i + 1, (unsigned long long)mapping->id);
        if (mapping->memory_start % PAGE || mapping->file_offset % PAGE ||
            mapping->memory_limit <= mapping->memory_start)
            return broken(check, "mapping %zu has a bad range", i + 1);
        if (!string_at(profile, mapping->filename)[0])
            return broken(check, "mapping %zu has no file name", i + 1);
        if (!is_string(profile, mapping->build_id))
            return broken(check, "mapping %zu: build id out of range", i + 1);
        const char *build_id = string_at(profile, mapping->build_id);
        if (strspn(build_id, "0123456789abcdef") != strlen(build_id) || strlen(build_id) % 2)
            return broken(check, "mapping %zu: build id '%s' is not lower-case hex", i + 1,
                          build_id);
    }
    if (string_at(profile, profile->mapping[0]->filename)[0] != '/')
        return broken(check, "mapping 1 is no program: '%s'",
                      string_at(profile, profile->mapping[0]->filename));
    return true;
}

static bool check_functions(struct check *check)
{
    const Profile *profile = check->profile;
    for (size_t i = 0; i < profile->n_function; i++) {
        const Perftools__Profiles__Function *function = profile->function[i];
        if (function->id != i + 1)
            return broken(check, "function %zu has id %llu", i + 1,
                          (unsigned long long)function->id);
        if (!string_at(profile, function->name)[0])
            return broken(check, "function %zu has no name", i + 1);
        if (!is_string(profile, function->system_name) || !is_string(profile, function->filename))
            return broken(check, "function %zu: string out of range", i + 1);
    }
    return true;
}

static bool check_locations(struct check *check)
{
    const Profile *profile = check->profile;
    for (size_t i = 0; i < profile->n_location; i++) {
        const Location *location = profile->location[i];
        if (location->id != i + 1)
            return broken(check, "location %zu has id %llu", i + 1,
                          (unsigned long long)location->id);
        if (location->mapping_id > profile->n_mapping)
            return broken(check, "location %zu: no such mapping", i + 1);
        if (location->n_line == 0 && location->address == 0)
            return broken(check, "location %zu has neither line nor address", i + 1);
        const Mapping *mapping =
            location->mapping_id ? profile->mapping[location->mapping_id - 1] : NULL;
        if (mapping && (location->address < mapping->memory_start ||
                        location->address >= mapping->memory_limit))
            return broken(check, "location %zu is outside its mapping", i + 1);
        /* A mapping that says it has functions is never symbolised by anyone else. */
        if (location->n_line == 0 && (!mapping || mapping->has_functions))
            return broken(check, "location %zu has no line", i + 1);
        for (size_t k = 0; k < location->n_line; k++)
            if (location->line[k]->function_id == 0 ||
                location->line[k]->function_id > profile->n_function)
                return broken(check, "location %zu: no such function", i + 1);
    }
    return true;
}

static bool check_label(struct check *check, const Label *label, size_t sample)
{
    const char *key = string_at(check->profile, label->key);
    if (!key[0] || strncmp(key, "pprof::", 7) == 0)
        return broken(check, "sample %zu: label key '%s'", sample, key);
    if (!is_string(check->profile, label->str) || !is_string(check->profile, label->num_unit))
        return broken(check, "sample %zu: label string out of range", sample);
    if (label->str && label->num)
        return broken(check, "sample %zu: label is text and number", sample);
    /* A number 0 without a unit is dropped by readers. */
    if (!label->str && !label->num_unit)
        return broken(check, "sample %zu: label number without unit", sample);
    return true;
}

static bool check_samples(struct check *check, const char *family)
{
    const Profile *profile = check->profile;
    if (profile->n_sample == 0)
        return broken(check, "no sample");
    for (size_t i = 0; i < profile->n_sample; i++) {
        const Sample *sample = profile->sample[i];
        bool all_zero = true;
        if (sample->n_value != profile->n_sample_type)
            return broken(check, "sample %zu has %zu values", i, sample->n_value);
        for (size_t k = 0; k < sample->n_value; k++) {
            if (sample->value[k] < 0 && strcmp(family, "heap-growth") != 0)
                return broken(check, "sample %zu is negative", i);
            all_zero = all_zero && sample->value[k] == 0;
        }
        if (all_zero)
            return broken(check, "sample %zu is all zero", i);
        if (sample->n_location_id == 0)
            return broken(check, "sample %zu has no location", i);
        for (size_t k = 0; k < sample->n_location_id; k++)
            if (sample->location_id[k] == 0 || sample->location_id[k] > profile->n_location)
                return broken(check, "sample %zu: no such location", i);
        for (size_t k = 0; k < sample->n_label; k++)
            if (!check_label(check, sample->label[k], i))
                return false;
    }
    return true;
}

bool profile_is_valid(const Profile *message, const char *family, char *why, size_t size)
{
    struct check check = {message, why, size};
    return check_strings(&check) && check_header(&check, family) && check_mappings(&check) &&
           check_functions(&check) && check_locations(&check) && check_samples(&check, family);
}
