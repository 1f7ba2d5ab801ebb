#include "agent/unwind/modules.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#include "agent/base/arena.h"
#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/sys.h"
#include "agent/thread/moment.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/elf_frames.h"
#include "agent/unwind/elf_object.h"
#include "agent/unwind/loader_lock.h"
#include "agent/unwind/module_history.h"
#include "agent/unwind/module_list.h"
#include "agent/unwind/needed_names.h"
#include "agent/unwind/object_registry.h"

enum {
    /* Lists that may exist at once. More than two only while a walker is stopped inside its guard
     * and objects come and go meanwhile; when all are held, the list stays as it is. */
    LISTS_MAX = 32,
    FIRST_CAPACITY = 126, /* one page */
};

/* How long a rescan may wait for the loader's lock, which the app may hold in its dl_iterate_phdr
 * callback, and for another rescan. */
#define RESCAN_WAIT_NS (100 * NS_PER_MS)

enum list_state { LIST_NONE, LIST_FREE, LIST_CURRENT, LIST_RETIRED };

struct list_buffer {
    struct module_list *list;
    enum list_state state;
};

struct module_list *modules_list;
uint32_t modules_generation;
uintptr_t modules_self_start, modules_self_end;
uint32_t modules_stale;
uint32_t modules_scans;

/* An object in whose code a walker met an address without a rule, and whose file may tell more. One
 * at a time: another one is met again. */
static const struct object *missed_object;

static struct lock modules_lock = LOCK_INIT(LOCK_MODULES);
static uint32_t loader_distrusted;
/* Walks that may still use a retired list, one for each of state.lists; large, and so not among
 * what the start touches. */
static struct thread_grace graces[LISTS_MAX];

/* All under modules_lock. */
static struct {
    modules_iterate_fn iterate;
    struct list_buffer lists[LISTS_MAX];
    uint32_t publication;
    uint64_t adds, subs; /* the loader's counters at the last complete scan */
    bool counted;        /* they are known */
    bool must_publish;   /* even when the modules are the same */
    uintptr_t vdso;
    struct object *main_object;
} state;

struct scan {
    struct module_list *list;
    struct needed_names *needed; /* only at start */
    const struct object *missed;
    uint32_t seen;   /* objects */
    uint32_t wanted; /* modules that there is need for */
    uint64_t adds, subs;
    bool counted, unchanged;
};

static bool holds_address(const struct elf_image *image, uintptr_t address)
{
    for (uint32_t i = 0; i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type == PT_LOAD && address - image->bias - h->p_vaddr < h->p_memsz)
            return true;
    }
    return false;
}

static void add_module(struct scan *scan, const struct elf_image *image,
                       const struct object *object, const struct object_segment *segment)
{
    struct module_list *list = scan->list;
    scan->wanted++;
    if (list->count < list->capacity)
        list->modules[list->count++] = (struct module){
            .start = image->bias + segment->vaddr,
            .end = image->bias + segment->vaddr + segment->size,
            .bias = image->bias,
            .object = object,
        };
}

#ifndef LIBAGENT_TEST
static void set_self(const struct elf_image *image, const struct object *object)
{
    const struct object_segment *first = &object->segments[0];
    const struct object_segment *last = &object->segments[object->segment_count - 1];
    modules_self_start = image->bias + first->vaddr;
    modules_self_end = image->bias + last->vaddr + last->size;
}
#endif

static struct object *main_program(const struct elf_image *image, struct module_list *list)
{
    /* The list is still empty: its memory is room for a path, and is touched anyway. */
    char *path = (char *)list->modules;
    size_t room = list->capacity * sizeof(struct module);
    long length = sys_readlink("/proc/self/exe", path, room - 1);
    path[length > 0 ? length : 0] = 0;
    if (length <= 0 && elf_executed_path(image, path, room) != 0)
        path[0] = 0;
    return registry_object(image, path, OBJECT_MAIN, true, NULL);
}

/* What stood at the image's address at the last scan. */
static const struct object *listed_object(const struct elf_image *image)
{
    for (uint32_t i = 0; modules_list && i < image->header_count; i++) {
        const ElfW(Phdr) *h = &image->headers[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X) || !h->p_memsz)
            continue;
        const struct module *m = modules_find(modules_list, image->bias + h->p_vaddr);
        return m && m->bias == image->bias ? m->object : NULL;
    }
    return NULL;
}

