/* Functions of loaded objects are found by either hash table, and wherever the dynamic section says
 * that the object lies. */
#include "test/check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/dynamic_symbols.h"

enum { ENTRIES_MAX = 64 };
/* Of libc, none an IFUNC; some have several versions, of which dlsym gives the default one. */
static const char *const names[] = {"abort",    "getauxval",           "qsort",
                                    "wcstoull", "clock_getcpuclockid", "posix_spawn"};
enum { NAMES = sizeof(names) / sizeof(names[0]) };

/* The dynamic section of libc without one tag. False: it has none of that. */
static bool copy_without(ElfW(Sxword) tag, const struct link_map *libc, ElfW(Dyn) * copy)
{
    size_t used = 0, left_out = 0;
    for (const ElfW(Dyn) *entry = libc->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == tag)
            left_out++;
        else
            copy[used++] = *entry;
        ck_assert_uint_lt(used, ENTRIES_MAX);
    }
    copy[used] = (ElfW(Dyn)){0};
    return left_out != 0;
}

/* `further`: how far behind its place each function is expected. */
static void expect_found(const ElfW(Dyn) * dynamic, struct link_map *libc, uintptr_t further)
{
    struct dynamic_symbols symbols;
    dynamic_symbols_read(libc->l_addr + further, dynamic, &symbols);
    for (int i = 0; i < NAMES; i++) {
        uintptr_t expected = (uintptr_t)dlsym(libc, names[i]);
        uintptr_t found = (uintptr_t)dynamic_symbols_find(&symbols, names[i]);
        ck_assert_uint_ne(expected, 0);
        ck_assert_msg(found == expected + further, "%s: %#lx, the loader says %#lx", names[i],
                      (unsigned long)found, (unsigned long)expected);
    }
    ck_assert_ptr_null(dynamic_symbols_find(&symbols, "no_such_name"));
    ck_assert_ptr_null(dynamic_symbols_find(&symbols, ""));
}

static struct link_map *libc_map(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(libc);
    return libc;
}

START_TEST(either_hash_table_will_do)
{
    struct link_map *libc = libc_map();
    ElfW(Dyn) copy[ENTRIES_MAX];
    expect_found(libc->l_ld, libc, 0);
    /* Many a distribution's libc has just one of the two. */
    int tables = 0;
    if (copy_without(DT_HASH, libc, copy)) {
        expect_found(copy, libc, 0);
        tables++;
    }
    if (copy_without(DT_GNU_HASH, libc, copy)) {
        if (tables)
            expect_found(copy, libc, 0);
        tables++;
    }
    ck_assert_int_ge(tables, 1);
}
END_TEST

/* glibc has made addresses of them; musl and the kernel leave them as they are in the file, which
 * for the vDSO of old kernels is the end of the address space. */
START_TEST(pointers_may_be_those_of_the_file)
{
    static const uintptr_t linked_at[] = {0, -(uintptr_t)0x900000};
    struct link_map *libc = libc_map();
    for (int i = 0; i < 2; i++) {
        ElfW(Dyn) copy[ENTRIES_MAX];
        copy_without(DT_NULL, libc, copy);
        for (ElfW(Dyn) *entry = copy; entry->d_tag != DT_NULL; entry++)
            if (entry->d_un.d_ptr > libc->l_addr)
                entry->d_un.d_ptr += linked_at[i] - libc->l_addr;
        expect_found(copy, libc, -linked_at[i]);
    }
}
END_TEST

START_TEST(an_object_without_symbols_has_none)
{
    static const ElfW(Dyn) empty[1];
    struct dynamic_symbols symbols;
    dynamic_symbols_read(0x1000, empty, &symbols);
    ck_assert_ptr_null(dynamic_symbols_find(&symbols, "abort"));
    dynamic_symbols_read(0x1000, NULL, &symbols);
    ck_assert_ptr_null(dynamic_symbols_find(&symbols, "abort"));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("dynamic_symbols");
    TCase *all = tcase_create("all");
    tcase_add_test(all, either_hash_table_will_do);
    tcase_add_test(all, pointers_may_be_those_of_the_file);
    tcase_add_test(all, an_object_without_symbols_has_none);
    suite_add_tcase(suite, all);
    return suite;
}
