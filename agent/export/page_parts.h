/* page_parts.h: the page that shows a profile, but for its data: what is before that, and behind.
 * Made of agent/export/page/ when libagent is built.
 * Owns: constants. Context: any. Locks: none. */
#ifndef LIBAGENT_PAGE_PARTS_H
#define LIBAGENT_PAGE_PARTS_H

#include <stdint.h>

#include "agent/base/compiler.h"

extern HIDDEN const char page_head[], page_tail[];
extern HIDDEN const uint64_t page_head_size, page_tail_size; /* bytes */

#endif
