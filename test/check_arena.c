/* Memory: the budget, the bump allocator, the growing buffer. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/arena.h"
#include "agent/base/buffer.h"
#include "agent/base/sys.h"

static long refused_number;
static int calls_seen, calls_granted;

static bool refuse(long number, const long args[6], long *result)
{
    (void)args;
    if (number != refused_number || calls_seen++ < calls_granted)
        return false;
    *result = -ENOMEM;
    return true;
}

static void refuse_after(long number, int granted)
{
    refused_number = number;
    calls_granted = granted;
    calls_seen = 0;
    sys_override = refuse;
}

START_TEST(the_budget_is_kept_to_the_page)
{
    size_t before = arena_reserved();
    arena_set_budget(before + 3 * 4096);
    ck_assert_uint_eq(arena_budget(), before + 3 * 4096);
    void *two = arena_reserve(4097);
    ck_assert_ptr_nonnull(two);
    ck_assert_uint_eq(arena_reserved(), before + 2 * 4096);
    ck_assert_ptr_null(arena_reserve(4097));
    void *one = arena_reserve(4096);
    ck_assert_ptr_nonnull(one);
    ck_assert_ptr_null(arena_reserve(1));
    arena_set_budget(before + 3 * 4096 + 100); /* less than a page is left */
    ck_assert_ptr_null(arena_reserve(50));
    arena_release(two, 4097);
    ck_assert_uint_eq(arena_reserved(), before + 4096);
    two = arena_reserve(2 * 4096);
    ck_assert_ptr_nonnull(two);
    /* A budget below what is reserved already only refuses more. */
    arena_set_budget(1);
    ck_assert_ptr_null(arena_reserve(1));
    arena_release(one, 4096);
    arena_release(two, 2 * 4096);
    arena_release(NULL, 4096);
    ck_assert_uint_eq(arena_reserved(), before);
    arena_set_budget(SIZE_MAX);
}
END_TEST

START_TEST(sizes_without_sense_are_refused)
{
    size_t before = arena_reserved();
    ck_assert_ptr_null(arena_reserve(0));
    ck_assert_ptr_null(arena_reserve(SIZE_MAX));
    ck_assert_ptr_null(arena_reserve(SIZE_MAX - 4096)); /* the kernel's answer */
    ck_assert_uint_eq(arena_reserved(), before);
}
END_TEST

START_TEST(what_the_kernel_refuses_is_not_counted)
{
    struct arena arena = {0};
    size_t before = arena_reserved();
    refuse_after(SYS_mmap, 0);
    ck_assert_ptr_null(arena_reserve(4096));
    ck_assert_int_eq(arena_create(&arena, 4096), -ENOMEM);
    sys_override = NULL;
    ck_assert_uint_eq(arena_reserved(), before);
    ck_assert_ptr_null(arena_take(&arena, 8));
    arena_destroy(&arena);
}
END_TEST

START_TEST(takes_are_aligned_zero_and_end_with_the_room)
{
    struct arena arena;
    ck_assert_int_eq(arena_create(&arena, 100), 0);
    uint8_t *a = arena_take(&arena, 1), *b = arena_take(&arena, 9), *c = arena_take(&arena, 72);
    ck_assert_ptr_eq(a, arena.base);
    ck_assert_ptr_eq(b, a + 8);
    ck_assert_ptr_eq(c, b + 16);
    for (int i = 0; i < 96; i++)
        ck_assert_uint_eq(a[i], 0);
    ck_assert_ptr_null(arena_take(&arena, 4)); /* 96 are used, and 4 count as 8 */
    arena_clear(&arena);
    ck_assert_ptr_null(arena_take(&arena, 101));
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX));
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX - 6));
    ck_assert_ptr_eq(arena_take(&arena, 96), arena.base);
    arena_destroy(&arena);
    ck_assert_ptr_null(arena.base);
}
END_TEST

