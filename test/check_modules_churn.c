/* The module list over made-up objects at made-up addresses: generations where addresses are used
 * again, what is resolved for which generation, bounds in an endless change, readers that hold a
 * list, the lock. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/arena.h"
#include "agent/base/stats.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/object_registry.h"

/* Stands in for thread_context: some readers, whose guards are odd while they hold a list. */
enum { READERS = 3 };
static uint32_t guards[READERS];

void thread_grace_begin(struct thread_grace *grace)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (int i = 0; i < READERS; i++)
        grace->open[i].guard = __atomic_load_n(&guards[i], __ATOMIC_SEQ_CST);
}

bool thread_grace_over(struct thread_grace *grace)
{
    for (int i = 0; i < READERS; i++)
        if ((grace->open[i].guard & 1) &&
            __atomic_load_n(&guards[i], __ATOMIC_SEQ_CST) == grace->open[i].guard)
            return false;
    return true;
}

/* ---- Made-up objects ---- */

enum { FAKES = 800, FAKE_SIZE = 0x1000, HEADERS = 2 };

static struct fake {
    char name[24];
    ElfW(Phdr) headers[HEADERS];
    uintptr_t bias;
    bool loaded;
} fakes[FAKES];
static uint64_t loads, unloads;
static bool has_counters;
static uint32_t callbacks;

static void fake_load(int i, uintptr_t bias)
{
    fakes[i].bias = bias;
    fakes[i].loaded = true;
    loads++;
}

static void fake_unload(int i)
{
    fakes[i].loaded = false;
    unloads++;
}

static int iterate(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    for (int i = 0; i < FAKES; i++) {
        if (!fakes[i].loaded)
            continue;
        struct dl_phdr_info info = {.dlpi_addr = fakes[i].bias,
                                    .dlpi_name = fakes[i].name,
                                    .dlpi_phdr = fakes[i].headers,
                                    .dlpi_phnum = HEADERS,
                                    .dlpi_adds = loads,
                                    .dlpi_subs = unloads};
        callbacks++;
        size_t size = has_counters ? sizeof(info) : offsetof(struct dl_phdr_info, dlpi_adds);
        int result = callback(&info, size, data);
        if (result)
            return result;
    }
    return 0;
}

/* Object 0 is the main program. All have code at [0x1000, 0x2000). */
static void start(void)
{
    for (int i = 0; i < FAKES; i++) {
        snprintf(fakes[i].name, sizeof(fakes[i].name), "/nowhere/lib%d.so", i);
        fakes[i].headers[0] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_flags = PF_R, .p_memsz = 0x1000};
        fakes[i].headers[1] = (ElfW(Phdr)){.p_type = PT_LOAD,
                                           .p_flags = PF_R | PF_X,
                                           .p_vaddr = 0x1000,
                                           .p_memsz = FAKE_SIZE,
                                           .p_align = (ElfW(Xword))i};
    }
    fake_load(0, 0x400000);
    ck_assert_int_eq(modules_start(iterate), 0);
}

static void rescan(void)
{
    ck_assert_int_eq(modules_rescan(), 0);
}

enum { X = 0x10000000, CODE = X + 0x1800 };

static const char *name_at(uint32_t generation, uintptr_t pc)
{
    struct module_address found = modules_resolve(generation, pc);
    return found.object ? found.object->path + strlen("/nowhere/") : "-";
}

START_TEST(addresses_used_again_have_generations)
{
    has_counters = _i;
    start();
    ck_assert_uint_eq(modules_list->generation, 0);
    fake_load(1, X);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 0);
    ck_assert_str_eq(name_at(0, CODE), "lib1.so");
    ck_assert_uint_eq(modules_resolve(0, CODE).vaddr, 0x1800);
    /* Gone, its address stays its own; loaded again at the same place, too. */
    fake_unload(1);
    rescan();
    ck_assert_ptr_null(modules_find(modules_list, CODE));
    ck_assert_str_eq(name_at(0, CODE), "lib1.so");
    fake_load(1, X);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 0);
    /* Another object in its place, half overlapping. */
    fake_unload(1);
    rescan();
    fake_load(2, X + 0x400);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 1);
    ck_assert_str_eq(name_at(0, CODE), "lib1.so");
    ck_assert_str_eq(name_at(1, CODE), "lib2.so");
    ck_assert_uint_eq(modules_resolve(1, CODE).vaddr, 0x1400);
    ck_assert_str_eq(name_at(0, X + 0x1100), "lib1.so");
    ck_assert_str_eq(name_at(1, X + 0x1100), "-");
    /* Unseen in between: unloaded and another loaded before the next scan; the first one back. */
    fake_unload(2);
    fake_load(1, X);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 2);
    const char *const expected[] = {"lib1.so", "lib2.so", "lib1.so"};
    for (uint32_t g = 0; g < 3; g++)
        ck_assert_str_eq(name_at(g, CODE), expected[g]);
    /* The same object with another bias at these addresses is another thing, too. */
    fake_unload(1);
    fake_load(1, X + 0x800);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 3);
    ck_assert_uint_eq(modules_resolve(2, CODE).vaddr, 0x1800);
    ck_assert_uint_eq(modules_resolve(3, CODE).vaddr, 0x1000);
    /* Two conflicts in one scan are one generation; no conflict is none. */
    fake_load(3, 2 * X);
    fake_load(4, 3 * X);
    rescan();
    fake_unload(3);
    fake_unload(4);
    fake_load(5, 2 * X);
    fake_load(6, 3 * X);
    rescan();
    ck_assert_uint_eq(modules_list->generation, 4);
    ck_assert_str_eq(name_at(3, 3 * X + 0x1000), "lib4.so");
    ck_assert_str_eq(name_at(4, 3 * X + 0x1000), "lib6.so");
    ck_assert_str_eq(name_at(3, CODE), "lib1.so");
    ck_assert_str_eq(name_at(4, CODE), "lib1.so");
    ck_assert_ptr_eq(modules_main(), modules_resolve(4, 0x401000).object);
}
END_TEST

