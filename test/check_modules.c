/* The module list: the objects of this process, an object that comes and goes by dlopen, made-up
 * objects at made-up addresses (conflicts, bounds, readers that hold a list), injected faults. */
#include "test/check.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/loader_lock.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/object_registry.h"
#include "test/library_fixture.h"

/* Stands in for thread_context: one reader, whose guard is odd while it holds a list. */
static uint32_t reader_guard;

void thread_grace_begin(struct thread_grace *grace)
{
    grace->count = 1;
    grace->open[0].guard = __atomic_load_n(&reader_guard, __ATOMIC_SEQ_CST);
}

bool thread_grace_over(struct thread_grace *grace)
{
    uint32_t noted = grace->open[0].guard;
    return !(noted & 1) || __atomic_load_n(&reader_guard, __ATOMIC_SEQ_CST) != noted;
}

/* ---- The objects of this process ---- */

/* The build id by section headers of the file: another way than the one under test. */
static size_t build_id_of_file(const char *path, uint8_t *id)
{
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    struct stat status;
    fstat(fd, &status);
    const uint8_t *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    const ElfW(Ehdr) *head = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + head->e_shoff);
    const char *names = (const char *)file + sections[head->e_shstrndx].sh_offset;
    size_t size = 0;
    for (int i = 0; i < head->e_shnum; i++) {
        if (strcmp(names + sections[i].sh_name, ".note.gnu.build-id") != 0)
            continue;
        size = sections[i].sh_size - 16;
        memcpy(id, file + sections[i].sh_offset + 16, size);
    }
    munmap((void *)(uintptr_t)file, (size_t)status.st_size);
    return size;
}

static uint32_t file_opens, file_maps;

static bool count_files(long number, const long args[6], long *result)
{
    (void)result;
    file_opens += number == SYS_openat;
    file_maps += number == SYS_mmap && args[4] >= 0;
    return false;
}

START_TEST(objects_of_the_start)
{
    sys_override = count_files;
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    sys_override = NULL;
    const struct object *own = object_at((void *)(uintptr_t)object_at);
    char path[4096] = "";
    ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
    ck_assert_str_eq(own->path, path);
    ck_assert(own->is_main && !own->is_system && own->in_place);
    ck_assert_ptr_eq(modules_main(), own);
    const struct object *libc = object_at((void *)(uintptr_t)gnu_get_libc_version);
    ck_assert(libc->is_system && !libc->is_main && libc->in_place);
    ck_assert_uint_gt(libc->fde_count, 1000);
    uint8_t id[64];
    ck_assert_uint_eq(build_id_of_file(libc->path, id), libc->build_id_size);
    ck_assert_mem_eq(libc->build_id, id, libc->build_id_size);
    const struct object *loader = object_at((void *)(getauxval(AT_BASE) + 0x2000));
    ck_assert(loader->is_system);
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    if (vdso) {
        bool seen = false;
        for (uint32_t i = 0; i < modules_list->count; i++)
            seen = seen || (modules_list->modules[i].object->is_vdso &&
                            modules_list->modules[i].start >= vdso &&
                            strcmp(modules_list->modules[i].object->path, "[vdso]") == 0);
        ck_assert(seen);
    }
    /* No file was touched: all objects here are needed by the program or by each other. */
    ck_assert_uint_eq(file_opens, 0);
    ck_assert_uint_eq(file_maps, 0);
    for (uint32_t i = 0; i < modules_list->count; i++) {
        const struct module *m = &modules_list->modules[i];
        ck_assert(i == 0 || m[-1].end <= m->start);
        ck_assert_ptr_eq(modules_find(modules_list, m->start), m);
        ck_assert_ptr_eq(modules_find(modules_list, m->end - 1), m);
        ck_assert_ptr_ne(modules_find(modules_list, m->end), m);
        struct module_address found = modules_resolve(modules_list->generation, m->start + 1);
        ck_assert_ptr_eq(found.object, m->object);
        ck_assert_uint_eq(found.vaddr, m->start + 1 - m->bias);
    }
    ck_assert_ptr_null(modules_find(modules_list, 0));
    ck_assert_ptr_null(modules_find(modules_list, UINTPTR_MAX));
    ck_assert_ptr_null(modules_resolve(0, (uintptr_t)path).object);
    /* Data of an object is not its code. */
    ck_assert_ptr_null(modules_find(modules_list, (uintptr_t)&file_opens));
}
END_TEST

