/* The rule cache alone: what goes in comes out, and nothing else is found. */
#include "test/check.h"

#include "agent/unwind/rule_cache.h"

static uintptr_t pc_of(uintptr_t i)
{
    return (0x2aaa80000000 + i * 13) << UNWIND_PC_SPARE_BITS;
}

static uintptr_t other_pc_of(uintptr_t i)
{
    return (0x2aaa80000001 + i * 13) << UNWIND_PC_SPARE_BITS;
}

START_TEST(cache_keeps_pairs_and_drops_the_oldest)
{
    ck_assert_int_eq(rule_cache_start(), 0);
    /* Every rule comes back as it went in, also next to 16,383 others; nothing else is found. */
    uint32_t kept = 0;
    for (uintptr_t i = 0; i < 16384; i++)
        rule_store(7, pc_of(i), rule_make(RULE_SP, i % 64, (int32_t)(i % 8000) * 8));
    for (uintptr_t i = 0; i < 16384; i++) {
        uint64_t rule = rule_lookup(7, pc_of(i));
        if (rule_kind(rule) == RULE_NONE)
            continue;
        kept++;
        ck_assert_uint_eq(rule_kind(rule), RULE_SP);
        ck_assert_uint_eq(rule_slot(rule), i % 64);
        ck_assert_int_eq(rule_offset(rule), (intptr_t)(i % 8000) * 8);
        ck_assert_uint_eq(rule_kind(rule_lookup(8, pc_of(i))), RULE_NONE);
        ck_assert_uint_eq(rule_kind(rule_lookup(7 + 64, pc_of(i))), RULE_NONE);
        ck_assert_uint_eq(rule_kind(rule_lookup(7, other_pc_of(i))), RULE_NONE);
    }
    ck_assert_uint_gt(kept, 16384 * 6 / 10); /* two ways hold 73 % of as many random keys */
    ck_assert_int_eq(rule_offset(rule_make(RULE_FP_DEREF, 63, -65536)), -65536);
    ck_assert_int_eq(rule_offset(rule_make(RULE_FP, 0, RULE_OFFSET_MAX)), RULE_OFFSET_MAX);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("rule_cache");
    TCase *t = tcase_create("rule_cache");
    tcase_add_test(t, cache_keeps_pairs_and_drops_the_oldest);
    suite_add_tcase(s, t);
    return s;
}
