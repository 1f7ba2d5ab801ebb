#include "agent/base/label_words.h"

#include <errno.h>
#include <string.h>

enum { VALUE_SHIFT = 8, NUMBER_SHIFT = 16, SIZE_MASK = 0xff, WORD = sizeof(uint64_t) };

static uint32_t words_of(uint64_t bytes)
{
    return (uint32_t)((bytes + WORD - 1) / WORD);
}

static uint32_t key_size(const uint64_t *label)
{
    return label[0] & SIZE_MASK;
}

static uint32_t value_size(const uint64_t *label)
{
    return label[0] >> VALUE_SHIFT & SIZE_MASK;
}

uint32_t label_size(const uint64_t *label)
{
    return 1 + words_of(key_size(label)) + words_of(value_size(label));
}

/* Bytes, or `limit` + 1 where there are more. */
static size_t length_within(const char *text, size_t limit)
{
    size_t length = 0;
    while (length <= limit && text[length])
        length++;
    return length;
}

static bool has_control(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return true;
    return false;
}

static void fill(uint64_t *words, const void *bytes, size_t size)
{
    if (size)
        words[words_of(size) - 1] = 0;
    memcpy(words, bytes, size);
}

int label_make(uint64_t words[LABEL_WORDS_MAX], const char *key, const char *text,
               const int64_t *number)
{
    if (!key || (!text && !number))
        return -EINVAL;
    size_t key_length = length_within(key, LABEL_KEY_MAX);
    size_t length = number ? sizeof(*number) : length_within(text, LABEL_VALUE_MAX);
    if (key_length > LABEL_KEY_MAX || length > LABEL_VALUE_MAX)
        return -E2BIG;
    if (!key_length || !length || has_control(key, key_length))
        return -EINVAL;
    words[0] = key_length | length << VALUE_SHIFT | (uint64_t)(number != NULL) << NUMBER_SHIFT;
    fill(words + 1, key, key_length);
    fill(words + 1 + words_of(key_length), number ? (const void *)number : text, length);
    return 0;
}

int label_compare(const uint64_t *a, const uint64_t *b)
{
    uint32_t a_words = words_of(key_size(a)), b_words = words_of(key_size(b));
    if (a_words != b_words)
        return a_words < b_words ? -1 : 1;
    for (uint32_t i = 1; i <= a_words; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static void append(struct label_set *set, const uint64_t *words, uint32_t count)
{
    uint64_t *to = set->data + set->words;
    for (uint32_t i = 0; i < count; i++)
        store_relaxed(&to[i], words[i]);
    store_relaxed(&set->words, set->words + count);
}

int label_set_change(struct label_set *to, const struct label_set *from, const uint64_t *label,
                     bool adds)
{
    static const struct label_set none;
    from = from ? from : &none;
    uint32_t words = from->words, before = 0, behind, count = from->count;
    int order = 1;
    while (before < words && (order = label_compare(from->data + before, label)) < 0)
        before += label_size(from->data + before);
    bool has = before < words && order == 0;
    behind = before + (has ? label_size(from->data + before) : 0);
    if (adds && !has && count == LABELS_MAX)
        return -ENOSPC;
    store_relaxed(&to->words, 0);
    to->count = count - has + adds;
    append(to, from->data, before);
    if (adds)
        append(to, label, label_size(label));
    append(to, from->data + behind, words - behind);
    return !has;
}

bool label_next(const uint64_t **at, const uint64_t *end, struct user_label *label)
{
    const uint64_t *words = *at;
    if (words >= end)
        return false;
    label->key = (const char *)(words + 1);
    label->key_size = key_size(words);
    label->text = (const char *)(words + 1 + words_of(label->key_size));
    label->text_size = value_size(words);
    label->is_number = words[0] >> NUMBER_SHIFT & 1;
    label->number = 0;
    if (label->is_number)
        memcpy(&label->number, label->text, sizeof(label->number));
    *at = words + label_size(words);
    return true;
}
