#include "agent/export/stack_tree.h"

#include <errno.h>

#include "agent/base/sys.h"
#include "agent/export/location_parts.h"

/* A location's frames, the outermost first: list[first], ... */
struct frame_span {
    uint32_t first, count;
};

/* What is needed while the tree is made. */
struct growth {
    struct stack_tree *tree;
    struct gathered *gathered;
    bool with_lines;
    struct buffer spans; /* struct frame_span, by location - 1 */
    struct buffer list;  /* uint32_t: frames */
    uint32_t *slots;     /* node + 1 by parent and frame; 0: free */
    size_t slot_count;   /* a power of two, or 0 */
};

enum {
    FIRST_SLOTS = 4096, /* 16 KiB: 2,000 nodes, more than most windows have */
    NODE_BYTES = 8,     /* in a file, where there are so many that a limit matters */
};

/* ---- Frames -------------------------------------------------------------------------------- */

static int add_frame(struct growth *growth, const struct tree_frame *frame)
{
    struct stack_tree *tree = growth->tree;
    uint64_t who = (uint64_t)frame->name << 32 | frame->place;
    uint64_t where = (uint64_t)frame->file << 32 | (uint64_t)frame->line << 1 | frame->is_inlined;
    uint32_t number = pair_map_get(&tree->by_look, who, where);
    if (!number) {
        buffer_append(&tree->frames, frame, sizeof(*frame));
        number = (uint32_t)(tree->frames.size / sizeof(*frame));
        if (tree->frames.error || pair_map_add(&tree->by_look, who, where, number))
            return -ENOMEM;
    }
    number--;
    buffer_append(&growth->list, &number, sizeof(number));
    return growth->list.error;
}

/* With LIBAGENT_SYMBOLS=off. */
static uint32_t name_of_address(struct growth *growth, const struct location *location)
{
    char name[ADDRESS_NAME_SIZE];
    size_t length = location_address_name(&growth->gathered->rows.locations, location, name);
    return string_table_add(&growth->gathered->strings, name, length);
}

static int add_frames_of(struct growth *growth, uint32_t number)
{
    const struct location_table *table = &growth->gathered->rows.locations;
    const struct location *location = location_at(table, number - 1);
    const struct function *functions = (const void *)table->functions.data;
    uint32_t count;
    const struct location_line *lines = location_lines(table, number, &count);
    struct frame_span span = {.first = (uint32_t)(growth->list.size / sizeof(uint32_t)),
                              .count = MAX_OF(count, 1u)};
    buffer_append(&growth->spans, &span, sizeof(span));
    struct tree_frame frame = {.place = location->place};
    if (count == 0) {
        frame.name = name_of_address(growth, location);
        return add_frame(growth, &frame);
    }
    int error = growth->spans.error;
    for (uint32_t i = count; i-- > 0 && !error;) {
        const struct function *function = &functions[lines[i].function - 1];
        frame.name = function->name;
        if (growth->with_lines) {
            frame.file = function->file;
            frame.line = lines[i].line;
            frame.is_inlined = i + 1 < count;
        }
        error = add_frame(growth, &frame);
    }
    return error;
}

static int add_all_frames(struct growth *growth)
{
    uint32_t count = location_count(&growth->gathered->rows.locations);
    int error = 0;
    for (uint32_t number = 1; number <= count && !error; number++)
        error = add_frames_of(growth, number);
    return error ? error : growth->spans.error;
}

/* ---- Nodes --------------------------------------------------------------------------------- */

static const struct tree_node *node_at(const struct growth *growth, uint32_t number)
{
    return (const struct tree_node *)(const void *)growth->tree->nodes.data + number;
}

/* The slot of the child, or the free one where it belongs. */
static uint32_t *slot_of(const struct growth *growth, struct tree_node child)
{
    uint64_t hash = hash_mix(hash_mix(0, child.parent), child.frame);
    size_t at = (hash ^ (hash >> 32)) & (growth->slot_count - 1);
    for (;; at = (at + 1) & (growth->slot_count - 1)) {
        uint32_t *slot = &growth->slots[at];
        const struct tree_node *node = *slot ? node_at(growth, *slot - 1) : NULL;
        if (!node || (node->parent == child.parent && node->frame == child.frame))
            return slot;
    }
}

static int grow_slots(struct growth *growth)
{
    uint32_t *old = growth->slots;
    size_t old_count = growth->slot_count;
    size_t count = old_count ? 2 * old_count : FIRST_SLOTS;
    uint32_t *slots = sys_map(count * sizeof(slots[0]));
    if (!slots)
        return -ENOMEM;
    growth->slots = slots;
    growth->slot_count = count;
    for (size_t i = 0; i < old_count; i++)
        if (old[i])
            *slot_of(growth, *node_at(growth, old[i] - 1)) = old[i];
    if (old)
        sys_unmap(old, old_count * sizeof(old[0]));
    return 0;
}

/* The node in *number becomes its child of that frame. */
static int go_down(struct growth *growth, uint32_t *number, uint32_t frame)
{
    struct buffer *nodes = &growth->tree->nodes;
    const struct tree_node child = {.parent = *number, .frame = frame};
    size_t count = nodes->size / sizeof(child);
    if (count >= growth->slot_count / 2) {
        int error = grow_slots(growth);
        if (error)
            return error;
    }
    uint32_t *slot = slot_of(growth, child);
    if (!*slot) {
        buffer_append(nodes, &child, sizeof(child));
        *slot = (uint32_t)(count + 1);
    }
    *number = *slot - 1;
    return nodes->error;
}

static int add_row(struct growth *growth, const struct row *row)
{
    const struct frame_span *spans = (const void *)growth->spans.data;
    const uint32_t *list = (const void *)growth->list.data;
    uint32_t node = TREE_NO_NODE;
    for (uint32_t i = row->count; i-- > 0;) {
        uint32_t location =
            location_of(&growth->gathered->rows.locations, row->generation, row->pcs[i]);
        if (!location)
            return -ENOMEM;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): each location has one */
        struct frame_span span = spans[location - 1];
        for (uint32_t k = 0; k < span.count; k++) {
            int error = go_down(growth, &node, list[span.first + k]);
            if (error)
                return error;
        }
    }
    buffer_append(&growth->tree->leaves, &node, sizeof(node));
    return growth->tree->leaves.error;
}

int stack_tree_make(struct stack_tree *tree, struct gathered *gathered, bool with_lines,
                    uint64_t byte_limit)
{
    struct growth growth = {.tree = tree, .gathered = gathered, .with_lines = with_lines};
    size_t count;
    const struct row *rows = rows_of(&gathered->rows, &count);
    int error = add_all_frames(&growth);
    for (size_t i = 0; i < count && !error; i++) {
        error = add_row(&growth, &rows[i]);
        if (!error && byte_limit &&
            tree->nodes.size / sizeof(struct tree_node) > byte_limit / NODE_BYTES)
            error = -E2BIG;
    }
    buffer_free(&growth.spans);
    buffer_free(&growth.list);
    if (growth.slots)
        sys_unmap(growth.slots, growth.slot_count * sizeof(growth.slots[0]));
    return error ? error : gathered->strings.error;
}

void stack_tree_free(struct stack_tree *tree)
{
    buffer_free(&tree->frames);
    buffer_free(&tree->nodes);
    buffer_free(&tree->leaves);
    pair_map_free(&tree->by_look);
}
