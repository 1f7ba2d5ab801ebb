/* The interpreter of call frame information on tables made here, whose rows are known; on
 * malformed ones (in memory of exactly their size, so that AddressSanitizer sees a read
 * outside). */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/rng.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/cfi_expression.h"
#include "agent/unwind/elf_object.h"

enum {
    HDR_VADDR = 0x1000,
    FRAME_VADDR = 0x2000,
    CODE_VADDR = 0x10000,
    CODE_SIZE = 0x100,
    ROOM = 1 << 20,
};

static uint8_t frame[ROOM], hdr[64];
static size_t frame_size;
static struct object object;

static void put(const void *data, size_t size)
{
    memcpy(frame + frame_size, data, size);
    frame_size += size;
}

static void put_n(uint64_t value, size_t size)
{
    put(&value, size);
}

#define PUT_BYTES(...) put((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static size_t begin_entry(void)
{
    put_n(0, 4);
    return frame_size;
}

static void end_entry(size_t start)
{
    while (frame_size % 8)
        put_n(0, 1);
    uint32_t length = (uint32_t)(frame_size - start);
    memcpy(frame + start - 4, &length, 4);
}

/* The usual CIE (CFA = rsp + 8, return address at CFA - 8), then the FDE's head. Returns what
 * end_entry wants. */
static size_t begin_tables(const char *augmentation, const void *data, size_t size,
                           uint8_t encoding)
{
    frame_size = 0;
    size_t cie = begin_entry();
    put_n(0, 4);
    put_n(1, 1);
    put(augmentation, strlen(augmentation) + 1);
    PUT_BYTES(1, 0x78, UNWIND_RA); /* code 1, data -8 */
    if (augmentation[0] == 'z') {
        put_n(size, 1);
        put(data, size);
    }
    PUT_BYTES(0x0c, 7, 8, 0x80 | UNWIND_RA, 1);
    end_entry(cie);
    size_t fde = begin_entry();
    put_n(frame_size, 4); /* back to the CIE at 0 */
    uint64_t pc = CODE_VADDR;
    if ((encoding & 0x70) == 0x10)
        pc -= FRAME_VADDR + frame_size;
    size_t width = (encoding & 15) == 0 || (encoding & 7) == 4 ? 8 : (encoding & 7) == 3 ? 4 : 2;
    put_n(pc, width);
    put_n(CODE_SIZE, width);
    if (augmentation[0] == 'z')
        put_n(0, 1);
    return fde;
}

/* One FDE at `fde`, and the table that finds it. */
static void end_tables(size_t fde)
{
    end_entry(fde);
    put_n(0, 4);
    const int32_t index[] = {CODE_VADDR - HDR_VADDR, (int32_t)(FRAME_VADDR - HDR_VADDR + fde - 4)};
    memcpy(hdr, index, sizeof(index));
    memset(&object, 0, sizeof(object));
    object.eh_frame_hdr = (struct object_table){hdr, HDR_VADDR, sizeof(hdr)};
    object.eh_frame = (struct object_table){frame, FRAME_VADDR, frame_size};
    object.fde_index = hdr;
    object.fde_count = 1;
}

static size_t begin_usual(void)
{
    return begin_tables("zR", (const uint8_t[]){0x1b}, 1, 0x1b);
}

static struct cfi_row row_at(uint32_t offset)
{
    struct cfi_row row;
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR + offset, &row), 0);
    return row;
}

static void check_cfa(uint32_t offset, int reg, int32_t value)
{
    struct cfi_row row = row_at(offset);
    ck_assert(!row.cfa_is_expression);
    ck_assert_int_eq(row.cfa_register, reg);
    ck_assert_int_eq(row.cfa_offset, value);
    ck_assert_int_eq(row.kind[UNWIND_RA], CFI_OFFSET);
    ck_assert_int_eq(row.value[UNWIND_RA], -8);
}

