#include "agent/unwind/libunwind_space.h"

#include <string.h>

#include "agent/unwind/cfi.h"

/* Where an object's index is, for libunwind: no address of a process. */
static const uintptr_t index_address = (uintptr_t)0xf << 60;

struct libunwind_functions libunwind;

/* The aligned word at `address`, as far as it lies in `table` at `start`; zero beyond. */
static bool table_word(const uint8_t *data, size_t size, uintptr_t start, uintptr_t address,
                       uintptr_t *value)
{
    uintptr_t offset = address - start;
    *value = 0;
    if (likely(offset < size && size - offset >= sizeof(*value))) {
        memcpy(value, data + offset, sizeof(*value));
        return true;
    }
    bool any = false;
    for (size_t i = 0; i < sizeof(*value); i++) {
        if (offset + i >= size)
            continue;
        *value |= (uintptr_t)data[offset + i] << 8 * i;
        any = true;
    }
    return any;
}

static int access_memory(struct libunwind_space *unused_space, uintptr_t address, uintptr_t *value,
                         int write, void *argument)
{
    struct place *p = argument;
    (void)unused_space;
    if (write || p->reads_left == 0)
        return -LIBUNWIND_INVALID;
    p->reads_left--;
    if (p->module) {
        const struct object *object = p->module->object;
        if (table_word(object->eh_frame.data, object->eh_frame.size,
                       p->module->bias + object->eh_frame.vaddr, address, value))
            return 0;
        if (p->is_searching && table_word(object->fde_index, (size_t)object->fde_count * 8,
                                          index_address, address, value))
            return 0;
    }
    /* Of all else that a table may point at (what handles an exception) nothing is needed. */
    if (p->is_searching) {
        *value = 0;
        return 0;
    }
    return stack_read(&p->reader, address, value) ? 0 : -LIBUNWIND_INVALID;
}

static int access_register(struct libunwind_space *unused_space, int number, uintptr_t *value,
                           int write, void *argument)
{
    const struct place *p = argument;
    (void)unused_space;
    if (write)
        return -LIBUNWIND_BAD_REGISTER;
    if (number < 0 || number > LIBUNWIND_PC)
        return -LIBUNWIND_BAD_REGISTER;
    /* Up to the stack pointer, and further on x86-64, both count as DWARF does. */
    number = number == LIBUNWIND_PC ? UNWIND_PC : number;
    if (!(p->valid >> number & 1))
        return -LIBUNWIND_BAD_REGISTER;
    *value = p->regs->r[number];
    return 0;
}

static int access_float(struct libunwind_space *unused_space, int number, void *value, int write,
                        void *unused)
{
    (void)unused_space;
    (void)number;
    (void)value;
    (void)write;
    (void)unused;
    return -LIBUNWIND_BAD_REGISTER;
}

/* Does cfi understand the row? */
static bool is_sound(const struct object *object, uint64_t vaddr)
{
    struct cfi_row row;
    if (!object->fde_count || cfi_row_at(object, vaddr, &row) != 0)
        return false;
    for (int i = 0; i < UNWIND_REGS; i++)
        if (row.kind[i] == CFI_REGISTER && (row.value[i] < 0 || row.value[i] >= UNWIND_REGS))
            return false;
    return true;
}

static int find_procedure(struct libunwind_space *own, uintptr_t pc,
                          struct libunwind_procedure *procedure, int needs_tables, void *argument)
{
    struct place *p = argument;
    const struct module *module = p->module;
    p->is_found = false;
    if (!module || pc - module->start >= module->end - module->start)
        return -LIBUNWIND_NO_INFO;
    if (!is_sound(module->object, pc - module->bias)) {
        modules_note_miss(module->object);
        return -LIBUNWIND_NO_INFO;
    }
    const struct object *object = module->object;
    struct libunwind_table table = {
        .start = module->start,
        .end = module->end,
        .format = LIBUNWIND_REMOTE_TABLE,
        .base = module->bias + object->eh_frame_hdr.vaddr,
        .words = object->fde_count,
        .data = index_address,
    };
    p->is_searching = true;
    int error =
        libunwind.dwarf_search_unwind_table(own, pc, &table, procedure, needs_tables, argument);
    p->is_searching = false;
    p->is_found = error >= 0;
    return error;
}

static void put_procedure(struct libunwind_space *unused_space,
                          struct libunwind_procedure *procedure, void *unused)
{
    (void)unused_space;
    (void)procedure;
    (void)unused;
}

static int find_dynamic_list(struct libunwind_space *unused_space, uintptr_t *address, void *unused)
{
    (void)unused_space;
    (void)address;
    (void)unused;
    return -LIBUNWIND_NO_INFO;
}

struct libunwind_space *libunwind_make_space(void)
{
    static struct libunwind_accessors accessors = {
        .find_procedure = find_procedure,
        .put_procedure = put_procedure,
        .find_dynamic_list = find_dynamic_list,
        .access_memory = access_memory,
        .access_register = access_register,
        .access_float = access_float,
    };
    return libunwind.create_addr_space(&accessors, 0);
}
