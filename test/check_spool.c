/* The spool: what is put comes back whole, oldest first, once, also where several look; limits;
 * what was torn or left. */
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
#include "test/temp_folder.h"
#include "uploader/spool_head.h"

static char base[64], folder[80];
static struct spool spool;
static struct spool_losses losses;
static struct spool_entry got;
static const uint64_t hour = 3600 * NS_PER_SEC;
static uint64_t now;

static void setup(void)
{
    snprintf(base, sizeof(base), "%s", temp_folder_make());
    snprintf(folder, sizeof(folder), "%s/spool", base);
    spool = (struct spool){folder, 1 << 20};
    losses = (struct spool_losses){0};
    got = (struct spool_entry){.name = ""};
    now = clock_realtime_ns();
}

static void teardown(void)
{
    fault_clear();
    buffer_free(&got.body);
    temp_folder_remove(base);
}

static struct spool_entry make_entry(enum backend_kind kind, uint64_t end, size_t size)
{
    struct spool_entry entry = {.kind = kind,
                                .header = {.family = "cpu",
                                           .service = "a service",
                                           .start_unix_ns = end - 5,
                                           .end_unix_ns = end,
                                           .sequence = 7},
                                .identity = {.host = "h", .runtime = "r", .pid = 42},
                                .plain_size = 1000,
                                .random = {end * 3, UINT64_MAX}};
    ck_assert_ptr_null(tags_add_list(&entry.identity.tags, "env:a b,x:y", false));
    for (size_t i = 0; i < size; i++)
        buffer_append(&entry.body, &(char){(char)(end + i)}, 1);
    return entry;
}

static int put(enum backend_kind kind, uint64_t end, size_t size)
{
    struct spool_entry entry = make_entry(kind, end, size);
    int error = spool_put(&spool, &entry, now, &losses);
    buffer_free(&entry.body);
    return error;
}

static int claim_for(enum backend_kind kind, unsigned place)
{
    buffer_free(&got.body);
    return spool_claim(&spool, kind, place, now, &got, &losses);
}

static int claim(enum backend_kind kind)
{
    return claim_for(kind, 0);
}

