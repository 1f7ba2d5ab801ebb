/* The spool: what is put comes back whole, oldest first, once, also where several look; limits;
 * what was left. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "test/spool_fixture.h"
#include "test/temp_folder.h"

static const uint64_t hour = 3600 * NS_PER_SEC;

START_TEST(what_is_put_comes_back)
{
    struct spool_entry entry = make_profile(BACKEND_PARCA, spool_now, 3000);
    strcpy(entry.identity.container, "c");
    ck_assert_int_eq(spool_put(&test_spool, &entry, spool_now, &spool_lost), 0);
    struct stat status;
    ck_assert_int_eq(stat(spool_folder, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0700);
    ck_assert_int_eq(claim_profile(BACKEND_PYROSCOPE), 0);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    ck_assert_uint_eq(spool_got.body.size, 3000);
    ck_assert_mem_eq(spool_got.body.data, entry.body.data, 3000);
    ck_assert_str_eq(spool_got.header.family, "cpu");
    ck_assert_str_eq(spool_got.header.service, "a service");
    ck_assert_uint_eq(spool_got.header.start_unix_ns, spool_now - 5);
    ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now);
    ck_assert_uint_eq(spool_got.header.sequence, 7);
    ck_assert_str_eq(spool_got.identity.tags.text, "env:a b,x:y");
    ck_assert_str_eq(spool_got.identity.host, "h");
    ck_assert_str_eq(spool_got.identity.container, "c");
    ck_assert_str_eq(spool_got.identity.entity, "");
    ck_assert_int_eq(spool_got.identity.pid, 42);
    ck_assert_uint_eq(spool_got.plain_size, 1000);
    ck_assert_uint_eq(spool_got.random[0], spool_now * 3);
    ck_assert_uint_eq(spool_got.random[1], UINT64_MAX);
    /* Nobody else has it meanwhile. */
    char name[SPOOL_NAME_SIZE];
    strcpy(name, spool_got.name);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
    spool_give_back(&test_spool, name);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    spool_end(&test_spool, spool_got.name);
    ck_assert_int_eq(count_files(spool_folder), 0);
    ck_assert_uint_eq(spool_lost.dropped + spool_lost.unknown, 0);
    buffer_free(&entry.body);
}
END_TEST

/* What the second of a kind did not get is not sent to the first, and not the other way round. */
START_TEST(each_of_a_kind_has_its_own)
{
    for (unsigned place = 0; place < 3; place++) {
        struct spool_entry entry = make_profile(BACKEND_PYROSCOPE, spool_now - place, 10 + place);
        entry.place = place;
        ck_assert_int_eq(spool_put(&test_spool, &entry, spool_now, &spool_lost), 0);
        buffer_free(&entry.body);
    }
    for (unsigned place = 0; place < 3; place++) {
        ck_assert_int_eq(claim_profile_for(BACKEND_PARCA, place), 0);
        ck_assert_int_eq(claim_profile_for(BACKEND_PYROSCOPE, place), 1);
        ck_assert_uint_eq(spool_got.body.size, 10 + place);
        ck_assert_uint_eq(spool_got.place, place);
        ck_assert_int_eq(claim_profile_for(BACKEND_PYROSCOPE, place), 0);
        spool_give_back(&test_spool, spool_got.name);
        ck_assert_int_eq(claim_profile_for(BACKEND_PYROSCOPE, place), 1);
    }
    ck_assert_uint_eq(spool_lost.dropped + spool_lost.unknown, 0);
    /* The age limit is that of the kind. */
    struct spool_entry entry =
        make_profile(BACKEND_PYROSCOPE, spool_now - SPOOL_AGE_PYROSCOPE_NS - 1, 10);
    entry.place = 1;
    ck_assert_int_eq(spool_put(&test_spool, &entry, spool_now, &spool_lost), 0);
    buffer_free(&entry.body);
    ck_assert_int_eq(claim_profile_for(BACKEND_PYROSCOPE, 1), 0);
    ck_assert_uint_eq(spool_lost.dropped, 1);
}
END_TEST

START_TEST(oldest_first)
{
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(put_profile(BACKEND_POST, spool_now - (uint64_t)(i * 7 % 20), 10), 0);
    for (uint64_t i = 20; i-- > 0;) {
        ck_assert_int_eq(claim_profile(BACKEND_POST), 1);
        ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now - i);
    }
    ck_assert_int_eq(claim_profile(BACKEND_POST), 0);
}
END_TEST

START_TEST(limits)
{
    test_spool.limit = 5000;
    for (uint64_t i = 0; i < 10; i++)
        ck_assert_int_eq(put_profile(BACKEND_POST, spool_now + i, 1000), 0);
    ck_assert_uint_eq(spool_lost.dropped + (unsigned)count_files(spool_folder), 10);
    ck_assert_int_ge(count_files(spool_folder), 3);
    ck_assert_int_eq(claim_profile(BACKEND_POST), 1);
    ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + spool_lost.dropped);
    ck_assert_int_eq(put_profile(BACKEND_POST, spool_now, 6000), -EFBIG);
    /* Age: each kind its own. */
    spool_lost.dropped = 0;
    test_spool.limit = 1 << 20;
    ck_assert_int_eq(put_profile(BACKEND_PYROSCOPE, spool_now - hour, 10), 0);
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now - hour, 10), 0);
    ck_assert_int_eq(put_profile(BACKEND_DATADOG, spool_now - 25 * hour, 10), 0);
    ck_assert_int_eq(claim_profile(BACKEND_PYROSCOPE), 0);
    ck_assert_int_eq(claim_profile(BACKEND_DATADOG), 0);
    ck_assert_uint_eq(spool_lost.dropped, 2);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
}
END_TEST

