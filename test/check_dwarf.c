/* Debugging information made by hand: what is in it, and what is wrong with it. That of compilers
 * is held against llvm-symbolizer's by test/names/lines.py. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/export/line_program.h"
#include "agent/export/lines.h"
#include "test/check.h"
#include "test/temp_folder.h"

enum { PART_MAX = 64 << 10, CODE = 0x1000, CALL = CODE + 0x10, CODE_SIZE = 0x40, ROOM = 1 << 20 };
enum { INFO = 1, ABBREV, LINE, NAMES, SECTIONS };

struct bytes {
    uint8_t data[PART_MAX];
    size_t size;
};

struct made {
    struct bytes sections[SECTIONS];
    uint64_t flags[SECTIONS];
    size_t origin;        /* in .debug_info: which function was inlined (4 bytes) */
    size_t inlined_entry; /* the entry that says so */
    size_t sequence;      /* in .debug_line: the address of the sequence */
    size_t low;           /* in .debug_info: the address of the function */
};

static void put(struct bytes *to, uint64_t value, size_t size)
{
    ck_assert_uint_le(to->size + size, PART_MAX);
    memcpy(to->data + to->size, &value, size);
    to->size += size;
}

static void put_text(struct bytes *to, const char *text)
{
    ck_assert_uint_le(to->size + strlen(text) + 1, PART_MAX);
    memcpy(to->data + to->size, text, strlen(text) + 1);
    to->size += strlen(text) + 1;
}

static void put_bytes(struct bytes *to, const uint8_t *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        put(to, from[i], 1);
}

static void set_length(struct bytes *to)
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
    put_bytes(&made->sections[ABBREV], abbreviations, sizeof(abbreviations));
    put(info, 0, 4);
    put(info, 4, 2);
    put(info, 0, 4);
    put(info, 8, 1);
    put(info, 1, 1);
    put(info, 0, 4);
    put_text(info, "/src");
    put(info, CODE, 8);
    put(info, CODE_SIZE, 8);
    uint32_t inlined = (uint32_t)info->size;
    put(info, 4, 1);
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

static void make(struct made *made)
{
    static const char names[] = "\0.debug_info\0.debug_abbrev\0.debug_line\0.shstrtab";
    memset(made, 0, sizeof(*made));
    make_info(made);
    make_lines(made);
    put_bytes(&made->sections[NAMES], (const uint8_t *)names, sizeof(names));
}

/* The file of these sections, in a folder that stays. */
static struct object write_made(const struct made *made)
{
    static char path[4096 + 16];
    static uint8_t file[(SECTIONS + 1) * PART_MAX];
    static const uint32_t names[SECTIONS] = {0, 1, 13, 27, 39};
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
                         .e_shnum = SECTIONS,
                         .e_shstrndx = NAMES};
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#endif
    memcpy(header.e_ident, "\177ELF\2\1\1", 7);
    Elf64_Shdr sections[SECTIONS] = {{.sh_type = SHT_NULL}};
    size_t size = sizeof(header) + sizeof(code) + sizeof(sections);
    for (int i = INFO; i < SECTIONS; i++) {
        sections[i] = (Elf64_Shdr){.sh_name = names[i],
                                   .sh_type = i == NAMES ? SHT_STRTAB : SHT_PROGBITS,
                                   .sh_flags = made->flags[i],
                                   .sh_offset = size,
                                   .sh_size = made->sections[i].size};
        memcpy(file + size, made->sections[i].data, made->sections[i].size);
        size += made->sections[i].size;
    }
    memcpy(file, &header, sizeof(header));
    memcpy(file + header.e_phoff, &code, sizeof(code));
    memcpy(file + header.e_shoff, sections, sizeof(sections));
    snprintf(path, sizeof(path), "%s/made", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    write_file(path, file, size);
    return (struct object){
        .path = path, .segment_count = 1, .segments = {{.vaddr = CODE, .size = 0x1000}}};
}

