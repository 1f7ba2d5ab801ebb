#include "uploader/tags.h"

#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"
#include "agent/base/otel_attributes.h"

bool tags_next(const char **place, const char **name, size_t *name_length, const char **value,
               size_t *value_length)
{
    const char *p = *place;
    if (!*p)
        return false;
    *name = p;
    while (*p && *p != ':' && *p != ',')
        p++;
    *name_length = (size_t)(p - *name);
    *value = *p == ':' ? ++p : p;
    while (*p && *p != ',')
        p++;
    *value_length = (size_t)(p - *value);
    *place = *p == ',' ? p + 1 : p;
    return true;
}

static bool has_name(const struct tags *tags, const char *name, size_t length)
{
    const char *place = tags->text, *other, *value;
    size_t other_length, value_length;
    while (tags_next(&place, &other, &other_length, &value, &value_length))
        if (other_length == length && memcmp(other, name, length) == 0)
            return true;
    return false;
}

/* In place; `is_name`: a colon would end it. */
static void clean(char *text, bool is_name)
{
    text[make_printable(text, strlen(text))] = 0;
    for (; *text; text++)
        if (*text == ',' || *text == '?' || (is_name && (*text == ':' || *text == ' ')))
            *text = '_';
}

bool tags_add(struct tags *tags, const char *name, size_t name_length, const char *value,
              size_t value_length)
{
    if (name_length == 0 || value_length == 0)
        return true;
    if (name_length + value_length + 1 > TAG_MAX)
        return false;
    char clean_name[TAG_MAX + 1], clean_value[TAG_MAX + 1];
    format(clean_name, sizeof(clean_name), "%.*s", (int)name_length, name);
    format(clean_value, sizeof(clean_value), "%.*s", (int)value_length, value);
    clean(clean_name, true);
    clean(clean_value, false);
    if (has_name(tags, clean_name, strlen(clean_name)))
        return true;
    size_t room = sizeof(tags->text) - tags->length;
    if (strlen(clean_name) + strlen(clean_value) + 3 > room)
        return false;
    tags->length += format(tags->text + tags->length, room, "%s%s:%s", tags->length ? "," : "",
                           clean_name, clean_value);
    return true;
}

const char *tags_add_list(struct tags *tags, const char *list, bool blanks)
{
    const char *left_out = NULL;
    while (*list) {
        while (*list == ' ')
            list++;
        size_t length = 0;
        while (list[length] && list[length] != ',' && !(blanks && list[length] == ' '))
            length++;
        const char *colon = memchr(list, ':', length);
        size_t name = colon ? (size_t)(colon - list) : 0;
        bool good = name ? tags_add(tags, list, name, colon + 1, length - name - 1) : length == 0;
        if (!good && !left_out)
            left_out = list;
        list += length + (list[length] != 0);
    }
    return left_out;
}

bool tags_add_attributes(struct tags *tags, const char *list)
{
    static const struct {
        const char *attribute, *tag;
    } others[] = {{"deployment.environment.name", "env"},
                  {"deployment.environment", "env"},
                  {"service.version", "version"}};
    bool all = true;
    struct otel_attribute attribute;
    while (otel_attribute_next(&list, &attribute)) {
        const char *name = attribute.name;
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
            if (strcmp(attribute.name, others[i].attribute) == 0)
                name = others[i].tag;
        if (strcmp(name, "service.name") != 0)
            all &= tags_add(tags, name, strlen(name), attribute.value, attribute.value_length);
    }
    return all;
}