START_TEST(nothing_changed_costs_nothing)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    const struct module_list *list = modules_list;
    modules_stale = 1;
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_eq(modules_list, list);
    ck_assert_uint_eq(list->publication, 1);
    ck_assert_uint_eq(modules_stale, 0);
}
END_TEST

START_TEST(mark_of_the_allocator)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    uint32_t publication = modules_list->publication;
    modules_mark_system((uintptr_t)object_at);
    ck_assert(object_at((void *)(uintptr_t)object_at)->is_system);
    ck_assert_uint_eq(modules_list->publication, publication + 1);
    modules_mark_system((uintptr_t)object_at);
    modules_mark_system(0);
    ck_assert_uint_eq(modules_list->publication, publication + 1);
}
END_TEST

/* ---- A real object that comes and goes ---- */

START_TEST(dlopen_and_dlclose)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    library_load();
    ck_assert_ptr_null(modules_find(modules_list, (uintptr_t)library_code));
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    library_check(object);
    library_check_rows(object);
    ck_assert_int_eq(object->tables, TABLES_COPIED);
    uint32_t generation = modules_list->generation, known = registry_count();
    /* The loader may put it elsewhere the next time. */
    uintptr_t first = (uintptr_t)library_code;
    struct module_address before = modules_resolve(generation, first);
    dlclose(library_handle);
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_null(modules_find(modules_list, first));
    struct module_address after = modules_resolve(modules_list->generation, first);
    ck_assert_ptr_eq(after.object, object);
    ck_assert_uint_eq(after.vaddr, before.vaddr);
    library_check_rows(object);
    for (int i = 0; i < 10; i++) {
        library_load();
        ck_assert_int_eq(modules_rescan(), 0);
        ck_assert_ptr_eq(object_at(library_code), object);
        dlclose(library_handle);
        ck_assert_int_eq(modules_rescan(), 0);
    }
    ck_assert_uint_eq(registry_count(), known);
    ck_assert_ptr_eq(modules_resolve(generation, first).object, object);
}
END_TEST

START_TEST(an_object_opened_before_the_start_is_not_pinned)
{
    library_load();
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    library_check(object_at(library_code));
}
END_TEST

/* Whether the process maps the file. */
static bool is_mapped(const char *path)
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps))
        found = found || strstr(line, path);
    ck_assert_int_eq(fclose(maps), 0);
    return found;
}

/* What is closed holds no file, whoever reads the list meanwhile. */
START_TEST(tables_without_room_for_a_copy_are_mapped_until_closed)
{
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    for (int is_held = 0; is_held < 2; is_held++) {
        library_load();
        arena_set_budget(arena_reserved() + (is_held ? 0 : 4096)); /* of a list */
        ck_assert_int_eq(modules_rescan(), 0);
        const struct object *object = object_at(library_code);
        ck_assert_int_eq(object->tables, TABLES_MAPPED);
        library_check(object);
        library_check_rows(object);
        reader_guard += (uint32_t)is_held;
        dlclose(library_handle);
        arena_set_budget(SIZE_MAX);
        ck_assert_int_eq(modules_rescan(), 0);
        ck_assert_int_eq(is_mapped(object->path), is_held);
        ck_assert_uint_eq(modules_stale, is_held);
        if (is_held) {
            library_check_rows(object);
            reader_guard++;
            ck_assert_int_eq(modules_rescan(), 0);
        }
        ck_assert(!is_mapped(object->path));
        ck_assert_int_eq(object->tables, TABLES_GIVEN_UP);
        ck_assert_uint_eq(modules_function_start(object, 4), 4);
    }
}
END_TEST

static long failing_call;