/* What is found of one address, as "name /path:line+start" of each frame; static storage. */
static const char *found(const struct object *object, uint64_t address, struct line_budget *budget,
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

static const char *found_in(const struct made *made, uint64_t address)
{
    struct object object = write_made(made);
    struct line_budget budget = {.steps = LINES_PROFILE_STEPS, .is_first = true, .room = ROOM};
    int error;
    const char *text = found(&object, address, &budget, &error);
    unlink(object.path);
    return text;
}

#define TRUTH_IN_CALL "g /src/a.c:4+3, f /src/a.c:12+10"

START_TEST(functions_files_and_lines)
{
    struct made made;
    make(&made);
    ck_assert_str_eq(found_in(&made, CODE - 1), "");
    ck_assert_str_eq(found_in(&made, CODE), "f /src/a.c:10+10");
    ck_assert_str_eq(found_in(&made, CALL - 1), "f /src/a.c:10+10");
    ck_assert_str_eq(found_in(&made, CALL), TRUTH_IN_CALL);
    ck_assert_str_eq(found_in(&made, CALL + 0xf), TRUTH_IN_CALL);
    ck_assert_str_eq(found_in(&made, CALL + 0x10), "f /src/a.c:13+10");
    ck_assert_str_eq(found_in(&made, CODE + CODE_SIZE - 1), "f /src/a.c:13+10");
    ck_assert_str_eq(found_in(&made, CODE + CODE_SIZE), "");
}
END_TEST

/* The linker leaves what it threw away at addresses where no code is: it says nothing of those that
 * it seems to reach. */
START_TEST(what_the_linker_threw_away)
{
    struct made made;
    make(&made);
    static const uint64_t nowhere = CODE - 8;
    memcpy(made.sections[LINE].data + made.sequence, &nowhere, sizeof(nowhere));
    ck_assert_str_eq(found_in(&made, CODE), "f ?:0+0");
    memcpy(made.sections[INFO].data + made.low, &nowhere, sizeof(nowhere));
    ck_assert_str_eq(found_in(&made, CODE), "");
}
END_TEST

/* Cut anywhere: what is left is right or not there. */
START_TEST(sections_that_are_cut)
{
    struct made made;
    for (int section = INFO; section <= LINE; section++) {
        make(&made);
        size_t whole = made.sections[section].size;
        size_t right = 0;
        for (size_t size = 0; size <= whole; size++) {
            made.sections[section].size = size;
            const char *text = found_in(&made, CALL);
            right += strcmp(text, TRUTH_IN_CALL) == 0;
            ck_assert_msg(!strstr(text, ":4") || strstr(text, "a.c:4"), "%d %zu: %s", section, size,
                          text);
        }
        ck_assert_uint_ge(right, 1);
    }
}
END_TEST

/* Any byte of another value: it ends, and its texts are texts. */
START_TEST(bytes_that_are_wrong)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct made made;
    size_t different = 0;
    for (int section = INFO; section <= LINE; section++) {
        make(&made);
        for (size_t at = 0; at < made.sections[section].size; at++) {
            uint8_t good = made.sections[section].data[at];
            made.sections[section].data[at] = values[(at + (size_t)_i) % ARRAY_SIZE(values)];
            different += strcmp(found_in(&made, CALL), TRUTH_IN_CALL) != 0;
            made.sections[section].data[at] = good;
        }
    }
    ck_assert_uint_gt(different, 50);
}
END_TEST

START_TEST(functions_that_refer_to_themselves)
{
    struct made made;
    make(&made);
    uint32_t self = (uint32_t)made.inlined_entry;
    memcpy(made.sections[INFO].data + made.origin, &self, sizeof(self));
    ck_assert_str_eq(found_in(&made, CALL), "? /src/a.c:4+0, f /src/a.c:12+10");
}
END_TEST