START_TEST(what_is_put_comes_back)
{
    struct spool_entry entry = make_entry(BACKEND_PARCA, now, 3000);
    strcpy(entry.identity.container, "c");
    ck_assert_int_eq(spool_put(&spool, &entry, now, &losses), 0);
    struct stat status;
    ck_assert_int_eq(stat(folder, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0700);
    ck_assert_int_eq(claim(BACKEND_PYROSCOPE), 0);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    ck_assert_uint_eq(got.body.size, 3000);
    ck_assert_mem_eq(got.body.data, entry.body.data, 3000);
    ck_assert_str_eq(got.header.family, "cpu");
    ck_assert_str_eq(got.header.service, "a service");
    ck_assert_uint_eq(got.header.start_unix_ns, now - 5);
    ck_assert_uint_eq(got.header.end_unix_ns, now);
    ck_assert_uint_eq(got.header.sequence, 7);
    ck_assert_str_eq(got.identity.tags.text, "env:a b,x:y");
    ck_assert_str_eq(got.identity.host, "h");
    ck_assert_str_eq(got.identity.container, "c");
    ck_assert_str_eq(got.identity.entity, "");
    ck_assert_int_eq(got.identity.pid, 42);
    ck_assert_uint_eq(got.plain_size, 1000);
    ck_assert_uint_eq(got.random[0], now * 3);
    ck_assert_uint_eq(got.random[1], UINT64_MAX);
    /* Nobody else has it meanwhile. */
    char name[SPOOL_NAME_SIZE];
    strcpy(name, got.name);
    ck_assert_int_eq(claim(BACKEND_PARCA), 0);
    spool_give_back(&spool, name);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    spool_end(&spool, got.name);
    ck_assert_int_eq(count_files(folder), 0);
    ck_assert_uint_eq(losses.dropped + losses.unknown, 0);
    buffer_free(&entry.body);
}
END_TEST

/* What the second of a kind did not get is not sent to the first, and not the other way round. */
START_TEST(each_of_a_kind_has_its_own)
{
    for (unsigned place = 0; place < 3; place++) {
        struct spool_entry entry = make_entry(BACKEND_PYROSCOPE, now - place, 10 + place);
        entry.place = place;
        ck_assert_int_eq(spool_put(&spool, &entry, now, &losses), 0);
        buffer_free(&entry.body);
    }
    for (unsigned place = 0; place < 3; place++) {
        ck_assert_int_eq(claim_for(BACKEND_PARCA, place), 0);
        ck_assert_int_eq(claim_for(BACKEND_PYROSCOPE, place), 1);
        ck_assert_uint_eq(got.body.size, 10 + place);
        ck_assert_uint_eq(got.place, place);
        ck_assert_int_eq(claim_for(BACKEND_PYROSCOPE, place), 0);
        spool_give_back(&spool, got.name);
        ck_assert_int_eq(claim_for(BACKEND_PYROSCOPE, place), 1);
    }
    ck_assert_uint_eq(losses.dropped + losses.unknown, 0);
    /* The age limit is that of the kind. */
    struct spool_entry entry = make_entry(BACKEND_PYROSCOPE, now - SPOOL_AGE_PYROSCOPE_NS - 1, 10);
    entry.place = 1;
    ck_assert_int_eq(spool_put(&spool, &entry, now, &losses), 0);
    buffer_free(&entry.body);
    ck_assert_int_eq(claim_for(BACKEND_PYROSCOPE, 1), 0);
    ck_assert_uint_eq(losses.dropped, 1);
}
END_TEST

START_TEST(oldest_first)
{
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(put(BACKEND_POST, now - (uint64_t)(i * 7 % 20), 10), 0);
    for (uint64_t i = 20; i-- > 0;) {
        ck_assert_int_eq(claim(BACKEND_POST), 1);
        ck_assert_uint_eq(got.header.end_unix_ns, now - i);
    }
    ck_assert_int_eq(claim(BACKEND_POST), 0);
}
END_TEST

START_TEST(limits)
{
    spool.limit = 5000;
    for (uint64_t i = 0; i < 10; i++)
        ck_assert_int_eq(put(BACKEND_POST, now + i, 1000), 0);
    ck_assert_uint_eq(losses.dropped + (unsigned)count_files(folder), 10);
    ck_assert_int_ge(count_files(folder), 3);
    ck_assert_int_eq(claim(BACKEND_POST), 1);
    ck_assert_uint_eq(got.header.end_unix_ns, now + losses.dropped);
    ck_assert_int_eq(put(BACKEND_POST, now, 6000), -EFBIG);
    /* Age: each kind its own. */
    losses.dropped = 0;
    spool.limit = 1 << 20;
    ck_assert_int_eq(put(BACKEND_PYROSCOPE, now - hour, 10), 0);
    ck_assert_int_eq(put(BACKEND_PARCA, now - hour, 10), 0);
    ck_assert_int_eq(put(BACKEND_DATADOG, now - 25 * hour, 10), 0);
    ck_assert_int_eq(claim(BACKEND_PYROSCOPE), 0);
    ck_assert_int_eq(claim(BACKEND_DATADOG), 0);
    ck_assert_uint_eq(losses.dropped, 2);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
}
END_TEST

/* Of a process that was killed while it sent. */
START_TEST(left_claims_are_unknown)
{
    ck_assert_int_eq(put(BACKEND_PARCA, now - 2 * hour, 10), 0);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    /* It was claimed just now, however old it is. */
    ck_assert_int_eq(claim(BACKEND_PARCA), 0);
    ck_assert_uint_eq(losses.unknown, 0);
    ck_assert_int_eq(count_files(folder), 1);
    now += 2 * hour;
    ck_assert_int_eq(claim(BACKEND_PARCA), 0);
    ck_assert_uint_eq(losses.unknown, 1);
    ck_assert_int_eq(count_files(folder), 0);
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
        ck_assert_int_eq(put(BACKEND_PARCA, now + i, 10), 0);
    sys_override = count_looks;
    for (uint64_t i = 0; i < 10; i++) {
        ck_assert_int_eq(claim(BACKEND_PARCA), 1);
        ck_assert_uint_eq(got.header.end_unix_ns, now + i);
        spool_give_back(&spool, got.name);
        ck_assert_int_eq(claim(BACKEND_PARCA), 1);
        spool_end(&spool, got.name);
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
    spool.limit = (uint64_t)1024 << 30;
    sys_override = count_looks;
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(put(BACKEND_PARCA, now + i, 10), 0);
    sys_override = NULL;
    ck_assert_int_eq(looks, COUNT);
}
END_TEST

static uint64_t bytes_in_folder(void)
{
    struct stat status;
    uint64_t bytes = 0;
    char *names = list_folder(folder);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        ck_assert_int_eq(stat(in_folder(folder, name), &status), 0);
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
    spool.limit = 96 << 10;
    for (uint64_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(put(BACKEND_PARCA, now + i, SIZE), 0);
    ck_assert_uint_gt(losses.dropped, COUNT / 2);
    ck_assert_uint_le(bytes_in_folder(), spool.limit + spool.limit / 32);
    ck_assert_uint_ge(bytes_in_folder(), spool.limit / 2);
    ck_assert_uint_eq(losses.dropped + (unsigned)count_files(folder), COUNT);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    ck_assert_uint_eq(got.header.end_unix_ns, now + losses.dropped);
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
    while ((result = claim(BACKEND_PARCA)) == 1) {
        size_t i = got.header.end_unix_ns - now;
        if (i % 3 == 0 && !__atomic_exchange_n(&race->given_back[i], 1, __ATOMIC_RELAXED)) {
            spool_give_back(&spool, got.name);
        } else {
            __atomic_fetch_add(&race->sent[i], 1, __ATOMIC_RELAXED);
            spool_end(&spool, got.name);
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
        ck_assert_int_eq(put(BACKEND_PARCA, now + i, 10), 0);
    for (int i = 0; i < RACERS; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            race(shared);
            _exit(losses.dropped + losses.unknown ? 1 : 0);
        }
    }
    for (int i = 0; i < RACERS; i++) {
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    race(shared); /* one may have gone back behind the last look */
    for (int i = 0; i < RACED; i++)
        ck_assert_msg(shared->sent[i] == 1, "%d: %d times", i, shared->sent[i]);
    ck_assert_int_eq(count_files(folder), 0);
}
END_TEST

/* Each byte of a file changed, or the file cut there: it is set aside, not sent. */
START_TEST(torn_files_are_not_sent)
{
    ck_assert_int_eq(put(BACKEND_PARCA, now, 50), 0);
    char *name = list_folder(folder);
    size_t size;
    char path[256];
    snprintf(path, sizeof(path), "%s", in_folder(folder, name));
    char *whole = read_file(path, &size);
    for (size_t i = 0; i < 2 * size; i++) {
        char *bytes = malloc(size + 1);
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, whole, size);
        if (i < size)
            bytes[i] ^= 1;
        write_file(path, bytes, i < size ? size : i - size);
        ck_assert_int_eq(claim(BACKEND_PARCA), 0);
        free(bytes);
    }
    ck_assert_uint_eq(losses.dropped, 2 * size);
    char *left = list_folder(folder);
    ck_assert_ptr_nonnull(strstr(left, ".parca.torn"));
    write_file(path, whole, size);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    free(left);
    free(whole);
    free(name);
}
END_TEST

/* What is no file, under the name of one that waits: it holds nobody up, and is set aside. */
START_TEST(what_is_no_file_is_set_aside)
{
    static const char *const kinds[] = {"fifo", "folder", "link", "socket"};
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct stat status;
    char target[256], path[256];
    snprintf(target, sizeof(target), "%s", in_folder(base, "target"));
    write_file(target, "x", 1);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, target, times, 0), 0);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%020lu.%016lx.parca.spool", now + i, i);
        snprintf(path, sizeof(path), "%s", in_folder(folder, name));
        ck_assert_int_eq(i == 0   ? mkfifo(path, 0600)
                         : i == 1 ? mkdir(path, 0700)
                         : i == 2 ? symlink(target, path)
                                  : mknod(path, S_IFSOCK | 0600, 0),
                         0);
        ck_assert_int_eq(put(BACKEND_PARCA, now + 100 + i, 10), 0);
        int descriptors = count_descriptors();
        ck_assert_msg(claim(BACKEND_PARCA) == 1, "%s", kinds[i]);
        ck_assert_uint_eq(got.header.end_unix_ns, now + 100 + i);
        ck_assert_int_eq(count_descriptors(), descriptors);
        spool_end(&spool, got.name);
        ck_assert_uint_eq(losses.dropped, i + 1);
        ck_assert_int_eq(count_files(folder), (int)i + 1);
        ck_assert_int_eq(claim(BACKEND_PARCA), 0);
    }
    ck_assert_int_eq(stat(target, &status), 0);
    ck_assert_int_eq(status.st_mtim.tv_sec, 1);
}
END_TEST

START_TEST(failures)
{
    static const int calls[] = {SYS_openat, SYS_write, SYS_fchmod, SYS_renameat2, SYS_getdents64};
    ck_assert_int_eq(put(BACKEND_PARCA, now, 10), 0);
    ck_assert_int_eq(claim(BACKEND_PARCA), 1);
    spool_end(&spool, got.name);
    spool.limit = 5000; /* each put looks at what is there */
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int descriptors = count_descriptors();
        fault_set(calls[i], 0, 100, -EIO);
        if (calls[i] == SYS_renameat2) /* a hard link is tried then */
            ck_assert_int_eq(put(BACKEND_PARCA, now, 10), 0);
        else
            ck_assert_int_eq(put(BACKEND_PARCA, now, 10), -EIO);
        ck_assert_int_gt(fault_clear(), 0);
        ck_assert_int_eq(count_descriptors(), descriptors);
        ck_assert_int_eq(count_files(folder), calls[i] == SYS_renameat2);
        if (claim(BACKEND_PARCA) == 1)
            spool_end(&spool, got.name);
    }
    spool.folder = "/dev/null";
    ck_assert_int_eq(put(BACKEND_PARCA, now, 10), -ENOTDIR);
    ck_assert_int_eq(claim(BACKEND_PARCA), -ENOTDIR);
    spool.folder = in_folder(base, "none");
    ck_assert_int_eq(claim(BACKEND_PARCA), 0);
}
END_TEST

