/* Pages and collapsed stacks: shared work, limits of size, no memory, large windows. */
#include "test/check.h"

#include <stdio.h>
#include <time.h>

#include "agent/base/rng.h"
#include "test/export_faults.h"
#include "test/pages_fixture.h"

static void add_some(size_t rows)
{
    const struct thread_label thread = {.tid = 7, .name = "worker"};
    struct rng rng = {.state = 1};
    for (size_t i = 0; i < rows; i++) {
        const uint64_t stack[] = {LIB_BIAS + CODE + i % 0x5000, pc_of(rng_next(&rng) % 500),
                                  pc_of(rng_next(&rng) % 20), VDSO_BIAS + 16, PSEUDO_TAIL};
        add(0, stack, 5, &thread, NULL, 1000000 + i);
    }
}

START_TEST(formats_share_what_was_gathered)
{
    add_some(3000);
    const struct window *window = recorder_turn(3, 4);
    const struct window *other = recorder_turn(5, 6); /* empty */
    for (int dialect = 0; dialect < DIALECT_FILES; dialect++) {
        struct buffer alone = {0}, shared = {0};
        request.shared = NULL;
        write_as(window, (enum export_dialect)dialect, &alone);
        request.shared = &gathered;
        write_as(dialect == 0 ? window : other, (enum export_dialect)dialect, &shared);
        ck_assert_uint_gt(alone.size, 0);
        ck_assert_uint_eq(alone.size, shared.size);
        ck_assert_mem_eq(alone.data, shared.data, alone.size);
        buffer_free(&alone);
        buffer_free(&shared);
    }
    /* No other dialect, as its rows may differ. */
    struct buffer out = {0};
    write_as(other, DIALECT_PARCA, &out);
    ck_assert_uint_eq(out.size, 0);
}
END_TEST

/* Smaller files have the same sum, and the largest rows. */
START_TEST(limits_fold_the_smallest)
{
    add_some(10000);
    const struct window *window = recorder_turn(3, 4);
    struct picture whole;
    read_page(window, &whole);
    int64_t total = picture_total(&whole, 1);
    picture_free(&whole);
    for (int dialect = DIALECT_HTML; dialect < DIALECT_FILES; dialect++) {
        struct buffer out = {0};
        write_as(window, (enum export_dialect)dialect, &out);
        /* What is there whatever the window. */
        size_t page = page_head_size + page_tail_size;
        size_t fixed = dialect == DIALECT_HTML ? page : 0, size = out.size - fixed;
        buffer_free(&out);
        for (size_t part = 2; part < 200; part *= 4) {
            struct picture picture;
            size_t limit = fixed + size / part;
            ck_assert_int_eq(export_within_limits(window, &request, limit, &out), 0);
            ck_assert_uint_le(out.size, limit);
            ck_assert_uint_gt(out.size, fixed + size / part / 5);
            if (dialect == DIALECT_HTML)
                page_parse(&picture, (const char *)out.data, out.size, NULL, 0, NULL, 0);
            else
                collapsed_parse(&picture, (const char *)out.data, out.size);
            ck_assert_int_eq(picture_total(&picture, dialect == DIALECT_HTML), total);
            ck_assert_int_gt(picture_self(&picture, dialect == DIALECT_HTML, "libagent truncated"),
                             0);
            picture_free(&picture);
            buffer_free(&out);
        }
        /* What cannot be made so small is whole all the same. */
        ck_assert_int_eq(export_within_limits(window, &request, 1, &out), 0);
        ck_assert_uint_gt(out.size, 1);
        ck_assert_int_eq(out.data[out.size - 1], '\n');
        buffer_free(&out);
    }
}
END_TEST

/* Under a sanitizer 2,000 rows take minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FEW = 250 };
#else
enum { FEW = 1000 };
#endif

START_TEST(every_mapping_refused_in_turn)
{
    add_some(FEW * 2); /* so many that every table and buffer has to grow */
    request.dialect = (enum export_dialect)_i;
    expect_whole_or_nothing(recorder_turn(3, 4), &request);
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Stacks like those of programs: 30 deep, most of it shared. The sizes and times are told. */
START_TEST(a_hundred_thousand_stacks)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { ROWS = 12000 }; /* or it takes minutes */
#else
    enum { ROWS = 100000 };
#endif
    enum { FRAMES = 30, SHARED = 20 };
    start((size_t)1 << 30);
    const struct thread_label thread = {.tid = 7, .name = "worker"};
    struct rng rng = {.state = 1};
    int64_t total = 0;
    for (int row = 0; row < ROWS; row++) {
        uint64_t pcs[FRAMES];
        uint64_t branch = rng_next(&rng) % 50;
        for (int i = 0; i < FRAMES; i++)
            pcs[i] =
                pc_of(100 + (i >= FRAMES - SHARED ? branch + (uint64_t)i : rng_next(&rng) % 900));
        add(0, pcs, FRAMES, &thread, NULL, 1000 + (uint64_t)row);
        total += 1000 + row;
    }
    const struct window *window = recorder_turn(3, 4);
    ck_assert_uint_eq(window->truncated[RECORD_CPU].count, 0);
    for (int dialect = DIALECT_HTML; dialect < DIALECT_FILES; dialect++) {
        struct buffer out = {0};
        struct picture picture;
        double before = cpu_seconds();
        write_as(window, (enum export_dialect)dialect, &out);
        double seconds = cpu_seconds() - before;
        fprintf(stderr, "%s of %d stacks: %.1f MB, %.2f s\n",
                export_dialect_name((enum export_dialect)dialect), ROWS, (double)out.size / 1e6,
                seconds);
        ck_assert_uint_le(out.size, 16 << 20);
        if (dialect == DIALECT_HTML)
            page_parse(&picture, (const char *)out.data, out.size, NULL, 0, NULL, 0);
        else
            collapsed_parse(&picture, (const char *)out.data, out.size);
        ck_assert_int_eq(picture_total(&picture, dialect == DIALECT_HTML), total);
        ck_assert_uint_gt(picture.row_count, 10000);
        picture_free(&picture);
        buffer_free(&out);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("pages_load");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 400);
    tcase_add_test(all, formats_share_what_was_gathered);
    tcase_add_test(all, limits_fold_the_smallest);
    tcase_add_loop_test(all, every_mapping_refused_in_turn, DIALECT_HTML, DIALECT_FILES);
    tcase_add_test(all, a_hundred_thousand_stacks);
    suite_add_tcase(suite, all);
    return suite;
}
