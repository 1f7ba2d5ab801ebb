#include "agent/export/label_list.h"

#include <string.h>

static const struct {
    const char *key, *unit;
} own_keys[ROW_USER] = {
    [ROW_THREAD_NAME] = {"thread name", NULL},
    [ROW_THREAD_ID] = {"thread id", "id"},
    [ROW_STATE] = {"state", NULL},
    [ROW_APPROXIMATE] = {"approximate", NULL},
    [ROW_AGE] = {"age_seconds", "seconds"},
    [ROW_BYTES] = {"bytes", "bytes"},
};

static struct row_label *next_own(struct label_list *labels, enum row_label_key which)
{
    struct row_label *label = &labels->list[labels->count++];
    *label = (struct row_label){.which = which,
                                .key = own_keys[which].key,
                                .key_size = strlen(own_keys[which].key),
                                .unit = own_keys[which].unit};
    return label;
}

static void add_text(struct label_list *labels, enum row_label_key which, const char *text,
                     size_t size)
{
    struct row_label *label = next_own(labels, which);
    label->text = text;
    label->text_size = size;
}

static void add_number(struct label_list *labels, enum row_label_key which, uint64_t number)
{
    next_own(labels, which)->number = (int64_t)number;
}

static void add_thread(struct label_list *labels, const struct thread_label *thread)
{
    const char *end = memchr(thread->name, 0, sizeof(thread->name));
    size_t length = end ? (size_t)(end - thread->name) : sizeof(thread->name);
    if (length)
        add_text(labels, ROW_THREAD_NAME, thread->name, length);
    if (thread->tid)
        add_number(labels, ROW_THREAD_ID, thread->tid);
}

/* What the thread of a wall sample did. */
static void add_state(struct label_list *labels, uint32_t state)
{
    uint32_t kind = state & ~RECORD_APPROXIMATE;
    const char *name = "running";
    if (kind == RECORD_BLOCKED)
        name = "blocked";
    else if (kind == RECORD_UNTOLD)
        name = "unknown";
    else if (kind >= RECORD_SYSTEM_CALL)
        name = syscall_name(kind - RECORD_SYSTEM_CALL, labels->system_call);
    add_text(labels, ROW_STATE, name, strlen(name));
    if (state & RECORD_APPROXIMATE)
        add_text(labels, ROW_APPROXIMATE, "true", 4);
}

static void add_user(struct label_list *labels, const struct row *row)
{
    struct user_label label;
    for (uint32_t position = 0;
         labels->count < ROW_LABELS_MAX && row_next_label(row, &position, &label);)
        labels->list[labels->count++] = (struct row_label){
            .which = ROW_USER,
            .key = label.key,
            .key_size = label.key_size,
            .text = label.is_number ? NULL : label.text,
            .text_size = label.is_number ? 0 : label.text_size,
            .number = label.is_number ? label.number : 0,
        };
}

void label_list_of(struct label_list *labels, const struct export_request *request,
                   const struct row *row)
{
    labels->count = 0;
    if (row->thread && request->thread_labels)
        add_thread(labels, row->thread);
    if (row->thread && row->family == RECORD_WALL && request->state_label)
        add_state(labels, row->state);
    /* Age and size class are those of what is live; what the window allocated has none. */
    if (row->values[LIVE_COUNT] && request->age_label && row->family == RECORD_ALLOC)
        add_number(labels, ROW_AGE, row->age_s);
    if (row->values[LIVE_COUNT] && request->bytes_label)
        add_number(labels, ROW_BYTES, row->bytes);
    add_user(labels, row);
}
