/* label_list.h: what stands beside a row's stack in a file: thread, state, the program's own
 * labels, age and size, as the request asks for them; for every writer of rows.
 *
 * Owns: nothing. Context: INIT, TICK, under LOCK_FLUSH. Locks: none. */
#ifndef LIBAGENT_LABEL_LIST_H
#define LIBAGENT_LABEL_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/label_words.h"
#include "agent/export/export.h"
#include "agent/export/rows.h"
#include "agent/export/syscall_names.h"

/* The agent's own keys; all others are the program's. */
enum row_label_key {
    ROW_THREAD_NAME,
    ROW_THREAD_ID,
    ROW_STATE,
    ROW_APPROXIMATE,
    ROW_AGE,
    ROW_BYTES,
    ROW_USER,
    ROW_LABEL_KEYS
};

struct row_label {
    enum row_label_key which;
    const char *key, *text; /* `text` NULL: a number */
    const char *unit;       /* of a number; ROW_USER: NULL, it has none */
    size_t key_size, text_size;
    int64_t number;
};

/* A thread has LABELS_MAX, and its captures. */
enum { ROW_LABELS_MAX = ROW_USER + 2 * LABELS_MAX };

/* Texts lie in the row's memory, or here. */
struct label_list {
    uint32_t count;
    struct row_label list[ROW_LABELS_MAX];
    char system_call[SYSCALL_NUMBER_SIZE];
};

void label_list_of(struct label_list *labels, const struct export_request *request,
                   const struct row *row);

#endif