START_TEST(rows_begin_at_their_address)
{
    size_t fde = begin_usual();
    PUT_BYTES(0x41, 0x0e, 16, 0x86, 2);   /* 1: push rbp */
    PUT_BYTES(0x02, 2, 0x0d, 6);          /* 3: mov rsp, rbp */
    PUT_BYTES(0x03, 0x10, 0, 0x2e, 32);   /* 0x13: args_size */
    PUT_BYTES(0x04, 0x20, 0, 0, 0, 0xc6); /* 0x33: restore rbp */
    PUT_BYTES(0x0c, 7, 0x80, 1, 0x2d);    /* window_save: nothing here */
    end_tables(fde);
    check_cfa(0, 7, 8);
    ck_assert_int_eq(row_at(0).kind[6], CFI_SAME);
    check_cfa(1, 7, 16);
    ck_assert_int_eq(row_at(1).kind[6], CFI_OFFSET);
    ck_assert_int_eq(row_at(1).value[6], -16);
    check_cfa(2, 7, 16);
    check_cfa(3, 6, 16);
    check_cfa(0x32, 6, 16);
    check_cfa(0x33, 7, 128);
    ck_assert_int_eq(row_at(0x33).kind[6], CFI_SAME);
    check_cfa(CODE_SIZE - 1, 7, 128);
    ck_assert_uint_eq(row_at(5).start, CODE_VADDR);
    ck_assert(!row_at(5).bare && !row_at(5).signal_frame);
    struct cfi_row row;
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR - 1, &row), -ENOENT);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR + CODE_SIZE, &row), -ENOENT);
}
END_TEST

START_TEST(remembered_rows)
{
    size_t fde = begin_usual();
    PUT_BYTES(0x0a);           /* a */
    PUT_BYTES(0x41, 0x0e, 16); /* 1 */
    PUT_BYTES(0x0a);           /* b */
    PUT_BYTES(0x41, 0x0e, 24); /* 2 */
    PUT_BYTES(0x86, 3);
    PUT_BYTES(0x41, 0x0b);           /* 3: back to b */
    PUT_BYTES(0x41, 0x0a);           /* 4: c */
    PUT_BYTES(0x0f, 2, 0x77, 0);     /* an expression as CFA, left again by the restore */
    PUT_BYTES(0x41, 0x0b);           /* 5: back to c */
    PUT_BYTES(0x41, 0x0b);           /* 6: back to a */
    PUT_BYTES(0x41, 0x0a, 0x0e, 40); /* 7: never restored */
    end_tables(fde);
    const int32_t expected[] = {8, 16, 24, 16, 0, 16, 8, 40, 40};
    for (uint32_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        if (i == 4)
            ck_assert(row_at(4).cfa_is_expression);
        else
            check_cfa(i, 7, expected[i]);
        ck_assert_int_eq(row_at(i).kind[6], i == 2 ? CFI_OFFSET : CFI_SAME);
    }
}
END_TEST

/* As in epilogues of libgcrypt's assembly: the offset is that from before the expression. */
START_TEST(a_register_after_an_expression)
{
    size_t fde = begin_usual();
    PUT_BYTES(0x0e, 16);
    PUT_BYTES(0x41, 0x0f, 2, 0x77, 0);
    PUT_BYTES(0x41, 0x0d, 6); /* def_cfa_register rbp */
    end_tables(fde);
    check_cfa(0, 7, 16);
    ck_assert(row_at(1).cfa_is_expression);
    check_cfa(2, 6, 16);
}
END_TEST

