/* spool_fixture.h: a spool in a folder of a test's own, and profiles to put into it.
 *
 * Owns: these. Used by suites of the spool. */
#ifndef LIBAGENT_TEST_SPOOL_FIXTURE_H
#define LIBAGENT_TEST_SPOOL_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "uploader/spool.h"

extern char spool_base[64];   /* the test's own folder */
extern char spool_folder[80]; /* the spool's, in it, which is not there yet */
extern struct spool test_spool;
extern struct spool_losses spool_lost; /* of all calls below */
extern struct spool_entry spool_got;   /* the claimed one */
extern uint64_t spool_now;

void spool_fixture_start(void);
void spool_fixture_end(void);
/* Its window ends at `end`; `size` bytes. */
struct spool_entry make_profile(enum backend_kind kind, uint64_t end, size_t size);
int put_profile(enum backend_kind kind, uint64_t end, size_t size);
int claim_profile_for(enum backend_kind kind, unsigned place);
int claim_profile(enum backend_kind kind); /* for the first of that kind */

#endif
