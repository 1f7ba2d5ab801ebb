#include "agent/export/line_program.h"

#include <errno.h>
#include <string.h>

#include "agent/export/address_search.h"
#include "agent/export/dwarf_form.h"

enum {
    FILES_MAX = 1 << 16, /* of a unit, and as many folders: 2 MiB each */
    FORMATS_MAX = 8,     /* DWARF 5 has five kinds of content */
    CONTENT_PATH = 1,
    CONTENT_FOLDER = 2,
};

/* Standard opcodes, and those behind the opcode 0. */
enum {
    OPCODE_EXTENDED,
    OPCODE_COPY,
    OPCODE_ADVANCE_PC,
    OPCODE_ADVANCE_LINE,
    OPCODE_SET_FILE,
    OPCODE_SET_COLUMN,
    OPCODE_NEGATE_STATEMENT,
    OPCODE_BASIC_BLOCK,
    OPCODE_CONST_ADD_PC,
    OPCODE_FIXED_ADVANCE_PC,
    EXTENDED_END = 1,
    EXTENDED_SET_ADDRESS = 2,
    EXTENDED_DEFINE_FILE = 3,
};

struct file_entry {
    struct dwarf_value name;
    uint64_t folder;
};

struct program {
    struct dwarf_file *dwarf;
    const struct object *object;
    struct cursor cursor;
    struct dwarf_unit unit; /* as values of the header are written */
    uint64_t end;
    uint8_t step, line_range, opcode_base;
    int8_t line_base;
    uint8_t operands[256];
    const uint64_t *addresses;
    size_t count;
    struct line_row *rows;
    size_t next; /* the first address that is not below the last row's */
    /* The registers; the last row's come first. */
    bool has_row, is_dropped;
    uint64_t row_address;
    struct line_row row;
    uint64_t address, file, line;
};

bool object_has_code(const struct object *object, uint64_t address)
{
    for (uint32_t i = 0; i < object->segment_count; i++)
        if (address - object->segments[i].vaddr < object->segments[i].size)
            return true;
    return object->segment_count == 0;
}

void line_files_free(struct line_files *files)
{
    buffer_free(&files->folders);
    buffer_free(&files->files);
}

/* ---- The header ---------------------------------------------------------------------------- */

static int add_file(struct program *program, struct buffer *list, struct file_entry entry)
{
    if (list->size >= FILES_MAX * sizeof(entry) || !dwarf_take_steps(program->dwarf, 1) ||
        program->cursor.failed)
        return -ENOEXEC;
    buffer_append(list, &entry, sizeof(entry));
    return list->error;
}

static struct dwarf_value text_here(struct cursor *cursor)
{
    return (struct dwarf_value){
        .kind = VALUE_TEXT, .section = DWARF_LINE, .number = cursor_offset(cursor)};
}

/* Up to version 4: texts, up to an empty one. */
static int read_old_list(struct program *program, struct buffer *list, bool has_folder)
{
    struct cursor *cursor = &program->cursor;
    for (;;) {
        struct file_entry entry = {.name = text_here(cursor)};
        cursor_skip_text(cursor);
        if (cursor_offset(cursor) - entry.name.number <= 1)
            return cursor->failed ? -ENOEXEC : 0;
        if (has_folder) {
            entry.folder = cursor_uleb(cursor);
            (void)cursor_uleb(cursor); /* time and size */
            (void)cursor_uleb(cursor);
        }
        int error = add_file(program, list, entry);
        if (error)
            return error;
    }
}

static int read_list(struct program *program, struct buffer *list)
{
    struct cursor *cursor = &program->cursor;
    struct {
        uint64_t content, form;
    } formats[FORMATS_MAX];
    uint8_t format_count = cursor_u8(cursor);
    if (format_count > FORMATS_MAX)
        return -ENOEXEC;
    for (uint8_t i = 0; i < format_count; i++) {
        formats[i].content = cursor_uleb(cursor);
        formats[i].form = cursor_uleb(cursor);
    }
    uint64_t count = cursor_uleb(cursor);
    for (uint64_t n = 0; n < count; n++) {
        struct file_entry entry = {.folder = 0};
        for (uint8_t i = 0; i < format_count; i++) {
            struct dwarf_value value = dwarf_read_form(cursor, &program->unit, formats[i].form, 0);
            if (formats[i].form == FORM_STRING)
                value.section = DWARF_LINE;
            if (formats[i].content == CONTENT_PATH)
                entry.name = value;
            else if (formats[i].content == CONTENT_FOLDER)
                entry.folder = value.number;
        }
        int error = add_file(program, list, entry);
        if (error)
            return error;
    }
    return cursor->failed ? -ENOEXEC : 0;
}