START_TEST(every_rule)
{
    size_t fde = begin_usual();
    PUT_BYTES(0x12, 6, 0x7e);            /* def_cfa_sf rbp, 16 */
    PUT_BYTES(0x13, 0x7d);               /* def_cfa_offset_sf 24 */
    PUT_BYTES(0x05, 3, 2);               /* offset_extended rbx -16 */
    PUT_BYTES(0x11, 12, 0x7f);           /* offset_extended_sf r12 +8 */
    PUT_BYTES(0x2f, 13, 1);              /* negative_offset_extended r13 +8 */
    PUT_BYTES(0x14, 14, 1);              /* val_offset r14 -8 */
    PUT_BYTES(0x15, 15, 0x7f);           /* val_offset_sf r15 +8 */
    PUT_BYTES(0x09, 0, 3);               /* register rax in rbx */
    PUT_BYTES(0x07, 1);                  /* undefined rdx */
    PUT_BYTES(0x08, 2);                  /* same rcx */
    PUT_BYTES(0x10, 4, 2, 0x77, 8);      /* expression rsi */
    PUT_BYTES(0x16, 5, 2, 0x77, 16);     /* val_expression rdi */
    PUT_BYTES(0x05, 40, 2, 0x94 | 9, 3); /* a vector register; r29 by the short form */
    PUT_BYTES(0x01);                     /* set_loc 0x20 */
    put_n((uint64_t)(CODE_VADDR + 0x20 - (FRAME_VADDR + frame_size)), 4);
    PUT_BYTES(0x06, 3, 0x07, UNWIND_RA); /* restore_extended rbx, no return address */
    end_tables(fde);
    struct cfi_row row = row_at(0x1f);
    ck_assert_int_eq(row.cfa_register, 6);
    ck_assert_int_eq(row.cfa_offset, 24);
    static const struct {
        int reg, kind, value;
    } expected[] = {{3, CFI_OFFSET, -16},     {12, CFI_OFFSET, 8},     {13, CFI_OFFSET, 8},
                    {14, CFI_VAL_OFFSET, -8}, {15, CFI_VAL_OFFSET, 8}, {0, CFI_REGISTER, 3},
                    {1, CFI_UNDEFINED, 0},    {2, CFI_SAME, 0}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        ck_assert_int_eq(row.kind[expected[i].reg], expected[i].kind);
        ck_assert_int_eq(row.value[expected[i].reg], expected[i].value);
    }
    ck_assert_int_eq(row.kind[4], CFI_EXPRESSION);
    ck_assert_int_eq(row.kind[5], CFI_VAL_EXPRESSION);
    size_t size;
    const uint8_t *expression = cfi_expression(&object, row.value[5], &size);
    ck_assert_uint_eq(size, 2);
    ck_assert_uint_eq(expression[1], 16);
    row = row_at(0x20);
    ck_assert_int_eq(row.kind[3], CFI_SAME);
    ck_assert_int_eq(row.kind[UNWIND_RA], CFI_UNDEFINED);
}
END_TEST

START_TEST(augmentations_and_encodings)
{
    static const uint8_t encodings[] = {0x00, 0x02, 0x03, 0x04, 0x0b, 0x0c, 0x1b, 0x1c, 0x10, 0x14};
    for (size_t i = 0; i < sizeof(encodings); i++) {
        if (encodings[i] == 0x02)
            continue; /* 16 bits cannot hold the address of this code */
        end_tables(begin_tables("zR", &encodings[i], 1, encodings[i]));
        check_cfa(CODE_SIZE - 1, 7, 8);
        ck_assert(row_at(0).bare);
    }
    /* No augmentation; personality (indirect pcrel, and aligned) and LSDA in front of R; S. */
    end_tables(begin_tables("", NULL, 0, 0));
    check_cfa(0, 7, 8);
    end_tables(begin_tables("zPLR", (const uint8_t[]){0x9b, 1, 2, 3, 4, 0x1b, 0x1b}, 7, 0x1b));
    check_cfa(0, 7, 8);
    /* The byte behind the encoding 0x50 is at FRAME_VADDR + 18: 6 more to a multiple of 8. */
    const uint8_t aligned[1 + 6 + 8 + 1] = {[0] = 0x50, [15] = 0x03};
    end_tables(begin_tables("zPR", aligned, sizeof(aligned), 0x03));
    check_cfa(0, 7, 8);
    end_tables(begin_tables("zRS", (const uint8_t[]){0x1b}, 1, 0x1b));
    ck_assert(row_at(0).signal_frame);
    struct cfi_row row;
    end_tables(begin_tables("eh", NULL, 0, 0));
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    end_tables(begin_tables("zX", (const uint8_t[]){0}, 1, 0));
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    uint8_t textrel = 0x2b;
    end_tables(begin_tables("zR", &textrel, 1, 0x2b));
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
}
END_TEST

