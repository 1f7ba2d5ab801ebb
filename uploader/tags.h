/* tags.h: what every profile of this process is labelled with, as one text "name:value,...".
 *
 * A name that is there already stays as it is: who adds first wins. Characters that one of the
 * receivers would take for something else (commas, control characters, what is not UTF-8) become
 * '_'; a tag beyond 200 bytes, or one that the text has no room for, is left out.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_TAGS_H
#define LIBAGENT_TAGS_H

#include <stdbool.h>
#include <stddef.h>

enum { TAGS_SIZE = 2048, TAG_MAX = 200 };

struct tags {
    char text[TAGS_SIZE];
    size_t length;
};

/* False: left out. An empty name or value adds nothing and is no fault. */
bool tags_add(struct tags *tags, const char *name, size_t name_length, const char *value,
              size_t value_length);
/* "k:v,k:v"; `blanks` separate, too (DD_TAGS). NULL, or the first that was left out, in `list`: an
 * empty name is a fault here. */
const char *tags_add_list(struct tags *tags, const char *list, bool blanks);
/* "k=v,k=v", percent-encoded (OTEL_RESOURCE_ATTRIBUTES). service.name is no tag;
 * deployment.environment(.name) and service.version are `env` and `version`. */
bool tags_add_attributes(struct tags *tags, const char *list);
/* Of the tag at *place (begin with the text): its parts, and *place behind it. False: no more. */
bool tags_next(const char **place, const char **name, size_t *name_length, const char **value,
               size_t *value_length);

#endif
