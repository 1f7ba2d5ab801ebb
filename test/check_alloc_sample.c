/* The hook's slow path: what counts and what does not, and what happens when something is lacking.
 * The walk is a stand-in. That sampling is without bias is the matter of check_alloc_truth.c. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_hot.h"
#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/record/scratch.h"
#include "agent/thread/moment.h"
#include "test/record_fixture.h"
#include "test/stand_in_walk.h"

static void start(uint64_t interval)
{
    fixture_start((size_t)32 << 20);
    alloc_start(interval);
}

/* An allocation that went well. */
static void allocate(size_t size)
{
    agent_allocated(&walk_site, size);
}

static void check_values(struct record_values values, uint64_t objects, uint64_t bytes)
{
    ck_assert_uint_eq(values.count, objects << RECORD_FRACTION_BITS);
    ck_assert_uint_eq(values.amount, bytes << RECORD_AMOUNT_BITS_ALLOC);
}

/* ---- what counts, and how often ---- */

START_TEST(size_zero_counts_as_one_byte)
{
    start(1);
    walk_site = 7;
    allocate(0);
    allocate(0);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 7), 2, 2);
}
END_TEST

START_TEST(a_failed_call_is_not_counted)
{
    start(1000);
    allocate(1);
    uint64_t before = thread_tls.bytes_until_sample;
    for (int i = 0; i < 100; i++)
        agent_allocated(NULL, SIZE_MAX);
    ck_assert_uint_eq(thread_tls.bytes_until_sample, before);
    agent_allocated(NULL, 0);
    ck_assert_uint_eq(thread_tls.bytes_until_sample, before);
}
END_TEST

START_TEST(a_thread_of_the_agent_counts_nothing)
{
    start(1);
    thread_tls.internal = 1;
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    ck_assert_uint_gt(thread_tls.bytes_until_sample, INT64_MAX / 4);
    ck_assert_uint_eq(fixture_rows(fixture_turn()), 0);
    ck_assert_ptr_null(thread_tls.slot);
}
END_TEST

START_TEST(what_the_agent_allocates_is_not_counted)
{
    start(1000);
    allocate(1);
    uint64_t before = thread_tls.bytes_until_sample;
    uint64_t samples = stats_get(STAT_ALLOC_SAMPLES);
    thread_tls.inside = 1;
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    thread_tls.inside = 0;
    ck_assert_uint_eq(thread_tls.bytes_until_sample, before);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), samples);
}
END_TEST

START_TEST(nothing_is_counted_after_a_stop)
{
    start(1);
    allocate(5);
    if (_i)
        alloc_stop_for_good();
    else
        alloc_stop();
    for (int i = 0; i < 100; i++)
        allocate(1 << 20);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 1, 5);
    ck_assert_uint_eq(thread_tls.inside, 0);
    /* After a stop for good no thread looks again. */
    ck_assert_int_eq(thread_tls.bytes_until_sample > INT64_MAX / 4, _i);
}
END_TEST

static pthread_barrier_t barrier;

static void *allocate_before_and_after(void *argument)
{
    allocate(100);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 40; i++)
        allocate(65536);
    return argument;
}

START_TEST(a_start_reaches_threads_that_found_sampling_off)
{
    start(1);
    alloc_stop();
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_before_and_after, NULL);
    pthread_barrier_wait(&barrier);
    allocate(1);
    alloc_start(1);
    allocate(10);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    struct window *window = fixture_turn();
    ck_assert_uint_eq(fixture_rows(window), 2);
    /* The calling thread at once, others within a MiB. */
    uint64_t objects = fixture_at(window, RECORD_ALLOC, 0).count >> RECORD_FRACTION_BITS;
    ck_assert_uint_eq(objects, 1 + 40 - 16);
}
END_TEST

START_TEST(on_foreign_tls_nothing_is_recorded)
{
    start(1);
    allocate(1);
    struct thread_slot *slot = thread_tls.slot;
    slot->tid++;
    struct thread_slot before = *slot;
    struct thread_tls tls = thread_tls;
    allocate(64);
    /* A gap that was used up is replaced by one that is not: 0 bytes, at interval 1. */
    tls.bytes_until_sample = 0;
    ck_assert_mem_eq(slot, &before, sizeof(before));
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the copy has the padding too */
    ck_assert_int_eq(memcmp(&tls, &thread_tls, sizeof(tls)), 0);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 1);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 1, 1);
}
END_TEST

