/* label_words.h: a program's labels as they are recorded: words of 64 bits, one label behind the
 * other, in the order of their keys, so that the same labels are the same words however they were
 * set.
 *
 * A label: a first word (bytes of the key, of the value, and whether it is a number), the key's
 * words, the value's words, each filled up with 0.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_LABEL_WORDS_H
#define LIBAGENT_LABEL_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

/* A key is as long as a name in code may be, a value holds a trace's id or a route. */
enum { LABELS_MAX = 8, LABEL_KEY_MAX = 32, LABEL_VALUE_MAX = 128 };
enum {
    LABEL_WORDS_MAX = 1 + (LABEL_KEY_MAX + LABEL_VALUE_MAX) / 8,
    LABEL_SET_WORDS = LABELS_MAX * LABEL_WORDS_MAX
};

struct label_set {
    uint32_t words, count;
    uint64_t data[LABEL_SET_WORDS];
};

/* One label; its texts lie in the words. */
struct user_label {
    const char *key, *text;
    size_t key_size, text_size;
    int64_t number;
    bool is_number;
};

/* 0 and the label's words, or -EINVAL (an empty key or text, control characters in the key) or
 * -E2BIG: too long. */
int label_make(uint64_t words[LABEL_WORDS_MAX], const char *key, const char *text,
               const int64_t *number) MUST_USE;
uint32_t label_size(const uint64_t *label);
/* As memcmp: by the keys alone. */
int label_compare(const uint64_t *a, const uint64_t *b);
/* `to`: the labels of `from` (NULL: none) without that of `label`'s key; with `label` where `adds`.
 * Its words are written by relaxed stores, as others may look at them. 0; -ENOSPC: there are
 * LABELS_MAX; 1: it did not have the key. */
int label_set_change(struct label_set *to, const struct label_set *from, const uint64_t *label,
                     bool adds) MUST_USE;
/* The label at *at, which is moved behind it; false at the end. */
bool label_next(const uint64_t **at, const uint64_t *end, struct user_label *label);

#endif
