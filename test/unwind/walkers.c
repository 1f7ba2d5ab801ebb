#include "test/unwind/walkers.h"

#include <libunwind.h>
#include <string.h>

#include "agent/unwind/modules.h"
#include "test/unwind/tracee_modules.h"

/* libunwind-x86_64.so has it, for those who find tables themselves; no header does. */
int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
                                       unw_proc_info_t *info, int need_unwind_info, void *arg);

enum { WINDOW_SIZE = 8192 };

static unw_addr_space_t space;

/* ---- What libunwind asks
 * -----------------------------------------------------------------------*/

static int access_mem(unw_addr_space_t s, unw_word_t address, unw_word_t *value, int write,
                      void *arg)
{
    const struct tracee *tracee = arg;
    size_t size;
    (void)s;
    if (write)
        return -UNW_EINVAL;
    uintptr_t word;
    const uint8_t *bytes;
    if (tracee_known_word(address, &word)) {
        *value = word;
        return 0;
    }
    /* Tables are read from their files, as long as the thread's memory need not be asked. */
    bytes = tracee_file_bytes(address, &size);
    if (bytes && size >= sizeof(*value))
        memcpy(value, bytes, sizeof(*value));
    else if (tracee_read_word(tracee->pid, address, &word))
        *value = word;
    else
        return -UNW_EINVAL;
    return 0;
}

static int access_reg(unw_addr_space_t s, unw_regnum_t number, unw_word_t *value, int write,
                      void *arg)
{
    struct unwind_regs regs;
    (void)s;
    if (write || number < 0 || number >= UNWIND_REGS)
        return -UNW_EBADREG;
    tracee_registers(arg, &regs);
    *value = regs.r[number]; /* both number as DWARF does */
    return 0;
}

static int access_fpreg(unw_addr_space_t s, unw_regnum_t number, unw_fpreg_t *value, int write,
                        void *arg)
{
    (void)s, (void)number, (void)value, (void)write, (void)arg;
    return -UNW_EBADREG;
}

static int find_proc_info(unw_addr_space_t s, unw_word_t ip, unw_proc_info_t *info,
                          int need_unwind_info, void *arg)
{
    const struct module *m = modules_find(modules_list, ip);
    if (!m || !m->object->eh_frame_hdr.data || !m->object->fde_count)
        return -UNW_ENOINFO;
    const struct object_table *hdr = &m->object->eh_frame_hdr;
    unw_dyn_info_t table = {
        .start_ip = m->start,
        .end_ip = m->end,
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .u.rti = {.segbase = m->bias + hdr->vaddr,
                  .table_data =
                      m->bias + hdr->vaddr + (uintptr_t)(m->object->fde_index - hdr->data),
                  .table_len = (unw_word_t)m->object->fde_count * 8 / sizeof(unw_word_t)},
    };
    return UNW_OBJ(dwarf_search_unwind_table)(s, ip, &table, info, need_unwind_info, arg);
}

static void put_unwind_info(unw_addr_space_t s, unw_proc_info_t *info, void *arg)
{
    (void)s, (void)info, (void)arg;
}

static int no_dynamic_info(unw_addr_space_t s, unw_word_t *address, void *arg)
{
    (void)s, (void)address, (void)arg;
    return -UNW_ENOINFO;
}

static int no_resume(unw_addr_space_t s, unw_cursor_t *cursor, void *arg)
{
    (void)s, (void)cursor, (void)arg;
    return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t s, unw_word_t ip, char *name, size_t size, unw_word_t *offset,
                   void *arg)
{
    (void)s, (void)ip, (void)name, (void)size, (void)offset, (void)arg;
    return -UNW_ENOINFO;
}

void walkers_start(void)
{
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = no_dynamic_info,
        .access_mem = access_mem,
        .access_reg = access_reg,
        .access_fpreg = access_fpreg,
        .resume = no_resume,
        .get_proc_name = no_name,
    };
    if (unwind_start() != 0)
        die("no memory for rules");
    space = unw_create_addr_space(&accessors, 0);
    if (!space)
        die("libunwind gives no address space");
    unw_set_cache_size(space, 8192, 0);
    unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
}

void walkers_forget(void)
{
    unw_flush_cache(space, 0, 0);
}

bool is_sigreturn_code(pid_t pid, uintptr_t pc)
{
    static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    uintptr_t words[2];
    return tracee_read_word(pid, pc, &words[0]) && tracee_read_word(pid, pc + 8, &words[1]) &&
           memcmp(words, code, sizeof(code)) == 0;
}

void walk_theirs(const struct tracee *tracee, struct frames *frames, struct frame_places *places)
{
    unw_cursor_t cursor;
    frames->count = frames->flags = 0;
    int step = unw_init_remote(&cursor, space, (void *)(uintptr_t)tracee);
    if (step < 0)
        die("libunwind does not begin: %d", step);
    bool exact = true;
    do {
        unw_word_t ip = 0, sp = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        unw_get_reg(&cursor, UNW_REG_SP, &sp);
        if (!ip)
            break;
        places->sp[frames->count] = sp;
        places->exact[frames->count] = exact;
        places->raw_pc[frames->count] = ip;
        frames->pcs[frames->count++] = ip - !exact;
        /* Past that code the pc is an interrupted one; its second instruction begins at 7. */
        exact =
            is_sigreturn_code(tracee->pid, ip) || (exact && is_sigreturn_code(tracee->pid, ip - 7));
    } while (frames->count < REFERENCE_MAX && unw_step(&cursor) > 0);
}

void walk_ours(const struct tracee *tracee, struct frames *frames)
{
    static uint8_t window[WINDOW_SIZE];
    const struct stack_copy copy = {tracee->pid, window, sizeof(window)};
    struct unwind_regs regs;
    tracee_registers(tracee, &regs);
    frames->count = unwind_walk_copy(&regs, (1ull << UNWIND_REGS) - 1, true, &copy, frames->pcs,
                                     REFERENCE_MAX, &frames->flags, &frames->generation);
}
