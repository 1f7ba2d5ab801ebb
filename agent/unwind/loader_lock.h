/* loader_lock.h: is the lock free that dl_iterate_phdr waits for, without a limit?
 *
 * A thread of the app may hold it for long, inside its own dl_iterate_phdr, and may wait there for
 * what the asking thread has locked. A thread that holds it when another one forks holds it in the
 * child for good. So it is taken, where it is free, before dl_iterate_phdr is called, which takes
 * it once more. A look would not do: threads that walk the loaded objects all the time take it in
 * between, within seconds.
 *
 * Method: glibc tells nobody where its lock is; but inside a callback of dl_iterate_phdr the
 * calling thread holds it. It is the one recursive mutex in the loader's own data that says so, and
 * it must say that it is free when dl_iterate_phdr has returned. Where it is not found (glibc
 * before 2.34 in a program without libpthread) it is taken for free.
 *
 * It is taken by hand, as glibc does for a recursive mutex: pthread_mutex_trylock may be the app's
 * own, in a signal handler.
 *
 * Owns: nothing but where the lock is. Context: find and confirm INIT; the rest any. Locks: the
 * loader's, after LOCK_MODULES.
 */
#ifndef LIBAGENT_LOADER_LOCK_H
#define LIBAGENT_LOADER_LOCK_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Inside a callback of dl_iterate_phdr in a process of one thread, for the loader's own object. */
void loader_lock_find(const struct dl_phdr_info *loader);
/* After that dl_iterate_phdr has returned. */
void loader_lock_confirm(void);
bool loader_lock_is_known(void);
/* Also true when the calling thread holds it, who may take it again; or when it is not known. */
bool loader_lock_is_free(void);
/* Takes it without waiting; false: another thread has it. *taken is for loader_lock_give: the
 * calling thread may have it already, or it is not known; then nothing is done, and true. */
bool loader_lock_try(bool *taken);
void loader_lock_give(bool taken);
/* True when it is known and nobody holds it, the calling thread neither. */
bool loader_lock_is_unheld(void);
#ifdef LIBAGENT_TEST
void loader_lock_forget(void);
#endif

#endif
