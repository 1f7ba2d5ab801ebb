#include "agent/unwind/stack_reader.h"

#include <sys/uio.h>

#include "agent/base/sys.h"

enum {
    /* One probe is a system call of about 100 ns: at most half a millisecond a walk. */
    PROBES_MAX = 4096,
    /* One copy is a system call of about a microsecond, more than that for large windows. */
    COPIES_MAX = 256,
    /* Frames up to this size are walked over page by page, so that the range stays whole. */
    GAP_MAX = 256 << 10,
    /* Below the stack pointer, where a leaf may keep registers. */
    RED_ZONE = 128,
};

static void set_range(struct stack_reader *reader, uintptr_t low, uintptr_t high)
{
    enum { REST = sizeof(uintptr_t) - 1 };
    reader->low = low;
    reader->high = high;
    reader->words = high - low > REST ? high - low - REST : 0;
}

void stack_reader_start(struct stack_reader *reader, struct unwind_stack *home, uintptr_t sp)
{
    *reader = (struct stack_reader){.home = home, .calls_left = PROBES_MAX};
    if (copied_stack(home))
        reader->calls_left = COPIES_MAX;
    /* What is below is not in use, and its pages may be gone. The stack pointer may be in the page
     * below those that were read. */
    if (sp + PAGE_SIZE_MIN >= home->low && sp < home->high)
        set_range(reader, MAX_OF(home->low, sp - MIN_OF(sp, (uintptr_t)RED_ZONE)), home->high);
}

/* Bytes copied, or a negative errno; fewer where the memory ends. */
static long copy_from(const struct stack_copy *copy, uintptr_t address, void *data, size_t size)
{
    struct iovec local = {data, size};
    struct iovec remote = {(void *)address, size};
    return sys_call6(SYS_process_vm_readv, copy->pid, (long)&local, 1, (long)&remote, 1, 0);
}

bool stack_copy_bytes(const struct stack_copy *copy, uintptr_t address, void *data, size_t size)
{
    return copy_from(copy, address, data, size) == (long)size;
}

bool stack_reader_can_read(const struct stack_reader *reader, uintptr_t address)
{
    uint8_t byte;
    const struct stack_copy *copy = stack_reader_copy(reader);
    return copy ? stack_copy_bytes(copy, address, &byte, 1) : sys_readable(address);
}

/* The window that begins with the page of `address`. */
static __attribute__((noinline)) struct stack_value read_by_copy(struct stack_reader *reader,
                                                                 uintptr_t address)
{
    const struct stack_copy *copy = stack_reader_copy(reader);
    const struct stack_value bad = {0, false};
    uintptr_t low = ALIGN_DOWN(address, (uintptr_t)PAGE_SIZE_MIN);
    set_range(reader, 0, 0);
    if (!reader->calls_left)
        return bad;
    reader->calls_left--;
    long size = copy_from(copy, low, copy->data, copy->size);
    if (size < 0 || (size_t)size < address - low + sizeof(address))
        return bad;
    set_range(reader, low, low + (size_t)size);
    reader->shift = (uintptr_t)copy->data - low;
    return (struct stack_value){((const struct stack_word *)(address + reader->shift))->value,
                                true};
}

/* Makes [from, through] readable as far as it is, page by page; false at the first page that is
 * not. *high gets the end of what is. */
static bool probe(struct stack_reader *reader, uintptr_t from, uintptr_t through, uintptr_t *high)
{
    const struct unwind_stack *home = reader->home;
    for (uintptr_t page = from; page <= through; page += PAGE_SIZE_MIN) {
        if (page >= home->low && page < home->high) {
            *high = home->high;
            return through < home->high;
        }
        if (!reader->calls_left)
            return false;
        reader->calls_left--;
        if (!sys_readable(page))
            return false;
        *high = page + PAGE_SIZE_MIN;
    }
    return true;
}

/* True when the page of `address` follows the range, or nearly, and the range does not end where
 * the home stack does. */
static bool adjoins(const struct stack_reader *reader, uintptr_t address)
{
    return reader->high > reader->low && reader->high != reader->home->high &&
           address >= reader->low && address - reader->low <= reader->high - reader->low + GAP_MAX;
}

READS_ANY_STACK struct stack_value stack_read_slow(struct stack_reader *reader, uintptr_t address)
{
    const struct stack_value bad = {0, false};
    uintptr_t last = address + sizeof(address) - 1;
    /* The upper half is the kernel's; there the sums below could wrap, too. */
    if (last < address || last >> 63)
        return bad;
    if (stack_reader_copy(reader))
        return read_by_copy(reader, address);
    const struct unwind_stack *home = reader->home;
    uintptr_t low = reader->low, high = reader->high;
    if (!adjoins(reader, address) || !probe(reader, high, last, &high)) {
        low = high = ALIGN_DOWN(address, (uintptr_t)PAGE_SIZE_MIN);
        if (address >= home->low && last < home->high) {
            /* Once asked, as it may be below what is in use. */
            if (!reader->calls_left || !sys_readable(address))
                return bad;
            reader->calls_left--;
            high = home->high;
        } else if (!probe(reader, low, last, &high)) {
            return bad;
        }
    }
    set_range(reader, low, high);
    return (struct stack_value){((const struct stack_word *)address)->value, true};
}

/* A home range that is still empty: the walk ended in the pages right below its end. */
static bool reaches_empty_home(struct stack_reader *reader)
{
    const struct unwind_stack *home = reader->home;
    if (home->low != home->high || reader->low >= home->high || reader->high <= reader->low ||
        reader->high + GAP_MAX < home->high)
        return false;
    return reader->high >= home->high || probe(reader, reader->high, home->high - 1, &reader->high);
}

bool stack_reader_adopt(struct stack_reader *reader)
{
    if (stack_reader_copy(reader))
        return false;
    if (reader->high != reader->home->high && !reaches_empty_home(reader))
        return false;
    if (reader->low < reader->home->low)
        reader->home->low = reader->low;
    return true;
}
