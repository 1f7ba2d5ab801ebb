/* The list of objects brought up to date from within a walk: when it is, and when it is not asked
 * for. Each test is a process of its own, where nothing was tried yet. */
#include "test/check.h"

#include <dlfcn.h>
#include <link.h>

#include "agent/base/clock.h"
#include "agent/unwind/catch_up.h"
#include "agent/unwind/loader_lock.h"
#include "agent/unwind/modules.h"
#include "test/unwind_reference.h"

static uintptr_t code;

/* An object that the list does not have. */
static void load(void)
{
    static const char *const libraries[] = {"libbz2.so.1.0", "liblzma.so.5", "libresolv.so.2"};
    static const char *const functions[] = {"BZ2_bzlibVersion", "lzma_version_number", "ns_get16"};
    test_home_set();
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    for (int i = 0; i < 3 && !code; i++) {
        if (dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD))
            continue;
        void *handle = dlopen(libraries[i], RTLD_NOW);
        code = handle ? (uintptr_t)dlsym(handle, functions[i]) : 0;
    }
    ck_assert_uint_ne(code, 0);
    ck_assert_ptr_null(modules_find(modules_list, code));
}

START_TEST(what_was_loaded_is_found_once)
{
    load();
    ck_assert(catch_up(&test_home));
    ck_assert_ptr_nonnull(modules_find(modules_list, code));
    ck_assert(!catch_up(&test_home));
}
END_TEST

static int in_callback(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info;
    (void)size;
    *(bool *)data = catch_up(&test_home);
    return 1;
}

START_TEST(not_where_the_loaders_lock_is_held)
{
    load();
    bool caught_up = true;
    dl_iterate_phdr(in_callback, &caught_up);
    ck_assert(!caught_up);
    ck_assert_ptr_null(modules_find(modules_list, code));
    /* Tried again after a while, not at once. */
    uint64_t end = clock_monotonic_ns() + 30 * NS_PER_SEC;
    while (!catch_up(&test_home))
        ck_assert_uint_lt(clock_monotonic_ns(), end);
    ck_assert_ptr_nonnull(modules_find(modules_list, code));
}
END_TEST

START_TEST(not_where_the_lock_is_not_known)
{
    load();
    loader_lock_forget();
    ck_assert(!catch_up(&test_home));
    ck_assert_ptr_null(modules_find(modules_list, code));
}
END_TEST

/* Below where the thread is, or far above: what lies between is not one stack. */
START_TEST(not_on_a_stack_that_is_not_the_threads)
{
    load();
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    struct unwind_stack homes[] = {{here - (1 << 20), here - (1 << 19)},
                                   {here + (8 << 20), here + (9 << 20)}};
    struct unwind_stack home = homes[_i];
    ck_assert(!catch_up(&home));
    ck_assert_ptr_null(modules_find(modules_list, code));
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("catch_up");
    TCase *t = tcase_create("catch_up");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_was_loaded_is_found_once);
    tcase_add_test(t, not_where_the_loaders_lock_is_held);
    tcase_add_test(t, not_where_the_lock_is_not_known);
    tcase_add_loop_test(t, not_on_a_stack_that_is_not_the_threads, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
