/* syscall_names.h: names of system calls by number, of those that threads wait in.
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_SYSCALL_NAMES_H
#define LIBAGENT_SYSCALL_NAMES_H

#include <stdint.h>

enum { SYSCALL_NUMBER_SIZE = 12 };

/* The name, or the number as text, which is put into `buffer`. */
const char *syscall_name(uint32_t number, char buffer[SYSCALL_NUMBER_SIZE]);

#endif
