/* The live heap's table of stacks and threads: a key is there as long as somebody refers to it, and
 * is the same as the windows' table has it. */
#include "test/check.h"

#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/rng.h"
#include "agent/record/counted_table.h"
#include "agent/record/intern_table.h"
#include "test/demand.h"

enum { MIB = 1 << 20 };

START_TEST(a_stack_is_alike_to_window_and_live_heap)
{
    enum { STACKS = 3000, FRAMES = 40 };
    struct intern_table windows;
    struct counted_table live;
    struct rng rng = {_i + 1};
    static uint64_t keys[STACKS][FRAMES + 1];
    static uint32_t words[STACKS], refs[STACKS];
    static struct intern_entry *entries[STACKS];
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(intern_create(&windows, 8 * MIB, 16384), 0);
    ck_assert_int_eq(counted_create(&live, 8 * MIB), 0);
    for (int i = 0; i < STACKS; i++) {
        /* Few frames of few values: a good part of them are the same stack. */
        words[i] = 1 + (uint32_t)(rng_next(&rng) % (i % 2 ? 4 : FRAMES));
        for (uint32_t k = 0; k < words[i]; k++)
            keys[i][k] = rng_next(&rng) % (i % 2 ? 3 : 1000000);
        demand(entries[i] = intern(&windows, keys[i], words[i], 0));
        demand(refs[i] = counted_hold(&live, keys[i], words[i]));
        const struct counted_entry *entry = counted_at(&live, refs[i]);
        demand(entry->words == entries[i]->words);
        demand(memcmp(entry->key, entries[i]->data, words[i] * sizeof(uint64_t)) == 0);
        demand(entries[i]->hash == (uint32_t)(intern_hash(keys[i], words[i]) >> 32));
        demand(entry->hash == (uint32_t)intern_hash(keys[i], words[i]));
    }
    uint32_t pairs = 0;
    for (int i = 0; i < STACKS; i++)
        for (int k = 0; k < i; k++) {
            demand((entries[i] == entries[k]) == (refs[i] == refs[k]));
            pairs += refs[i] == refs[k];
        }
    ck_assert_uint_gt(pairs, STACKS);
    counted_destroy(&live);
    intern_destroy(&windows);
}
END_TEST

START_TEST(a_key_goes_with_its_last_reference)
{
    struct counted_table table;
    uint64_t key[COUNTED_WORDS_MAX + 1] = {1, 2, 3};
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(counted_create(&table, 2 * MIB), 0);
    uint32_t ref = counted_hold(&table, key, 3);
    ck_assert_uint_eq(counted_hold(&table, key, 3), ref);
    counted_share(&table, ref);
    ck_assert_uint_eq(counted_at(&table, ref)->count, 3);
    for (int i = 0; i < 2; i++)
        counted_drop(&table, ref);
    ck_assert_uint_eq(counted_at(&table, ref)->count, 1);
    uint32_t shard = (ref - 1) / table.rooms;
    ck_assert_uint_eq(table.shards[shard].entries, 1);
    counted_drop(&table, ref);
    ck_assert_uint_eq(table.shards[shard].entries, 0);
    /* A busy shard: the next one serves, and the dead wait. */
    uint32_t home = (ref - 1) / table.rooms;
    ref = counted_hold(&table, key, 3);
    table.shards[home].lock = 1;
    uint32_t other = counted_hold(&table, key, 3);
    ck_assert_uint_ne(other, 0);
    ck_assert_uint_ne(other, ref);
    counted_drop(&table, ref);
    ck_assert_uint_eq(table.shards[home].dead, ref);
    ck_assert_uint_eq(counted_drain(&table), 0);
    table.shards[home].lock = 0;
    ck_assert_uint_eq(counted_drain(&table), 1);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        table.shards[i].lock = 1;
    ck_assert_uint_eq(counted_hold(&table, key, 3), 0);
    counted_reset_in_child(&table);
    ck_assert_uint_eq(counted_at(&table, other)->key[2], 3);
    counted_drop(&table, other);
    ck_assert_uint_ne(counted_hold(&table, key, COUNTED_WORDS_MAX), 0);
    ck_assert_uint_eq(counted_hold(&table, key, COUNTED_WORDS_MAX + 1), 0);
    counted_destroy(&table);
}
END_TEST

/* Keys of all sizes come and go, in an order drawn at random. */
START_TEST(keys_come_and_go)
{
    enum { KEYS = 400, ROUNDS = 200000 };
    struct counted_table table;
    struct rng rng = {5};
    static uint32_t refs[KEYS];
    static uint64_t key[COUNTED_WORDS_MAX];
    arena_set_budget(SIZE_MAX);
    ck_assert_int_eq(counted_create(&table, MIB), 0);
    uint32_t refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t which = (uint32_t)(rng_next(&rng) % KEYS);
        uint32_t words = 1 + which * 2;
        if (refs[which]) {
            demand(counted_at(&table, refs[which])->words == words);
            for (uint32_t i = 0; i < words; i++)
                demand(counted_at(&table, refs[which])->key[i] == which);
            counted_drop(&table, refs[which]);
            refs[which] = 0;
            continue;
        }
        for (uint32_t i = 0; i < words; i++)
            key[i] = which;
        refs[which] = counted_hold(&table, key, words);
        refused += refs[which] == 0;
    }
    /* 400 keys of 3.3 KiB in the mean, half of them there at a time, are two thirds of it; what is
     * refused had a shard that was full. */
    ck_assert_uint_lt(refused, ROUNDS / 4);
    for (uint32_t i = 0; i < KEYS; i++)
        if (refs[i])
            counted_drop(&table, refs[i]);
    for (int i = 0; i < COUNTED_SHARDS; i++)
        ck_assert_uint_eq(table.shards[i].in_use + table.shards[i].entries, 0);
    counted_destroy(&table);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("counted_table");
    TCase *tcase = tcase_create("keys");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_stack_is_alike_to_window_and_live_heap, 0, 3);
    tcase_add_test(tcase, a_key_goes_with_its_last_reference);
    tcase_add_test(tcase, keys_come_and_go);
    suite_add_tcase(suite, tcase);
    return suite;
}
