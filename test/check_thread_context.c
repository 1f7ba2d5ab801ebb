/* What the agent keeps of each thread: how slots are taken, and the table of them. Their end,
 * the guards and fork have suites of their own. */
#include "test/check.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "test/demand.h"
#include "test/next_libc.h"
#include "test/record_fixture.h"
#include "test/slot_fixture.h"

/* ---- attach ---- */

START_TEST(tls_is_small_and_zero_at_birth)
{
    const unsigned char *bytes = (const unsigned char *)&thread_tls;
    ck_assert_uint_le(sizeof(struct thread_tls), 64);
    ck_assert_uint_eq(sizeof(struct thread_slot) % CACHE_LINE, 0);
    for (size_t i = 0; i < sizeof(thread_tls); i++)
        ck_assert_uint_eq(bytes[i], 0);
}
END_TEST

START_TEST(nothing_attaches_before_the_start)
{
    ck_assert_ptr_null(thread_attach(0, 0));
    ck_assert_ptr_null(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), 0);
    ck_assert(!thread_slot_is_ours(NULL));
    ck_assert(thread_guard_quiescent(0));
    /* The table could not be made for lack of memory. */
    next_from_libc();
    arena_set_budget(1024);
    ck_assert_int_lt(thread_start(thread_leave), 0);
    ck_assert_ptr_null(thread_attach(0, 0));
}
END_TEST

START_TEST(the_main_thread_attaches)
{
    fixture_threads();
    ck_assert_int_eq(thread_pid(), getpid());
    prctl(PR_SET_NAME, "fifteen letters");
    uint64_t before = clock_thread_cpu_ns();
    uintptr_t high = (uintptr_t)__builtin_frame_address(0) + 4096;
    struct thread_slot *slot = thread_attach(high | 3, 0);
    ck_assert_ptr_nonnull(slot);
    ck_assert_ptr_eq(thread_tls.slot, slot);
    ck_assert_uint_eq(slot->state, SLOT_USED);
    ck_assert_uint_eq(slot->guard & 1, 0);
    ck_assert_int_eq(slot->tid, getpid());
    ck_assert_int_eq(slot->timer, -1);
    ck_assert_uint_eq(slot->is_main, 1);
    ck_assert_uint_eq(slot->start_routine, 0);
    ck_assert_uint_eq(slot->label.tid, (uint64_t)getpid());
    ck_assert_str_eq(slot->label.name, "fifteen letters");
    ck_assert_uint_ge(slot->cpu_last_ns, before);
    ck_assert_uint_le(slot->cpu_last_ns, clock_thread_cpu_ns());
    ck_assert_uint_eq(slot->stack_high, ALIGN_DOWN(high, (uintptr_t)8));
    ck_assert_uint_eq(slot->stack_low, slot->stack_high);
    ck_assert_uint_eq(slot->overhead_ns[OVERHEAD_HOOKS], 0);
    thread_leave();
    ck_assert_ptr_null(thread_tls.slot);
    ck_assert_uint_eq(thread_tls.left, 1);
    ck_assert(!slot_is_used(slot));
}
END_TEST

/* glibc's struct pthread, which the thread pointer points at, lies above the stack. */
static void *attach_and_look(void *argument)
{
    struct thread_slot *slot = thread_attach(0, (uintptr_t)attach_and_look);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    ck_assert_uint_eq(slot->is_main, 0);
    ck_assert_int_eq(slot->tid, sys_tid());
    ck_assert_int_ne(slot->tid, sys_pid());
    ck_assert_uint_eq(slot->start_routine, (uintptr_t)attach_and_look);
    ck_assert_uint_gt(slot->stack_high, here);
    ck_assert_uint_lt(slot->stack_high - here, 8192 * 1024);
    return argument;
}

START_TEST(a_threads_stack_ends_at_its_thread_pointer)
{
    fixture_threads();
    run_in_thread(attach_and_look, NULL);
}
END_TEST

