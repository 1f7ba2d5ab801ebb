/* Indexes of sections made here: which FDE an address belongs to is known by a search through all
 * of them; malformed sections are in memory of exactly their size, so that AddressSanitizer sees a
 * read outside. */
#include "test/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/rng.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/frame_index.h"

enum { CODE = 0x400000, CODE_SIZE = 4096, FRAME = 0x2000, FDES_MAX = 128 };

static uint8_t *bytes;
static size_t size, room;
static struct object object;
static struct object_debug_frame debug_frame;

/* How a section's entries are written. */
struct form {
    bool debug, wide;
    uint8_t version;
    const char *augmentation;
};

static void put(const void *data, size_t count)
{
    if (size + count > room) {
        room = 2 * (size + count);
        bytes = realloc(bytes, room);
    }
    memcpy(bytes + size, data, count);
    size += count;
}

static void put_n(uint64_t value, size_t count)
{
    put(&value, count);
}

static size_t begin_entry(const struct form *form)
{
    if (form->wide)
        put_n(0xffffffff, 4);
    put_n(0, form->wide ? 8 : 4);
    return size;
}

static void end_entry(const struct form *form, size_t start)
{
    while (size % 8)
        put_n(0, 1);
    uint64_t length = size - start;
    size_t width = form->wide ? 8 : 4;
    memcpy(bytes + start - width, &length, width);
}

/* Returns where it begins. */
static size_t put_cie(const struct form *form)
{
    size_t at = size, start = begin_entry(form);
    put_n(form->debug ? UINT64_MAX : 0, form->debug && form->wide ? 8 : 4);
    put_n(form->version, 1);
    put(form->augmentation, strlen(form->augmentation) + 1);
    if (strncmp(form->augmentation, "eh", 2) == 0)
        put_n(0x1122334455667788, 8);
    if (form->version == 4)
        put_n(8, 2);
    put((const uint8_t[]){1, 0x78, UNWIND_RA}, 3); /* code 1, data -8 */
    if (strchr(form->augmentation, 'z'))
        put_n(0, 1);
    put((const uint8_t[]){0x0c, UNWIND_SP, 8, 0x80 | UNWIND_RA, 1}, 5); /* sp + 8; CFA - 8 */
    end_entry(form, start);
    return at;
}

/* Its rows say CFA = rsp + 8 * id. */
static void put_fde(const struct form *form, size_t cie, uint64_t code, uint64_t code_size,
                    uint8_t id)
{
    size_t start = begin_entry(form);
    put_n(form->debug ? cie : size - cie, form->debug && form->wide ? 8 : 4);
    put_n(code, 8);
    put_n(code_size, 8);
    if (strchr(form->augmentation, 'z'))
        put_n(0, 1);
    put("\x0e", 1);
    put_n(0x80 | (id * 8 & 0x7f), 1);
    put_n(id * 8 >> 7, 1);
    end_entry(form, start);
}

/* Makes the object of what was put; the section is moved to memory of exactly its size. */
static int build(bool debug, bool is_whole)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    object = (struct object){.segment_count = 1, .segments = {{.vaddr = CODE, .size = CODE_SIZE}}};
    const struct object_table table = {exact, debug ? 0 : FRAME, size};
    struct cfi_section section = {.table = &table, .is_debug = debug};
    section.code_base = debug ? CODE : FRAME;
    section.entry_base = debug ? 0 : FRAME;
    int error = frame_index_build(&object, is_whole, &section);
    if (debug) {
        debug_frame =
            (struct object_debug_frame){table, section.index, section.count, section.code_base, 0};
        object.debug_frame = &debug_frame;
    } else {
        object.eh_frame_hdr.vaddr = FRAME;
        object.eh_frame = table;
        object.fde_index = section.index;
        object.fde_count = section.count;
    }
    return error;
}