static int see_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct scan *scan = data;
    bool is_main = scan->seen++ == 0;
    if (is_main && size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
        scan->counted = true;
        scan->adds = info->dlpi_adds;
        scan->subs = info->dlpi_subs;
        if (state.counted && !state.must_publish && !scan->missed && scan->adds == state.adds &&
            scan->subs == state.subs) {
            scan->unchanged = true;
            return 1;
        }
    }
    if (scan->needed && info->dlpi_addr && info->dlpi_addr == sys_auxv(AT_BASE))
        loader_lock_find(info);
    struct elf_image image;
    elf_read_image(info, &image);
    if (!elf_has_code(&image))
        return 0;
    bool is_vdso = state.vdso && holds_address(&image, state.vdso);
    bool is_self = !is_main && holds_address(&image, (uintptr_t)see_object);
    const char *path = info->dlpi_name ? info->dlpi_name : "";
    bool pinned = is_vdso;
    if (scan->needed) {
        pinned = pinned || is_main || is_self || needed_has(scan->needed, path);
        if (pinned)
            elf_each_needed(&image, needed_add, scan->needed);
    }
    struct object *object;
    if (is_main) {
        if (!state.main_object)
            state.main_object = main_program(&image, scan->list);
        object = state.main_object;
    } else {
        object =
            registry_object(&image, is_vdso ? "[vdso]" : path, is_vdso ? OBJECT_VDSO : OBJECT_PLAIN,
                            pinned, listed_object(&image));
    }
    if (!object)
        return 0;
    /* Rules that say that there is none are in the cache: a new publication outdates them. */
    if (object == scan->missed && elf_frames_complete(&image, object))
        state.must_publish = true;
#ifndef LIBAGENT_TEST
    if (is_self)
        set_self(&image, object);
#endif
    for (uint32_t i = 0; i < object->segment_count; i++)
        add_module(scan, &image, object, &object->segments[i]);
    return 0;
}

static size_t list_bytes(uint32_t capacity)
{
    return sizeof(struct module_list) + capacity * sizeof(struct module);
}

static void reclaim_retired(void)
{
    uint32_t oldest = state.publication;
    for (int i = 0; i < LISTS_MAX; i++) {
        struct list_buffer *buffer = &state.lists[i];
        if (buffer->state == LIST_RETIRED && thread_grace_over(&graces[i]))
            buffer->state = LIST_FREE;
        if (buffer->state == LIST_RETIRED)
            oldest = MIN_OF(oldest, buffer->list->publication);
    }
    /* What a walker may still read is looked at again. */
    if (registry_note_oldest(oldest, state.publication))
        modules_want_rescan();
}

/* A list buffer of at least that capacity that no walker can see. */
static struct list_buffer *take_list(uint32_t capacity)
{
    reclaim_retired();
    struct list_buffer *unused = NULL;
    for (int i = 0; i < LISTS_MAX; i++) {
        struct list_buffer *b = &state.lists[i];
        if (b->state == LIST_FREE && b->list->capacity >= capacity)
            return b;
        if (b->state == LIST_FREE || (b->state == LIST_NONE && !unused))
            unused = b;
    }
    if (!unused)
        return NULL;
    if (unused->state == LIST_FREE) {
        arena_release(unused->list, list_bytes(unused->list->capacity));
        unused->state = LIST_NONE;
    }
    unused->list = arena_reserve(list_bytes(capacity));
    if (!unused->list)
        return NULL;
    unused->list->capacity = capacity;
    unused->state = LIST_FREE;
    return unused;
}

/* Gives the new modules their place in the history; returns the list's generation. */
static uint32_t next_generation(const struct module_list *list, const struct module_list *old)
{
    uint32_t generation = old ? old->generation : 0;
    uint32_t changed = generation;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t j = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            const struct module *m = &list->modules[i];
            while (old && j < old->count && old->modules[j].start < m->start)
                j++;
            if (old && j < old->count && modules_equal(m, &old->modules[j]))
                continue;
            if (pass == 1)
                history_add(m, changed);
            else if (history_conflicts(m))
                changed = generation + 1;
        }
    }
    return changed;
}

static void publish(struct list_buffer *buffer)
{
    struct module_list *old = modules_list;
    buffer->list->generation = next_generation(buffer->list, old);
    buffer->list->publication = ++state.publication;
    buffer->state = LIST_CURRENT;
    store_relaxed(&modules_generation, buffer->list->generation);
    store_release(&modules_list, buffer->list);
    for (int i = 0; i < LISTS_MAX; i++) {
        if (!old || state.lists[i].list != old)
            continue;
        state.lists[i].state = LIST_RETIRED;
        thread_grace_begin(&graces[i]);
    }
}

static void note_listed(const struct module_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        ((struct object *)(uintptr_t)list->modules[i].object)->listed = list->publication;
}

static int scan_and_publish(struct needed_names *needed)
{
    /* Cleared first: a walker that misses an object which this scan does not see sets it again. */
    store_relaxed(&modules_stale, 0);
    const struct object *missed = __atomic_exchange_n(&missed_object, NULL, __ATOMIC_RELAXED);
    uint32_t capacity = modules_list ? modules_list->capacity : FIRST_CAPACITY;
    for (;;) {
        struct list_buffer *buffer = take_list(capacity);
        if (!buffer) {
            state.counted = false;
            store_relaxed(&modules_stale, 1);
            return -EAGAIN;
        }
        struct module_list *list = buffer->list;
        list->count = 0;
        struct scan scan = {.list = list, .needed = needed, .missed = missed};
        state.iterate(see_object, &scan);
        if (scan.unchanged)
            return 0;
        if (scan.wanted > list->capacity) {
            capacity = ALIGN_UP(scan.wanted + scan.wanted / 2, 128u) - 2;
            continue;
        }
        module_list_sort(list);
        if (state.must_publish || !module_lists_equal(list, modules_list))
            publish(buffer);
        note_listed(modules_list);
        reclaim_retired();
        state.must_publish = false;
        state.counted = scan.counted;
        state.adds = scan.adds;
        state.subs = scan.subs;
        return 0;
    }
}