START_TEST(more_objects_than_fit_at_first)
{
    start();
    /* Downwards, as the kernel places them. */
    for (int i = 1; i < FAKES; i++)
        fake_load(i, (uintptr_t)X * 8 - (uintptr_t)i * 0x3000);
    rescan();
    ck_assert_uint_eq(modules_list->count, FAKES);
    for (int i = 1; i < FAKES; i++) {
        const struct module *m = modules_find(modules_list, fakes[i].bias + 0x1fff);
        ck_assert_ptr_nonnull(m);
        ck_assert_str_eq(m->object->path, fakes[i].name);
        ck_assert_ptr_null(modules_find(modules_list, fakes[i].bias + 0x2000));
        ck_assert_ptr_null(modules_find(modules_list, fakes[i].bias + 0xfff));
    }
    ck_assert_uint_eq(stats_get(STAT_MODULES_LOADED), FAKES);
}
END_TEST

START_TEST(counters_of_the_loader_save_the_scan)
{
    has_counters = true;
    start();
    for (int i = 1; i < 50; i++)
        fake_load(i, X + (uintptr_t)i * 0x3000);
    rescan();
    callbacks = 0;
    rescan();
    ck_assert_uint_eq(callbacks, 1);
    fake_unload(7);
    rescan();
    ck_assert_ptr_null(modules_find(modules_list, X + 7 * 0x3000 + 0x1000));
}
END_TEST

START_TEST(endless_change_takes_no_memory)
{
    start();
    size_t reserved = 0;
    uint32_t objects = 0;
    for (int i = 0; i < 20000; i++) {
        /* Four objects that take turns at three overlapping places. */
        int object = 1 + i % 4;
        fake_load(object, X + (uintptr_t)(i % 3) * 0x400);
        rescan();
        ck_assert_str_eq(name_at(modules_list->generation, fakes[object].bias + 0x1000),
                         fakes[object].name + strlen("/nowhere/"));
        fake_unload(object);
        rescan();
        if (i == 100) {
            reserved = arena_reserved();
            objects = registry_count();
        }
    }
    ck_assert_uint_eq(arena_reserved(), reserved);
    ck_assert_uint_eq(registry_count(), objects);
    ck_assert_uint_eq(modules_list->generation, 19999);
    /* What was long ago is forgotten, what was lately is not. */
    ck_assert_str_eq(name_at(1, X + 0x1900), "-");
    for (uint32_t g = 18000; g < 20000; g++) {
        uintptr_t pc = X + (uintptr_t)(g % 3) * 0x400 + 0x1000;
        char expected[16];
        snprintf(expected, sizeof(expected), "lib%u.so", 1 + g % 4);
        ck_assert_str_eq(name_at(g, pc), expected);
    }
}
END_TEST

START_TEST(endless_new_places_take_no_memory)
{
    start();
    size_t reserved = arena_reserved();
    for (uint32_t i = 0; i < 6000; i++) {
        fake_load(1, X + i * 0x2000ul);
        rescan();
        fake_unload(1);
    }
    ck_assert_uint_le(arena_reserved(), reserved + 2 * 4096);
    ck_assert_uint_eq(modules_list->generation, 0);
    ck_assert_str_eq(name_at(0, X + 5999 * 0x2000ul + 0x1000), "lib1.so");
    ck_assert_str_eq(name_at(0, X + 2000 * 0x2000ul + 0x1000), "lib1.so");
    ck_assert_str_eq(name_at(0, X + 0x1000), "-");
    /* Loaded, however long ago it came. */
    ck_assert_ptr_eq(modules_resolve(0, 0x401000).object, modules_main());
}
END_TEST