static void forget(void)
{
    struct cfi_section section;
    if (cfi_eh_frame(&object, &section) || cfi_debug_frame(&object, &section))
        arena_release((void *)(uintptr_t)section.index, section.count * 8);
    free((void *)(uintptr_t)object.eh_frame.data);
    if (object.debug_frame)
        free((void *)(uintptr_t)debug_frame.table.data);
    object = (struct object){0};
    size = 0;
}

static int id_at(uint64_t vaddr)
{
    struct cfi_row row;
    int error = cfi_row_at(&object, vaddr, &row);
    if (error)
        return error;
    ck_assert_int_eq(row.cfa_register, UNWIND_SP);
    ck_assert_int_eq(row.value[UNWIND_RA], -8);
    return row.cfa_offset / 8;
}

START_TEST(every_form_of_entries)
{
    static const struct form forms[] = {
        {false, false, 1, ""},  {false, false, 1, "z"},  {false, false, 3, "z"},
        {false, false, 4, "z"}, {false, true, 1, "z"},   {false, false, 1, "eh"},
        {true, false, 1, ""},   {true, false, 3, ""},    {true, false, 4, ""},
        {true, true, 3, ""},    {true, true, 4, ""},     {true, false, 1, "S"},
        {true, false, 1, "z"},  {false, false, 1, "zS"},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct form *form = &forms[i];
        size_t first = put_cie(form), second = put_cie(form);
        put_fde(form, second, CODE + 64, 32, 2);
        put_fde(form, first, CODE, 32, 1);
        ck_assert_int_eq(build(form->debug, true), 0);
        ck_assert_int_eq(id_at(CODE - 1), -ENOENT);
        ck_assert_int_eq(id_at(CODE), 1);
        ck_assert_int_eq(id_at(CODE + 31), 1);
        ck_assert_int_eq(id_at(CODE + 32), -ENOENT);
        ck_assert_int_eq(id_at(CODE + 64), 2);
        ck_assert_int_eq(id_at(CODE + 95), 2);
        ck_assert_int_eq(id_at(CODE + 96), -ENOENT);
        struct cfi_row row;
        ck_assert_int_eq(cfi_row_at(&object, CODE, &row), 0);
        ck_assert_int_eq(row.signal_frame, strchr(form->augmentation, 'S') != NULL);
        forget();
    }
}
END_TEST

START_TEST(forms_that_are_not_known)
{
    static const struct form forms[] = {{false, false, 2, "z"},
                                        {false, false, 1, "zX"},
                                        {false, false, 1, "R"},
                                        {true, false, 1, "L"},
                                        {true, false, 5, ""}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t cie = put_cie(&forms[i]);
        put_fde(&forms[i], cie, CODE, 32, 1);
        ck_assert_int_eq(build(forms[i].debug, true), -ENOENT);
        forget();
    }
    /* Addresses of four bytes; and with a segment selector. */
    for (uint16_t sizes = 4; sizes <= 0x0108; sizes += 0x0104) {
        const struct form form = {true, false, 4, ""};
        size_t cie = put_cie(&form);
        put_fde(&form, cie, CODE, 32, 1);
        memcpy(bytes + cie + 10, &sizes, 2);
        ck_assert_int_eq(build(true, true), -ENOENT);
        forget();
    }
    /* An FDE may not be taken for a CIE. */
    const struct form form = {true, false, 1, ""};
    size_t cie = put_cie(&form), fde = size;
    put_fde(&form, cie, CODE, 32, 1);
    put_fde(&form, fde, CODE + 32, 32, 2);
    ck_assert_int_eq(build(true, true), 0);
    ck_assert_int_eq(id_at(CODE), 1);
    ck_assert_int_eq(id_at(CODE + 32), -ENOENT);
    forget();
}
END_TEST

START_TEST(terminators)
{
    const struct form form = {false, false, 1, "z"};
    for (int whole = 0; whole < 2; whole++) {
        size_t cie = put_cie(&form);
        put_fde(&form, cie, CODE, 16, 1);
        put_n(0, 8);
        put_fde(&form, cie, CODE + 16, 16, 2);
        put_n(0, 4);
        ck_assert_int_eq(build(false, whole), 0);
        ck_assert_int_eq(id_at(CODE), 1);
        /* Behind the end of the section may be anything. */
        ck_assert_int_eq(id_at(CODE + 16), whole ? 2 : -ENOENT);
        forget();
    }
}
END_TEST

