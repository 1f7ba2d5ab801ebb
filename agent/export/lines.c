#include "agent/export/lines.h"

#include <errno.h>
#include <string.h>

#include "agent/base/pair_map.h"
#include "agent/base/sys.h"
#include "agent/export/address_search.h"
#include "agent/export/debug_file.h"
#include "agent/export/dwarf_entry.h"
#include "agent/export/inlined_frames.h"
#include "agent/export/line_program.h"
#include "agent/export/object_file.h"
#include "agent/export/symbol_table.h"

enum { NO_UNIT = UINT32_MAX, BYTES_A_STEP = 8 };

/* One object's; the arrays are as long as the addresses. */
struct work {
    struct dwarf_file *dwarf;
    uint64_t steps; /* that are left of a unit, or of the list of units */
    const struct object *object;
    const uint64_t *addresses;
    size_t count;
    size_t room; /* bytes for what is found */
    struct line_answer *answers;
    struct buffer *frames, *texts;
    uint32_t *units; /* the unit of each: its number, or NO_UNIT */
    /* Those of the unit that is read. */
    struct dwarf_unit unit;
    uint32_t unit_number;
    uint64_t *wanted;
    uint32_t *places; /* where they stand in `addresses` */
    size_t wanted_count;
    struct line_row *rows;
    uint32_t *innermost;
    struct line_files files;
    struct buffer inlined;   /* struct inlined_frame */
    struct buffer functions; /* struct line_frame of each of those, file and line unused */
    struct pair_map paths;   /* (file, 0) to its text + 1 */
    char text[SYMBOL_NAME_MAX + 1];
};

/* ---- Units --------------------------------------------------------------------------------- */

static bool note_unit(uint64_t low, uint64_t high, void *data)
{
    struct work *work = data;
    if (!object_has_code(work->object, low))
        return true;
    size_t first = address_lower_bound(work->addresses, work->count, low);
    for (; first < work->count && work->addresses[first] < high; first++) {
        if (work->units[first] == NO_UNIT)
            work->units[first] = work->unit_number;
        if (!dwarf_take_steps(work->dwarf, 1))
            return false;
    }
    return true;
}

/* Lists the units, and finds which ones hold addresses. As far as it can be read. */
static int find_units(struct work *work)
{
    struct dwarf_file *dwarf = work->dwarf;
    uint64_t offset = 0;
    for (work->unit_number = 0; work->unit_number < DWARF_UNITS_MAX; work->unit_number++) {
        struct dwarf_unit unit;
        if (dwarf_read_unit(dwarf, offset, &unit))
            return 0;
        buffer_append(&dwarf->units, &offset, sizeof(offset));
        if (dwarf->units.error)
            return dwarf->units.error;
        if (unit.has_code && dwarf_read_first(dwarf, &unit) == 0)
            dwarf_ranges(dwarf, &unit, &unit.scope, note_unit, work);
        offset = unit.end;
    }
    return 0;
}

/* ---- One unit ------------------------------------------------------------------------------ */

static uint32_t add_text(struct work *work, size_t length)
{
    uint32_t at = (uint32_t)work->texts->size;
    buffer_append(work->texts, work->text, length + 1);
    return work->texts->error ? LINES_NO_TEXT : at;
}

static uint32_t path_of(struct work *work, uint64_t file)
{
    uint32_t known = pair_map_get(&work->paths, file, 0);
    if (known)
        return known - 1;
    size_t length =
        line_file_path(work->dwarf, &work->unit, &work->files, file, work->text, LINE_PATH_MAX + 1);
    uint32_t at = length ? add_text(work, length) : LINES_NO_TEXT;
    if (at != LINES_NO_TEXT && pair_map_add(&work->paths, file, 0, at + 1))
        work->texts->error = -ENOMEM;
    return at;
}

/* The function of the inlined frame: its name, and for frames in the file that it is declared in,
 * where it starts. */
