#include "agent/unwind/return_scan.h"

#include <string.h>

#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/x86_code.h"

#if defined(__x86_64__)

enum {
    WORDS_MAX = 64,       /* six pushes, and some room; libgmp's largest has 48 words */
    JUMPS_MAX = 3,        /* stub, then a table of functions for this processor */
    FUNCTION_MAX = 8192,  /* of assembly, from its start to the pc; libgmp's have up to 4 KiB */
    FRAMES_MAX = 1 << 20, /* a frame pointer of callers is not farther up */
    CALL_MAX = 7,
    START_MAX = 32, /* bytes of a function's start that are looked at: eleven pushes and a sub */
    PAGES = 8,
    PAIR_WORDS = 4096, /* larger frames are rare, and a look at each word takes 20 ns */
    PAIRS_POSSIBLE = 2,
    TOP_WORDS = 2, /* the return address, below the frame pointer that was just pushed */
};

/* How a word on the stack can be a return address to `pc`'s caller. */
enum call {
    CALL_NONE,    /* no call stands before it */
    CALL_UNKNOWN, /* where that call goes cannot be told: by a register */
    CALL_KNOWN,   /* it goes to *target */
};

/* Reads code, and pointers of known objects, which may be unmapped meanwhile. */
struct code_reader {
    const struct module_list *list;
    struct stack_reader *stack;
    uintptr_t pages[PAGES]; /* that can be read, + 1, at their numbers modulo PAGES; 0: none */
};

static bool page_is_readable(struct code_reader *reader, uintptr_t address)
{
    uintptr_t page = ALIGN_DOWN(address, (uintptr_t)PAGE_SIZE_MIN);
    uintptr_t *known = &reader->pages[page / PAGE_SIZE_MIN % PAGES];
    if (*known == page + 1)
        return true;
    if (!sys_readable(page))
        return false;
    *known = page + 1;
    return true;
}

/* Of code that cannot be closed; ten times as fast as a copy, and there are dozens in a scan. */
READS_ANY_STACK static bool read_in_place(struct code_reader *reader, uintptr_t address,
                                          uint8_t *data, size_t size)
{
    if (!page_is_readable(reader, address) || !page_is_readable(reader, address + size - 1))
        return false;
    /* Byte by byte: a sanitizer's memcpy would ask whose memory that is. */
    const volatile uint8_t *from = (const volatile uint8_t *)address;
    for (size_t i = 0; i < size; i++)
        data[i] = from[i];
    return true;
}

static bool read_object(struct code_reader *reader, uintptr_t address, void *data, size_t size)
{
    const struct stack_copy *copy = stack_reader_copy(reader->stack);
    const struct module *m = copy || !reader->list ? NULL : modules_find(reader->list, address);
    return m && m->object->in_place && size <= m->end - address
               ? read_in_place(reader, address, data, size)
               : stack_copy_bytes(copy, address, data, size);
}

