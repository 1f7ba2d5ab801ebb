/* The evaluation of DWARF expressions: every operator, and everything that must fail. */
#include "test/check.h"

#include "agent/unwind/cfi_expression.h"

static uintptr_t memory[4];

static enum cfi_result evaluate(const uint8_t *bytes, size_t size, uintptr_t *result)
{
    struct unwind_stack home = {(uintptr_t)memory, (uintptr_t)(memory + 4)};
    struct stack_reader reader;
    stack_reader_start(&reader, &home, (uintptr_t)memory);
    struct unwind_regs regs = {.r = {[3] = 300, [7] = (uintptr_t)memory}};
    const struct cfi_registers registers = {&regs, 1u << 3 | 1u << 7};
    return cfi_evaluate(bytes, size, &registers, NULL, &reader, result);
}

#define EXPRESSION(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define CHECK_VALUE(value, ...)                                                                    \
    do {                                                                                           \
        uintptr_t got = 0;                                                                         \
        ck_assert_int_eq(evaluate(EXPRESSION(__VA_ARGS__), &got), CFI_GOOD);                       \
        ck_assert_uint_eq(got, (uintptr_t)(value));                                                \
    } while (0)
#define CHECK_RESULT(result, ...)                                                                  \
    do {                                                                                           \
        uintptr_t got;                                                                             \
        ck_assert_int_eq(evaluate(EXPRESSION(__VA_ARGS__), &got), result);                         \
    } while (0)

START_TEST(expressions)
{
    memory[1] = 0x1122334455667788;
    CHECK_VALUE(5, 0x35);
    CHECK_VALUE(-2, 0x09, 0xfe);
    CHECK_VALUE(0xfffe, 0x0a, 0xfe, 0xff);
    CHECK_VALUE(-2, 0x0b, 0xfe, 0xff);
    CHECK_VALUE(0xfffffffe, 0x0c, 0xfe, 0xff, 0xff, 0xff);
    CHECK_VALUE(-2, 0x0d, 0xfe, 0xff, 0xff, 0xff);
    CHECK_VALUE(300, 0x10, 0xac, 2);
    CHECK_VALUE(-128, 0x11, 0x80, 0x7f);
    CHECK_VALUE(301, 0x73, 1);
    CHECK_VALUE(299, 0x92, 3, 0x7f);
    CHECK_VALUE(memory[1], 0x77, 8, 0x06);
    CHECK_VALUE(0x7788, 0x77, 8, 0x94, 2);
    CHECK_VALUE(9, 0x33, 0x32, 0x1e, 0x33, 0x22); /* 3 * 2 + 3 */
    CHECK_VALUE(-1, 0x32, 0x33, 0x1c);            /* 2 - 3 */
    CHECK_VALUE(-3, 0x09, 0xf9, 0x32, 0x1b);      /* -7 / 2 */
    CHECK_VALUE(1, 0x37, 0x32, 0x1d);             /* 7 mod 2 */
    CHECK_VALUE(7, 0x09, 0xf9, 0x19);             /* |-7| */
    CHECK_VALUE(-7, 0x37, 0x1f);
    CHECK_VALUE(-8, 0x37, 0x20);
    CHECK_VALUE(6, 0x36, 0x3e, 0x1a);
    CHECK_VALUE(14, 0x36, 0x3e, 0x21);
    CHECK_VALUE(8, 0x36, 0x3e, 0x27);
    CHECK_VALUE(12, 0x33, 0x32, 0x24);
    CHECK_VALUE(-2, 0x09, 0xf8, 0x32, 0x26); /* -8 >> 2 */
    CHECK_VALUE(1ull << 62, 0x31, 0x08, 62, 0x24);
    CHECK_VALUE(0, 0x31, 0x08, 64, 0x24);
    CHECK_VALUE(1, 0x09, 0xff, 0x08, 63, 0x25);
    CHECK_VALUE(1, 0x09, 0xff, 0x31, 0x2d); /* -1 < 1 */
    CHECK_VALUE(0, 0x32, 0x32, 0x2e);
    CHECK_VALUE(4, 0x32, 0x12, 0x22);             /* dup */
    CHECK_VALUE(5, 0x32, 0x31, 0x14, 0x22, 0x22); /* over */
    CHECK_VALUE(3, 0x33, 0x31, 0x32, 0x15, 2);    /* pick */
    CHECK_VALUE(5, 0x35, 0x31, 0x13);             /* drop */
    CHECK_VALUE(309, 0x73, 0, 0x23, 9);           /* plus_uconst */
    CHECK_VALUE(5, 0x31, 0x28, 1, 0, 0x96, 0x35); /* bra over a nop */
    CHECK_VALUE(4, 0x2f, 1, 0, 0x35, 0x34);       /* skip over lit5 */
    CHECK_VALUE(2, 0x31, 0x32, 0x33, 0x17);       /* rot: 3 1 2 */
    CHECK_VALUE(1, 0x31, 0x32, 0x33, 0x17, 0x13);
    CHECK_VALUE(3, 0x31, 0x32, 0x33, 0x17, 0x13, 0x13);
    CHECK_VALUE(1, 0x31, 0x32, 0x16);
    /* rsp + 8 + ((rip & 15) >= 11) << 3 needs rip, which is not known here. */
    CHECK_RESULT(CFI_NEEDS_REGISTER, 0x77, 8, 0x80, 0);
}
END_TEST

START_TEST(expressions_that_fail)
{
    CHECK_RESULT(CFI_BAD, 0x22); /* no operands */
    CHECK_RESULT(CFI_BAD, 0x31, 0x22);
    CHECK_RESULT(CFI_BAD, 0x06);
    CHECK_RESULT(CFI_BAD, 0x31, 0x32, 0x17);
    CHECK_RESULT(CFI_BAD, 0x31, 0x30, 0x1b); /* 1 / 0 */
    CHECK_RESULT(CFI_BAD, 0x31, 0x30, 0x1d);
    CHECK_RESULT(CFI_BAD, 0x31, 0x08, 63, 0x24, 0x09, 0xff, 0x1b); /* the smallest / -1 */
    CHECK_RESULT(CFI_BAD, 0x30, 0x06);                             /* reads address 0 */
    CHECK_RESULT(CFI_BAD, 0x77, 0, 0x94, 9);
    CHECK_RESULT(CFI_BAD, 0x77, 0, 0x94, 0);
    CHECK_RESULT(CFI_BAD, 0x2f, 0xfd, 0xff); /* for ever */
    CHECK_RESULT(CFI_BAD, 0x2f, 0xfc, 0xff); /* before the start */
    CHECK_RESULT(CFI_BAD, 0x2f, 1, 0);
    CHECK_RESULT(CFI_BAD, 0x28, 0, 0);
    CHECK_RESULT(CFI_BAD, 0x31, 0x15, 1);
    CHECK_RESULT(CFI_BAD, 0x0e, 1, 2, 3); /* cut */
    CHECK_RESULT(CFI_BAD, 0x10, 0x80);
    CHECK_RESULT(CFI_BAD, 0x50); /* a location, not a value */
    CHECK_RESULT(CFI_BAD, 0x92, 40, 0);
    CHECK_RESULT(CFI_BAD, 0x30, 0x13);             /* nothing is left */
    CHECK_RESULT(CFI_BAD, 0x31, 0x2f, 0xfc, 0xff); /* until the stack is full */
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("cfi_expression");
    TCase *t = tcase_create("cfi_expression");
    tcase_add_test(t, expressions);
    tcase_add_test(t, expressions_that_fail);
    suite_add_tcase(s, t);
    return s;
}
