/* Which process a thread is in, and what a fork child has of its parent's threads. */
#include "test/check.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/sys.h"
#include "test/record_fixture.h"
#include "test/slot_fixture.h"

static int status_of_child(void (*body)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static void check_child(void)
{
    struct thread_slot *own = thread_tls.slot;
    ck_assert_ptr_null(thread_attach(0, 0)); /* before the reset it is another process */
    ck_assert_uint_eq(thread_reset_in_child(), own ? 9 : 10);
    ck_assert_int_eq(thread_pid(), getpid());
    ck_assert_uint_eq(slots_in_use(), own != NULL);
    ck_assert(thread_guard_quiescent(0));
    if (!own)
        own = thread_attach(0, 0);
    ck_assert_ptr_eq(thread_tls.slot, own);
    ck_assert_uint_eq(slots_in_use(), 1);
    ck_assert_int_eq(own->tid, getpid());
    ck_assert_uint_eq(own->label.tid, (uint64_t)getpid());
    ck_assert_uint_eq(own->is_main, 1);
    ck_assert_int_eq(own->timer, -1);
    ck_assert_uint_eq(own->overhead_ns[OVERHEAD_HOOKS], 0);
    ck_assert_uint_le(own->cpu_last_ns, clock_thread_cpu_ns());
    /* The others' slots are free. */
    for (int i = 0; i < 9; i++)
        ck_assert_ptr_nonnull(thread_prepare(1, NULL));
    ck_assert_uint_eq(thread_slot_count(), 10);
}

START_TEST(a_fork_child_has_one_slot)
{
    fixture_threads();
    bool is_attached = _i;
    struct thread_slot *own = is_attached ? thread_attach(0, 0) : NULL;
    for (int i = is_attached; i < 10; i++) {
        struct thread_slot *slot = thread_prepare(1, NULL);
        slot->timer = i;
        if (i % 2)
            thread_guard_enter(slot);
    }
    if (own) {
        own->timer = 5;
        own->overhead_ns[OVERHEAD_HOOKS] = 5;
    }
    ck_assert_int_eq(status_of_child(check_child), 0);
    ck_assert_uint_eq(slots_in_use(), 10);
}
END_TEST

static int parents_pid;
static bool wipes;

/* The child has the parent's pid, as where both are pid 1 of a namespace. */
static bool answer_same_pid(long number, const long args[6], long *result)
{
    if (number == SYS_madvise && args[2] == MADV_WIPEONFORK && !wipes) {
        *result = -EINVAL;
        return true;
    }
    *result = parents_pid;
    return number == SYS_getpid || number == SYS_gettid;
}

static void check_child_of_same_pid(void)
{
    ck_assert(!thread_in_process());
    ck_assert(!thread_owns(thread_tls.slot));
    ck_assert_ptr_null(thread_attach(0, 0));
    ck_assert_ptr_null(thread_prepare(1, NULL));
    /* A child that libc made is told, and is a parent to others. */
    thread_reset_in_child();
    ck_assert(thread_in_process() && thread_owns(thread_tls.slot));
    ck_assert_ptr_nonnull(thread_prepare(1, NULL));
}

static void check_grandchild(void)
{
    check_child_of_same_pid();
    ck_assert_int_eq(status_of_child(check_child_of_same_pid), 0);
}

START_TEST(a_child_of_the_same_pid_is_another_process)
{
    parents_pid = getpid();
    wipes = true;
    sys_override = answer_same_pid;
    fixture_threads();
    ck_assert_ptr_nonnull(thread_attach(0, 0));
    ck_assert_int_eq(status_of_child(check_grandchild), 0);
    ck_assert(thread_in_process() && thread_owns(thread_tls.slot));
    ck_assert_uint_eq(thread_slot_count(), 1);
    sys_override = NULL;
}
END_TEST

static void check_child_of_other_pid(void)
{
    parents_pid = 0;
    ck_assert(!thread_in_process());
}

START_TEST(where_the_kernel_wipes_no_page_the_pid_tells)
{
    parents_pid = getpid();
    wipes = false;
    sys_override = answer_same_pid;
    fixture_threads();
    ck_assert(thread_in_process());
    ck_assert_int_eq(status_of_child(check_child_of_other_pid), 0);
    sys_override = NULL;
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("thread_fork");
    TCase *forks = tcase_create("fork");
    tcase_set_timeout(forks, 60);
    tcase_add_loop_test(forks, a_fork_child_has_one_slot, 0, 2);
    tcase_add_test(forks, a_child_of_the_same_pid_is_another_process);
    tcase_add_test(forks, where_the_kernel_wipes_no_page_the_pid_tells);
    suite_add_tcase(suite, forks);
    return suite;
}
