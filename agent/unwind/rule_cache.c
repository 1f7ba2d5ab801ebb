#include "agent/unwind/rule_cache.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "agent/base/sys.h"

/* Linux 5.14; the headers of older systems lack it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { CACHE_BYTES = RULE_SETS * RULE_WAYS * 8 };

uint64_t (*rule_cache)[RULE_WAYS];

int rule_cache_start(void)
{
    if (!rule_cache) {
        void *table = sys_map(CACHE_BYTES);
        if (!table)
            return -ENOMEM;
        rule_cache = table;
    }
    /* Page faults would fall on the first samples, 32 of them: one call takes them all. */
    if (sys_call3(SYS_madvise, rule_cache, CACHE_BYTES, MADV_POPULATE_WRITE) == 0)
        return 0;
    for (uint32_t i = 0; i < RULE_SETS; i += PAGE_SIZE_MIN / sizeof(rule_cache[0]))
        store_relaxed(&rule_cache[i][0], 0);
    return 0;
}

void rule_store(uint32_t publication, uintptr_t pc, uint32_t rule)
{
    uint64_t key = rule_key_(publication, pc);
    uint64_t word = rule_word_(publication, key) | rule;
    uint64_t *set = rule_cache[key >> RULE_TAG_BITS];
    /* The newest word is first; the one that it displaces becomes second, unless it is outdated.
     * Two walkers at once may lose one of the words: then it is interpreted once more. */
    uint64_t first = load_relaxed(&set[0]);
    uint64_t publications = ((1ull << RULE_PUBLICATION_BITS) - 1) << RULE_BITS;
    bool outdated = ((first ^ word) & publications) != 0 || rule_kind((uint32_t)first) == RULE_NONE;
    if (!outdated && (first ^ word) >> RULE_BITS != 0)
        store_relaxed(&set[1], first);
    store_relaxed(&set[0], word);
}