START_TEST(a_held_list_stays_as_it_is)
{
    start();
    guards[0] = 1;
    const struct module_list *held = modules_list;
    uint32_t count = held->count, publication = held->publication;
    int refused = 0;
    for (int i = 0; i < 100; i++) {
        fake_load(1 + i % 2, X);
        refused += modules_rescan() != 0;
        fake_unload(1 + i % 2);
        refused += modules_rescan() != 0;
        ck_assert_ptr_ne(held, modules_list);
        ck_assert_uint_eq(held->count, count);
        ck_assert_uint_eq(held->publication, publication);
    }
    /* Nobody waits, and memory is bounded: the list stays behind, and says so. */
    ck_assert_int_gt(refused, 100);
    ck_assert_uint_eq(modules_stale, 1);
    guards[0] = 2;
    fake_load(3, X);
    rescan();
    ck_assert_str_eq(name_at(modules_list->generation, CODE), "lib3.so");
    ck_assert_uint_eq(modules_stale, 0);
}
END_TEST

static bool stop;
static uint64_t walks;

/* Holds each list for a while and looks whether it changes. */
static void *read_lists(void *argument)
{
    uint32_t *guard = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        __atomic_store_n(guard, *guard + 1, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        const struct module_list *list = load_acquire(&modules_list);
        uint32_t publication = list->publication, count = list->count;
        for (int i = 0; i < 20; i++) {
            uintptr_t pc = 0;
            for (uint32_t j = 0; j < list->count; j++) {
                const struct module *m = &list->modules[j];
                ck_assert_uint_gt(m->start, pc);
                pc = m->start;
                ck_assert_ptr_eq(modules_find(list, pc), m);
                ck_assert_uint_eq(m->object->segment_count, 1);
            }
            ck_assert_uint_eq(list->count, count);
            ck_assert_uint_eq(list->publication, publication);
        }
        __atomic_store_n(guard, *guard + 1, __ATOMIC_SEQ_CST);
        add_relaxed(&walks, 1);
    }
    return NULL;
}

START_TEST(readers_in_a_storm)
{
    start();
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_lists, &guards[i]), 0);
    int published = 0;
    for (int i = 0; published < 1000 || load_relaxed(&walks) < 100; i++) {
        int object = 1 + i % 13;
        if (fakes[object].loaded)
            fake_unload(object);
        else
            fake_load(object,
                      X + (uintptr_t)(object * 7 % 13) * 0x3000 + (uintptr_t)(i % 2) * 0x800);
        /* Refused when a reader was preempted with its guard open. */
        while (modules_rescan() != 0)
            sched_yield();
        published++;
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    printf("%d lists published, %llu read\n", published, (unsigned long long)walks);
}
END_TEST

static void *try_rescan(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)modules_rescan();
}

START_TEST(fork_holds_the_lock)
{
    start();
    modules_lock_for_fork();
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, try_rescan, NULL), 0);
    pthread_join(thread, &result);
    /* It gave up after a while, and left word. */
    ck_assert_int_eq((intptr_t)result, -ETIMEDOUT);
    ck_assert_uint_eq(modules_stale, 1);
    pid_t child = fork();
    modules_unlock_after_fork();
    int error = modules_rescan();
    if (child == 0)
        _exit(error ? 1 : 0);
    ck_assert_int_eq(error, 0);
    int status;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(before_the_start)
{
    ck_assert_int_eq(modules_rescan(), -EINVAL);
    ck_assert_ptr_null(modules_resolve(0, X).object);
    ck_assert_ptr_null(modules_main());
    modules_mark_system(X);
    ck_assert_ptr_null(modules_list);
}
END_TEST

START_TEST(a_start_without_memory)
{
    arena_set_budget(4096);
    ck_assert_int_eq(modules_start(iterate), -ENOMEM);
    arena_set_budget(SIZE_MAX);
    start();
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("modules_churn");
    TCase *t = tcase_create("modules_churn");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, addresses_used_again_have_generations, 0, 2);
    tcase_add_test(t, more_objects_than_fit_at_first);
    tcase_add_test(t, counters_of_the_loader_save_the_scan);
    tcase_add_test(t, endless_change_takes_no_memory);
    tcase_add_test(t, endless_new_places_take_no_memory);
    tcase_add_test(t, a_held_list_stays_as_it_is);
    tcase_add_test(t, readers_in_a_storm);
    tcase_add_test(t, fork_holds_the_lock);
    tcase_add_test(t, before_the_start);
    tcase_add_test(t, a_start_without_memory);
    suite_add_tcase(s, t);
    return s;
}
