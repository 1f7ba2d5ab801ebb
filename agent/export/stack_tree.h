/* stack_tree.h: the stacks of gathered rows as one tree, from the outermost frames on: what formats
 * other than pprof write.
 *
 * A frame is a function of an object, and where lines are wanted, one for each line of it, whether
 * it was inlined or not; what has no name is a frame for each address. A location with functions
 * that were inlined is that many frames. Nodes are in the order in which rows bring them: a node's
 * number is larger than its parent's.
 *
 * Memory: 8 bytes a node, 8 to 16 more while the tree is made; 12 a location and 4 a row.
 *
 * Owns: nothing; the tree is its user's, one thread at a time. Context: INIT, TICK, under
 * LOCK_FLUSH. Locks: none. */
#ifndef LIBAGENT_STACK_TREE_H
#define LIBAGENT_STACK_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/base/pair_map.h"
#include "agent/export/gathered.h"

#define TREE_NO_NODE UINT32_MAX /* the parent of outermost frames */

struct tree_frame {
    uint32_t name;       /* string of gathered->strings */
    uint32_t place;      /* index of location_parts.h's places */
    uint32_t file, line; /* a string, and a line in it; 0: not known */
    bool is_inlined;
};

struct tree_node {
    uint32_t parent, frame;
};

/* All zero is an empty tree. */
struct stack_tree {
    struct buffer frames;    /* struct tree_frame */
    struct buffer nodes;     /* struct tree_node */
    struct buffer leaves;    /* uint32_t: the node of each row, in their order */
    struct pair_map by_look; /* (name and place, file, line and is_inlined) to frame + 1 */
};

/* Fills an empty tree, for a file of at most so many bytes (0: no limit). 0, -ENOMEM or -E2BIG; it
 * is to be freed then, too. */
int stack_tree_make(struct stack_tree *tree, struct gathered *gathered, bool with_lines,
                    uint64_t byte_limit) MUST_USE;
void stack_tree_free(struct stack_tree *tree);

static inline const struct tree_frame *tree_frames(const struct stack_tree *tree, uint32_t *count)
{
    *count = (uint32_t)(tree->frames.size / sizeof(struct tree_frame));
    return (const void *)tree->frames.data;
}

static inline const struct tree_node *tree_nodes(const struct stack_tree *tree, uint32_t *count)
{
    *count = (uint32_t)(tree->nodes.size / sizeof(struct tree_node));
    return (const void *)tree->nodes.data;
}

/* By row; each row has at least one frame. */
static inline const uint32_t *tree_leaves(const struct stack_tree *tree)
{
    return (const void *)tree->leaves.data;
}

#endif