START_TEST(the_budget_is_kept)
{
    struct made made;
    make(&made);
    struct object object = write_made(&made);
    struct line_budget budget = {.steps = 0, .is_first = false, .room = ROOM};
    int error;
    ck_assert_str_eq(found(&object, CALL, &budget, &error), "later");
    budget.is_first = true; /* one unit may be read, whatever it takes */
    ck_assert_str_eq(found(&object, CALL, &budget, &error), TRUTH_IN_CALL);
    ck_assert(!budget.is_first);
    ck_assert_str_eq(found(&object, CALL, &budget, &error), "later");
    budget.steps = LINES_PROFILE_STEPS;
    ck_assert_str_eq(found(&object, CALL, &budget, &error), TRUTH_IN_CALL);
    ck_assert_uint_lt(budget.steps, LINES_PROFILE_STEPS);
    unlink(object.path);
}
END_TEST

START_TEST(counts_without_end)
{
    struct made made;
    make(&made);
    /* Abbreviations whose attributes never end, as the section goes on with values. */
    struct bytes *abbrev = &made.sections[ABBREV];
    memset(abbrev->data + 3, 0x11, PART_MAX - 3);
    abbrev->size = PART_MAX;
    ck_assert_str_eq(found_in(&made, CALL), "");
}
END_TEST

/* ---- What takes long, or much ---------------------------------------------------------------- */

/* Of all addresses of the function. */
static uint64_t all_addresses[CODE_SIZE];
static struct line_answer all_answers[CODE_SIZE];

static int find_all(const struct object *object, struct line_budget *budget, struct buffer *frames,
                    struct buffer *texts)
{
    for (size_t i = 0; i < CODE_SIZE; i++)
        all_addresses[i] = CODE + i;
    return lines_find(object, all_addresses, CODE_SIZE, budget, all_answers, frames, texts);
}

/* Sequence after sequence over the same code: each costs what it gives, though nothing is new. */
START_TEST(sequences_over_the_same_code)
{
    enum { SEQUENCES = 1000 };
    static const uint8_t advance_and_end[] = {1, 2, CODE_SIZE, 0, 1, 1};
    struct made made;
    make(&made);
    struct bytes *line = &made.sections[LINE];
    for (int i = 0; i < SEQUENCES; i++) {
        put(line, 0, 1);
        put(line, 9, 1);
        put(line, 2, 1);
        put(line, CODE, 8);
        put_bytes(line, advance_and_end, sizeof(advance_and_end));
    }
    set_length(line);
    struct object object = write_made(&made);
    struct buffer frames = {0}, texts = {0};
    struct line_budget budget = {.steps = UINT64_MAX, .is_first = true, .room = ROOM};
    ck_assert_int_eq(find_all(&object, &budget, &frames, &texts), 0);
    ck_assert_uint_ge(UINT64_MAX - budget.steps, SEQUENCES * CODE_SIZE);
    ck_assert_int_eq(all_answers[0].state, LINES_FOUND);
    buffer_free(&frames);
    buffer_free(&texts);
    unlink(object.path);
}
END_TEST

/* What does not fit of a unit is put off; what was found before is whole. */
START_TEST(the_room_is_kept_within_a_unit)
{
    enum { SMALL = 1000, ONE_ANSWER = 100 };
    struct made made;
    make(&made);
    struct object object = write_made(&made);
    struct buffer frames = {0}, texts = {0};
    struct line_budget budget = {.steps = UINT64_MAX, .is_first = true, .room = SMALL};
    ck_assert_int_eq(find_all(&object, &budget, &frames, &texts), 0);
    ck_assert_uint_le(frames.size + texts.size, SMALL / 2 + ONE_ANSWER);
    size_t found_count = 0;
    for (size_t i = 0; i < CODE_SIZE; i++) {
        found_count += all_answers[i].state == LINES_FOUND;
        ck_assert(all_answers[i].state == LINES_PUT_OFF || found_count == i + 1);
    }
    ck_assert_uint_gt(found_count, 10);
    ck_assert_uint_lt(found_count, CODE_SIZE);
    buffer_free(&frames);
    buffer_free(&texts);
    unlink(object.path);
}
END_TEST