static void *change_name(void *argument)
{
    prctl(PR_SET_NAME, "before");
    struct thread_slot *slot = thread_attach(0, 0);
    ck_assert_str_eq(slot->label.name, "before");
    prctl(PR_SET_NAME, "x");
    ck_assert_str_eq(slot->label.name, "before");
    for (int i = 0; i < 8; i++)
        thread_note_name(slot);
    ck_assert_str_eq(slot->label.name, "x");
    /* Labels are keys: what stood there before is gone to the last byte. */
    static const char rest[16] = "x";
    ck_assert_mem_eq(slot->label.name, rest, sizeof(rest));
    return argument;
}

START_TEST(a_label_follows_the_threads_name)
{
    fixture_threads();
    run_in_thread(change_name, NULL);
}
END_TEST

static int name_calls;

static bool count_names(long number, const long args[6], long *result)
{
    (void)result;
    name_calls += number == SYS_prctl && args[0] == PR_GET_NAME;
    return false;
}

static void *ask_who_is_self(void *other)
{
    demand(thread_is_self((uintptr_t)pthread_self()));
    demand(!thread_is_self(*(pthread_t *)other));
    return other;
}

START_TEST(libcs_handle_is_the_callers_or_not)
{
    pthread_t self = pthread_self(), thread;
    ck_assert(thread_is_self((uintptr_t)self));
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_who_is_self, &self), 0);
    ck_assert(!thread_is_self((uintptr_t)thread));
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(names_that_libc_was_told_need_no_system_call)
{
    static const char cut[16] = "sixteen letters";
    fixture_threads();
    thread_named("nobody"); /* without a slot */
    struct thread_slot *slot = thread_prepare(1, NULL);
    thread_attach_prepared(slot);
    sys_override = count_names;
    thread_named("short");
    thread_named("sixteen letters!");
    ck_assert_mem_eq(slot->label.name, cut, sizeof(cut));
    thread_named("x");
    ck_assert_str_eq(slot->label.name, "x");
    ck_assert_int_eq(slot->label.name[2], 0);
    prctl(PR_SET_NAME, "by another");
    thread_note_last_name(slot);
    ck_assert_str_eq(slot->label.name, "x");
    ck_assert_int_eq(name_calls, 0);
    thread_other_named();
    thread_note_last_name(slot);
    ck_assert_str_eq(slot->label.name, "by another");
    thread_note_last_name(slot); /* it was asked */
    ck_assert_int_eq(name_calls, 1);
    sys_override = NULL;
}
END_TEST

START_TEST(an_old_name_is_asked_for_rarely)
{
    fixture_threads();
    struct thread_slot *slot = thread_attach(0, 0);
    slot->name_age = 0;
    name_calls = 0;
    sys_override = count_names;
    for (int i = 0; i < 64; i++)
        thread_note_name(slot);
    ck_assert_int_eq(name_calls, 8);
    for (int i = 64; i < 256; i++)
        thread_note_name(slot);
    ck_assert_int_eq(name_calls, 8 + 3);
    sys_override = NULL;
}
END_TEST

static int other_pid;
static bool is_child(long number, const long args[6], long *result)
{
    (void)args;
    *result = other_pid;
    return number == SYS_getpid;
}

START_TEST(another_process_on_this_memory_gets_no_slot)
{
    fixture_threads();
    other_pid = getpid() + 1;
    sys_override = is_child;
    ck_assert_ptr_null(thread_attach(0, 0));
    ck_assert_ptr_null(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), 0);
    sys_override = NULL;
    ck_assert_ptr_nonnull(thread_attach(0, 0));
}
END_TEST

/* ---- prepared, adopted ---- */

static void *attach_prepared(void *argument)
{
    struct thread_slot *slot = argument;
    ck_assert_ptr_null(thread_tls.slot);
    thread_attach_prepared(slot);
    ck_assert_ptr_eq(thread_tls.slot, slot);
    ck_assert_int_eq(slot->tid, sys_tid());
    ck_assert_uint_eq(slot->label.tid, (uint64_t)slot->tid);
    ck_assert_str_eq(slot->label.name, "creator");
    ck_assert_uint_gt(slot->stack_high, (uintptr_t)&slot);
    ck_assert_uint_eq(slot->cpu_last_ns, 0); /* its birth is accounted to it, too */
    return slot->start_argument;
}

