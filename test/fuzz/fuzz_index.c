/* Sections of call frame information of any bytes that have no table to search: one is built, and
 * rows are looked up by it.
 *
 * Input: a struct head, then the section, .eh_frame or .debug_frame. */
#include "agent/base/arena.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/frame_index.h"
#include "test/fuzz/fuzz_input.h"

struct head {
    uint32_t vaddr;
    uint8_t is_debug, is_whole;
    uint16_t unused;
};

static int32_t index_value(const struct cfi_section *section, uint32_t entry, uint32_t which)
{
    int32_t value;
    memcpy(&value, section->index + ((size_t)entry * 2 + which) * sizeof(value), sizeof(value));
    return value;
}

static void use_index(struct object *object, const struct cfi_section *section)
{
    static struct object_debug_frame debug;
    debug = (struct object_debug_frame){*section->table, section->index, section->count,
                                        section->code_base, 0};
    if (section->is_debug) {
        object->debug_frame = &debug;
    } else {
        object->eh_frame = *section->table;
        object->eh_frame_hdr.vaddr = section->code_base;
        object->fde_index = section->index;
        object->fde_count = section->count;
    }
    for (uint32_t i = 0; i < section->count; i++) {
        static const int32_t distances[] = {-1, 0, 1, 5, 40};
        int32_t code = index_value(section, i, 0);
        EXPECT(i == 0 || code >= index_value(section, i - 1, 0));
        for (size_t d = 0; d < ARRAY_SIZE(distances); d++) {
            struct cfi_row row;
            uint64_t vaddr = section->code_base + (uint64_t)((int64_t)code + distances[d]);
            if (cfi_row_at(object, vaddr, &row) == 0)
                EXPECT(vaddr - row.start < row.size);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    if (input.left == 0)
        return 0;
    uint8_t *bytes = malloc(input.left);
    EXPECT(bytes);
    memcpy(bytes, input.at, input.left);
    struct object object = {.segment_count = 1, .segments = {{.vaddr = 0x10000, .size = 1 << 20}}};
    bool is_debug = head.is_debug & 1;
    const struct object_table table = {bytes, is_debug ? 0 : head.vaddr, input.left};
    struct cfi_section section = {.table = &table,
                                  .is_debug = is_debug,
                                  .code_base = is_debug ? 0x10000 : 0x1000,
                                  .entry_base = is_debug ? 0 : 0x1000};
    if (frame_index_build(&object, head.is_whole & 1, &section) == 0) {
        EXPECT(section.count > 0);
        use_index(&object, &section);
        arena_release((void *)(uintptr_t)section.index, section.count * 2 * sizeof(int32_t));
    }
    free(bytes);
    return 0;
}