/* Units that cost so much that the list of them does not come to its end: what is behind is
 * counted, and the next object's turn is later. */
START_TEST(a_list_of_units_that_takes_too_long)
{
    enum { ATTRIBUTES = 20000, UNITS = LINES_UNIT_STEPS / ATTRIBUTES + 1 };
    struct made made;
    make(&made);
    struct bytes *info = &made.sections[INFO], *abbrev = &made.sections[ABBREV];
    static struct bytes behind;
    behind = *info;
    info->size = 0;
    uint32_t table = (uint32_t)abbrev->size;
    put(abbrev, 1, 1);
    put(abbrev, 0x11, 1);
    put(abbrev, 0, 1);
    for (int i = 0; i < ATTRIBUTES; i++) { /* flags, which take no bytes of the unit */
        put(abbrev, 0x3c, 1);
        put(abbrev, 0x19, 1);
    }
    put(abbrev, 0, 3);
    for (int i = 0; i < UNITS; i++) {
        put(info, 8, 4);
        put(info, 4, 2);
        put(info, table, 4);
        put(info, 8, 1);
        put(info, 1, 1);
    }
    put_bytes(info, behind.data, behind.size);
    struct object object = write_made(&made);
    struct line_budget budget = {.steps = LINES_PROFILE_STEPS, .is_first = true, .room = ROOM};
    int error;
    ck_assert_str_eq(found(&object, CALL, &budget, &error), "");
    ck_assert_int_eq(error, 0);
    ck_assert_uint_eq(budget.left_out, 1);
    ck_assert_uint_eq(budget.steps, 0);
    ck_assert(!budget.is_first);
    ck_assert_str_eq(found(&object, CALL, &budget, &error), "later");
    unlink(object.path);
}
END_TEST

/* A packed section says how large it will be. */
static const struct {
    uint32_t kind;
    uint64_t size;
    int error;
} packed[] = {
    {1, 1ull << 40, -E2BIG}, {1, ROOM + 1, -E2BIG}, {1, 0, -ENOEXEC},        {1, 100, -ENOEXEC},
    {2, 100, -ENOEXEC},      {3, 100, -ENOEXEC},    {2, 1ull << 40, -E2BIG},
};

START_TEST(packed_sections_that_lie)
{
    struct made made;
    make(&made);
    Elf64_Chdr head = {.ch_type = packed[_i].kind, .ch_size = packed[_i].size};
    memcpy(made.sections[INFO].data, &head, sizeof(head));
    made.flags[INFO] = SHF_COMPRESSED;
    struct object object = write_made(&made);
    struct line_budget budget = {.steps = LINES_PROFILE_STEPS, .is_first = true, .room = ROOM};
    int error;
    ck_assert_str_eq(found(&object, CALL, &budget, &error), "");
    ck_assert_int_eq(error, packed[_i].error);
    unlink(object.path);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dwarf");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, functions_files_and_lines);
    tcase_add_test(all, what_the_linker_threw_away);
    tcase_add_test(all, sections_that_are_cut);
    tcase_add_loop_test(all, bytes_that_are_wrong, 0, 5);
    tcase_add_test(all, functions_that_refer_to_themselves);
    tcase_add_test(all, the_budget_is_kept);
    tcase_add_test(all, counts_without_end);
    tcase_add_test(all, sequences_over_the_same_code);
    tcase_add_test(all, the_room_is_kept_within_a_unit);
    tcase_add_test(all, a_list_of_units_that_takes_too_long);
    tcase_add_loop_test(all, packed_sections_that_lie, 0, (int)ARRAY_SIZE(packed));
    suite_add_tcase(suite, all);
    return suite;
}
