/* A map of made code of any content.
 *
 * Input: a struct head, then the file, as often as it says. */
#include "agent/export/perf_map.h"
#include "test/fuzz/fuzz_file.h"

enum { ADDRESSES = 24 };

struct head {
    uint16_t cut;    /* bytes that the file has lost since its size was asked */
    uint8_t repeats; /* so that it is larger than a chunk */
    uint8_t distance;
    uint32_t first; /* address */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    uint64_t addresses[ADDRESSES];
    struct symbol_name names[ADDRESSES] = {{.length = 0}};
    struct buffer texts = {0};
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = head.first + i * head.distance;
    addresses[ADDRESSES - 1] = UINT64_MAX;
    fuzz_file_set(&input, head.repeats, head.cut);
    int error = perf_map_find(addresses, ADDRESSES, names, &texts);
    EXPECT(error <= 0);
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (!names[i].length)
            continue;
        EXPECT(names[i].length <= SYMBOL_NAME_MAX);
        EXPECT((size_t)names[i].offset + names[i].length < texts.size);
        EXPECT(strlen((char *)texts.data + names[i].offset) == names[i].length);
    }
    buffer_free(&texts);
    fuzz_file_end();
    return 0;
}