/* Of a process that was killed while it sent. */
START_TEST(left_claims_are_unknown)
{
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now - 2 * hour, 10), 0);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    /* It was claimed just now, however old it is. */
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
    ck_assert_uint_eq(spool_lost.unknown, 0);
    ck_assert_int_eq(count_files(spool_folder), 1);
    spool_now += 2 * hour;
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 0);
    ck_assert_uint_eq(spool_lost.unknown, 1);
    ck_assert_int_eq(count_files(spool_folder), 0);
}
END_TEST

static int looks;

static bool count_looks(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    looks += number == SYS_newfstatat;
    return false;
}

/* One each, of the claimed one. */
START_TEST(many_cost_no_look_at_each)
{
    enum { COUNT = 300 };
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, 10), 0);
    sys_override = count_looks;
    for (uint64_t i = 0; i < 10; i++) {
        ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
        ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + i);
        spool_give_back(&test_spool, spool_got.name);
        ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
        spool_end(&test_spool, spool_got.name);
    }
    sys_override = NULL;
    ck_assert_int_eq(looks, 2 * 10);
}
END_TEST

/* One each, of the folder, for its mode: with this limit a put looks at all files about once in ten
 * million, at some of them in these once in 30,000 runs. */
START_TEST(many_cost_no_look_at_each_put)
{
    enum { COUNT = 300 };
    test_spool.limit = (uint64_t)1024 << 30;
    sys_override = count_looks;
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, 10), 0);
    sys_override = NULL;
    ck_assert_int_eq(looks, COUNT);
}
END_TEST

static uint64_t bytes_in_folder(void)
{
    struct stat status;
    uint64_t bytes = 0;
    char *names = list_folder(spool_folder);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        ck_assert_int_eq(stat(in_folder(spool_folder, name), &status), 0);
        bytes += (uint64_t)status.st_size;
    }
    free(names);
    return bytes;
}

/* More than twice the limit of small files. The last look left a 32nd of the limit; that since then
 * a 16th and more was written without one is e^-16. The oldest have gone, and are counted. */
START_TEST(the_limit_of_small_files)
{
    enum { SIZE = 10, COUNT = 1000 };
    test_spool.limit = 96 << 10;
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, SIZE), 0);
    ck_assert_uint_gt(spool_lost.dropped, COUNT / 2);
    ck_assert_uint_le(bytes_in_folder(), test_spool.limit + test_spool.limit / 32);
    ck_assert_uint_ge(bytes_in_folder(), test_spool.limit / 2);
    ck_assert_uint_eq(spool_lost.dropped + (unsigned)count_files(spool_folder), COUNT);
    ck_assert_int_eq(claim_profile(BACKEND_PARCA), 1);
    ck_assert_uint_eq(spool_got.header.end_unix_ns, spool_now + spool_lost.dropped);
}
END_TEST

enum { RACERS = 4, RACED = 300 };

/* Written by all of them. */
struct race {
    int sent[RACED], given_back[RACED];
};

/* Until nothing is left. Each third goes back once. */
static void race(struct race *race)
{
    int result;
    while ((result = claim_profile(BACKEND_PARCA)) == 1) {
        size_t i = spool_got.header.end_unix_ns - spool_now;
        if (i % 3 == 0 && !__atomic_exchange_n(&race->given_back[i], 1, __ATOMIC_RELAXED)) {
            spool_give_back(&test_spool, spool_got.name);
        } else {
            __atomic_fetch_add(&race->sent[i], 1, __ATOMIC_RELAXED);
            spool_end(&test_spool, spool_got.name);
        }
    }
    ck_assert_int_eq(result, 0);
}

START_TEST(each_is_claimed_by_one)
{
    struct race *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[RACERS];
    int status;
    ck_assert_ptr_ne(shared, MAP_FAILED);
    for (uint64_t i = 0; i < RACED; i++)
        ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now + i, 10), 0);
    for (int i = 0; i < RACERS; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            race(shared);
            _exit(spool_lost.dropped + spool_lost.unknown ? 1 : 0);
        }
    }
    for (int i = 0; i < RACERS; i++) {
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    race(shared); /* one may have gone back behind the last look */
    for (int i = 0; i < RACED; i++)
        ck_assert_msg(shared->sent[i] == 1, "%d: %d times", i, shared->sent[i]);
    ck_assert_int_eq(count_files(spool_folder), 0);
}
END_TEST

START_TEST(shared_folder)
{
    struct stat status;
    ck_assert_int_eq(mkdir(spool_folder, 0700), 0);
    ck_assert_int_eq(put_profile(BACKEND_PARCA, spool_now, 10), 0);
    ck_assert_int_eq(chmod(spool_folder, 02770), 0);
    ck_assert_int_eq(put_profile(BACKEND_POST, spool_now, 10), 0);
    char *names = list_folder(spool_folder);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        ck_assert_int_eq(stat(in_folder(spool_folder, name), &status), 0);
        ck_assert_uint_eq(status.st_mode & 07777, strstr(name, "post") ? 0660 : 0600);
    }
    free(names);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("spool");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, spool_fixture_start, spool_fixture_end);
    tcase_add_test(all, what_is_put_comes_back);
    tcase_add_test(all, each_of_a_kind_has_its_own);
    tcase_add_test(all, oldest_first);
    tcase_add_test(all, limits);
    tcase_add_test(all, left_claims_are_unknown);
    tcase_add_test(all, many_cost_no_look_at_each);
    tcase_add_test(all, many_cost_no_look_at_each_put);
    tcase_add_test(all, the_limit_of_small_files);
    tcase_add_test(all, each_is_claimed_by_one);
    tcase_add_test(all, shared_folder);
    suite_add_tcase(suite, all);
    return suite;
}
