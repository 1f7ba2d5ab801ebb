/* map_faults.h: counts the memory that the code under test maps, and lets one mapping fail.
 *
 * Owns: sys_override between begin and end. */
#ifndef LIBAGENT_TEST_MAP_FAULTS_H
#define LIBAGENT_TEST_MAP_FAULTS_H

#include <stdbool.h>

/* The mmap or mremap number `fail_at` (0 is the next one) gives -ENOMEM; -1: none does. */
void map_faults_begin(int fail_at);
/* Ends it; bytes mapped since and not unmapped. *failed: there was such a call. */
long map_faults_end(bool *failed);

#endif