/* vfork by its real effect: another process runs on this memory and this TLS. */
START_TEST(a_vfork_child_writes_nothing)
{
    start(1);
    allocate(1);
    pid_t child = vfork();
    if (child == 0) {
        allocate(64);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    allocate(2);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 2, 3);
}
END_TEST

/* ---- when something is lacking ---- */

START_TEST(without_a_buffer_bytes_are_folded)
{
    start(1);
    struct record_stack *claimed[SCRATCH_BUFFERS];
    for (int i = 0; i < SCRATCH_BUFFERS; i++)
        ck_assert_ptr_nonnull(claimed[i] = scratch_claim());
    ck_assert_ptr_null(scratch_claim());
    walk_site = 7;
    allocate(100);
    scratch_give(claimed[5]);
    allocate(10);
    struct window *window = fixture_turn();
    check_values(fixture_at(window, RECORD_ALLOC, PSEUDO_UNKNOWN), 1, 100);
    check_values(fixture_at(window, RECORD_ALLOC, 7), 1, 10);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_DROPPED_BUSY), 1);
    ck_assert_ptr_eq(scratch_claim(), claimed[5]);
}
END_TEST

START_TEST(without_a_slot_a_sample_is_dropped_and_counted)
{
    start(1);
    for (int i = 0; i < THREAD_SLOTS; i++)
        demand(thread_prepare(1, NULL));
    allocate(100);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_DROPPED_UNTRACKED), 1);
    ck_assert_uint_eq(stats_get(STAT_ALLOC_SAMPLES), 0);
    ck_assert_uint_eq(thread_tls.inside, 0);
    thread_release_slot(thread_slot_at(9));
    allocate(100);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 1, 100);
}
END_TEST

START_TEST(a_walk_without_a_frame_counts_as_unknown)
{
    start(1);
    walk_frames = 0;
    walk_flags = 0;
    allocate(100);
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, PSEUDO_UNKNOWN), 1, 100);
    ck_assert_uint_eq(stats_get(STAT_STACKS_INCOMPLETE), 1);
    walk_flags = UNWIND_CUT;
    allocate(100);
    ck_assert_uint_eq(stats_get(STAT_STACKS_INCOMPLETE), 1);
    ck_assert_uint_eq(stats_get(STAT_STACKS_CUT), 1);
}
END_TEST

static pthread_key_t late_key;
static int late_rounds;

static void allocate_late(void *value)
{
    if (late_rounds++ < 2)
        pthread_setspecific(late_key, value);
    allocate(10);
    if (thread_tls.left)
        ck_assert_ptr_null(thread_tls.slot);
}

static void *set_late_key(void *argument)
{
    allocate(1);
    pthread_setspecific(late_key, &late_key);
    return argument;
}

START_TEST(teardown_counts_and_leaves_no_slot_behind)
{
    start(1);
    pthread_key_create(&late_key, allocate_late);
    pthread_t thread;
    pthread_create(&thread, NULL, set_late_key, NULL);
    pthread_join(thread, NULL);
    ck_assert_int_eq(late_rounds, 3); /* the agent's record ends in the second */
    check_values(fixture_at(fixture_turn(), RECORD_ALLOC, 0), 4, 31);
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        ck_assert_uint_eq(thread_slot_at(i)->state, SLOT_FREE);
}
END_TEST

START_TEST(errno_is_left_alone)
{
    start(1);
    errno = 4711;
    allocate(100);
    alloc_stop();
    allocate(100);
    ck_assert_int_eq(errno, 4711);
}
END_TEST

static void free_recorded(size_t size)
{
    (void)size;
    alloc_free_inside_hook(&walk_site);
}

static uint64_t switches(void)
{
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return (uint64_t)(usage.ru_nivcsw + usage.ru_nvcsw);
}

/* What a thousand calls cost by the agent's account. One in eight is timed and stands for eight;
 * of samples each with that probability: none of a thousand has one of 1e-58, a quarter of them
 * 1e-27. One that another thread interrupts counts as 0.2 ms; an interrupt, which one of them may
 * meet without that, as 0.05 ms. */
