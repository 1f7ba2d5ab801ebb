/* page_reader.h: an independent reader (libjansson) of html pages, and one of collapsed stacks,
 * with the sums that are compared with those of the pprof file of the same window.
 *
 * Both become a `struct picture`: stacks of names, the outermost first, with values. Reading holds
 * a page against what its script relies on, and fails the test where that is broken.
 *
 * Owns: a picture's memory, until picture_free. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_PAGE_READER_H
#define LIBAGENT_TEST_PAGE_READER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { PICTURE_TYPES_MAX = 4 };

struct picture_row {
    uint32_t first, depth;  /* names[first], ... */
    int64_t thread, labels; /* indices in the page's data, -1: none */
    int64_t values[PICTURE_TYPES_MAX];
};

struct picture {
    json_t *data; /* NULL: collapsed */
    size_t type_count;
    struct picture_row *rows;
    size_t row_count;
    const char **names;
    size_t name_count;
    char *text; /* of collapsed stacks: what names point into */
};

/* The page's data ends where a browser ends it: at the first `</script` behind its beginning. What
 * is before and behind has to be the page of agent/export/page_parts.h, byte for byte, where `head`
 * is given (`tail` then, too). */
void page_parse(struct picture *picture, const char *page, size_t size, const char *head,
                size_t head_size, const char *tail, size_t tail_size);
void collapsed_parse(struct picture *picture, const char *text, size_t size);
/* The bytes of the one file of a folder whose name ends in `suffix`, to be freed; and what is in
 * it. */
char *picture_file(const char *folder, const char *suffix, size_t *size);
void page_load(struct picture *picture, const char *folder, const char *suffix);
void collapsed_load(struct picture *picture, const char *folder, const char *suffix);
void picture_free(struct picture *picture);

/* Sums of values[type]: all; where the innermost name is `function`; where it is anywhere. */
int64_t picture_total(const struct picture *picture, int type);
int64_t picture_self(const struct picture *picture, int type, const char *function);
int64_t picture_under(const struct picture *picture, int type, const char *function);
/* Of a page: by thread; by a label with that text (NULL: that number). */
int64_t picture_of_thread(const struct picture *picture, int type, const char *name, int64_t tid);
int64_t picture_of_label(const struct picture *picture, int type, const char *key, const char *text,
                         int64_t number);
/* The index of a type by its name; -1: there is none. */
int page_type(const struct picture *picture, const char *type);

#endif
