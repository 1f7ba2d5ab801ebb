#include "test/dwarf_builder.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/export/line_program.h"
#include "test/check.h"
#include "test/temp_folder.h"

enum {
    PART_MAX = DWARF_PART_MAX,
    CODE = DWARF_CODE,
    CALL = DWARF_CALL,
    CODE_SIZE = DWARF_CODE_SIZE
};

void put(struct bytes *to, uint64_t value, size_t size)
{
    ck_assert_uint_le(to->size + size, PART_MAX);
    memcpy(to->data + to->size, &value, size);
    to->size += size;
}

void put_text(struct bytes *to, const char *text)
{
    ck_assert_uint_le(to->size + strlen(text) + 1, PART_MAX);
    memcpy(to->data + to->size, text, strlen(text) + 1);
    to->size += strlen(text) + 1;
}

void put_bytes(struct bytes *to, const uint8_t *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        put(to, from[i], 1);
}

void set_length(struct bytes *to)
{
    uint32_t length = (uint32_t)(to->size - sizeof(length));
    memcpy(to->data, &length, sizeof(length));
}

/* Version 4. The function `f` begins at line 10 of /src/a.c, and has at CALL the function `g`
 * inlined, called at line 12, which begins at line 3; what is from there on is at line 4. */
static void make_info(struct made *made)
{
    static const uint8_t abbreviations[] = {
        1, 0x11, 1, 0x10, 0x17, 0x1b, 0x08, 0x11, 0x01, 0x12, 0x07, 0,    0,          /* the unit */
        2, 0x2e, 1, 0x03, 0x08, 0x3a, 0x0b, 0x3b, 0x0b, 0x11, 0x01, 0x12, 0x07, 0, 0, /* f */
        3, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x07, 0x58, 0x0b, 0x59, 0x0b, 0, 0, /* call */
        4, 0x2e, 0, 0x03, 0x08, 0x3a, 0x0b, 0x3b, 0x0b, 0,    0,                      /* g */
        0};
    struct bytes *info = &made->sections[INFO];
    memset(made, 0, sizeof(*made));
    put_bytes(&made->sections[ABBREV], abbreviations, sizeof(abbreviations));
    put(info, 0, 4);
    put(info, 4, 2);
    put(info, 0, 4);
    put(info, 8, 1);
    put(info, 1, 1);
    put(info, 0, 4);
    made->folder = info->size;
    put_text(info, "/src");
    put(info, CODE, 8);
    put(info, CODE_SIZE, 8);
    uint32_t inlined = (uint32_t)info->size;
    put(info, 4, 1);
    made->inlined_name = info->size;
    put_text(info, "g");
    put(info, 1, 1);
    put(info, 3, 1);
    put(info, 2, 1);
    put_text(info, "f");
    put(info, 1, 1);
    put(info, 10, 1);
    made->low = info->size;
    put(info, CODE, 8);
    put(info, CODE_SIZE, 8);
    made->inlined_entry = info->size;
    put(info, 3, 1);
    made->origin = info->size;
    put(info, inlined, 4);
    put(info, CALL, 8);
    put(info, 0x10, 8);
    put(info, 1, 1);
    put(info, 12, 1);
    put(info, 0, 2); /* end of f, end of the unit */
    set_length(info);
}

void replace(struct bytes *in, size_t at, size_t size, const void *with, size_t with_size)
{
    ck_assert(at + size <= in->size && in->size - size + with_size <= PART_MAX);
    memmove(in->data + at + with_size, in->data + at + size, in->size - at - size);
    memcpy(in->data + at, with, with_size);
    in->size = in->size - size + with_size;
}

