/* library_fixture.h: a library that comes and goes, which the suite itself does not need.
 * Owns: which, its handle. Context: suites, one thread. Locks: none. */
#ifndef LIBAGENT_TEST_LIBRARY_FIXTURE_H
#define LIBAGENT_TEST_LIBRARY_FIXTURE_H

#include <stdint.h>

#include "agent/unwind/modules.h"

extern const char *library_name; /* to load; NULL: one is chosen */
extern void *library_handle;
extern const uint8_t *library_code; /* some address of its code */

void library_load(void);
/* That the tables of `object` are those that are loaded, and not where the library is. */
void library_check(const struct object *object);
/* Tables of the object are there, whether or not it is loaded. */
void library_check_rows(const struct object *object);
/* The object of the list in force that holds the address. */
const struct object *object_at(const void *address);

#endif