static int32_t displacement(const uint8_t *bytes)
{
    int32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* The length of `ff /2`, call by a register or memory, from its second byte on. */
static size_t indirect_length(uint8_t modrm, uint8_t sib)
{
    uint8_t mode = modrm >> 6, base = modrm & 7;
    size_t length = 2 + (mode != 3 && base == 4);
    if (mode == 1)
        length += 1;
    if (mode == 2 || (mode == 0 && (base == 5 || (base == 4 && (sib & 7) == 5))))
        length += 4;
    return length;
}

/* Whether a call stands before `back`; where it goes, if that can be told. */
static enum call decode_call(struct code_reader *reader, uintptr_t back, uintptr_t *target)
{
    uint8_t code[CALL_MAX + 1] = {0}; /* one more, for an operand that is not there */
    size_t on_page = (back - 1) % PAGE_SIZE_MIN + 1;
    if (!read_object(reader, back - CALL_MAX, code, CALL_MAX) &&
        (on_page >= CALL_MAX ||
         !read_object(reader, back - on_page, code + CALL_MAX - on_page, on_page)))
        return CALL_NONE;
    if (code[1] == 0xff && code[2] == 0x15)
        return read_object(reader, back + (uintptr_t)(intptr_t)displacement(code + 3), target,
                           sizeof(*target))
                   ? CALL_KNOWN
                   : CALL_UNKNOWN;
    if (code[2] == 0xe8) {
        *target = back + (uintptr_t)(intptr_t)displacement(code + 3);
        return CALL_KNOWN;
    }
    for (size_t i = 0; i + 1 < CALL_MAX; i++)
        if (code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2 &&
            indirect_length(code[i + 1], code[i + 2]) == CALL_MAX - i)
            return CALL_UNKNOWN;
    return CALL_NONE;
}

/* The same in code of a known object. */
static enum call call_before(struct code_reader *reader, uintptr_t back, uintptr_t *target)
{
    const struct module *m = modules_find(reader->list, back - 1);
    if (!m || !m->object->code_readable || back - m->start < CALL_MAX)
        return CALL_NONE;
    return decode_call(reader, back, target);
}

/* Whether `target` begins code without rules that reaches to `pc`. */
static bool reaches(const struct module_list *list, uintptr_t target, uintptr_t pc)
{
    if (target > pc || pc - target > FUNCTION_MAX)
        return false;
    const struct module *m = modules_find(list, target);
    return m && pc < m->end && !cfi_covers(m->object, target - m->bias);
}

/* The same after jumps by a pointer in memory, as in linkers' stubs, where control is handed on;
 * *target becomes where it ends. */
static bool follow_jump(struct code_reader *reader, uintptr_t *target)
{
    uint8_t code[12];
    const struct module *m = modules_find(reader->list, *target);
    if (!m || !m->object->code_readable || m->end - *target < sizeof(code) ||
        !read_object(reader, *target, code, sizeof(code)))
        return false;
    size_t at = x86_endbr64(code, sizeof(code));
    at += code[at] == 0xf2; /* bnd */
    if (code[at] != 0xff || code[at + 1] != 0x25)
        return false;
    uintptr_t pointer = *target + at + 6 + (uintptr_t)(intptr_t)displacement(code + at + 2);
    return read_object(reader, pointer, target, sizeof(*target));
}

static bool leads_to(struct code_reader *reader, uintptr_t *target, uintptr_t pc)
{
    for (int jumps = 0; jumps <= JUMPS_MAX; jumps++) {
        if (reaches(reader->list, *target, pc))
            return true;
        if (!follow_jump(reader, target))
            return false;
    }
    return false;
}

/* Whether the function at `from` jumps to `start`, as its last act. */
static bool jumps_to_start(struct code_reader *reader, uintptr_t from, uintptr_t start)
{
    enum { LOOKED_AT = 512, OPERAND = 4 };
    uint8_t code[LOOKED_AT + OPERAND] = {0};
    const struct module *m = modules_find(reader->list, from);
    size_t size = m ? MIN_OF(m->end - from, (uintptr_t)LOOKED_AT) : 0;
    if (!size || !m->object->code_readable || !read_object(reader, from, code, size))
        return false;
    for (size_t i = 0; i < size; i++) {
        bool is_short = code[i] == 0xeb;
        if (!is_short && code[i] != 0xe9)
            continue;
        int32_t by = is_short ? 1 + (int8_t)code[i + 1] : OPERAND + displacement(code + i + 1);
        if (from + i + 1 + (uintptr_t)(intptr_t)by == start)
            return cfi_function_start(m->object, from + i - m->bias) == from - m->bias;
    }
    return false;
}

/* The same to the first byte of a function, which may have rules. */
static bool leads_to_start(struct code_reader *reader, uintptr_t target, uintptr_t start)
{
    for (int jumps = 0; jumps <= JUMPS_MAX; jumps++) {
        if (target == start)
            return true;
        if (!follow_jump(reader, &target))
            return jumps_to_start(reader, target, start);
    }
    return false;
}

/* Whether a frame record of callers is at `fp`, all of whose frames lie above `slot`. */
static bool is_frame_of_callers(struct code_reader *reader, uintptr_t fp, uintptr_t slot)
{
    uintptr_t back, target;
    return fp > slot && fp - slot < FRAMES_MAX && fp % sizeof(fp) == 0 &&
           stack_read(reader->stack, fp + sizeof(fp), &back) &&
           call_before(reader, back, &target) != CALL_NONE;
}

/* The callers' frame pointer: unchanged, or among what was pushed. */
static void find_frame_pointer(struct code_reader *reader, uintptr_t sp, uintptr_t slot,
                               struct returned *caller)
{
    caller->fp_known = true;
    if (slot == sp || is_frame_of_callers(reader, caller->fp, slot))
        return;
    for (uintptr_t at = sp; at < slot; at += sizeof(at)) {
        uintptr_t word;
        if (stack_read(reader->stack, at, &word) && is_frame_of_callers(reader, word, slot)) {
            caller->fp = word;
            return;
        }
    }
    caller->fp_known = false;
}

/* The bytes that a function at `start` has taken of the stack by its first instructions, as far as
 * `pc`: pushes, and a subtraction from the stack pointer. */
static uintptr_t taken_at_start(struct code_reader *reader, uintptr_t start, uintptr_t pc)
{
    uint8_t code[START_MAX + 8] = {0}; /* and an operand */
    size_t size = MIN_OF(pc - start, (uintptr_t)START_MAX);
    uintptr_t taken = 0;
    if (!size || !read_object(reader, start, code, size))
        return 0;
    size_t at = x86_endbr64(code, size), length;
    bool is_rbp;
    for (; (length = x86_push_or_pop(code, at, size, X86_PUSH, &is_rbp)); at += length)
        taken += sizeof(uintptr_t);
    /* sub rsp, by one byte or four */
    if (code[at] != 0x48 || (code[at + 1] != 0x83 && code[at + 1] != 0x81) || code[at + 2] != 0xec)
        return taken;
    length = code[at + 1] == 0x83 ? 4 : 7;
    if (at + length <= size)
        taken += (uintptr_t)(length == 4 ? (int8_t)code[at + 3] : displacement(code + at + 3));
    return taken;
}

/* Of `words` from the stack pointer on the return address whose call went to the last function
 * that begins at or before `pc`, and behind `after`: old ones are of calls to any. Of several to
 * that one, the one that lies where the function's start says, else the first. Its place, or 0. */
static uintptr_t find_slot(struct code_reader *reader, uintptr_t sp, size_t words, uintptr_t pc,
                           uintptr_t after)
{
    uintptr_t found = 0, place = 0;
    for (size_t i = 0; i < words; i++) {
        uintptr_t back, target = 0, slot = sp + i * sizeof(back);
        if (!stack_read(reader->stack, slot, &back))
            break;
        if (call_before(reader, back, &target) != CALL_KNOWN || !leads_to(reader, &target, pc))
            continue;
        if (target > after) {
            place = sp + taken_at_start(reader, target, pc);
            found = slot;
            after = target;
        } else if (target == after && found && slot == place) {
            found = slot;
        }
    }
    return found;
}

static bool return_by_slot(struct code_reader *reader, uintptr_t slot, struct returned *caller)
{
    uintptr_t sp = caller->sp;
    if (!slot || !stack_read(reader->stack, slot, &caller->pc))
        return false;
    caller->sp = slot + sizeof(slot);
    find_frame_pointer(reader, sp, slot, caller);
    return true;
}

bool return_scan(const struct module_list *list, struct stack_reader *stack, uintptr_t pc,
                 bool innermost, struct returned *caller)
{
    struct code_reader reader = {.list = list, .stack = stack};
    const uintptr_t sp = caller->sp;
    if (return_by_slot(&reader, find_slot(&reader, sp, WORDS_MAX, pc, 0), caller))
        return true;
    uintptr_t target;
    if (!innermost || !stack_read(stack, sp, &caller->pc) ||
        call_before(&reader, caller->pc, &target) == CALL_NONE)
        return false;
    caller->fp_known = true;
    caller->sp = sp + sizeof(sp);
    return true;
}

bool return_on_top(const struct module_list *list, struct stack_reader *stack, uintptr_t pc,
                   uintptr_t back, struct returned *caller)
{
    struct code_reader reader = {.list = list, .stack = stack};
    uintptr_t target = 0;
    if (call_before(&reader, back, &target) == CALL_NONE || !leads_to(&reader, &target, pc))
        target = 0;
    return return_by_slot(&reader, find_slot(&reader, caller->sp, TOP_WORDS, pc, target), caller);
}

bool return_is_possible(const struct module_list *list, struct stack_reader *stack, uintptr_t back,
                        uintptr_t pc)
{
    struct code_reader reader = {.list = list, .stack = stack};
    uintptr_t target;
    enum call call = call_before(&reader, back, &target);
    return call == CALL_UNKNOWN || (call == CALL_KNOWN && leads_to(&reader, &target, pc));
}

/* Of what a function takes of the stack after it has made its frame record, by `sub rsp`: gcc puts
 * other instructions in between. */
static uintptr_t taken_behind_record(struct code_reader *reader, uintptr_t start, size_t size)
{
    static const uint8_t record[] = {0x55, 0x48, 0x89, 0xe5}; /* push rbp; mov rbp, rsp */
    enum { LOOKED_AT = 96 };
    uint8_t code[LOOKED_AT + 8] = {0};
    size = MIN_OF(size, (size_t)LOOKED_AT);
    if (!read_object(reader, start, code, size))
        return 0;
    const uint8_t *at = code;
    while (at < code + size && memcmp(at, record, sizeof(record)) != 0)
        at++;
    for (; at < code + size; at++) {
        if (at[0] == 0x48 && at[1] == 0x83 && at[2] == 0xec)
            return at[3];
        if (at[0] == 0x48 && at[1] == 0x81 && at[2] == 0xec)
            return (uintptr_t)(uint32_t)displacement(at + 3);
        if (at[0] == 0x48 && at[1] == 0x83 && at[2] == 0xc4 && at[3] == 0x80) /* add rsp, -128 */
            return 128;
    }
    return 0;
}

/* Whether the code at `code` gives the stack pointer the value of a register, or takes that of one
 * from it: alloca and arrays of a size that varies. Their end, out of rbp, is no such. */
static bool moves_stack(const uint8_t code[3])
{
    bool is_sub = code[1] == 0x29, is_mov = code[1] == 0x89;
    return (code[0] == 0x48 || code[0] == 0x4c) && (is_sub || is_mov) && (code[2] & 0xc7) == 0xc4 &&
           !(code[0] == 0x48 && (code[2] == 0xe4 || code[2] == 0xec));
}

/* Whether the function's frames vary in size, so that its start does not tell where its record is,
 * and what lies below that is left from others. */
static bool varies_in_size(struct code_reader *reader, uintptr_t start, size_t size)
{
    enum { PART = 256, INSTRUCTION = 3 };
    uint8_t code[PART];
    size = MIN_OF(size, (size_t)FUNCTION_MAX);
    for (size_t at = 0; at + INSTRUCTION <= size; at += PART - INSTRUCTION + 1) {
        size_t part = MIN_OF(size - at, (size_t)PART);
        if (!read_object(reader, start + at, code, part))
            return false;
        for (size_t i = 0; i + INSTRUCTION <= part; i++)
            if (moves_stack(code + i))
                return true;
    }
    return false;
}

/* Whether the record of a frame of the function can be at `at`, with `back` behind it. What is
 * behind a call in the function itself is likely a record of what it called before. */
static bool is_pair(struct code_reader *reader, uintptr_t at, uintptr_t back, uintptr_t start,
                    size_t size, bool *is_likely)
{
    uintptr_t target, outer;
    enum call call = call_before(reader, back, &target);
    if (call == CALL_NONE)
        return false;
    *is_likely = true;
    if (call == CALL_KNOWN && leads_to_start(reader, target, start))
        return true;
    if (back - start < size)
        return false;
    if (call == CALL_UNKNOWN)
        return true;
    *is_likely = false; /* by a jump of what was called */
    return stack_read(reader->stack, at, &outer) && outer > at && outer - at <= FRAMES_MAX &&
           outer % sizeof(outer) == 0;
}

size_t return_pairs(const struct module_list *list, struct stack_reader *stack, uintptr_t sp,
                    uintptr_t start, size_t size, size_t saved, uintptr_t places[RETURN_PAIRS])
{
    struct code_reader reader = {.list = list, .stack = stack};
    uintptr_t place = sp + saved + taken_behind_record(&reader, start, size);
    uintptr_t back, target, possible[PAIRS_POSSIBLE];
    size_t count = 0, possible_count = 0;
    if (!varies_in_size(&reader, start, size) && stack_read(stack, place + sizeof(place), &back) &&
        call_before(&reader, back, &target) != CALL_NONE) {
        places[0] = place;
        return 1;
    }
    for (size_t i = 0; i < PAIR_WORDS && count + PAIRS_POSSIBLE < RETURN_PAIRS; i++) {
        uintptr_t at = sp + saved + i * sizeof(at);
        bool is_likely;
        /* Behind the stack's end each try would cost the walk one of its copies. */
        if (!stack_read(stack, at + sizeof(at), &back))
            break;
        if (!is_pair(&reader, at, back, start, size, &is_likely))
            continue;
        if (is_likely)
            places[count++] = at;
        else if (possible_count < PAIRS_POSSIBLE)
            possible[possible_count++] = at;
    }
    for (size_t i = 0; i < possible_count; i++)
        places[count++] = possible[i];
    return count;
}

bool return_is_doubtful(const struct module_list *list, struct stack_reader *stack, uintptr_t back,
                        uintptr_t callee)
{
    struct code_reader reader = {.list = list, .stack = stack};
    uintptr_t target;
    enum call call = call_before(&reader, back, &target);
    const struct module *m = modules_find(list, callee);
    if (call != CALL_KNOWN || !m)
        return call == CALL_NONE;
    uintptr_t start = m->bias + cfi_function_start(m->object, callee - m->bias);
    return !leads_to_start(&reader, target, start) && !leads_to(&reader, &target, callee);
}

bool return_is_behind_call(struct stack_reader *stack, uintptr_t back)
{
    struct code_reader reader = {.stack = stack};
    uintptr_t target;
    return decode_call(&reader, back, &target) != CALL_NONE;
}

#else

/* Elsewhere a leaf's return address is in a register, and others keep frame records. */
bool return_scan(const struct module_list *list, struct stack_reader *reader, uintptr_t pc,
                 bool innermost, struct returned *caller)
{
    (void)list, (void)reader, (void)pc, (void)innermost, (void)caller;
    return false;
}

bool return_on_top(const struct module_list *list, struct stack_reader *reader, uintptr_t pc,
                   uintptr_t back, struct returned *caller)
{
    (void)list, (void)reader, (void)pc, (void)back, (void)caller;
    return false;
}

bool return_is_possible(const struct module_list *list, struct stack_reader *reader, uintptr_t back,
                        uintptr_t pc)
{
    (void)reader, (void)pc;
    return modules_find(list, back - 1) != NULL;
}

size_t return_pairs(const struct module_list *list, struct stack_reader *stack, uintptr_t sp,
                    uintptr_t start, size_t size, size_t saved, uintptr_t places[RETURN_PAIRS])
{
    (void)list, (void)stack, (void)sp, (void)start, (void)size, (void)saved, (void)places;
    return 0;
}

bool return_is_doubtful(const struct module_list *list, struct stack_reader *stack, uintptr_t back,
                        uintptr_t callee)
{
    (void)list, (void)stack, (void)back, (void)callee;
    return false;
}

bool return_is_behind_call(struct stack_reader *reader, uintptr_t back)
{
    return stack_reader_can_read(reader, back - 1);
}

#endif