struct code {
    uint64_t start, size;
};

static bool within(const struct code *code, uint64_t vaddr)
{
    return code->start >= CODE && code->start < CODE + CODE_SIZE &&
           vaddr - code->start < code->size;
}

/* The FDE of an address: of those that cover it the one that begins last; of several of these the
 * longest; of several of these the first. Its number, from 1 on; -ENOENT. */
static int search_all(const struct code *codes, int count, uint64_t vaddr)
{
    int found = -1;
    for (int i = 0; i < count; i++)
        if (within(&codes[i], vaddr) &&
            (found < 0 || codes[i].start > codes[found].start ||
             (codes[i].start == codes[found].start && codes[i].size > codes[found].size)))
            found = i;
    return found < 0 ? -ENOENT : found + 1;
}

/* FDEs in any order, with holes, of no length, in each other, across each other, twice, at 0 and
 * outside of the code. */
START_TEST(fdes_in_any_order)
{
    struct rng rng = {11};
    uint32_t covered = 0, nested = 0;
    for (int round = 0; round < 400; round++) {
        const struct form form = {round % 2 != 0, round % 8 == 3, 1, round % 2 ? "" : "z"};
        struct code codes[FDES_MAX];
        int count = 1 + (int)(rng_next(&rng) % (round % 5 ? 20 : FDES_MAX));
        uint64_t longest = round % 3 ? 100 : 1500;
        size_t cie = put_cie(&form);
        for (int i = 0; i < count; i++) {
            uint64_t kind = rng_next(&rng) % 16;
            codes[i].start = CODE + rng_next(&rng) % CODE_SIZE;
            codes[i].size = kind == 0 ? 0 : rng_next(&rng) % longest;
            if (kind == 1)
                codes[i].start = 0;
            else if (kind == 2)
                codes[i].start += 2 * CODE_SIZE;
            else if (kind == 3 && i)
                codes[i].start = codes[i - 1].start;
            put_fde(&form, cie, codes[i].start, codes[i].size, (uint8_t)(i + 1));
        }
        int error = build(form.debug, true);
        ck_assert(error == 0 || error == -ENOENT);
        for (uint64_t vaddr = CODE - 8; vaddr < CODE + CODE_SIZE; vaddr++) {
            int expected = search_all(codes, count, vaddr), found = id_at(vaddr);
            ck_assert_msg(found == expected, "round %d, %#lx: %d, not %d", round,
                          (unsigned long)vaddr, found, expected);
            covered += expected > 0;
            for (int i = 0, times = 0; i < count; i++)
                nested += within(&codes[i], vaddr) && ++times == 2;
        }
        forget();
    }
    printf("%u addresses covered, %u more than once\n", covered, nested);
    ck_assert_uint_gt(covered, 400000);
    ck_assert_uint_gt(nested, 100000);
}
END_TEST

/* A linker's own table may have an FDE of no length behind the one for the same address, and one
 * within another. */
START_TEST(the_right_fde_in_a_table_of_a_linker)
{
    const struct form form = {false, false, 1, "z"};
    static const struct code codes[] = {{CODE, 64}, {CODE, 0}, {CODE + 16, 16}, {CODE + 32, 0}};
    static int32_t index[4][2];
    size_t cie = put_cie(&form);
    for (int i = 0; i < 4; i++) {
        index[i][0] = (int32_t)(codes[i].start - FRAME);
        index[i][1] = (int32_t)size;
        put_fde(&form, cie, codes[i].start, codes[i].size, (uint8_t)(i + 1));
    }
    ck_assert_int_eq(build(false, true), 0);
    const uint8_t *own = object.fde_index;
    uint32_t own_count = object.fde_count;
    object.fde_index = (const uint8_t *)index;
    object.fde_count = 4;
    for (uint64_t vaddr = CODE; vaddr < CODE + 80; vaddr++)
        ck_assert_int_eq(id_at(vaddr), search_all(codes, 4, vaddr));
    object.fde_index = own;
    object.fde_count = own_count;
    forget();
}
END_TEST

