#include "agent/unwind/stack_reader.h"

#include <errno.h>
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
    /* One copy of a word takes as long as so many probes. */
    COPY_PROBES = 8,
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
    *reader = (struct stack_reader){.home = home, .sp = sp, .calls_left = PROBES_MAX};
    if (copied_stack(home))
        reader->calls_left = COPIES_MAX;
    /* What is below is not in use, and its pages may be gone. The stack pointer may be in the page
     * below those that were read. */
    if (sp + PAGE_SIZE_MIN >= home->low && sp < home->high)
        set_range(reader, MAX_OF(home->low, sp - MIN_OF(sp, (uintptr_t)RED_ZONE)), home->high);
}

/* Bytes copied, or a negative errno; fewer where the memory ends. */
static long copy_from(int pid, uintptr_t address, void *data, size_t size)
{
    struct iovec local = {data, size};
    struct iovec remote = {(void *)address, size};
    return sys_call6(SYS_process_vm_readv, pid, (long)&local, 1, (long)&remote, 1, 0);
}

/* For a kernel that refuses copies. */
READS_ANY_STACK static bool probe_and_read(uintptr_t address, uint8_t *data, size_t size)
{
    if (!sys_readable(address) || !sys_readable(address + size - 1))
        return false;
    /* Byte by byte: a sanitizer's memcpy would ask whose memory that is. */
    for (size_t i = 0; i < size; i++)
        data[i] = ((const volatile uint8_t *)address)[i];
    return true;
}

bool stack_copy_bytes(const struct stack_copy *copy, uintptr_t address, void *data, size_t size)
{
    /* Main may have ended, and with it what its number leads to. */
    long copied = copy_from(copy ? copy->pid : sys_tid(), address, data, size);
    if (!copy && copied < 0 && copied != -EFAULT)
        return probe_and_read(address, data, size);
    return copied == (long)size;
}

__attribute__((noinline)) void stack_reader_change_stack(struct stack_reader *reader, uintptr_t sp)
{
    if (stack_reader_copy(reader) || sp - reader->low < reader->high - reader->low)
        return;
    reader->sp = sp;
    set_range(reader, 0, 0);
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
    long size = copy_from(copy->pid, low, copy->data, copy->size);
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

/* A word that is on no stack in use, as far as is known. */
static struct stack_value read_elsewhere(struct stack_reader *reader, uintptr_t address)
{
    struct stack_value word = {0, false};
    if (reader->calls_left < COPY_PROBES)
        return word;
    reader->calls_left -= COPY_PROBES;
    word.good = stack_copy_bytes(NULL, address, &word.value, sizeof(word.value));
    return word;
}

/* Makes the range reach to `last` of a word: true where that follows it, or nearly, with nothing
 * missing between, and it does not end where the home stack does. */
static bool extend(struct stack_reader *reader, uintptr_t address, uintptr_t last)
{
    uintptr_t low = reader->low, high = reader->high;
    if (low == high && address + RED_ZONE >= reader->sp)
        low = high = ALIGN_DOWN(MIN_OF(address, reader->sp), (uintptr_t)PAGE_SIZE_MIN);
    if (high == reader->home->high || address < low || address - low > high - low + GAP_MAX ||
        !probe(reader, high, last, &high))
        return false;
    set_range(reader, low, high);
    return true;
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
    if (!extend(reader, address, last)) {
        if (address < home->low || last >= home->high)
            return read_elsewhere(reader, address);
        /* Once asked, as it may be below what is in use. */
        if (!reader->calls_left || !sys_readable(address))
            return bad;
        reader->calls_left--;
        set_range(reader, ALIGN_DOWN(address, (uintptr_t)PAGE_SIZE_MIN), home->high);
    }
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
