/* The module list, where the files of objects are replaced while these come and go. */
#include "test/check.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/object_registry.h"
#include "test/library_fixture.h"

static char source[4096], place[64], moved[80];

static void remove_files(void)
{
    unlink(place);
    unlink(moved);
}

static void copy_source(void)
{
    static uint8_t block[65536];
    FILE *from = fopen(source, "r"), *to = fopen(place, "w");
    ck_assert(from && to);
    for (size_t size; (size = fread(block, 1, sizeof(block), from)) > 0;)
        ck_assert_uint_eq(fwrite(block, 1, size, to), size);
    fclose(from);
    fclose(to);
}

static void load_place(void)
{
    library_name = place;
    library_load();
}

static void unload(void)
{
    dlclose(library_handle);
    ck_assert_int_eq(modules_rescan(), 0);
}

/* A copy of a library_name, at a place of ours. */
static void start_with_copy(void)
{
    (void)snprintf(place, sizeof(place), "/tmp/check_modules.%d.so", (int)getpid());
    (void)snprintf(moved, sizeof(moved), "%s.old", place);
    atexit(remove_files);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    library_load();
    ck_assert_int_eq(modules_rescan(), 0);
    strcpy(source, object_at(library_code)->path);
    unload();
    copy_source();
}

/* The tables of a closed object do not depend on its file, and its file not on them. */
START_TEST(tables_outlive_the_file)
{
    start_with_copy();
    load_place();
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    uint64_t vaddr =
        (uintptr_t)library_code - modules_find(modules_list, (uintptr_t)library_code)->bias;
    unload();
    uint32_t known = registry_count();
    ck_assert_int_eq(truncate(place, 0), 0);
    library_check_rows(object);
    ck_assert_uint_eq(modules_function_start(object, vaddr), cfi_function_start(object, vaddr));
    /* It comes back in another file. */
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(unlink(place), 0);
        copy_source();
        load_place();
        ck_assert_int_eq(modules_rescan(), 0);
        ck_assert_ptr_eq(object_at(library_code), object);
        unload();
    }
    ck_assert_uint_eq(registry_count(), known);
}
END_TEST

static const struct object *load_and_unload(int number)
{
    (void)snprintf(strrchr(place, '.'), sizeof(".000"), ".%03d", number);
    copy_source();
    load_place();
    ck_assert_int_eq(unlink(place), 0);
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    ck_assert_int_eq(object->tables, TABLES_COPIED);
    library_check(object);
    library_check_rows(object);
    unload();
    return object;
}

/* Plugins that come and go, each by a new name: who was closed first makes room. */
START_TEST(tables_of_closed_objects_are_bounded)
{
    enum { BUDGET = 4 << 20, SHARE = BUDGET / 16, OBJECTS = 100 };
    const struct object *objects[OBJECTS];
    start_with_copy();
    size_t before = arena_reserved();
    arena_set_budget(BUDGET);
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = load_and_unload(i);
        ck_assert_uint_lt(arena_reserved(), before + SHARE + 4 * 4096);
    }
    int with_tables = 0;
    while (objects[OBJECTS - 1 - with_tables]->fde_count)
        with_tables++;
    ck_assert_int_ge(with_tables, 2);
    for (int i = 0; i < OBJECTS - with_tables; i++)
        ck_assert_int_eq(objects[i]->tables, TABLES_GIVEN_UP);
    ck_assert_int_lt(with_tables, OBJECTS);
    ck_assert_ptr_eq(load_and_unload(0), objects[0]);
    arena_set_budget(SIZE_MAX);
}
END_TEST

/* Nobody writes to it: an open that waits for a writer would not end. */
START_TEST(a_pipe_where_the_file_was_is_not_waited_for)
{
    start_with_copy();
    load_place();
    ck_assert_int_eq(unlink(place), 0);
    ck_assert_int_eq(mkfifo(place, 0600), 0);
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    library_check(object);
    modules_note_miss(object);
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert(object->frames_complete);
    unload();
}
END_TEST

/* Makes the next scan look at all, though nothing came or went. */
static void rescan_all(void)
{
    modules_note_miss(object_at(library_code));
    ck_assert_int_eq(modules_rescan(), 0);
}

/* The loader knows it by a path that leads elsewhere once the folder is another. */
START_TEST(a_relative_path_is_of_the_folder_then)
{
    char other[80], relative[64];
    start_with_copy();
    (void)snprintf(relative, sizeof(relative), "./%s", strrchr(place, '/') + 1);
    ck_assert_int_eq(chdir("/tmp"), 0);
    library_name = relative;
    library_load();
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    ck_assert_str_eq(object->path, place);
    uint32_t known = registry_count();
    ck_assert_int_eq(chdir("/"), 0);
    rescan_all();
    ck_assert_ptr_eq(object_at(library_code), object);
    ck_assert_uint_eq(registry_count(), known);
    unload();
    /* By the same path from another folder it is another file. */
    (void)snprintf(other, sizeof(other), "%s.d", place);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    ck_assert_int_eq(chdir(other), 0);
    strcat(other, relative + 1);
    ck_assert_int_eq(rename(place, other), 0);
    library_load();
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_ne(object_at(library_code), object);
    ck_assert_str_eq(object_at(library_code)->path, other);
    unload();
    ck_assert_int_eq(unlink(other), 0);
    *strrchr(other, '/') = 0;
    ck_assert_int_eq(rmdir(other), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("modules_files");
    TCase *t = tcase_create("modules_files");
    tcase_add_test(t, tables_outlive_the_file);
    tcase_add_test(t, tables_of_closed_objects_are_bounded);
    tcase_add_test(t, a_pipe_where_the_file_was_is_not_waited_for);
    tcase_add_test(t, a_relative_path_is_of_the_folder_then);
    suite_add_tcase(s, t);
    return s;
}