START_TEST(sections_cut_anywhere_and_changed)
{
    struct rng rng = {5};
    uint32_t built = 0, rows = 0;
    for (int round = 0; round < 4000; round++) {
        const struct form form = {round % 2 != 0, round % 8 < 2, 4, "z"};
        for (int i = 0; i < 4; i++) {
            size_t cie = put_cie(&form);
            put_fde(&form, cie, CODE + (uint64_t)i * 32, 32, (uint8_t)i);
        }
        if (round % 3 == 0)
            size = rng_next(&rng) % size;
        for (int i = 0; i < round % 4 && size; i++)
            bytes[rng_next(&rng) % size] = (uint8_t)rng_next(&rng);
        bool is_good = build(form.debug, rng_next(&rng) % 2) == 0;
        built += is_good;
        struct cfi_row row;
        for (uint64_t vaddr = CODE; vaddr < CODE + 128 && is_good; vaddr += 8)
            rows += cfi_row_at(&object, vaddr, &row) == 0;
        forget();
    }
    printf("%u indexes, %u rows\n", built, rows);
    ck_assert_uint_gt(built, 1000);
    ck_assert_uint_gt(rows, 10000);
}
END_TEST

START_TEST(time_and_memory_are_bounded)
{
    const struct form form = {true, false, 1, ""};
    size_t reserved = arena_reserved();
    /* As many entries as no file has: all that is looked at are FRAME_INDEX_MAX. */
    size_t cie = put_cie(&form);
    for (int i = 0; i < FRAME_INDEX_MAX + 100; i++)
        put_fde(&form, cie, CODE + (uint64_t)i * 7919 % CODE_SIZE, 1, 1);
    uint64_t begin = clock_monotonic_ns();
    ck_assert_int_eq(build(true, true), 0);
    printf("%d FDEs in %llu us\n", FRAME_INDEX_MAX,
           (unsigned long long)(clock_monotonic_ns() - begin) / 1000);
    /* They are the same 4096 addresses again and again. */
    ck_assert_uint_eq(debug_frame.count, CODE_SIZE);
    ck_assert_int_eq(id_at(CODE + CODE_SIZE - 1), 1);
    ck_assert_uint_eq(arena_reserved() - reserved, CODE_SIZE * 8);
    forget();
    ck_assert_uint_eq(arena_reserved(), reserved);
    /* Nothing but terminators. */
    room = (size_t)64 << 20;
    free(bytes);
    bytes = calloc(1, room);
    size = room;
    ck_assert_int_eq(build(true, true), -ENOENT);
    forget();
    /* No memory, at first or in the end. */
    static const size_t budgets[] = {4096, 32768};
    for (int i = 0; i < 2; i++) {
        cie = put_cie(&form);
        for (int j = 0; j < 1024; j++)
            put_fde(&form, cie, CODE + (uint64_t)j * 2, 2, 1);
        arena_set_budget(reserved + budgets[i]);
        ck_assert_int_eq(build(true, true), -ENOMEM);
        ck_assert_uint_eq(arena_reserved(), reserved);
        arena_set_budget(SIZE_MAX);
        forget();
    }
    free(bytes);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("frame_index");
    TCase *t = tcase_create("frame_index");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_form_of_entries);
    tcase_add_test(t, forms_that_are_not_known);
    tcase_add_test(t, terminators);
    tcase_add_test(t, fdes_in_any_order);
    tcase_add_test(t, the_right_fde_in_a_table_of_a_linker);
    tcase_add_test(t, sections_cut_anywhere_and_changed);
    tcase_add_test(t, time_and_memory_are_bounded);
    suite_add_tcase(s, t);
    return s;
}
