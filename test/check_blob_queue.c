/* The queue of profiles: order, and what makes room for what. */
#include "test/check.h"

#include "uploader/blob_queue.h"

static struct blob_queue queue;

/* Bodies are not looked at here. */
static struct blob blob_of(uint32_t sequence, size_t bytes)
{
    return (struct blob){.header.sequence = sequence, .body.capacity = bytes};
}

static void put(uint32_t sequence, size_t bytes)
{
    struct blob blob = blob_of(sequence, bytes), oldest;
    ck_assert(!blob_queue_put(&queue, &blob, &oldest));
}

/* It has room after so many have gone, which are of that window. */
static void put_after(uint32_t sequence, size_t bytes, uint32_t gone, uint32_t of)
{
    struct blob blob = blob_of(sequence, bytes), oldest;
    for (; gone > 0; gone--) {
        ck_assert(blob_queue_put(&queue, &blob, &oldest));
        ck_assert_uint_eq(oldest.header.sequence, of);
    }
    ck_assert(!blob_queue_put(&queue, &blob, &oldest));
}

static void expect(uint32_t sequence)
{
    ck_assert_uint_gt(blob_queue_count(&queue), 0);
    ck_assert_uint_eq(blob_queue_take(&queue).header.sequence, sequence);
}

START_TEST(the_oldest_comes_first)
{
    /* Round and round. */
    for (uint32_t i = 0; i < 3 * UPLOADER_QUEUE_LENGTH; i++) {
        put(i, 1);
        if (i >= 5)
            expect(i - 5);
    }
    struct blob back = blob_queue_take(&queue);
    ck_assert(blob_queue_put_back(&queue, &back));
    for (uint32_t i = 3 * UPLOADER_QUEUE_LENGTH - 5; i < 3 * UPLOADER_QUEUE_LENGTH; i++)
        expect(i);
    ck_assert_uint_eq(blob_queue_count(&queue), 0);
    ck_assert_uint_eq(queue.windows.bytes, 0);
}
END_TEST

START_TEST(so_many_and_no_more)
{
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH; i++)
        put(i, 1);
    struct blob blob = blob_of(UPLOADER_QUEUE_LENGTH, 1);
    ck_assert(!blob_queue_put_back(&queue, &blob));
    put_after(UPLOADER_QUEUE_LENGTH, 1, 1, 0);
    expect(1);
    ck_assert(blob_queue_put_back(&queue, &blob));
    expect(UPLOADER_QUEUE_LENGTH);
    expect(2);
}
END_TEST

/* A disk is full: earlier windows go. A large window: all of it stays. */
START_TEST(bytes_of_earlier_windows)
{
    const size_t third = UPLOADER_QUEUE_BYTES / 3;
    put(0, third);
    put(0, third);
    put(1, third);
    put_after(1, third, 1, 0);
    put_after(1, third, 1, 0);
    for (int i = 0; i < 9; i++)
        put(1, UPLOADER_QUEUE_BYTES);
    put_after(2, 1, 12, 1);
    expect(2);
    /* One that is larger than all that may be comes alone. */
    put(3, 2 * (size_t)UPLOADER_QUEUE_BYTES);
    put_after(4, 1, 1, 3);
    blob_queue_forget(&queue);
    ck_assert_uint_eq(blob_queue_count(&queue), 0);
    put(5, UPLOADER_QUEUE_BYTES);
}
END_TEST

START_TEST(captures_have_room_of_their_own)
{
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH; i++)
        put(i, UPLOADER_QUEUE_BYTES / UPLOADER_QUEUE_LENGTH);
    struct blob capture = blob_of(7, UPLOADER_QUEUE_BYTES), oldest;
    capture.header.capture[0] = 'c';
    for (int i = 0; i < UPLOADER_CAPTURES_QUEUE_LENGTH; i++)
        ck_assert(!blob_queue_put(&queue, &capture, &oldest));
    ck_assert(blob_queue_put(&queue, &capture, &oldest));
    ck_assert_int_eq(oldest.header.capture[0], 'c');
    for (uint32_t i = 0; i < UPLOADER_QUEUE_LENGTH; i++)
        expect(i);
    expect(7);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("blob_queue");
    TCase *all = tcase_create("all");
    tcase_add_test(all, the_oldest_comes_first);
    tcase_add_test(all, so_many_and_no_more);
    tcase_add_test(all, bytes_of_earlier_windows);
    tcase_add_test(all, captures_have_room_of_their_own);
    suite_add_tcase(suite, all);
    return suite;
}
