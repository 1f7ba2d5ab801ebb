/* A symbol file of any content.
 *
 * Input: a struct head, then the file. */
#include "agent/export/symbols.h"
#include "test/elf_builder.h"
#include "test/fuzz/fuzz_file.h"

enum { ADDRESSES = 24 };

struct head {
    uint16_t cut;     /* bytes that the file has lost since its size was asked */
    uint8_t identify; /* the object has a build id and a segment, as elf_builder's */
    uint8_t distance; /* between addresses */
    uint32_t first;   /* address */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    struct object object = {.path = "/any"};
    if (head.identify & 1)
        object = elf_built_object("/any");
    object.is_main = head.identify >> 1 & 1;
    uint64_t addresses[ADDRESSES];
    struct symbol_name names[ADDRESSES];
    struct buffer texts = {0};
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = head.first + i * head.distance;
    /* The last ones as far up as there is. */
    addresses[ADDRESSES - 1] = UINT64_MAX;
    fuzz_file_set(&input, 1, head.cut);
    int error = symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, ADDRESSES, names, &texts);
    EXPECT(error <= 0);
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (!names[i].length)
            continue;
        EXPECT(!error && names[i].length <= SYMBOL_NAME_MAX);
        EXPECT((size_t)names[i].offset + names[i].length < texts.size);
        EXPECT(texts.data[names[i].offset + names[i].length] == 0);
    }
    buffer_free(&texts);
    fuzz_file_end();
    return 0;
}
