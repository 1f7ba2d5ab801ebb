/* Call frame information of any bytes: registered, looked up at all kinds of addresses, its
 * expressions evaluated, and walked through.
 *
 * Input: a struct head, then .eh_frame_hdr (head.hdr_size bytes), then .eh_frame; they stand at
 * TABLES_VADDR one behind the other. */
#include "test/fuzz/fuzz_input.h"

#include <link.h>

#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/cfi_expression.h"
#include "agent/unwind/elf_object.h"
#include "agent/unwind/unwind.h"
#include "agent/unwind/unwind_arch.h"

enum {
    TABLES_VADDR = 0x1000,
    CODE_VADDR = 0x10000,
    CODE_SIZE = 0x1000,
    STACK_WORDS = 512,
    FRAMES = 64,
    ENTRIES_TRIED = 16,
    /* Of one walk: 4096 of its stack, once more where it starts anew, and some for each frame. */
    PROBES_MAX = 2 * 4096 + 4 * FRAMES,
};

struct head {
    uint16_t hdr_size;
    uint8_t exact, code_readable;
    uint32_t seed; /* of registers and stacks */
    uint64_t valid;
    uint64_t wanted; /* one more address that is looked up */
};

static struct fuzz_region stack, code;
static struct rng rng;
static uint32_t probes;

static bool answer_probe(long number, const long args[6], long *result)
{
    if (number != SYS_rt_sigprocmask)
        return false;
    uintptr_t address = (uintptr_t)args[1];
    probes++;
    *result = fuzz_region_holds(&stack, address) || fuzz_region_holds(&code, address) ? -22 : -14;
    return true;
}

static uintptr_t some_word(void)
{
    uint64_t draw = rng_next(&rng);
    switch (draw % 6) {
    case 0:
        return draw;
    case 1:
        return draw >> 56;
    case 2:
    case 3:
        return (uintptr_t)stack.end - (draw >> 32) % STACK_WORDS * 8;
    default:
        return (uintptr_t)code.base + (draw >> 32) % CODE_SIZE;
    }
}

static void draw_registers(struct unwind_regs *regs)
{
    for (int i = 0; i < UNWIND_REGS; i++)
        regs->r[i] = some_word();
}

/* The tables of `object` in memory of exactly their size. */
static void tighten(struct object *object)
{
    struct object_table *tables[] = {&object->eh_frame_hdr, &object->eh_frame};
    size_t index = (size_t)(object->fde_index - object->eh_frame_hdr.data);
    for (int i = 0; i < 2; i++) {
        uint8_t *copy = malloc(tables[i]->size);
        EXPECT(copy);
        memcpy(copy, tables[i]->data, tables[i]->size);
        tables[i]->data = copy;
    }
    object->fde_index = object->eh_frame_hdr.data + index;
}

static void try_expression(const struct object *object, int32_t at, const struct head *head,
                           bool on_cfa)
{
    size_t size;
    const uint8_t *expression = cfi_expression(object, at, &size);
    if (!expression)
        return;
    struct unwind_regs regs;
    draw_registers(&regs);
    const struct cfi_registers registers = {&regs, head->valid};
    struct unwind_stack home = {(uintptr_t)stack.base, (uintptr_t)stack.end};
    struct stack_reader reader;
    stack_reader_start(&reader, &home, regs.r[UNWIND_SP]);
    uintptr_t cfa = some_word(), result;
    EXPECT(cfi_evaluate(expression, size, &registers, on_cfa ? &cfa : NULL, &reader, &result) <=
           CFI_NEEDS_REGISTER);
}

static void try_address(const struct object *object, uint64_t vaddr, const struct head *head)
{
    struct cfi_row row;
    if (cfi_row_at(object, vaddr, &row) != 0)
        return;
    EXPECT(vaddr - row.start < row.size);
    EXPECT(row.cfa_is_expression || row.cfa_register < UNWIND_REGS);
    enum rule_kind kind = rule_kind(arch_pack(object, &row, vaddr));
    EXPECT(kind > RULE_NONE && kind <= RULE_FULL);
    if (row.cfa_is_expression)
        try_expression(object, row.cfa_expression, head, false);
    for (int i = 0; i < UNWIND_REGS; i++) {
        EXPECT(row.kind[i] <= CFI_VAL_EXPRESSION);
        if (row.kind[i] == CFI_EXPRESSION || row.kind[i] == CFI_VAL_EXPRESSION)
            try_expression(object, row.value[i], head, true);
    }
}