START_TEST(a_prepared_slot_becomes_the_new_threads)
{
    fixture_threads();
    prctl(PR_SET_NAME, "creator");
    ck_assert_ptr_nonnull(thread_attach(0, 0));
    struct thread_slot *slot = thread_prepare(4711, &other_pid);
    ck_assert_ptr_nonnull(slot);
    ck_assert(slot_is_used(slot));
    ck_assert_int_eq(slot->tid, 0);
    ck_assert_uint_eq(slot->is_main, 0);
    ck_assert_uint_eq(slot->start_routine, 4711);
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, attach_prepared, slot), 0);
    pthread_join(thread, &result);
    ck_assert_ptr_eq(result, &other_pid);
    ck_assert(!slot_is_used(slot));
}
END_TEST

START_TEST(the_slot_of_a_thread_that_was_not_born_is_used_again)
{
    fixture_threads();
    for (int i = 0; i < 100; i++)
        thread_release_slot(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), 1);
    /* Given back once only, whoever else may try. */
    struct thread_slot *slot = thread_prepare(1, NULL);
    thread_release_slot(slot);
    thread_release_slot(slot);
    ck_assert_ptr_eq(thread_prepare(1, NULL), slot);
    ck_assert_ptr_ne(thread_prepare(1, NULL), slot);
}
END_TEST

static int adopted_tid;
static struct thread_slot *adopted;
static pthread_barrier_t barrier;

static void *be_adopted(void *argument)
{
    adopted_tid = sys_tid();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    thread_take_over(adopted);
    ck_assert_ptr_eq(thread_tls.slot, adopted);
    ck_assert_uint_gt(adopted->stack_high, (uintptr_t)&argument);
    return argument;
}

START_TEST(a_thread_that_was_found_takes_its_slot_over)
{
    fixture_threads();
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, be_adopted, NULL);
    pthread_barrier_wait(&barrier);
    adopted = thread_adopt(adopted_tid);
    ck_assert_int_eq(adopted->tid, adopted_tid);
    ck_assert_uint_gt(adopted->cpu_last_ns, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    ck_assert(!slot_is_used(adopted));
}
END_TEST

/* ---- the table ---- */

START_TEST(a_full_table_is_counted)
{
    fixture_threads();
    struct thread_slot *last = NULL;
    for (int i = 0; i < THREAD_SLOTS; i++) {
        last = thread_prepare(1, NULL);
        demand(last);
    }
    ck_assert_uint_eq(stats_get(STAT_THREADS_UNTRACKED), 0);
    ck_assert_ptr_null(thread_prepare(1, NULL));
    ck_assert_ptr_null(thread_attach(0, 0));
    ck_assert_ptr_null(thread_adopt(1));
    ck_assert_ptr_null(thread_tls.slot);
    ck_assert_uint_eq(stats_get(STAT_THREADS_UNTRACKED), 3);
    ck_assert_uint_eq(thread_slot_count(), THREAD_SLOTS);
    ck_assert_uint_eq(slots_in_use(), THREAD_SLOTS);
    thread_release_slot(thread_slot_at(77));
    thread_release_slot(last);
    ck_assert_ptr_eq(thread_attach(0, 0), last);
    ck_assert_ptr_eq(thread_prepare(1, NULL), thread_slot_at(77));
    ck_assert_ptr_null(thread_prepare(1, NULL));
}
END_TEST

START_TEST(a_small_budget_has_fewer_slots)
{
    next_from_libc();
    arena_set_budget((size_t)8 << 20); /* the least in a container */
    ck_assert_int_eq(thread_start(thread_leave), 0);
    ck_assert_uint_le(arena_reserved(), (size_t)1 << 19);
    uint32_t count = 0;
    while (thread_prepare(1, NULL))
        count++;
    ck_assert_uint_ge(count, 1000);
    ck_assert_uint_lt(count, THREAD_SLOTS);
    ck_assert_uint_eq(thread_slot_count(), count);
    ck_assert_uint_le(count * sizeof(struct thread_slot), arena_reserved());
    ck_assert(thread_slot_is_ours(thread_slot_at(count - 1)));
    ck_assert(!thread_slot_is_ours(thread_slot_at(count)));
    ck_assert_uint_eq(stats_get(STAT_THREADS_UNTRACKED), 1);
}
END_TEST

