/* Stacks that are read by copies while their memory goes away, or the copy is refused. */
#include "test/check.h"

#include <errno.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/stack_copy_fixture.h"

enum { STACK_SIZE = 64 * PAGE, KEPT_COPIES = 2 };

static char *stack_to_lose;
static uint32_t copies;
static ucontext_t main_context, coroutine;

static bool lose_stack(long number, const long args[6], long *result)
{
    (void)args;
    (void)result;
    if (number == SYS_process_vm_readv && copies++ == KEPT_COPIES)
        ck_assert_int_eq(munmap(stack_to_lose, STACK_SIZE), 0);
    return false;
}

static void leave_coroutine(void)
{
    swapcontext(&coroutine, &main_context);
}

static void coroutine_main(void)
{
    recurse(100);
}

START_TEST(stack_unmapped_meanwhile)
{
    start();
    stack_to_lose =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stack_to_lose, MAP_FAILED);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack_to_lose;
    coroutine.uc_stack.ss_size = STACK_SIZE;
    at_bottom = leave_coroutine;
    makecontext(&coroutine, coroutine_main, 0);
    swapcontext(&main_context, &coroutine);

    const struct stack_copy copy = {getpid(), window, 2 * (size_t)PAGE};
    struct unwind_regs regs;
    unwind_regs_from_context(&regs, &coroutine);
    walk_copied(&regs, ALL_VALID, true, &copy);
    ck_assert_uint_eq(copied.flags, UNWIND_COMPLETE);
    struct frames whole = copied;

    sys_override = lose_stack;
    unwind_regs_from_context(&regs, &coroutine);
    walk_copied(&regs, ALL_VALID, true, &copy);
    sys_override = NULL;
    /* The frames of two windows, and one that the second leads to. */
    ck_assert_uint_eq(copies, KEPT_COPIES + 1);
    ck_assert_uint_eq(copied.flags, 0);
    ck_assert_uint_gt(copied.count, 20);
    ck_assert_uint_lt(copied.count, whole.count - 20);
    ck_assert_mem_eq(copied.pcs, whole.pcs, copied.count * sizeof(copied.pcs[0]));
}
END_TEST

static bool refuse_copies(long number, const long args[6], long *result)
{
    (void)args;
    *result = -EPERM;
    return number == SYS_process_vm_readv;
}

START_TEST(system_call_refused)
{
    start();
    const struct stack_copy copy = {getpid(), window, WINDOW};
    struct unwind_regs regs;
    unwind_regs_here(&regs);
    sys_override = refuse_copies;
    walk_copied(&regs, ALL_VALID, true, &copy);
    sys_override = NULL;
    ck_assert_uint_eq(copied.count, 1);
    ck_assert_uint_eq(copied.flags, 0);
}
END_TEST

/* The last word before memory that is not there, and one that is half in it. */
START_TEST(reads_at_the_end_of_memory)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(pages, MAP_FAILED);
    ck_assert_int_eq(munmap(pages + 2 * PAGE, PAGE), 0);
    uintptr_t end = (uintptr_t)pages + 2 * PAGE, value = 0;
    const struct stack_copy copy = {getpid(), window, WINDOW};
    struct stack_reader reader;
    memset(pages, 7, 2 * PAGE);
    struct copied_stack copied_home = {{UINTPTR_MAX, 0}, &copy, 0, NULL};
    stack_reader_start(&reader, &copied_home.mark, (uintptr_t)pages);
    ck_assert(stack_read(&reader, end - 8, &value));
    ck_assert_uint_eq(value, 0x0707070707070707);
    ck_assert(!stack_read(&reader, end - 7, &value));
    ck_assert(stack_read(&reader, end - PAGE - 4, &value));
    ck_assert_uint_eq(value, 0x0707070707070707);
    ck_assert(!stack_read(&reader, end, &value));
    ck_assert(!stack_read(&reader, 0, &value));
    ck_assert(!stack_read(&reader, UINTPTR_MAX - 7, &value));
    ck_assert(!stack_read(&reader, UINTPTR_MAX - 3, &value));
    ck_assert(stack_read(&reader, end - 8, &value));
    ck_assert(stack_reader_can_read(&reader, end - 1));
    ck_assert(!stack_reader_can_read(&reader, end));
    ck_assert(!stack_reader_adopt(&reader));
    /* Endless leads are followed for a while only. */
    uint32_t reads = 0;
    while (stack_read(&reader, reads % 2 ? (uintptr_t)window : end - 8, &value) && reads < 100000)
        reads++;
    ck_assert_uint_gt(reads, 50);
    ck_assert_uint_lt(reads, 1000);
    munmap(pages, 2 * PAGE);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("stack_lost");
    TCase *t = tcase_create("stack_lost");
    tcase_add_test(t, stack_unmapped_meanwhile);
    tcase_add_test(t, system_call_refused);
    tcase_add_test(t, reads_at_the_end_of_memory);
    suite_add_tcase(s, t);
    return s;
}