static void try_entry(const struct object *object, uint32_t entry, const struct head *head)
{
    static const int32_t distances[] = {-1, 0, 1, 4, 11, 40};
    int32_t first;
    memcpy(&first, object->fde_index + (size_t)entry * 8, sizeof(first));
    uint64_t vaddr = object->eh_frame_hdr.vaddr + (uint64_t)(int64_t)first;
    for (size_t i = 0; i < ARRAY_SIZE(distances); i++)
        try_address(object, vaddr + (uint64_t)(int64_t)distances[i], head);
}

/* The object is the only one that is loaded. */
static void walk(const struct object *object, const struct head *head)
{
    static uint64_t room[(sizeof(struct module_list) + sizeof(struct module)) / 8];
    static uint32_t publication;
    struct module_list *list = (struct module_list *)room;
    *list = (struct module_list){.publication = ++publication, .count = 1, .capacity = 1};
    list->modules[0] = (struct module){.start = (uintptr_t)code.base,
                                       .end = (uintptr_t)code.base + CODE_SIZE,
                                       .bias = (uintptr_t)code.base - CODE_VADDR,
                                       .object = object};
    modules_list = list;
    uintptr_t *words = (uintptr_t *)(void *)stack.end - STACK_WORDS;
    for (int i = 0; i < STACK_WORDS; i++)
        words[i] = some_word();
    struct unwind_regs regs;
    draw_registers(&regs);
    regs.r[UNWIND_PC] = (uintptr_t)code.base + head->wanted % CODE_SIZE;
    struct unwind_stack home = {(uintptr_t)words, (uintptr_t)stack.end};
    uint64_t pcs[FRAMES + 1];
    uint32_t flags, generation;
    pcs[FRAMES] = 77;
    probes = 0;
    uint32_t count = unwind_walk(&regs, head->exact & 1, &home, pcs, FRAMES, &flags, &generation);
    EXPECT(count > 0 && count <= FRAMES && pcs[FRAMES] == 77);
    EXPECT(probes <= PROBES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!stack.base) {
        stack = fuzz_region_make(STACK_WORDS * 8);
        code = fuzz_region_make(CODE_SIZE);
        EXPECT(rule_cache_start() == 0);
        sys_override = answer_probe;
    }
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    if (input.left == 0)
        return 0;
    rng.state = head.seed;
    size_t hdr_size = MIN_OF(head.hdr_size, input.left);
    uint8_t *tables = malloc(input.left);
    EXPECT(tables);
    memcpy(tables, input.at, input.left);
    /* Machine code is what the tables are. */
    for (size_t i = 0; i < CODE_SIZE; i++)
        code.base[i] = tables[i % input.left];
    const ElfW(Phdr) headers[] = {
        {.p_type = PT_LOAD,
         .p_flags = PF_R,
         .p_vaddr = TABLES_VADDR,
         .p_filesz = input.left,
         .p_memsz = input.left},
        {.p_type = PT_GNU_EH_FRAME, .p_vaddr = TABLES_VADDR, .p_filesz = hdr_size},
    };
    struct dl_phdr_info info = {.dlpi_addr = (uintptr_t)tables - TABLES_VADDR,
                                .dlpi_phdr = headers,
                                .dlpi_phnum = ARRAY_SIZE(headers)};
    struct elf_image image;
    elf_read_image(&info, &image);
    struct object object = {.code_readable = head.code_readable & 1};
    elf_tables_in_place(&image, &object);
    if (object.fde_count) {
        tighten(&object);
        free(tables);
        tables = NULL;
        for (uint32_t i = 0; i < MIN_OF(object.fde_count, (uint32_t)ENTRIES_TRIED); i++)
            try_entry(&object, i, &head);
        try_entry(&object, object.fde_count - 1, &head);
        try_address(&object, head.wanted, &head);
        try_address(&object, 0, &head);
        try_address(&object, UINT64_MAX, &head);
        walk(&object, &head);
        free((void *)(uintptr_t)object.eh_frame_hdr.data);
        free((void *)(uintptr_t)object.eh_frame.data);
    }
    free(tables);
    return 0;
}