START_TEST(a_slot_of_ours_is_told_from_any_other_value)
{
    fixture_threads();
    const struct thread_slot *first = thread_prepare(1, NULL);
    const char *bytes = (const char *)first;
    const char *end = bytes + sizeof(*first) * THREAD_SLOTS;
    static const ptrdiff_t inside[] = {1, 8, CACHE_LINE / 2, sizeof(*first) - 1};
    ck_assert(thread_slot_is_ours(first));
    ck_assert(thread_slot_is_ours(first + 1)); /* in use or not */
    ck_assert(thread_slot_is_ours(first + THREAD_SLOTS - 1));
    ck_assert(!thread_slot_is_ours(NULL));
    ck_assert(!thread_slot_is_ours((const void *)end));
    ck_assert(!thread_slot_is_ours((const void *)(bytes - sizeof(*first))));
    ck_assert(!thread_slot_is_ours((const void *)UINTPTR_MAX));
    ck_assert(!thread_slot_is_ours((const void *)&bytes));
    for (size_t i = 0; i < ARRAY_SIZE(inside); i++)
        ck_assert(!thread_slot_is_ours((const void *)(bytes + inside[i])));
}
END_TEST

enum { TAKERS = 8, TAKEN_AT_ONCE = 3, TAKES = 20000 };

static uint32_t owners[TAKERS * TAKEN_AT_ONCE];
static uint32_t shared; /* times that a slot had two owners */

static void *take_and_release(void *argument)
{
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TAKES; i++) {
        struct thread_slot *slots[TAKEN_AT_ONCE];
        for (int s = 0; s < TAKEN_AT_ONCE; s++) {
            slots[s] = thread_prepare(1, argument);
            size_t index = (size_t)(slots[s] - thread_slot_at(0));
            demand(index < ARRAY_SIZE(owners));
            if (exchange_acq_rel(&owners[index], 1))
                add_relaxed(&shared, 1);
            slots[s]->overhead_ns[0]++;
        }
        for (int s = 0; s < TAKEN_AT_ONCE; s++) {
            demand(slots[s]->overhead_ns[0] == 1);
            store_release(&owners[slots[s] - thread_slot_at(0)], 0);
            thread_release_slot(slots[s]);
        }
    }
    return NULL;
}

START_TEST(a_slot_has_one_owner_at_a_time)
{
    fixture_threads();
    pthread_barrier_init(&barrier, NULL, TAKERS);
    pthread_t threads[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        pthread_create(&threads[i], NULL, take_and_release, NULL);
    for (int i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(shared, 0);
    ck_assert_uint_eq(slots_in_use(), 0);
    /* None was lost from the list. */
    uint32_t count = thread_slot_count();
    for (uint32_t i = 0; i < count; i++)
        ck_assert_ptr_nonnull(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), count);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_context");
    TCase *birth = tcase_create("birth");
    tcase_set_timeout(birth, 60);
    tcase_add_test(birth, tls_is_small_and_zero_at_birth);
    tcase_add_test(birth, nothing_attaches_before_the_start);
    tcase_add_test(birth, the_main_thread_attaches);
    tcase_add_test(birth, a_threads_stack_ends_at_its_thread_pointer);
    tcase_add_test(birth, libcs_handle_is_the_callers_or_not);
    tcase_add_test(birth, names_that_libc_was_told_need_no_system_call);
    tcase_add_test(birth, an_old_name_is_asked_for_rarely);
    tcase_add_test(birth, a_label_follows_the_threads_name);
    tcase_add_test(birth, another_process_on_this_memory_gets_no_slot);
    tcase_add_test(birth, a_prepared_slot_becomes_the_new_threads);
    tcase_add_test(birth, the_slot_of_a_thread_that_was_not_born_is_used_again);
    tcase_add_test(birth, a_thread_that_was_found_takes_its_slot_over);
    suite_add_tcase(suite, birth);
    TCase *table = tcase_create("table");
    tcase_set_timeout(table, 60);
    tcase_add_test(table, a_full_table_is_counted);
    tcase_add_test(table, a_small_budget_has_fewer_slots);
    tcase_add_test(table, a_slot_of_ours_is_told_from_any_other_value);
    tcase_add_test(table, a_slot_has_one_owner_at_a_time);
    suite_add_tcase(suite, table);
    return suite;
}