static void make_lines(struct made *made)
{
    static const uint8_t head[] = {1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
    static const uint8_t program[] = {3,    9, 1, 2, 0x10, 3,    0x7a, 1, 2,
                                      0x10, 3, 9, 1, 2,    0x20, 0,    1, 1};
    struct bytes *line = &made->sections[LINE];
    put(line, 0, 4);
    put(line, 4, 2);
    put(line, sizeof(head) + 1 + 8, 4);
    put_bytes(line, head, sizeof(head));
    put(line, 0, 1); /* no folders */
    put_text(line, "a.c");
    put(line, 0, 3);
    put(line, 0, 1); /* no more files */
    put(line, 0, 1);
    put(line, 9, 1);
    put(line, 2, 1);
    made->sequence = line->size;
    put(line, CODE, 8);
    put_bytes(line, program, sizeof(program));
    set_length(line);
}

void dwarf_make(struct made *made)
{
    static const char *const names[DWARF_PARTS] = {
        [INFO] = ".debug_info", [ABBREV] = ".debug_abbrev", [LINE] = ".debug_line",
        [NAMES] = ".shstrtab",  [TEXTS] = ".debug_str",     [LINK] = ".gnu_debugaltlink",
        [NOTE] = ".note",
    };
    make_info(made);
    make_lines(made);
    put_text(&made->sections[NAMES], "");
    for (int part = INFO; part < DWARF_PARTS; part++)
        dwarf_rename(made, (enum dwarf_part)part, names[part]);
}

void dwarf_rename(struct made *made, enum dwarf_part part, const char *name)
{
    made->names[part] = (uint32_t)made->sections[NAMES].size;
    put_text(&made->sections[NAMES], name);
}

void dwarf_write_at(const struct made *made, const char *path)
{
    static uint8_t file[(DWARF_PARTS + 1) * PART_MAX];
    static const Elf64_Phdr code = {
        .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = CODE, .p_memsz = 0x1000};
    Elf64_Ehdr header = {.e_type = ET_DYN,
                         .e_machine = EM_X86_64,
                         .e_version = EV_CURRENT,
                         .e_phoff = sizeof(header),
                         .e_phnum = 1,
                         .e_shoff = sizeof(header) + sizeof(code),
                         .e_ehsize = sizeof(header),
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = DWARF_PARTS,
                         .e_shstrndx = NAMES};
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#endif
    memcpy(header.e_ident, "\177ELF\2\1\1", 7);
    Elf64_Shdr sections[DWARF_PARTS] = {{.sh_type = SHT_NULL}};
    size_t size = sizeof(header) + sizeof(code) + sizeof(sections);
    for (int i = INFO; i < DWARF_PARTS; i++) {
        sections[i] = (Elf64_Shdr){.sh_name = made->names[i],
                                   .sh_type = i == NAMES  ? SHT_STRTAB
                                              : i == NOTE ? SHT_NOTE
                                                          : SHT_PROGBITS,
                                   .sh_flags = made->flags[i],
                                   .sh_offset = size,
                                   .sh_size = made->sections[i].size};
        memcpy(file + size, made->sections[i].data, made->sections[i].size);
        size += made->sections[i].size;
    }
    memcpy(file, &header, sizeof(header));
    memcpy(file + header.e_phoff, &code, sizeof(code));
    memcpy(file + header.e_shoff, sections, sizeof(sections));
    write_file(path, file, size);
}

struct object dwarf_write(const struct made *made)
{
    static char path[4096 + 16];
    snprintf(path, sizeof(path), "%s/made", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    dwarf_write_at(made, path);
    return (struct object){
        .path = path, .segment_count = 1, .segments = {{.vaddr = CODE, .size = 0x1000}}};
}

const char *dwarf_found(const struct object *object, uint64_t address, struct line_budget *budget,
                        int *error)
{
    static char text[2 * LINE_PATH_MAX];
    struct line_answer answer;
    struct buffer frames = {0}, texts = {0};
    *error = lines_find(object, &address, 1, budget, &answer, &frames, &texts);
    const struct line_frame *frame = (const void *)frames.data;
    int length = snprintf(text, sizeof(text), "%s", answer.state == LINES_PUT_OFF ? "later" : "");
    ck_assert_uint_le(answer.count, LINES_FRAMES_MAX);
    for (uint32_t i = answer.first; i < answer.first + answer.count && length < LINE_PATH_MAX; i++)
        length += snprintf(
            text + length, sizeof(text) - (size_t)length, "%s%.64s %.64s:%u+%u",
            i > answer.first ? ", " : "",
            frame[i].name == LINES_NO_TEXT ? "?" : (const char *)texts.data + frame[i].name,
            frame[i].file == LINES_NO_TEXT ? "?" : (const char *)texts.data + frame[i].file,
            frame[i].line, frame[i].start_line);
    buffer_free(&frames);
    buffer_free(&texts);
    return text;
}

const char *dwarf_found_in(const struct made *made, uint64_t address)
{
    struct object object = dwarf_write(made);
    struct line_budget budget = {
        .steps = LINES_PROFILE_STEPS, .is_first = true, .room = DWARF_ROOM};
    int error;
    const char *text = dwarf_found(&object, address, &budget, &error);
    unlink(object.path);
    return text;
}
