/* spool_log.h: what the log says of the spool, and what is counted of it.
 *
 * A row of failures is told by one line, at its begin.
 *
 * Owns: what is in such a row, and what is lost and not yet said. Context: UP (or INIT at exit).
 * Locks: none. */
#ifndef LIBAGENT_SPOOL_LOG_H
#define LIBAGENT_SPOOL_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "uploader/spool.h"

/* Nothing has been said yet. */
void spool_log_start(void);
/* After spool_put: its result. */
void spool_log_put(const struct spool *spool, int error, const struct spool_losses *losses);
/* After spool_claim for the destination of that number. */
void spool_log_claim(const struct spool *spool, size_t index, const struct spool_losses *losses);
/* Profiles that the spool did not take, since they were said last. */
bool spool_log_has_losses(void);
void spool_log_say_losses(const struct spool *spool);
/* Profiles for all destinations that could not be taken from it when that was tried last. */
unsigned spool_log_untaken(void);

#endif