START_TEST(a_full_arena_stays_full)
{
    struct arena arena;
    ck_assert_int_eq(arena_create(&arena, 4096), 0);
    ck_assert_ptr_nonnull(arena_take(&arena, 4000));
    ck_assert_ptr_null(arena_take(&arena, 4000));
    size_t used = arena.used;
    for (int i = 0; i < 1000; i++)
        if (arena_take(&arena, 4000))
            ck_abort();
    ck_assert_uint_eq(arena.used, used); /* it cannot wrap around */
    arena_destroy(&arena);
}
END_TEST

enum { TAKERS = 4, TAKES = 50000, TAKE_SIZE = 16 };
static struct arena shared;
static pthread_barrier_t all_ready;
static uint64_t *taken[TAKERS][TAKES];

static void *take_many(void *data)
{
    uint64_t *(*mine)[TAKES] = data;
    pthread_barrier_wait(&all_ready);
    for (int i = 0; i < TAKES; i++) {
        (*mine)[i] = arena_take(&shared, TAKE_SIZE);
        if ((*mine)[i])
            *(*mine)[i] += (uintptr_t) & (*mine)[i]; /* 0 before, or another thread has it too */
    }
    return NULL;
}

static void contend(void)
{
    pthread_t threads[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_many, &taken[i]), 0);
    long got = 0;
    for (int i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < TAKERS; i++) {
        for (int j = 0; j < TAKES; j++) {
            if (!taken[i][j])
                continue;
            got++;
            if (*taken[i][j] != (uintptr_t)&taken[i][j])
                ck_abort_msg("take %d of thread %d has two owners", j, i);
        }
    }
    ck_assert_int_eq(got, TAKERS * TAKES / 2);
}

START_TEST(no_two_threads_get_the_same_bytes)
{
    pthread_barrier_init(&all_ready, NULL, TAKERS);
    /* Room for half of what is asked for. */
    ck_assert_int_eq(arena_create(&shared, (size_t)TAKERS * TAKES * TAKE_SIZE / 2), 0);
    for (int round = 0; round < 20; round++) {
        contend();
        arena_clear(&shared);
    }
    arena_destroy(&shared);
}
END_TEST

static void check_clear(size_t size)
{
    struct arena arena;
    ck_assert_int_eq(arena_create(&arena, 1 << 20), 0);
    memset(arena_take(&arena, size), 0xff, size);
    arena_clear(&arena);
    uint8_t *again = arena_take(&arena, size);
    ck_assert_ptr_eq(again, arena.base);
    for (size_t i = 0; i < size; i++)
        if (again[i] != 0)
            ck_abort_msg("byte %zu of %zu", i, size);
    arena_destroy(&arena);
}

START_TEST(clear_gives_zeroes_again)
{
    static const size_t sizes[] = {8, 4096, 65528, 65536, 65544, 100000, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        check_clear(sizes[i]);
        refuse_after(SYS_madvise, 0); /* as under mlockall */
        check_clear(sizes[i]);
        sys_override = NULL;
    }
}
END_TEST

START_TEST(clear_gives_pages_back)
{
    struct arena arena;
    size_t size = 1 << 20;
    ck_assert_int_eq(arena_create(&arena, size), 0);
    memset(arena_take(&arena, size), 1, size);
    unsigned char resident[256];
    arena_clear(&arena);
    ck_assert_int_eq(mincore(arena.base, size, resident), 0);
    for (size_t i = 0; i < sizeof(resident); i++)
        ck_assert_int_eq(resident[i] & 1, 0);
    arena_destroy(&arena);
}
END_TEST

START_TEST(a_buffer_keeps_its_bytes_while_it_grows)
{
    struct buffer buffer = {0};
    for (uint32_t i = 0; i < 500000; i++)
        buffer_append(&buffer, &i, sizeof(i));
    ck_assert_int_eq(buffer.error, 0);
    ck_assert_uint_eq(buffer.size, 500000 * sizeof(uint32_t));
    ck_assert_uint_ge(buffer.capacity, buffer.size);
    for (uint32_t i = 0; i < 500000; i++) {
        uint32_t value;
        memcpy(&value, buffer.data + i * sizeof(value), sizeof(value));
        if (value != i)
            ck_abort_msg("%u at %u", value, i);
    }
    uintptr_t data = (uintptr_t)buffer.data;
    buffer_free(&buffer);
    ck_assert(!sys_readable(data));
    ck_assert_uint_eq(buffer.size + buffer.capacity, 0);
    ck_assert_ptr_null(buffer.data);
}
END_TEST