static struct line_frame function_of(struct work *work, uint32_t number)
{
    struct line_frame *known = (struct line_frame *)(void *)work->functions.data + number;
    if (known->line)
        return *known; /* was asked for before */
    const struct inlined_frame *frame =
        (const struct inlined_frame *)(const void *)work->inlined.data + number;
    struct source_function function;
    *known = (struct line_frame){.name = LINES_NO_TEXT, .file = LINES_NO_TEXT, .line = 1};
    if (source_function_read(work->dwarf, frame->entry, &function) == 0) {
        size_t length = dwarf_text(function.name_dwarf, &function.name_unit, function.name,
                                   work->text, sizeof(work->text));
        if (length)
            known->name = add_text(work, length);
        if (function.dwarf == work->dwarf && function.unit == work->unit.offset && function.line &&
            function.line <= INT32_MAX) {
            known->file = path_of(work, function.file);
            known->start_line = (uint32_t)function.line;
        }
    }
    return *known;
}

static bool is_same_text(const struct work *work, uint32_t a, uint32_t b)
{
    const char *texts = (const char *)work->texts->data;
    return a != LINES_NO_TEXT && b != LINES_NO_TEXT &&
           (a == b || strcmp(texts + a, texts + b) == 0);
}

static void add_frame(struct work *work, uint32_t number, uint64_t file, uint32_t line)
{
    struct line_frame frame = {.name = LINES_NO_TEXT};
    frame.file = path_of(work, file);
    frame.line = frame.file == LINES_NO_TEXT ? 0 : line;
    if (number) {
        struct line_frame function = function_of(work, number - 1);
        frame.name = function.name;
        if (is_same_text(work, frame.file, function.file))
            frame.start_line = function.start_line;
    }
    buffer_append(work->frames, &frame, sizeof(frame));
}

static bool is_full(const struct work *work)
{
    return work->texts->size + work->frames->size > work->room;
}

/* Writes the answer for an address of the unit. */
static void answer(struct work *work, size_t index)
{
    struct line_row row = work->rows[index];
    uint32_t number = work->innermost[index];
    if (!number && !row.is_known)
        return;
    struct line_answer *to = &work->answers[work->places[index]];
    to->first = (uint32_t)(work->frames->size / sizeof(struct line_frame));
    uint64_t file = row.is_known ? row.file : UINT64_MAX;
    uint32_t line = row.line;
    do {
        const struct inlined_frame *frame =
            number ? (const struct inlined_frame *)(const void *)work->inlined.data + number - 1
                   : NULL;
        /* The last one is the code's own, whatever was left out before. */
        if (to->count < LINES_FRAMES_MAX - 1 || !frame || !frame->outer) {
            add_frame(work, number, file, line);
            to->count++;
        }
        if (frame) {
            file = frame->file;
            line = frame->line;
        }
        number = frame ? frame->outer : 0;
    } while (number);
    to->state = LINES_FOUND;
}

static int read_unit(struct work *work)
{
    struct dwarf_file *dwarf = work->dwarf;
    uint64_t offset = ((const uint64_t *)(const void *)dwarf->units.data)[work->unit_number];
    int error = dwarf_read_unit(dwarf, offset, &work->unit);
    if (!error)
        error = dwarf_read_first(dwarf, &work->unit);
    if (error)
        return error;
    memset(work->rows, 0, work->wanted_count * sizeof(work->rows[0]));
    memset(work->innermost, 0, work->wanted_count * sizeof(work->innermost[0]));
    work->inlined.size = work->functions.size = 0;
    pair_map_free(&work->paths);
    error = line_program_run(dwarf, &work->unit, work->object, work->wanted, work->wanted_count,
                             work->rows, &work->files);
    if (error && error != -ENOENT)
        return error;
    error = inlined_frames_find(dwarf, &work->unit, work->object, work->wanted, work->wanted_count,
                                work->innermost, &work->inlined);
    if (error)
        return error; /* a frame may be missing: nothing is better than half of it */
    size_t functions =
        work->inlined.size / sizeof(struct inlined_frame) * sizeof(struct line_frame);
    if (functions) {
        void *room = buffer_room(&work->functions, functions);
        if (!room)
            return -ENOMEM;
        memset(room, 0, functions);
    }
    for (size_t i = 0; i < work->wanted_count; i++)
        if (is_full(work))
            work->answers[work->places[i]].state = LINES_PUT_OFF;
        else
            answer(work, i);
    error = work->frames->error ? work->frames->error : work->texts->error;
    if (!error)
        error = work->functions.error;
    return error || work->steps ? error : -EAGAIN; /* texts may be missing */
}

/* ---- One object ---------------------------------------------------------------------------- */