static bool fail_files(long number, const long args[6], long *result)
{
    if (number != failing_call || (number == SYS_mmap && args[4] < 0))
        return false;
    *result = number == SYS_pread64 ? 0 : -EACCES;
    return true;
}

START_TEST(without_memory_for_a_copy_and_a_file_there_are_no_rows)
{
    static const long calls[] = {SYS_openat, SYS_fstat, SYS_pread64, SYS_mmap};
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    failing_call = calls[_i];
    sys_override = fail_files;
    arena_set_budget(arena_reserved());
    library_load();
    /* The second list cannot be had either. */
    int error = modules_rescan();
    ck_assert_int_eq(error, -EAGAIN);
    ck_assert_uint_eq(modules_stale, 1);
    arena_set_budget(arena_reserved() + 4096);
    ck_assert_int_eq(modules_rescan(), 0);
    sys_override = NULL;
    struct cfi_row row;
    const struct object *object = object_at(library_code);
    ck_assert_uint_eq(object->fde_count, 0);
    ck_assert_int_eq(cfi_row_at(object, object->segments[0].vaddr, &row), -ENOENT);
    arena_set_budget(SIZE_MAX);
}
END_TEST

/* Another may hold the loader's lock for good: nothing asks for it before an object has come. */
START_TEST(a_child_asks_the_loader_when_it_has_loaded)
{
    void *program = dlopen(NULL, RTLD_NOW);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    uint32_t publication = modules_list->publication;
    ck_assert(loader_lock_is_known() && loader_lock_is_free());
    modules_distrust_loader(); /* it is seen to be free */
    modules_stale = 1;
    ck_assert_int_eq(modules_rescan(), 0);
    loader_lock_forget();
    modules_lock_for_fork();
    modules_distrust_loader();
    modules_unlock_after_fork();
    modules_stale = 1;
    ck_assert_int_eq(modules_rescan(), -EAGAIN);
    modules_note_loaded(NULL);
    modules_note_loaded(program);
    ck_assert_int_eq(modules_rescan(), -EAGAIN);
    library_load();
    ck_assert_int_eq(modules_rescan(), -EAGAIN);
    ck_assert_uint_eq(modules_list->publication, publication);
    ck_assert_uint_eq(modules_stale, 1);
    modules_note_loaded(library_handle);
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_nonnull(object_at(library_code));
    dlclose(library_handle);
    modules_note_loaded(NULL);
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_null(modules_find(modules_list, (uintptr_t)library_code));
}
END_TEST

static int (*wrapped)(struct dl_phdr_info *, size_t, void *);

static int rename_library(struct dl_phdr_info *info, size_t size, void *data)
{
    struct dl_phdr_info changed = *info;
    if (library_name && strstr(info->dlpi_name, library_name))
        changed.dlpi_name = "/proc/self/exe"; /* as if it had been replaced meanwhile */
    return wrapped(&changed, size, data);
}

static int iterate_renamed(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    wrapped = callback;
    return dl_iterate_phdr(rename_library, data);
}

START_TEST(a_replaced_file_is_not_believed)
{
    ck_assert_int_eq(modules_start(iterate_renamed), 0);
    library_load();
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = object_at(library_code);
    ck_assert_str_eq(object->path, "/proc/self/exe");
    ck_assert_uint_eq(object->inode, 0);
    library_check(object);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("modules");
    TCase *t = tcase_create("modules");
    tcase_add_test(t, objects_of_the_start);
    tcase_add_test(t, nothing_changed_costs_nothing);
    tcase_add_test(t, mark_of_the_allocator);
    tcase_add_test(t, dlopen_and_dlclose);
    tcase_add_test(t, an_object_opened_before_the_start_is_not_pinned);
    tcase_add_test(t, tables_without_room_for_a_copy_are_mapped_until_closed);
    tcase_add_loop_test(t, without_memory_for_a_copy_and_a_file_there_are_no_rows, 0, 4);
    tcase_add_test(t, a_replaced_file_is_not_believed);
    tcase_add_test(t, a_child_asks_the_loader_when_it_has_loaded);
    suite_add_tcase(s, t);
    return s;
}