START_TEST(room_is_not_in_use_until_said)
{
    struct buffer buffer = {0};
    buffer_append(&buffer, NULL, 0);
    ck_assert_uint_eq(buffer.size, 0);
    buffer_append(&buffer, "ab", 2);
    char *room = buffer_room(&buffer, 1 << 20);
    ck_assert_ptr_eq(room, buffer.data + 2);
    memset(room, 'x', 1 << 20);
    ck_assert_uint_eq(buffer.size, 2);
    buffer_append(&buffer, "cd", 2);
    ck_assert_mem_eq(buffer.data, "abcdxx", 6);
    ck_assert_ptr_nonnull(buffer_room(&buffer, 0));
    buffer_free(&buffer);
    buffer_free(&buffer);
}
END_TEST

static void check_sticky(struct buffer *buffer, size_t size)
{
    ck_assert_int_eq(buffer->error, -ENOMEM);
    sys_override = NULL; /* there would be memory again */
    buffer_append(buffer, "more", 4);
    ck_assert_ptr_null(buffer_room(buffer, 1));
    ck_assert_uint_eq(buffer->size, size);
    ck_assert_int_eq(buffer->error, -ENOMEM);
    buffer_free(buffer);
    ck_assert_int_eq(buffer->error, 0);
    buffer_append(buffer, "more", 4);
    ck_assert_uint_eq(buffer->size, 4);
    buffer_free(buffer);
}

START_TEST(a_failed_growth_is_remembered)
{
    static char block[65536];
    struct buffer buffer = {0};
    refuse_after(SYS_mmap, 0);
    buffer_append(&buffer, "a", 1);
    check_sticky(&buffer, 0);
    refuse_after(SYS_mremap, 1);
    for (int i = 0; i < 3; i++) /* 64 KiB, grown to 128, refused 256 */
        buffer_append(&buffer, block, sizeof(block));
    ck_assert_uint_eq(buffer.size, 2 * sizeof(block));
    ck_assert_mem_eq(buffer.data, block, sizeof(block)); /* still there */
    check_sticky(&buffer, 2 * sizeof(block));
}
END_TEST

START_TEST(a_size_that_wraps_around_is_refused)
{
    struct buffer buffer = {0};
    buffer_append(&buffer, "a", 1);
    ck_assert_ptr_null(buffer_room(&buffer, SIZE_MAX));
    check_sticky(&buffer, 1);
    buffer_append(&buffer, "a", 1);
    ck_assert_ptr_null(buffer_room(&buffer, SIZE_MAX - 1));
    check_sticky(&buffer, 1);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("arena");
    TCase *arenas = tcase_create("arena");
    tcase_add_test(arenas, the_budget_is_kept_to_the_page);
    tcase_add_test(arenas, sizes_without_sense_are_refused);
    tcase_add_test(arenas, what_the_kernel_refuses_is_not_counted);
    tcase_add_test(arenas, takes_are_aligned_zero_and_end_with_the_room);
    tcase_add_test(arenas, a_full_arena_stays_full);
    tcase_add_test(arenas, no_two_threads_get_the_same_bytes);
    tcase_add_test(arenas, clear_gives_zeroes_again);
    tcase_add_test(arenas, clear_gives_pages_back);
    suite_add_tcase(suite, arenas);
    TCase *buffers = tcase_create("buffer");
    tcase_add_test(buffers, a_buffer_keeps_its_bytes_while_it_grows);
    tcase_add_test(buffers, room_is_not_in_use_until_said);
    tcase_add_test(buffers, a_failed_growth_is_remembered);
    tcase_add_test(buffers, a_size_that_wraps_around_is_refused);
    suite_add_tcase(suite, buffers);
    return suite;
}
