/* libc_thread.h: is the thread behind a thread pointer one of libc's?
 *
 * A process may hold threads of another runtime, made by a bare clone with a thread pointer of that
 * runtime's, or with none: what the compiler makes of a thread-local variable would be read and
 * written in memory that is not ours, or not there. Method: libc's block holds the kernel's id of
 * its thread; on x86-64 it begins with its own address, twice.
 *
 * Owns: nothing but the place of that id, and how the pointer is asked for. Context: as said at
 * each function. Locks: none. */
#ifndef LIBAGENT_LIBC_THREAD_H
#define LIBAGENT_LIBC_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef LIBAGENT_TEST
/* The system call by which the thread pointer is asked for, so that suites can answer. */
#if defined(__x86_64__)
#define LIBC_THREAD_POINTER_CALL SYS_arch_prctl
#else
#define LIBC_THREAD_POINTER_CALL (-1L) /* there is none: a register holds it */
#endif
#endif

/* Looks where libc keeps the id. In a thread that is libc's. INIT. */
void libc_thread_start(void);
/* The place of the calling thread's id, counted from its thread pointer (on aarch64 it lies below).
 * A wrong guess is a word that nobody reads. In a thread that is libc's. Any context. */
ptrdiff_t libc_thread_id_offset(void);
/* Of the calling thread, whatever its thread pointer; touches no thread-local data. False where
 * nothing is known of the processor. Any context. */
bool libc_thread_is_current(int tid);
/* Is that the calling thread's thread pointer now? A program may put another one in its place for a
 * while. Touches no thread-local data; an instruction, but a system call on x86-64 before
 * Linux 5.9. Any context. */
bool libc_thread_has_pointer(uintptr_t pointer);

#endif