static int read_header(struct program *program, struct line_files *files)
{
    struct cursor *cursor = &program->cursor;
    struct dwarf_unit *unit = &program->unit;
    uint64_t length = cursor_u32(cursor);
    unit->offset_size = 4;
    if (length == UINT32_MAX) {
        unit->offset_size = 8;
        length = cursor_u64(cursor);
    }
    uint64_t start = cursor_offset(cursor);
    if (cursor->failed || length > cursor->section->size - start)
        return -ENOEXEC;
    program->end = start + length;
    files->version = unit->version = cursor_u16(cursor);
    if (unit->version < 2 || unit->version > 5)
        return -ENOEXEC;
    if (unit->version == 5)
        (void)cursor_u16(cursor); /* sizes of addresses and segments */
    uint64_t header_length = cursor_number(cursor, unit->offset_size);
    uint64_t first = cursor_offset(cursor);
    if (header_length > program->end - MIN_OF(first, program->end))
        return -ENOEXEC;
    program->step = cursor_u8(cursor);
    if (unit->version >= 4)
        (void)cursor_u8(cursor); /* operations an instruction: 1 on our processors */
    (void)cursor_u8(cursor);     /* is_stmt */
    program->line_base = (int8_t)cursor_u8(cursor);
    program->line_range = cursor_u8(cursor);
    program->opcode_base = cursor_u8(cursor);
    for (unsigned i = 1; i < program->opcode_base; i++)
        program->operands[i] = cursor_u8(cursor);
    if (cursor->failed || program->line_range == 0 || program->opcode_base == 0)
        return -ENOEXEC;
    int error;
    if (unit->version == 5) {
        error = read_list(program, &files->folders);
        error = error ? error : read_list(program, &files->files);
    } else {
        error = read_old_list(program, &files->folders, false);
        error = error ? error : read_old_list(program, &files->files, true);
    }
    cursor_seek(cursor, first + header_length);
    return error;
}

/* ---- The program --------------------------------------------------------------------------- */

static void begin_sequence(struct program *program)
{
    program->has_row = program->is_dropped = false;
    program->address = 0;
    program->file = program->line = 1;
}

/* Gives the last row to the addresses below `end`. Where steps are used up, run() ends. */
static void use_row(struct program *program, uint64_t end)
{
    const uint64_t *addresses = program->addresses;
    size_t i = program->next;
    for (; i < program->count && addresses[i] < end; i++)
        if (!program->rows[i].is_known)
            program->rows[i] = program->row;
    (void)dwarf_take_steps(program->dwarf, i - program->next);
    program->next = i;
}

static void add_row(struct program *program)
{
    uint64_t address = program->address;
    if (!program->has_row) {
        program->is_dropped = !object_has_code(program->object, address);
        program->next = address_lower_bound(program->addresses, program->count, address);
    } else if (program->is_dropped || address < program->row_address) {
        program->is_dropped = true; /* what comes is in no order: not to be believed */
    } else if (program->next < program->count && program->addresses[program->next] < address) {
        use_row(program, address);
    }
    program->has_row = true;
    program->row_address = address;
    program->row = (struct line_row){
        .file = program->file <= UINT32_MAX ? (uint32_t)program->file : UINT32_MAX,
        .line = program->line <= INT32_MAX ? (uint32_t)program->line : 0,
        .is_known = true,
    };
}

static void run_extended(struct program *program, struct line_files *files)
{
    struct cursor *cursor = &program->cursor;
    uint64_t length = cursor_uleb(cursor), start = cursor_offset(cursor);
    if (cursor->failed || length == 0 || length > program->end - MIN_OF(start, program->end))
        return;
    switch (cursor_u8(cursor)) {
    case EXTENDED_END:
        add_row(program);
        begin_sequence(program);
        break;
    case EXTENDED_SET_ADDRESS:
        if (length == 9)
            program->address = cursor_u64(cursor);
        break;
    case EXTENDED_DEFINE_FILE: {
        struct file_entry entry = {.name = text_here(cursor)};
        cursor_skip_text(cursor);
        entry.folder = cursor_uleb(cursor);
        (void)add_file(program, &files->files, entry);
        break;
    }
    default:
        break;
    }
    cursor_seek(cursor, start + length);
}