START_TEST(the_right_fde_among_many)
{
    /* 100 FDEs of 16 bytes of code with holes of 16 bytes; each has its own offset. */
    enum { COUNT = 100 };
    static int32_t index[COUNT][2];
    end_tables(begin_usual());
    frame_size -= 4;
    for (int i = 0; i < COUNT; i++) {
        index[i][0] = CODE_VADDR + i * 32 - HDR_VADDR;
        index[i][1] = (int32_t)(FRAME_VADDR + frame_size - HDR_VADDR);
        size_t fde = begin_entry();
        put_n(frame_size, 4);
        put_n((uint64_t)(CODE_VADDR + i * 32 - (int64_t)(FRAME_VADDR + frame_size)), 4);
        put_n(16, 4);
        PUT_BYTES(0, 0x0e, (uint8_t)i);
        end_entry(fde);
    }
    object.eh_frame.size = frame_size;
    object.fde_index = (const uint8_t *)index;
    object.fde_count = COUNT;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct cfi_row row;
        check_cfa(i * 32, 7, (int32_t)i);
        check_cfa(i * 32 + 15, 7, (int32_t)i);
        ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR + i * 32 + 16, &row), -ENOENT);
    }
}
END_TEST

START_TEST(malformed_programs_fail_soon)
{
    struct cfi_row row;
    size_t fde = begin_usual();
    PUT_BYTES(0x0b); /* restore without remember */
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    fde = begin_usual();
    PUT_BYTES(0x3f); /* no such instruction */
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    fde = begin_usual();
    PUT_BYTES(0x0f, 2, 0x77, 0, 0x0e, 8); /* an offset for an expression */
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    /* Each remember is read ahead to the end: more than is allowed. */
    fde = begin_usual();
    for (int i = 0; i < 100000; i++)
        PUT_BYTES(0x0a);
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    /* A long one that is right. */
    fde = begin_usual();
    for (int i = 0; i < 20000; i++)
        PUT_BYTES(0x0a, 0x0e, 24, 0x0b);
    PUT_BYTES(0x0e, 16);
    end_tables(fde);
    check_cfa(0, 7, 16);
}
END_TEST

/* Found by fuzzing: the factors of a table overflow (seen by UndefinedBehaviorSanitizer), and
 * what is read by one step is as long as the table. */
START_TEST(numbers_too_large_are_refused)
{
    struct cfi_row row;
    /* 2^63, of which there is no negative; 2^62, times the data alignment; the same with sign. */
    size_t fde = begin_usual();
    PUT_BYTES(0x2f, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1);
    PUT_BYTES(0x86, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0xc0, 0);
    PUT_BYTES(0x11, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40);
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), 0);
    ck_assert_int_eq(row.value[6], 0); /* modulo 2^64 */
    /* Padded numbers are right, endless ones are not. */
    for (int padding = 4; padding <= 4000; padding *= 10) {
        fde = begin_usual();
        PUT_BYTES(0x0e, 0x90);
        for (int i = 0; i < padding; i++)
            PUT_BYTES(0x80);
        PUT_BYTES(0);
        end_tables(fde);
        ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), padding == 4 ? 0 : -EINVAL);
    }
    char augmentation[64] = "zR";
    memset(augmentation + 2, 'S', sizeof(augmentation) - 3);
    end_tables(begin_tables(augmentation, (const uint8_t[]){0x1b}, 1, 0x1b));
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), -EINVAL);
    augmentation[15] = 0;
    end_tables(begin_tables(augmentation, (const uint8_t[]){0x1b}, 1, 0x1b));
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), 0);
    ck_assert(row.bare);
    fde = begin_usual();
    for (int i = 0; i < 100; i++)
        PUT_BYTES(0);
    end_tables(fde);
    ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR, &row), 0);
    ck_assert(!row.bare); /* more than what fills an entry up */
}
END_TEST

