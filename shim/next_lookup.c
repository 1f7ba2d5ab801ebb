#include "shim/next_lookup.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "agent/base/dynamic_symbols.h"
#include "agent/base/sys.h"

/* NOLINTBEGIN(clang-analyzer-core.CallAndMessage): every libc has these four */
/* What the hooks that every nanosecond counts for call, until the table is filled: so they need
 * not ask. libc, the last in line, has all of them. */
static void *first_malloc(size_t size)
{
    next_lookup();
    return next.malloc(size);
}

static void *first_calloc(size_t count, size_t size)
{
    next_lookup();
    return next.calloc(count, size);
}

static void *first_realloc(void *old, size_t size)
{
    next_lookup();
    return next.realloc(old, size);
}

static void first_free(void *pointer)
{
    next_lookup();
    next.free(pointer);
}
/* NOLINTEND(clang-analyzer-core.CallAndMessage) */

struct next_functions next = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
};
AT_START void *next_first_malloc;
AT_START bool next_is_sanitized;
AT_START void (*next_own_free)(void *pointer);

extern ElfW(Dyn) _DYNAMIC[] HIDDEN;

static const struct link_map *first_object(void)
{
    const ElfW(Phdr) *headers = (const void *)sys_auxv(AT_PHDR);
    size_t count = sys_auxv(AT_PHNUM);
    uintptr_t bias = 0;
    const ElfW(Dyn) *dynamic = NULL;
    for (size_t i = 0; headers && i < count; i++) {
        if (headers[i].p_type == PT_PHDR)
            bias = (uintptr_t)headers - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(bias + headers[i].p_vaddr);
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr)
            return ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map;
    }
    return NULL;
}

/* Looks up what `table` does not have yet. */
static void fill_from(const struct dynamic_symbols *symbols, struct next_functions *table)
{
    const bool has_realloc = table->realloc;
/* NOLINTBEGIN(bugprone-macro-parentheses): a type can have none */
#define X(type, name, parameters)                                                                  \
    if (!table->name)                                                                              \
        table->name = (type(*) parameters)dynamic_symbols_find(symbols, #name);
    /* NOLINTEND(bugprone-macro-parentheses) */
    NEXT_LIST(X)
#undef X
    /* Another allocator's would take a block's size from what is no head of a block. */
    if (!has_realloc && table->realloc)
        table->malloc_usable_size =
            (size_t(*)(void *))dynamic_symbols_find(symbols, "malloc_usable_size");
}

/* That of threads is not known by names of its own: gcc's exports none where it is linked into the
 * program. No other allocator defines a spin lock's functions, and libc is who starts the program.
 * That of memory is clang's alone, and exports its names. */
static bool is_sanitizer(const struct dynamic_symbols *symbols)
{
    bool is_of_threads = dynamic_symbols_find(symbols, "malloc") &&
                         dynamic_symbols_find(symbols, "pthread_spin_lock") &&
                         !dynamic_symbols_find(symbols, "__libc_start_main");
    return is_of_threads || dynamic_symbols_find(symbols, "__msan_init");
}

static void look_up(void)
{
    struct next_functions table = next;
    if (table.malloc == first_malloc)
        table.malloc = NULL;
    if (table.calloc == first_calloc)
        table.calloc = NULL;
    if (table.realloc == first_realloc)
        table.realloc = NULL;
    if (table.free == first_free)
        table.free = NULL;
    bool behind_us = false;
    void *free_before_us = NULL;
    for (const struct link_map *object = first_object(); object; object = object->l_next) {
        struct dynamic_symbols symbols;
        dynamic_symbols_read(object->l_addr, object->l_ld, &symbols);
        if (!next_first_malloc)
            next_first_malloc = dynamic_symbols_find(&symbols, "malloc");
        next_is_sanitized |= is_sanitizer(&symbols);
        if (behind_us)
            fill_from(&symbols, &table);
        behind_us |= object->l_ld == _DYNAMIC;
        if (!behind_us && !free_before_us)
            free_before_us = dynamic_symbols_find(&symbols, "free");
    }
    next_own_free = free_before_us ? (void (*)(void *))free_before_us : table.free;
    next = table;
}

static int look_up_once(void *unused_info, size_t unused_size, void *unused)
{
    (void)unused_info, (void)unused_size, (void)unused;
    look_up();
    return 1;
}

/* By then there may be threads that have objects unloaded. (A sanitizer's own may want to be set up
 * first.) */
void next_lookup(void)
{
    if (next.dl_iterate_phdr && !next_is_sanitized)
        next.dl_iterate_phdr(look_up_once, NULL);
    else
        look_up();
}