static void run_standard(struct program *program, uint8_t opcode)
{
    struct cursor *cursor = &program->cursor;
    switch (opcode) {
    case OPCODE_COPY:
        add_row(program);
        break;
    case OPCODE_ADVANCE_PC:
        program->address += cursor_uleb(cursor) * program->step;
        break;
    case OPCODE_ADVANCE_LINE:
        program->line += (uint64_t)cursor_sleb(cursor);
        break;
    case OPCODE_SET_FILE:
        program->file = cursor_uleb(cursor);
        break;
    case OPCODE_CONST_ADD_PC:
        program->address +=
            (uint64_t)((255 - program->opcode_base) / program->line_range) * program->step;
        break;
    case OPCODE_FIXED_ADVANCE_PC:
        program->address += cursor_u16(cursor);
        break;
    default:
        for (uint8_t i = 0; i < program->operands[opcode]; i++)
            (void)cursor_uleb(cursor);
        break;
    }
}

static int run(struct program *program, struct line_files *files)
{
    struct cursor *cursor = &program->cursor;
    begin_sequence(program);
    while (!cursor->failed && cursor_offset(cursor) < program->end) {
        if (!dwarf_take_steps(program->dwarf, 1))
            return -EAGAIN;
        uint8_t opcode = cursor_u8(cursor);
        if (opcode >= program->opcode_base) {
            unsigned special = opcode - program->opcode_base;
            program->address += (uint64_t)(special / program->line_range) * program->step;
            program->line +=
                (uint64_t)(int64_t)(program->line_base + (int)(special % program->line_range));
            add_row(program);
        } else if (opcode == OPCODE_EXTENDED) {
            run_extended(program, files);
        } else {
            run_standard(program, opcode);
        }
    }
    return cursor->failed ? -ENOEXEC : 0;
}

int line_program_run(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                     const struct object *object, const uint64_t *addresses, size_t count,
                     struct line_row *rows, struct line_files *files)
{
    if (unit->line.kind != VALUE_NUMBER)
        return -ENOENT;
    struct program program = {.dwarf = dwarf,
                              .object = object,
                              .unit = *unit,
                              .addresses = addresses,
                              .count = count,
                              .rows = rows};
    files->folders.size = files->files.size = 0;
    int error = dwarf_cursor(dwarf, DWARF_LINE, dwarf->line_window, sizeof(dwarf->line_window),
                             unit->line.number, &program.cursor);
    if (!error)
        error = read_header(&program, files);
    return error ? error : run(&program, files);
}

/* ---- Paths --------------------------------------------------------------------------------- */

static const struct file_entry *entry_at(const struct buffer *list, uint64_t index)
{
    return index < list->size / sizeof(struct file_entry)
               ? (const struct file_entry *)(const void *)list->data + index
               : NULL;
}

/* Appends "/" where there is none, and a text; what does not fit is left out. */
static size_t add_part(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                       struct dwarf_value part, char *path, size_t length, size_t size)
{
    if (length > 0 && path[length - 1] != '/' && length + 2 < size)
        path[length++] = '/';
    size_t more = dwarf_text(dwarf, unit, part, path + length, size - length);
    if (path[length] == '/' && length > 0) { /* absolute: what was before does not count */
        memmove(path, path + length, more + 1);
        length = 0;
    }
    return length + more;
}

size_t line_file_path(struct dwarf_file *dwarf, const struct dwarf_unit *unit,
                      const struct line_files *files, uint64_t number, char *path, size_t size)
{
    path[0] = 0;
    /* Up to version 4 files and folders are counted from 1, and folder 0 is the unit's. */
    uint64_t base = files->version >= 5 ? 0 : 1;
    const struct file_entry *entry = entry_at(&files->files, number - base);
    if (number < base || !entry)
        return 0;
    if (!dwarf_text(dwarf, unit, entry->name, path, size))
        return 0;
    size_t length = add_part(dwarf, unit, unit->folder, path, 0, size);
    const struct file_entry *folder =
        entry->folder >= base ? entry_at(&files->folders, entry->folder - base) : NULL;
    if (folder)
        length = add_part(dwarf, unit, folder->name, path, length, size);
    return add_part(dwarf, unit, entry->name, path, length, size);
}