START_TEST(tables_cut_anywhere)
{
    size_t fde = begin_tables("zPLR", (const uint8_t[]){0x9b, 1, 2, 3, 4, 0x1b, 0x1b}, 7, 0x1b);
    PUT_BYTES(0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x10, 3, 2, 0x77, 8, 0x02, 9, 0x0b, 0x0d, 6);
    end_tables(fde);
    size_t whole = frame_size - 4;
    for (size_t size = 0; size < whole; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        memcpy(copy, frame, size);
        object.eh_frame.data = copy;
        object.eh_frame.size = size;
        struct cfi_row row;
        ck_assert_int_eq(cfi_row_at(&object, CODE_VADDR + 5, &row), -EINVAL);
        free(copy);
    }
}
END_TEST

static int copy_libc(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, "libc.so"))
        return 0;
    struct elf_image image;
    elf_read_image(info, &image);
    elf_describe(&image, &object);
    elf_tables_in_place(&image, &object);
    return 1;
}

/* libc's own tables with random bytes changed: whatever comes out, it comes, and from inside. */
START_TEST(random_changes_of_real_tables)
{
    memset(&object, 0, sizeof(object));
    ck_assert_int_eq(dl_iterate_phdr(copy_libc, NULL), 1);
    struct object_table right = object.eh_frame;
    ck_assert_uint_gt(object.fde_count, 1000);
    uint8_t *copy = malloc(right.size);
    object.eh_frame.data = copy;
    struct rng rng = {7};
    uint32_t good = 0, bad = 0;
    memcpy(copy, right.data, right.size);
    uintptr_t stack[64];
    struct unwind_stack home = {(uintptr_t)stack, (uintptr_t)(stack + 64)};
    struct stack_reader reader;
    struct unwind_regs regs;
    for (int i = 0; i < UNWIND_REGS; i++)
        regs.r[i] = (uintptr_t)&stack[i];
    for (int i = 0; i < 64; i++)
        stack[i] = (uintptr_t)&stack[(i * 7) % 64];
    const struct cfi_registers registers = {&regs, 0x1ffc0};
    for (int round = 0; round < 60000; round++) {
        /* An entry of the index, and some bytes of its FDE. */
        uint32_t entry = (uint32_t)(rng_next(&rng) % object.fde_count);
        int32_t pair[2];
        memcpy(pair, object.fde_index + entry * 8, 8);
        size_t at = object.eh_frame_hdr.vaddr + (uint64_t)(int64_t)pair[1] - right.vaddr;
        for (int i = 0; i < 3; i++)
            copy[at + rng_next(&rng) % 40] = (uint8_t)rng_next(&rng);
        struct cfi_row row;
        uint64_t vaddr = object.eh_frame_hdr.vaddr + (uint64_t)(int64_t)pair[0];
        int error = cfi_row_at(&object, vaddr + rng_next(&rng) % 64, &row);
        error ? bad++ : good++;
        stack_reader_start(&reader, &home, regs.r[UNWIND_SP]);
        for (int reg = -1; !error && reg < UNWIND_REGS; reg++) {
            if (reg < 0 ? !row.cfa_is_expression : row.kind[reg] < CFI_EXPRESSION)
                continue;
            size_t size;
            const uint8_t *expression =
                cfi_expression(&object, reg < 0 ? row.cfa_expression : row.value[reg], &size);
            uintptr_t result;
            if (expression &&
                cfi_evaluate(expression, size, &registers, reg < 0 ? NULL : &regs.r[0], &reader,
                             &result) == CFI_GOOD)
                good++;
        }
        memcpy(copy + at, right.data + at, 48);
    }
    printf("%u rows, %u errors\n", good, bad);
    ck_assert_uint_gt(good, 5000);
    ck_assert_uint_gt(bad, 5000);
    free(copy);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("cfi");
    TCase *t = tcase_create("cfi");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, rows_begin_at_their_address);
    tcase_add_test(t, remembered_rows);
    tcase_add_test(t, a_register_after_an_expression);
    tcase_add_test(t, every_rule);
    tcase_add_test(t, augmentations_and_encodings);
    tcase_add_test(t, the_right_fde_among_many);
    tcase_add_test(t, malformed_programs_fail_soon);
    tcase_add_test(t, numbers_too_large_are_refused);
    tcase_add_test(t, tables_cut_anywhere);
    tcase_add_test(t, random_changes_of_real_tables);
    suite_add_tcase(s, t);
    return s;
}
