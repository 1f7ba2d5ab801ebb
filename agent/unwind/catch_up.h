/* catch_up.h: objects that a walk meets before anybody has told of them: loaded by libc's own
 * dlopen (converters, name services, libgcc_s), by an object that is bound to libc before us
 * (RTLD_DEEPBIND), or whose constructors run before dlopen has returned to its wrapper.
 *
 * The list of objects is brought up to date in the midst of the walk's thread, so that already this
 * sample has its whole stack. Why that is safe, though the thread may be anywhere:
 *  1. dl_iterate_phdr takes one lock (dl_load_write_lock), which only it and the loader's changes
 * of its list take; no code of the app runs while the list is changed, and malloc is not called. So
 * it is asked for only where that lock is known (loader_lock.h) and held by nobody: then this
 *     thread, or what a handler has interrupted in it, is not in the midst of a change either. The
 *     lock of dlopen itself, which this thread may hold, is not needed.
 *  2. Nobody waits: where a lock of ours is held, the walk stays as it is.
 *  3. The walk left known code directly from the app's own code: no function of libc, or of the
 *     loader, is under way between there and the sample.
 *  4. The thread is on its own stack (an alternate one or a coroutine's may be small, and nobody
 *     knows how small), and there is room below: of the pages from there up to the stack's end none
 *     is a guard. A stack of which nothing is known is none.
 * What finds nothing (code that is made at run time is in no object) is tried again after 10 ms at
 * the earliest.
 * Owns: the time of the next try. Context: SIG, HOOK, inside a thread guard. Locks: LOCK_MODULES
 * and the loader's, both only if free. */
#ifndef LIBAGENT_CATCH_UP_H
#define LIBAGENT_CATCH_UP_H

#include <stdbool.h>

#include "agent/base/compiler.h"
#include "agent/unwind/unwind.h"

/* `home` is the thread's own stack. True when there is a new list. */
bool catch_up(const struct unwind_stack *home) MUST_USE;

#endif
