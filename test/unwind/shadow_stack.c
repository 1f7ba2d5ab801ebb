#include "test/unwind/shadow_stack.h"

#include <string.h>

enum {
    DEPTH_MAX = 1 << 16,
    /* A stack pointer that moves farther by one instruction is taken for a change of stacks. */
    FAR = 128 << 10,
};

struct entry {
    uintptr_t slot; /* where the return address lies; of an interrupted frame, its context */
    uintptr_t pc;
    bool exact;
};

static struct entry entries[DEPTH_MAX];
static uint32_t depth;
static bool known;

void shadow_begin_empty(void)
{
    depth = 0;
    known = true;
}

void shadow_lose(void)
{
    known = false;
}

bool shadow_is_known(void)
{
    return known;
}

static void push(uintptr_t slot, uintptr_t pc, bool exact)
{
    if (depth == DEPTH_MAX)
        known = false;
    else
        entries[depth++] = (struct entry){slot, pc, exact};
}

void shadow_begin_from(const struct frames *frames, const struct frame_places *places)
{
    depth = 0;
    known = frames->count < REFERENCE_MAX; /* else there may be more */
    for (uint32_t i = frames->count; i-- > 1;) {
        /* The return address is the word below its frame's stack pointer; a context lies where the
         * code that handlers return to has its stack pointer. */
        uintptr_t slot = places->exact[i] ? places->sp[i - 1] : places->sp[i] - 8;
        push(slot, places->raw_pc[i], places->exact[i]);
    }
}

/* call: e8, or ff /2, behind prefixes. */
static bool is_call(const uint8_t *code)
{
    size_t i = 0;
    while (i < 8 && (code[i] == 0x66 || code[i] == 0xf2 || code[i] == 0xf3 || code[i] == 0x2e ||
                     code[i] == 0x3e || code[i] == 0x64 || (code[i] & 0xf0) == 0x40))
        i++;
    return code[i] == 0xe8 || (code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2);
}

/* mov to rsp from memory or a register other than rbp: changes stacks, or frees alloca's memory. */
static bool loads_sp(const uint8_t *code)
{
    uint8_t rex = code[0], modrm = code[2];
    if ((rex & 0xf8) != 0x48)
        return false;
    if (code[1] == 0x8b)
        return (modrm >> 3 & 7) == 4 && !(rex & 4);
    return (code[1] == 0x89 || code[1] == 0x87) && (modrm & 0xc7) == 0xc4 && !(rex & 1);
}

/* The kernel put a handler's frame on a stack. */
static bool entered_handler(const struct tracee *now, uintptr_t *restorer)
{
    return tracee_read_word(now->pid, now->regs.rsp, restorer) &&
           is_sigreturn_code(now->pid, *restorer);
}

static void drop_left_behind(uintptr_t sp)
{
    while (depth && entries[depth - 1].slot < sp)
        depth--;
}

void shadow_step(const struct tracee *before, const uint8_t code[16], int signal,
                 const struct tracee *now)
{
    enum { SIGRETURN = 15 };
    if (!known)
        return;
    bool is_syscall = code[0] == 0x0f && code[1] == 0x05;
    uintptr_t sp = now->regs.rsp, old_sp = before->regs.rsp, restorer;
    if (signal && entered_handler(now, &restorer)) {
        push(sp + 8, before->regs.rip, true);
        push(sp, restorer, false);
        return;
    }
    if (is_call(code) && sp == old_sp - 8) {
        uintptr_t back;
        if (tracee_read_word(now->pid, sp, &back) && back - before->regs.rip <= 15)
            push(sp, back, false);
        return;
    }
    if (is_syscall && before->regs.rax == SIGRETURN) {
        while (depth && !entries[depth - 1].exact)
            depth--;
        if (depth)
            depth--;
        return;
    }
    if ((intptr_t)(sp - old_sp) > FAR || (intptr_t)(old_sp - sp) > FAR ||
        (sp < old_sp && loads_sp(code)))
        known = false;
    drop_left_behind(sp);
}

bool shadow_is_intact(const struct tracee *tracee)
{
    enum { LOOKED_AT = 16 };
    for (uint32_t i = depth; i-- > 0 && depth - i <= LOOKED_AT;) {
        uintptr_t word;
        if (!entries[i].exact &&
            (!tracee_read_word(tracee->pid, entries[i].slot, &word) || word != entries[i].pc))
            return false;
    }
    return true;
}

void shadow_frames(const struct tracee *tracee, struct frames *frames)
{
    frames->count = 0;
    frames->pcs[frames->count++] = tracee->regs.rip;
    for (uint32_t i = depth; i-- > 0 && frames->count < REFERENCE_MAX;)
        frames->pcs[frames->count++] = entries[i].pc - !entries[i].exact;
}
