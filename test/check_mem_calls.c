/* The functions on memory and text of libagent.so against libc's, under names of their own: here
 * the program's are libc's. */
#define memcpy  own_memcpy
#define memmove own_memmove
#define memset  own_memset
#define memcmp  own_memcmp
#define bcmp    own_bcmp
#define memchr  own_memchr
#define strlen  own_strlen
#define strchr  own_strchr
#define strcmp  own_strcmp
#define strncmp own_strncmp
#define strstr  own_strstr
#undef LIBAGENT_TEST
#include "agent/base/mem_calls.c" // NOLINT(bugprone-suspicious-include)
#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef bcmp
#undef memchr
#undef strlen
#undef strchr
#undef strcmp
#undef strncmp
#undef strstr

int strcmp(const char *one, const char *other);

#include "agent/base/rng.h"
#include "test/check.h"

enum { ROOM = 1024, OFFSETS = 16, ROUNDS = 3000 };

static struct rng rng = {1};
static unsigned char mine[ROOM], theirs[ROOM], source[ROOM];

static size_t draw(size_t below)
{
    return (size_t)(rng_next(&rng) % below);
}

static void fill(unsigned char *bytes, unsigned kinds)
{
    for (size_t i = 0; i < ROOM; i++)
        bytes[i] = (unsigned char)(draw(kinds) * 255 / kinds);
}

START_TEST(memory_is_written_as_libc_writes_it)
{
    fill(source, 256);
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = draw(round % 2 ? 600 : 40), to = draw(OFFSETS), from = draw(OFFSETS);
        int value = (int)draw(1000);
        fill(mine, 256);
        __builtin_memcpy(theirs, mine, ROOM);
        switch (round % 3) {
        case 0:
            ck_assert_ptr_eq(own_memcpy(mine + to, source + from, size), mine + to);
            __builtin_memcpy(theirs + to, source + from, size);
            break;
        case 1: /* onto itself, up or down */
            ck_assert_ptr_eq(own_memmove(mine + to, mine + from, size), mine + to);
            __builtin_memmove(theirs + to, theirs + from, size);
            break;
        default:
            ck_assert_ptr_eq(own_memset(mine + to, value, size), mine + to);
            __builtin_memset(theirs + to, value, size);
        }
        ck_assert_msg(__builtin_memcmp(mine, theirs, ROOM) == 0, "%zu bytes, to %zu, from %zu",
                      size, to, from);
    }
}
END_TEST

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

START_TEST(memory_is_compared_as_libc_compares_it)
{
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = draw(100), at = draw(OFFSETS), differs = draw(100);
        fill(mine, 256);
        __builtin_memcpy(theirs, mine, ROOM);
        if (round % 4)
            theirs[at + differs] ^= (unsigned char)(1 + draw(255));
        int want = sign(__builtin_memcmp(mine + at, theirs + at, size));
        ck_assert_int_eq(sign(own_memcmp(mine + at, theirs + at, size)), want);
        ck_assert_int_eq(own_bcmp(mine + at, theirs + at, size) != 0, want != 0);
        int value = (int)draw(256) - 128 * (round % 2);
        ck_assert_ptr_eq(own_memchr(mine + at, value, size),
                         __builtin_memchr(mine + at, value, size));
    }
}
END_TEST

START_TEST(texts_are_read_as_libc_reads_them)
{
    for (int round = 0; round < ROUNDS; round++) {
        /* Of few letters, so that much is equal and found. */
        fill(mine, 3);
        fill(theirs, 3);
        size_t at = draw(OFFSETS), size = draw(20), part = draw(4);
        char *text = (char *)mine + at, *other = (char *)theirs;
        text[draw(60)] = 0;
        other[draw(8)] = 0;
        if (round % 2)
            __builtin_memcpy(text, other, part);
        ck_assert_uint_eq(own_strlen(text), __builtin_strlen(text));
        ck_assert_int_eq(sign(own_strcmp(text, other)), sign(__builtin_strcmp(text, other)));
        ck_assert_int_eq(sign(own_strncmp(text, other, size)),
                         sign(__builtin_strncmp(text, other, size)));
        ck_assert_ptr_eq(own_strstr(text, other), __builtin_strstr(text, other));
        for (int value = 0; value < 256; value += 85)
            ck_assert_ptr_eq(own_strchr(text, value), __builtin_strchr(text, value));
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("mem_calls");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, memory_is_written_as_libc_writes_it);
    tcase_add_test(all, memory_is_compared_as_libc_compares_it);
    tcase_add_test(all, texts_are_read_as_libc_reads_them);
    suite_add_tcase(suite, all);
    return suite;
}
