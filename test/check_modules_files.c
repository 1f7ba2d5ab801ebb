/* The module list, where the files of objects are replaced while these come and go. */
#include "test/check.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The file that the tables of a closed object are mapped from is cut short, which hurts nobody, and
 * the object comes back in another file. */
START_TEST(tables_of_a_file_that_was_replaced_are_not_read)
{
    start_with_copy();
    load_place();
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *first = object_at(library_code), *second = NULL;
    ck_assert_uint_ne(first->inode, 0);
    unload();
    uint32_t known = registry_count();
    ck_assert_int_eq(rename(place, moved), 0);
    ck_assert_int_eq(truncate(moved, 0), 0);
    for (int i = 0; i < 3; i++) {
        copy_source();
        load_place();
        ck_assert_int_eq(modules_rescan(), 0);
        ck_assert_ptr_ne(object_at(library_code), first);
        /* A copy, which serves from then on. */
        ck_assert(!second || object_at(library_code) == second);
        second = object_at(library_code);
        library_check(second);
        library_check_rows(second);
        unload();
        ck_assert_int_eq(unlink(place), 0);
    }
    ck_assert_uint_eq(registry_count(), known + 1);
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
    ck_assert_uint_eq(object->inode, 0);
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
    ck_assert_uint_ne(object->inode, 0);
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
    tcase_add_test(t, tables_of_a_file_that_was_replaced_are_not_read);
    tcase_add_test(t, a_pipe_where_the_file_was_is_not_waited_for);
    tcase_add_test(t, a_relative_path_is_of_the_folder_then);
    suite_add_tcase(s, t);
    return s;
}
