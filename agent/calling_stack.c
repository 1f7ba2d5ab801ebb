#include "agent/calling_stack.h"

#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/record/scratch.h"
#include "agent/thread/thread_context.h"
#include "agent/unwind/modules.h"
#include "agent/unwind/unwind.h"

/* Room below the stack pointer that pthread_create may use: it needs about 2 KiB. */
enum { STACK_ROOM = 16384 };

bool stack_has_room(void)
{
    return sys_readable((uintptr_t)__builtin_frame_address(0) - STACK_ROOM);
}

bool stack_allows_thread(void)
{
    struct thread_slot *slot = thread_current();
    struct record_stack *stack = slot && thread_owns(slot) ? scratch_claim() : NULL;
    if (!stack)
        return false;
    struct unwind_regs regs;
    struct unwind_stack home = {slot->stack_low, slot->stack_high};
    uint32_t flags;
    uint32_t generation;
    thread_guard_enter(slot);
    unwind_regs_here(&regs);
    uint32_t count =
        unwind_walk(&regs, false, &home, stack->pcs, options.max_frames, &flags, &generation);
    const struct module_list *list = load_acquire(&modules_list);
    uint32_t changes = 0; /* between the system's code and the app's, from the innermost on */
    bool in_system = true;
    /* The outermost frame may be the program's _start, under libc's own. */
    for (uint32_t i = 0; i + 1 < count; i++) {
        const struct module *module = modules_find(list, stack->pcs[i]);
        bool is_system = !module || module->object->is_system;
        changes += is_system != in_system;
        in_system = is_system;
    }
    thread_guard_leave(slot);
    scratch_give(stack);
    /* System (exit), app, system (libc's start): two changes at most. */
    return (flags & UNWIND_COMPLETE) && !(flags & UNWIND_INTERRUPTED) && changes <= 2 &&
           stack_has_room();
}
