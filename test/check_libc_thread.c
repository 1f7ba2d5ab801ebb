/* Is a thread one of libc's: its own pointer, and others that a foreign runtime may have set. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>

#include "agent/base/sys.h"
#include "agent/thread/libc_thread.h"
#include "agent/thread/thread_context.h"
#include "test/demand.h"

enum { BLOCK_SIZE = 4096 };

static uintptr_t pointer; /* what the kernel says of the calling thread's */
static long refusal;

static bool answer(long number, const long args[6], long *result)
{
    if (number != LIBC_THREAD_POINTER_CALL)
        return false;
    *(uintptr_t *)args[1] = pointer;
    *result = refusal;
    return true;
}

static void *ask_in_thread(void *argument)
{
    demand(libc_thread_is_current(sys_tid()));
    demand(!libc_thread_is_current(sys_pid()));
    demand(libc_thread_id_offset() == *(ptrdiff_t *)argument);
    return argument;
}

START_TEST(a_thread_of_libcs_is_one)
{
    ptrdiff_t offset = libc_thread_id_offset();
    pthread_t thread;
    libc_thread_start();
    ck_assert(libc_thread_is_current(sys_tid()));
    pthread_create(&thread, NULL, ask_in_thread, &offset);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(who_was_not_told_knows_none)
{
    ck_assert(!libc_thread_is_current(sys_tid()));
}
END_TEST

START_TEST(another_pointer_is_seen)
{
    static char memory[64];
    libc_thread_start();
    ck_assert(libc_thread_has_pointer(thread_pointer()));
    ck_assert(!libc_thread_has_pointer((uintptr_t)memory));
    pointer = (uintptr_t)memory;
    sys_override = answer;
    ck_assert(libc_thread_has_pointer((uintptr_t)memory));
    ck_assert(!libc_thread_has_pointer(thread_pointer()));
    refusal = -ENOSYS;
    bool is_told = libc_thread_has_pointer((uintptr_t)memory);
    sys_override = NULL;
    ck_assert(!is_told);
}
END_TEST

/* A copy of libc's block, of which each word in turn is another. */
START_TEST(a_block_has_all_its_marks)
{
    static _Alignas(64) char memory[2 * BLOCK_SIZE];
    char *block = memory + BLOCK_SIZE;
    uintptr_t *words = (uintptr_t *)(void *)block;
    int32_t *id = (int32_t *)(void *)(block + libc_thread_id_offset());
    libc_thread_start();
    pointer = (uintptr_t)block;
    sys_override = answer;
    words[0] = words[2] = pointer;
    *id = sys_tid();
    ck_assert(libc_thread_is_current(sys_tid()));
    refusal = -ENOSYS;
    ck_assert(!libc_thread_is_current(sys_tid()));
    refusal = 0;
#if defined(__x86_64__)
    words[0]++;
    ck_assert(!libc_thread_is_current(sys_tid()));
    words[0]--;
    words[2] = 0;
    ck_assert(!libc_thread_is_current(sys_tid()));
    words[2] = pointer;
#endif
    ++*id; /* that of the thread whose block this one shares */
    ck_assert(!libc_thread_is_current(sys_tid()));
    --*id;
    ck_assert(libc_thread_is_current(sys_tid()));
}
END_TEST

START_TEST(what_cannot_be_read_is_none)
{
    char *pages = sys_map(2 * BLOCK_SIZE);
    ck_assert_ptr_nonnull(pages);
    sys_unmap(pages + BLOCK_SIZE, BLOCK_SIZE);
    libc_thread_start();
    sys_override = answer;
    const uintptr_t pointers[] = {0,
                                  8,
                                  (uintptr_t)pages + BLOCK_SIZE,
                                  (uintptr_t)pages + BLOCK_SIZE - 8,
                                  (uintptr_t)pages + BLOCK_SIZE - 64,
                                  (uintptr_t)pages + BLOCK_SIZE -
                                      (uintptr_t)libc_thread_id_offset()};
    for (size_t i = 0; i < ARRAY_SIZE(pointers); i++) {
        pointer = pointers[i];
        if (pointer >= (uintptr_t)pages && pointer < (uintptr_t)pages + BLOCK_SIZE)
            *(uintptr_t *)pointer = pointer;
        ck_assert(!libc_thread_is_current(sys_tid()));
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("libc_thread");
    TCase *tcase = tcase_create("threads");
    tcase_add_test(tcase, a_thread_of_libcs_is_one);
    tcase_add_test(tcase, who_was_not_told_knows_none);
    tcase_add_test(tcase, another_pointer_is_seen);
    tcase_add_test(tcase, a_block_has_all_its_marks);
    tcase_add_test(tcase, what_cannot_be_read_is_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