int modules_start(modules_iterate_fn iterate)
{
    lock_acquire(&modules_lock);
    int error = registry_start();
    if (!error)
        error = history_start();
    if (!error) {
        struct needed_names needed = {.count = 0};
        state.iterate = iterate;
        state.vdso = sys_auxv(AT_SYSINFO_EHDR);
        error = scan_and_publish(&needed);
        loader_lock_confirm();
    }
    lock_release(&modules_lock);
    return error;
}

/* Takes LOCK_MODULES and the loader's lock. */
static int lock_both_until(uint64_t deadline_ns, bool *loader_taken)
{
    static const struct timespec pause = {0, 100000};
    for (;;) {
        while (!loader_lock_is_free()) {
            if (clock_monotonic_ns() >= deadline_ns)
                return -ETIMEDOUT;
            sys_call2(SYS_nanosleep, &pause, NULL);
        }
        int error = lock_acquire_until(&modules_lock, deadline_ns);
        if (error || loader_lock_try(loader_taken))
            return error;
        lock_release(&modules_lock);
    }
}

int modules_rescan(void)
{
    return modules_rescan_within(RESCAN_WAIT_NS);
}

int modules_rescan_within(uint64_t wait_ns)
{
    if (!state.iterate)
        return -EINVAL;
    if (load_relaxed(&loader_distrusted))
        return -EAGAIN;
    bool loader_taken;
    int error = lock_both_until(clock_monotonic_ns() + wait_ns, &loader_taken);
    if (error) {
        store_relaxed(&modules_stale, 1);
        return error;
    }
    error = scan_and_publish(NULL);
    if (!error)
        add_relaxed(&modules_scans, 1);
    loader_lock_give(loader_taken);
    lock_release(&modules_lock);
    return error;
}

void modules_note_miss(const struct object *object)
{
    if (load_relaxed(&object->frames_complete) || load_relaxed(&missed_object))
        return;
    store_relaxed(&missed_object, object);
    modules_want_rescan();
}

void modules_want_rescan(void)
{
    if (load_relaxed(&modules_stale))
        return;
    store_relaxed(&modules_stale, 1);
    moment_set_due_now();
}

void modules_mark_system(uintptr_t address)
{
    lock_acquire(&modules_lock);
    const struct module *module = modules_list ? modules_find(modules_list, address) : NULL;
    if (module && !module->object->is_system) {
        ((struct object *)(uintptr_t)module->object)->is_system = true;
        /* Cached rules tell of the old mark: a new publication outdates them. */
        state.must_publish = true;
        int error = scan_and_publish(NULL);
        (void)error; /* then the next rescan does it */
    }
    lock_release(&modules_lock);
}

struct module_address modules_resolve(uint32_t generation, uintptr_t pc)
{
    struct module_address found;
    lock_acquire(&modules_lock);
    const struct module_list *list = modules_list;
    const struct module *m = list && list->generation == generation ? modules_find(list, pc) : NULL;
    if (m)
        found = (struct module_address){m->object, pc - m->bias};
    else
        found = history_resolve(generation, pc);
    lock_release(&modules_lock);
    return found;
}

uint64_t modules_function_start(const struct object *object, uint64_t vaddr)
{
    lock_acquire(&modules_lock);
    uint64_t start = object->tables == TABLES_MAPPED ? vaddr : cfi_function_start(object, vaddr);
    lock_release(&modules_lock);
    return start;
}

const struct object *modules_main(void)
{
    return state.main_object;
}

void modules_lock_for_fork(void)
{
    lock_acquire(&modules_lock);
}

void modules_distrust_loader(void)
{
    if (!loader_lock_is_known() || !loader_lock_is_free())
        store_relaxed(&loader_distrusted, 1);
}

void modules_note_loaded(const void *handle)
{
    if (likely(!load_relaxed(&loader_distrusted)) || !handle)
        return;
    uintptr_t bias = *(const uintptr_t *)handle;
    bool known = false;
    lock_acquire(&modules_lock);
    for (uint32_t i = 0; i < modules_list->count; i++)
        known = known || modules_list->modules[i].bias == bias;
    lock_release(&modules_lock);
    if (!known)
        store_relaxed(&loader_distrusted, 0);
}

void modules_unlock_after_fork(void)
{
    lock_release(&modules_lock);
}

#ifdef LIBAGENT_TEST
void modules_forget(void)
{
    for (int i = 0; i < LISTS_MAX; i++)
        if (state.lists[i].state != LIST_NONE)
            arena_release(state.lists[i].list, list_bytes(state.lists[i].list->capacity));
    memset(&state, 0, sizeof(state));
    modules_list = NULL;
    modules_stale = 0;
    missed_object = NULL;
    loader_distrusted = 0;
    registry_forget();
    history_forget();
}
#endif
