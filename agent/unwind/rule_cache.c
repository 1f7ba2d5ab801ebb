#include "agent/unwind/rule_cache.h"

#include <errno.h>
#include <sys/mman.h>

#include "agent/base/sys.h"

/* Linux 5.14; the headers of older systems lack it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { CACHE_BYTES = RULE_SETS * RULE_WAYS * 8 };

uint64_t (*rule_cache)[RULE_WAYS];
bool rule_cache_in_memory;
#ifdef LIBAGENT_TEST
void (*rule_watch)(uint32_t publication, uintptr_t pc, uint64_t rule);
#endif

int rule_cache_start(void)
{
    if (!rule_cache)
        rule_cache = sys_map(CACHE_BYTES);
    return rule_cache ? 0 : -ENOMEM;
}

void rule_cache_prefault(void)
{
    /* Older kernels refuse: then the faults come one by one. */
    sys_call3(SYS_madvise, rule_cache, CACHE_BYTES, MADV_POPULATE_WRITE);
    store_relaxed(&rule_cache_in_memory, true);
}

void rule_store(uint32_t publication, uintptr_t pc, uint64_t rule)
{
    uint64_t key = rule_key_(publication, pc);
    uint64_t word = rule >> RULE_KIND_SHIFT << RULE_KIND_SHIFT | rule_word_(publication, key);
    uint64_t *set = rule_set_(key);
    /* The newest word is first; the one that it displaces becomes second, unless it is outdated.
     * Two walkers at once may lose one of the words: then it is interpreted once more. */
    uint64_t first = load_relaxed(&set[0]);
    uint64_t publications = ((1ull << RULE_PUBLICATION_BITS) - 1) << RULE_TAG_BITS;
    bool outdated = ((first ^ word) & publications) != 0 || rule_kind(first) == RULE_NONE;
    if (!outdated && (first ^ word) << RULE_BITS != 0)
        store_relaxed(&set[1], first);
    store_relaxed(&set[0], word);
}
