/* The queue of what waits to be sent: when its first is due, and what goes when it is full. Nobody
 * listens at the destination, and nothing is due before the tests end, but in one_at_a_time. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "test/temp_folder.h"
#include "uploader/sender.h"
#include "uploader/spool_log.h"

enum { MIB = 1 << 20 };

#define PERIOD_NS (1000 * NS_PER_SEC)
#define SPREAD_NS (60 * NS_PER_SEC) /* of a long period */

static struct upload_config config;
static char base[64], folder[80];

static bool never(void)
{
    return false;
}

static void start_with(const char *spool, uint64_t period_ns)
{
    const struct upload_options options = {
        .url = "http://127.0.0.1:1/x", .spool = {spool, 1 << 30}, .period_ns = period_ns};
    upload_config_load(&config, &options, (char *[]){NULL}, 1);
    ck_assert_uint_eq(config.count, 1);
    sender_start(&config, COMPRESSION_NONE, never);
}

static void start(const char *spool)
{
    start_with(spool, PERIOD_NS);
}

static void take(uint32_t sequence, size_t size)
{
    struct blob_header header = {
        .dialect = "pprof", .family = "cpu", .service = "s", .sequence = sequence};
    header.end_unix_ns = clock_realtime_ns();
    struct buffer body = {0};
    char *room = buffer_room(&body, size);
    ck_assert_ptr_nonnull(room);
    memset(room, (int)sequence, size);
    body.size = size;
    sender_take(&header, &body);
    buffer_free(&body);
}

/* Processes that were started together do not come together: of 64, none in the first or in the
 * last quarter is by chance once in fifty million runs. */
START_TEST(first_is_due_at_random)
{
    enum { TIMES = 64 };
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < TIMES; i++) {
        start(NULL);
        uint64_t before = clock_monotonic_ns();
        take(i, 100);
        uint64_t after = clock_monotonic_ns(), due = sender_run();
        ck_assert_uint_ge(due, before);
        ck_assert_uint_le(due, after + SPREAD_NS);
        least = MIN_OF(least, due - before);
        most = MAX_OF(most, due - after);
    }
    ck_assert_uint_lt(least, SPREAD_NS / 4);
    ck_assert_uint_gt(most, 3 * (SPREAD_NS / 4));
}
END_TEST

/* Whoever calls it has files to write, too, and a post may take 10 s. There is no libcurl here, so
 * that each is dropped at its try. */
START_TEST(one_at_a_time)
{
    start_with(NULL, 1);
    for (uint32_t i = 0; i < 3; i++)
        take(i, 100);
    for (unsigned left = 3; left > 0; left--) {
        ck_assert_uint_eq(sender_pending(), left);
        ck_assert_uint_le(sender_run(), clock_monotonic_ns());
    }
    ck_assert_uint_eq(sender_pending(), 0);
    ck_assert_uint_eq(sender_run(), UINT64_MAX);
}
END_TEST

START_TEST(oldest_goes_when_it_is_full)
{
    uint64_t before = stats_get(STAT_UPLOADS_DROPPED);
    start(NULL);
    for (uint32_t i = 0; i < SENDER_QUEUE_LENGTH + 3; i++)
        take(i, 100);
    ck_assert_uint_eq(sender_pending(), SENDER_QUEUE_LENGTH);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), before + 3);
}
END_TEST

START_TEST(bytes_are_bounded)
{
    uint64_t before = stats_get(STAT_UPLOADS_DROPPED);
    start(NULL);
    for (uint32_t i = 0; i < 4; i++)
        take(i, 3 * MIB);
    ck_assert_uint_eq(sender_pending(), 2);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), before + 2);
    take(4, SENDER_QUEUE_BYTES + 1); /* would have no room at all */
    ck_assert_uint_eq(sender_pending(), 2);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), before + 3);
}
END_TEST

/* And all of it at the end, where no time is left. */
START_TEST(what_has_no_room_goes_to_the_spool)
{
    uint64_t dropped = stats_get(STAT_UPLOADS_DROPPED);
    uint64_t spooled = stats_get(STAT_UPLOADS_SPOOLED);
    start(folder);
    for (uint32_t i = 0; i < SENDER_QUEUE_LENGTH + 2; i++)
        take(i, 100);
    ck_assert_int_eq(count_files(folder), 2);
    sender_finish(0, false);
    ck_assert_uint_eq(sender_pending(), 0);
    ck_assert_int_eq(count_files(folder), SENDER_QUEUE_LENGTH + 2);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_SPOOLED), spooled + SENDER_QUEUE_LENGTH + 2);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), dropped);
}
END_TEST

/* Each is counted, and their sum is for the end. */
START_TEST(what_the_spool_does_not_take_is_lost)
{
    uint64_t dropped = stats_get(STAT_UPLOADS_DROPPED);
    start("/proc/no/spool");
    ck_assert(!spool_log_has_losses());
    for (uint32_t i = 0; i < SENDER_QUEUE_LENGTH + 2; i++)
        take(i, 100);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), dropped + 2);
    ck_assert(spool_log_has_losses());
    sender_finish(0, false);
    ck_assert_uint_eq(stats_get(STAT_UPLOADS_DROPPED), dropped + SENDER_QUEUE_LENGTH + 2);
    sender_say_losses();
    ck_assert(!spool_log_has_losses());
}
END_TEST

static void setup(void)
{
    snprintf(base, sizeof(base), "%s", temp_folder_make());
    snprintf(folder, sizeof(folder), "%s/spool", base);
}

static void teardown(void)
{
    sender_finish(0, false);
    temp_folder_remove(base);
}

Suite *suite(void)
{
    Suite *suite = suite_create("sender");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, first_is_due_at_random);
    tcase_add_test(all, one_at_a_time);
    tcase_add_test(all, oldest_goes_when_it_is_full);
    tcase_add_test(all, bytes_are_bounded);
    tcase_add_test(all, what_has_no_room_goes_to_the_spool);
    tcase_add_test(all, what_the_spool_does_not_take_is_lost);
    suite_add_tcase(suite, all);
    return suite;
}
