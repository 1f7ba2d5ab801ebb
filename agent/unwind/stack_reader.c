#include "agent/unwind/stack_reader.h"

#include "agent/base/sys.h"

enum {
    /* One probe is a system call of about 100 ns: at most half a millisecond a walk. */
    PROBES_MAX = 4096,
    /* Frames up to this size are walked over page by page, so that the range stays whole. */
    GAP_MAX = 256 << 10,
};

void stack_reader_start(struct stack_reader *reader, struct unwind_stack *home, uintptr_t sp)
{
    *reader = (struct stack_reader){.home = home, .probes_left = PROBES_MAX};
    if (sp >= home->low && sp < home->high) {
        reader->low = home->low;
        reader->high = home->high;
    }
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
        if (!reader->probes_left)
            return false;
        reader->probes_left--;
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
    const struct unwind_stack *home = reader->home;
    if (!adjoins(reader, address) || !probe(reader, reader->high, last, &reader->high)) {
        uintptr_t low = ALIGN_DOWN(address, (uintptr_t)PAGE_SIZE_MIN), high = low;
        if (address >= home->low && last < home->high) {
            low = home->low;
            high = home->high;
        } else if (!probe(reader, low, last, &high)) {
            return bad;
        }
        reader->low = low;
        reader->high = high;
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
    if (reader->high != reader->home->high && !reaches_empty_home(reader))
        return false;
    if (reader->low < reader->home->low)
        reader->home->low = reader->low;
    return true;
}