static uint64_t told_cost(void (*call)(size_t size))
{
    struct thread_slot *slot = thread_tls.slot;
    for (int i = 0; i < 100; i++)
        call(100); /* a first one's page faults, or translation in an emulator, are not the rule */
    uint64_t first = stats_get(STAT_HOOKS_NS);
    uint64_t accounted = slot->cpu_last_ns;
    uint64_t interrupted = switches();
    uint64_t before = clock_thread_cpu_ns();
    for (int i = 0; i < 1000; i++)
        call(100);
    uint64_t spent = clock_thread_cpu_ns() - before;
    interrupted = switches() - interrupted;
    uint64_t told = stats_get(STAT_HOOKS_NS) - first;
    ck_assert_uint_le(told, 2 * spent + (interrupted * 200000 + 50000) * 8);
    /* None of it is the app's. */
    ck_assert_uint_eq(slot->cpu_last_ns - accounted, told);
    ck_assert_uint_eq(slot->overhead_ns[OVERHEAD_HOOKS], first + told);
    return told;
}

START_TEST(the_cost_of_a_hook_is_known)
{
    start(1);
    allocate(100);
    ck_assert_uint_gt(told_cost(allocate), 0);
    ck_assert_uint_gt(told_cost(free_recorded), 0);
    alloc_stop();
    ck_assert_uint_eq(told_cost(free_recorded), 0);
}
END_TEST

static uint32_t moments;
static uint32_t busy_moments;
static void count_moment(bool clean)
{
    /* Neither a second sample nor a handler's may come in here. */
    ck_assert_uint_eq(thread_tls.inside, 1);
    ck_assert(thread_guard_quiescent(0));
    moments += clean;
    busy_moments += !clean;
}

static uint32_t off_moments;
static void count_off(bool clean)
{
    ck_assert(!clean);
    off_moments++;
}

START_TEST(a_moment_says_whether_the_stack_is_clean)
{
    start(1);
    moment_work = count_moment;
    moment_set_due_now();
    allocate(100);
    ck_assert_uint_eq(moments, 0);
    ck_assert_uint_eq(busy_moments, 1);
    walk_flags = UNWIND_COMPLETE | UNWIND_CLEAN;
    allocate(100);
    ck_assert_uint_eq(moments, 1);
}
END_TEST

START_TEST(while_it_is_off_moments_are_few)
{
    start(1);
    allocate(100);
    alloc_stop();
    moment_work = count_off;
    moment_set_due_now();
    for (int i = 0; i < 96; i++)
        allocate(1 << 20);
    /* One as it is found off, and one each 16 MiB; a look that is no moment leaves a byte. */
    ck_assert_uint_ge(off_moments, 6);
    ck_assert_uint_le(off_moments, 7);
}
END_TEST

START_TEST(a_stack_that_was_probed_stays_known)
{
    start(1);
    allocate(100);
    struct thread_slot *slot = thread_tls.slot;
    uintptr_t low = slot->stack_low;
    allocate(100);
    ck_assert_uint_eq(slot->stack_low, low - 4096);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("alloc_sample");
    TCase *rules = tcase_create("rules");
    tcase_set_timeout(rules, 60);
    tcase_add_test(rules, size_zero_counts_as_one_byte);
    tcase_add_test(rules, a_failed_call_is_not_counted);
    tcase_add_test(rules, a_thread_of_the_agent_counts_nothing);
    tcase_add_test(rules, what_the_agent_allocates_is_not_counted);
    tcase_add_loop_test(rules, nothing_is_counted_after_a_stop, 0, 2);
    tcase_add_test(rules, a_start_reaches_threads_that_found_sampling_off);
    tcase_add_test(rules, on_foreign_tls_nothing_is_recorded);
    tcase_add_test(rules, a_vfork_child_writes_nothing);
    suite_add_tcase(suite, rules);
    TCase *lacks = tcase_create("lacks");
    tcase_set_timeout(lacks, 60);
    tcase_add_test(lacks, without_a_buffer_bytes_are_folded);
    tcase_add_test(lacks, without_a_slot_a_sample_is_dropped_and_counted);
    tcase_add_test(lacks, a_walk_without_a_frame_counts_as_unknown);
    tcase_add_test(lacks, teardown_counts_and_leaves_no_slot_behind);
    suite_add_tcase(suite, lacks);
    TCase *manners = tcase_create("manners");
    tcase_set_timeout(manners, 60);
    tcase_add_test(manners, errno_is_left_alone);
    tcase_add_test(manners, the_cost_of_a_hook_is_known);
    tcase_add_test(manners, a_moment_says_whether_the_stack_is_clean);
    tcase_add_test(manners, while_it_is_off_moments_are_few);
    tcase_add_test(manners, a_stack_that_was_probed_stays_known);
    suite_add_tcase(suite, manners);
    return suite;
}
