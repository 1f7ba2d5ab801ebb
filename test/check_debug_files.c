/* Names from what belongs to a stripped file: its separate debug file, by build id and by debug
 * link, and its mini debug info. The file is this program itself, taken apart by binutils and xz.
 */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/export/mini_debug.h"
#include "agent/export/symbols.h"
#include "test/map_faults.h"
#include "test/temp_folder.h"

static char folder[256];
static struct object object;
static char object_path[512], id_path[512];

static __attribute__((noinline)) int hidden_function(int x)
{
    return x * 5 + 1;
}

/* Runs a shell command in the folder. */
static void __attribute__((format(printf, 1, 2))) run(const char *pattern, ...)
{
    char command[2048];
    size_t length = (size_t)snprintf(command, sizeof(command), "cd '%s' && ", folder);
    va_list list;
    va_start(list, pattern);
    vsnprintf(command + length, sizeof(command) - length, pattern, list);
    va_end(list);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* full: the program; stripped: without .symtab; debug: what was taken away; nowhere is a debug file
 * found yet. */
static void setup(void)
{
    snprintf(folder, sizeof(folder), "%s", temp_folder_make());
    options.debug_path = "/nowhere";
    ck_assert_int_eq(hidden_function(1), 6);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    object = *modules_main();
    ck_assert_uint_gt(object.build_id_size, 2);
    run("cp '%s' full && objcopy --only-keep-debug full debug && strip -o stripped full",
        object.path);
    object.is_main = false; /* or /proc/self/exe would do */
    snprintf(object_path, sizeof(object_path), "%s/stripped", folder);
    object.path = object_path;
    object.device = object.inode = 0;
    size_t length =
        (size_t)snprintf(id_path, sizeof(id_path), "debugs/.build-id/%02x", object.build_id[0]);
    run("mkdir -p %s", id_path);
    id_path[length++] = '/';
    for (size_t i = 1; i < object.build_id_size; i++)
        length += (size_t)snprintf(id_path + length, sizeof(id_path) - length, "%02x",
                                   object.build_id[i]);
    snprintf(id_path + length, sizeof(id_path) - length, ".debug");
}

static void teardown(void)
{
    modules_forget();
    temp_folder_remove(folder);
}

/* The name of an address in hidden_function; "" when there is none. Static storage. */
static const char *name_of(const void *function)
{
    static char text[256];
    struct module_address found = modules_resolve(modules_list->generation, (uintptr_t)function);
    uint64_t address = found.vaddr + 1;
    struct symbol_name name;
    struct buffer texts = {0};
    int descriptors = count_descriptors();
    (void)!symbols_find(&object, SYMBOLS_NOT_LOADED, &address, 1, &name, &texts);
    ck_assert_int_eq(count_descriptors(), descriptors);
    snprintf(text, sizeof(text), "%.*s", (int)name.length,
             name.length ? (char *)texts.data + name.offset : "");
    buffer_free(&texts);
    return text;
}

static void check_named(void)
{
    ck_assert_str_eq(name_of((const void *)hidden_function), "hidden_function");
}

static void check_unnamed(void)
{
    ck_assert_str_eq(name_of((const void *)hidden_function), "");
}

static void use_path(const char *folders)
{
    static char path[2048];
    snprintf(path, sizeof(path), "::/nowhere:%s/%s:", folder, folders);
    options.debug_path = path;
}

START_TEST(by_build_id)
{
    check_unnamed();
    run("cp debug %s", id_path);
    check_unnamed(); /* in no folder that is looked into */
    use_path("debugs");
    check_named();
    /* The file itself was replaced, or is gone. */
    run("cp /bin/true stripped");
    check_named();
    run("rm stripped");
    check_named();
    /* The debug file is another's. */
    run("cp /bin/true %s", id_path);
    check_unnamed();
    run("head -c 5000 debug > %s", id_path);
    check_unnamed();
    run("rm %s && mkfifo %s", id_path, id_path);
    check_unnamed();
}
END_TEST

static const char *const link_places[] = {".", ".debug", "debugs/%s"};

START_TEST(by_debug_link)
{
    char place[512];
    snprintf(place, sizeof(place), link_places[_i], folder);
    run("objcopy --add-gnu-debuglink=debug stripped && mkdir -p '%s'", place);
    run("mv debug debug.kept");
    check_unnamed();
    run("cp debug.kept '%s/debug'", place);
    use_path("debugs");
    check_named();
    /* One of the name that has another build id. */
    run("rm '%s/debug' && cp /bin/true '%s/debug'", place, place);
    check_unnamed();
}
END_TEST

START_TEST(a_link_is_checked_where_there_is_no_build_id)
{
    run("strip -o stripped --remove-section=.note.gnu.build-id full");
    run("objcopy --remove-section=.note.gnu.build-id debug");
    run("objcopy --add-gnu-debuglink=debug stripped");
    object.build_id_size = 0;
    check_named();
    run("printf x >> debug");
    check_unnamed();
}
END_TEST

START_TEST(a_link_that_leads_back)
{
    run("cp stripped debug && objcopy --add-gnu-debuglink=debug stripped && "
        "ln -f stripped debug");
    check_unnamed();
}
END_TEST

START_TEST(links_that_are_none)
{
    run("cp debug one");
    static const char *const contents[] = {
        "",
        "one",
        "/one\\0\\0\\0\\0\\0\\0\\0\\0",
        "\\0\\0\\0\\0\\0\\0\\0\\0",
        "one\\0",
        "../one\\0\\0\\0\\0\\0\\0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
        run("strip -o stripped full && printf '%s' > link && "
            "objcopy --add-section .gnu_debuglink=link stripped 2> /dev/null",
            contents[i]);
        check_unnamed();
    }
    run("strip -o stripped full && printf 'one\\0\\0\\0\\0\\0' > link && "
        "objcopy --add-section .gnu_debuglink=link stripped");
    check_named(); /* by the build id, which both have */
}
END_TEST

/* ---- Mini debug info ------------------------------------------------------------------------ */

static const char *const xz_ways[] = {
    "",    "--check=none",          "--check=crc32",     "--check=sha256",
    "-9e", "-0 --block-size=10000", "--lzma2=dict=4KiB", "--lzma2=lc=0,lp=4,pb=0",
};

static void add_mini(const char *xz_options)
{
    run("strip -g -o mini full && objcopy --only-keep-debug mini mini.debug && "
        "xz -k -f %s mini.debug && strip -o stripped full && "
        "objcopy --add-section .gnu_debugdata=mini.debug.xz stripped",
        xz_options);
}

START_TEST(mini_debug_info)
{
    add_mini(xz_ways[_i]);
    check_named();
}
END_TEST

/* The linker puts it into .dynsym, as libraries that are linked ask for it; start code calls it. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
void __gmon_start__(void);
__attribute__((noinline)) void __gmon_start__(void)
{
    __asm__ volatile("nop; nop");
}
/* NOLINTEND(bugprone-reserved-identifier) */

START_TEST(mini_debug_info_beside_exported_names)
{
    check_unnamed();
    ck_assert_str_eq(name_of((const void *)__gmon_start__), "__gmon_start__");
    /* As Fedora makes it: without what .dynsym has. */
    run("objcopy --strip-symbol=__gmon_start__ full && strip -g -o mini full && "
        "objcopy --only-keep-debug mini mini.debug && xz -k mini.debug && "
        "objcopy --add-section .gnu_debugdata=mini.debug.xz stripped");
    check_named();
    ck_assert_str_eq(name_of((const void *)__gmon_start__), "__gmon_start__");
}
END_TEST

static uint8_t *unpacked;
static size_t unpacked_size;

static int unpack(const uint8_t *data, size_t size)
{
    return xz_unpack(data, size, &unpacked, &unpacked_size);
}

static void give_back(void)
{
    sys_unmap(unpacked, unpacked_size);
}

START_TEST(what_is_unpacked_is_what_was_packed)
{
    run("xz -k -c %s full > packed", xz_ways[_i]);
    size_t size, full_size;
    char *packed = read_file(in_folder(folder, "packed"), &size);
    char *full = read_file(in_folder(folder, "full"), &full_size);
    ck_assert_int_eq(unpack((uint8_t *)packed, size), 0);
    ck_assert_uint_eq(unpacked_size, full_size);
    ck_assert_int_eq(memcmp(unpacked, full, full_size), 0);
    give_back();
    free(packed);
    free(full);
}
END_TEST

START_TEST(what_is_damaged_or_too_large)
{
    run("head -c 60000 full | xz -c > packed");
    size_t size;
    char *data = read_file(in_folder(folder, "packed"), &size);
    uint8_t *packed = (uint8_t *)data;
    size_t refused = 0, tried = 0;
    for (size_t at = 0; at < size; at += at < 64 || at > size - 64 ? 1 : 97, tried++) {
        packed[at] ^= 0x41;
        int error = unpack(packed, size);
        if (error == 0)
            give_back(); /* checks of headers and of the index are left out */
        refused += error != 0;
        packed[at] ^= 0x41;
    }
    ck_assert_uint_gt(refused, tried - 40);
    for (size_t cut = 0; cut < size; cut += 53)
        ck_assert_int_eq(unpack(packed, cut), -ENOEXEC);
    free(data);
    run("head -c %d /dev/zero | xz -c > packed", MINI_DEBUG_MAX + 1);
    data = read_file(in_folder(folder, "packed"), &size);
    ck_assert_int_eq(unpack((uint8_t *)data, size), -E2BIG);
    free(data);
    run("head -c %d /dev/zero | xz -c > packed", MINI_DEBUG_MAX);
    data = read_file(in_folder(folder, "packed"), &size);
    ck_assert_int_eq(unpack((uint8_t *)data, size), 0);
    give_back();
    free(data);
    run("xz -c --x86 --lzma2 full > packed"); /* filters that are not read */
    data = read_file(in_folder(folder, "packed"), &size);
    ck_assert_int_eq(unpack((uint8_t *)data, size), -ENOEXEC);
    free(data);
}
END_TEST

START_TEST(no_memory)
{
    add_mini("");
    use_path("debugs");
    int descriptors = count_descriptors();
    bool failed = true;
    for (int i = 0; failed; i++) {
        struct module_address found =
            modules_resolve(modules_list->generation, (uintptr_t)hidden_function);
        struct symbol_name name;
        struct buffer texts = {0};
        map_faults_begin(i);
        int result = symbols_find(&object, SYMBOLS_NOT_LOADED, &found.vaddr, 1, &name, &texts);
        buffer_free(&texts);
        ck_assert_int_eq(map_faults_end(&failed), 0);
        ck_assert_int_eq(result, failed ? -ENOMEM : 0);
        ck_assert_uint_eq(name.length, failed ? 0 : strlen("hidden_function"));
        ck_assert_int_le(i, 100);
    }
    ck_assert_int_eq(count_descriptors(), descriptors);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("debug_files");
    TCase *separate = tcase_create("separate");
    tcase_add_checked_fixture(separate, setup, teardown);
    tcase_add_test(separate, by_build_id);
    tcase_add_loop_test(separate, by_debug_link, 0, ARRAY_SIZE(link_places));
    tcase_add_test(separate, a_link_is_checked_where_there_is_no_build_id);
    tcase_add_test(separate, a_link_that_leads_back);
    tcase_add_test(separate, links_that_are_none);
    tcase_set_timeout(separate, 60);
    suite_add_tcase(suite, separate);
    TCase *mini = tcase_create("mini");
    tcase_add_checked_fixture(mini, setup, teardown);
    tcase_add_loop_test(mini, mini_debug_info, 0, ARRAY_SIZE(xz_ways));
    tcase_add_test(mini, mini_debug_info_beside_exported_names);
    tcase_add_loop_test(mini, what_is_unpacked_is_what_was_packed, 0, ARRAY_SIZE(xz_ways));
    tcase_add_test(mini, what_is_damaged_or_too_large);
    tcase_add_test(mini, no_memory);
    tcase_set_timeout(mini, 60);
    suite_add_tcase(suite, mini);
    return suite;
}