START_TEST(shared_folder)
{
    struct stat status;
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(put(BACKEND_PARCA, now, 10), 0);
    ck_assert_int_eq(chmod(folder, 02770), 0);
    ck_assert_int_eq(put(BACKEND_POST, now, 10), 0);
    char *names = list_folder(folder);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        ck_assert_int_eq(stat(in_folder(folder, name), &status), 0);
        ck_assert_uint_eq(status.st_mode & 07777, strstr(name, "post") ? 0660 : 0600);
    }
    free(names);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("spool");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, what_is_put_comes_back);
    tcase_add_test(all, each_of_a_kind_has_its_own);
    tcase_add_test(all, oldest_first);
    tcase_add_test(all, limits);
    tcase_add_test(all, left_claims_are_unknown);
    tcase_add_test(all, many_cost_no_look_at_each);
    tcase_add_test(all, many_cost_no_look_at_each_put);
    tcase_add_test(all, the_limit_of_small_files);
    tcase_add_test(all, each_is_claimed_by_one);
    tcase_add_test(all, torn_files_are_not_sent);
    tcase_add_test(all, what_is_no_file_is_set_aside);
    tcase_add_test(all, failures);
    tcase_add_test(all, shared_folder);
    suite_add_tcase(suite, all);
    return suite;
}
