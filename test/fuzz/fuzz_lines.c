/* Debugging information of any content.
 *
 * Input: a struct head, then the file. */
#include "agent/export/line_program.h"
#include "agent/export/lines.h"
#include "agent/export/symbol_table.h"
#include "test/fuzz/fuzz_file.h"

enum { ADDRESSES = 24, ROOM = 1 << 20 };

struct head {
    uint16_t cut; /* bytes that the file has lost since its size was asked */
    uint8_t has_build_id;
    uint8_t distance; /* between addresses */
    uint32_t first;   /* address */
};

static void expect_text(const struct buffer *texts, uint32_t at, size_t most)
{
    if (at != LINES_NO_TEXT)
        EXPECT(at < texts->size && strlen((const char *)texts->data + at) <= most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    /* Without segments and build id every file is the object's; with one, its debug file's. */
    struct object object = {.path = "/any"};
    if (head.has_build_id & 1)
        object.build_id_size = BUILD_ID_MAX;
    uint64_t addresses[ADDRESSES];
    struct line_answer answers[ADDRESSES];
    struct buffer frames = {0}, texts = {0};
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = head.first + i * head.distance;
    addresses[ADDRESSES - 1] = UINT64_MAX;
    struct line_budget budget = {.steps = LINES_PROFILE_STEPS, .is_first = true, .room = ROOM};
    fuzz_file_set(&input, 1, head.cut);
    int error = lines_find(&object, addresses, ADDRESSES, &budget, answers, &frames, &texts);
    EXPECT(error <= 0 && budget.steps <= LINES_PROFILE_STEPS);
    const struct line_frame *frame = (const void *)frames.data;
    for (size_t i = 0; i < ADDRESSES; i++) {
        EXPECT(!error || answers[i].state == LINES_NONE);
        EXPECT((answers[i].state == LINES_FOUND) == (answers[i].count > 0));
        EXPECT(answers[i].count <= LINES_FRAMES_MAX);
        EXPECT((answers[i].first + answers[i].count) * sizeof(*frame) <= frames.size);
        for (uint32_t k = 0; k < answers[i].count; k++) {
            expect_text(&texts, frame[answers[i].first + k].name, SYMBOL_NAME_MAX);
            expect_text(&texts, frame[answers[i].first + k].file, LINE_PATH_MAX);
            EXPECT(frame[answers[i].first + k].line <= INT32_MAX);
        }
    }
    buffer_free(&frames);
    buffer_free(&texts);
    fuzz_file_end();
    return 0;
}