/* Takes the addresses of the unit of the address `first`, which is the first of them. */
static void take_wanted(struct work *work, size_t first)
{
    work->unit_number = work->units[first];
    work->wanted_count = 0;
    for (size_t i = first; i < work->count; i++)
        if (work->units[i] == work->unit_number) {
            work->wanted[work->wanted_count] = work->addresses[i];
            work->places[work->wanted_count++] = (uint32_t)i;
            work->units[i] = NO_UNIT;
        }
}

static int read_units(struct work *work, struct line_budget *budget)
{
    work->steps = LINES_UNIT_STEPS;
    int error = find_units(work);
    for (size_t i = 0; i < work->count && work->steps == 0; i++)
        budget->left_out += work->units[i] == NO_UNIT; /* in one that the list did not come to */
    /* What unpacking takes (0.2 to 0.5 GB/s) counts less than it is, or of a library whose
     * information is packed there would be a unit a profile. */
    uint64_t used = LINES_UNIT_STEPS - work->steps + work->dwarf->unpacked / BYTES_A_STEP;
    budget->steps -= MIN_OF(used, budget->steps);
    for (size_t i = 0; i < work->count && !error; i++) {
        if (work->units[i] == NO_UNIT)
            continue;
        take_wanted(work, i);
        if (is_full(work) || (!budget->steps && !budget->is_first)) {
            for (size_t k = 0; k < work->wanted_count; k++)
                work->answers[work->places[k]].state = LINES_PUT_OFF;
            continue;
        }
        work->steps = LINES_UNIT_STEPS;
        int failed = read_unit(work);
        if (failed == -ENOMEM)
            error = failed;
        if (failed)
            budget->left_out += work->wanted_count;
        used = LINES_UNIT_STEPS - work->steps;
        budget->steps -= MIN_OF(used, budget->steps);
        budget->is_first = false;
    }
    /* A list alone that took it all was the turn of this object: the next one's is later. */
    budget->is_first &= budget->steps > 0;
    return error;
}

static int find_in_file(struct work *work, const struct elf_file *file, struct line_budget *budget)
{
    size_t one = sizeof(uint64_t) + 3 * sizeof(uint32_t) + sizeof(struct line_row);
    int error = dwarf_open(&work->dwarf, file, budget->room, &work->steps);
    if (error)
        return error;
    uint8_t *arrays = sys_map(work->count * one);
    if (arrays) {
        work->wanted = (uint64_t *)(void *)arrays;
        work->rows = (struct line_row *)(void *)(work->wanted + work->count);
        work->units = (uint32_t *)(void *)(work->rows + work->count);
        work->places = work->units + work->count;
        work->innermost = work->places + work->count;
        memset(work->units, 0xff, work->count * sizeof(work->units[0]));
        error = read_units(work, budget);
        sys_unmap(arrays, work->count * one);
    } else {
        error = -ENOMEM;
    }
    dwarf_close(work->dwarf);
    line_files_free(&work->files);
    buffer_free(&work->inlined);
    buffer_free(&work->functions);
    pair_map_free(&work->paths);
    return error;
}

int lines_find(const struct object *object, const uint64_t *addresses, size_t count,
               struct line_budget *budget, struct line_answer *answers, struct buffer *frames,
               struct buffer *texts)
{
    memset(answers, 0, count * sizeof(answers[0]));
    if (count == 0 || object->is_vdso)
        return count ? -ENOENT : 0;
    if (!budget->steps && !budget->is_first) { /* not even a list of units */
        for (size_t i = 0; i < count; i++)
            answers[i].state = LINES_PUT_OFF;
        return 0;
    }
    struct work *work = sys_map(sizeof(*work));
    if (!work)
        return -ENOMEM;
    work->object = object;
    work->addresses = addresses;
    work->count = count;
    work->room = budget->room / 2;
    work->answers = answers;
    work->frames = frames;
    work->texts = texts;
    struct elf_file own, debug;
    bool has_own = object_file_open(&own, object) == 0;
    int error = has_own ? find_in_file(work, &own, budget) : -ENOENT;
    if (error == -ENOENT) {
        error = debug_file_open(&debug, object, has_own ? &own : NULL);
        if (!error) {
            error = find_in_file(work, &debug, budget);
            elf_close(&debug);
        }
    }
    if (has_own)
        elf_close(&own);
    sys_unmap(work, sizeof(*work));
    if (error)
        memset(answers, 0, count * sizeof(answers[0]));
    return error;
}
