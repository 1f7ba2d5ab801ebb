/* rule_cache.h: the rules of recently seen addresses, for the whole process.
 *
 * 16,384 entries in sets of two (128 KiB; of 2,000 distinct stacks of compilers 99.5 % hit),
 * each a single 64-bit word, read and written by relaxed atomics: no lock, and no word can be
 * torn. A word is
 *
 *     rule 24 (the upper bits) | publication 6 | tag 34
 *
 * The address and the publication count of the module list are one key of 47 bits: their sum,
 * each scaled by an odd constant. Scaling by an odd constant is a bijection, and set number and
 * tag together are the whole key (of code addresses of 48 bits, on aarch64, one bit says nothing:
 * UNWIND_PC_SPARE_BITS), so one address never finds the rule of another within a
 * publication. A word of an earlier publication (also one stored late, by a walker that still
 * had the old list) is found only by an address that lies exactly the scaled difference away,
 * and whose publication agrees in the lower 6 bits too.
 *
 * Owns: the table. Context: SIG, HOOK and all others; rule_cache_start INIT. Locks: none. */
#ifndef LIBAGENT_RULE_CACHE_H
#define LIBAGENT_RULE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/compiler.h"
#include "agent/unwind/unwind.h"

/* What to do at an address. RULE_NONE is an empty word. */
enum rule_kind {
    RULE_NONE,
    RULE_SP,       /* CFA = stack pointer + offset */
    RULE_FP,       /* CFA = frame pointer + offset */
    RULE_FP_DEREF, /* x86-64: CFA = word at frame pointer + offset; caller's fp at [fp] */
    RULE_SP_ONLY = RULE_FP_DEREF, /* aarch64: as RULE_SP, frame pointer unchanged */
    RULE_SIMPLE_LAST = RULE_FP_DEREF,
    RULE_END,     /* no caller */
    RULE_FULL,    /* more than a word can say: ask cfi.c each time */
    RULE_NO_FDE,  /* a known object, but no rule */
    RULE_UNKNOWN, /* no known object; never stored */
};

/* A rule stands in the upper 24 bits of 64: offset / 8 in 14 with sign, slot 6 (what is saved at
 * CFA - 8 * slot: see arch_step), system 1 (the object is_system), kind 3. The
 * offset is on top because the next load waits for it: one shift, and the rest is in the
 * addressing. */
enum {
    RULE_OFFSET_SHIFT = 50,
    RULE_SLOT_SHIFT = 44,
    RULE_SLOT_MAX = 63,
    RULE_KIND_SHIFT = 40,
    RULE_KIND_MAX = 7,
    RULE_BITS = 24,
    RULE_OFFSET_MAX = 8191 * 8,
    RULE_OFFSET_MIN = -8192 * 8,
    RULE_PUBLICATION_BITS = 6,
    RULE_TAG_BITS = 34,
    RULE_KEY_BITS = 47,
    RULE_PC_BITS = RULE_KEY_BITS + UNWIND_PC_SPARE_BITS, /* addresses above have no rule */
    RULE_SETS = 1 << (RULE_KEY_BITS - RULE_TAG_BITS),
    RULE_WAYS = 2,
};
#define RULE_SYSTEM (1ull << 43)

static inline uint64_t rule_make(enum rule_kind kind, uint32_t slot, int32_t offset)
{
    return (uint64_t)kind << RULE_KIND_SHIFT | (uint64_t)slot << RULE_SLOT_SHIFT |
           (uint64_t)(int64_t)(offset / 8) << RULE_OFFSET_SHIFT;
}

static inline enum rule_kind rule_kind(uint64_t rule)
{
    return (enum rule_kind)(rule >> RULE_KIND_SHIFT & RULE_KIND_MAX);
}

static inline uint32_t rule_slot(uint64_t rule)
{
    return (uint32_t)(rule >> RULE_SLOT_SHIFT) & RULE_SLOT_MAX;
}

static inline intptr_t rule_offset(uint64_t rule)
{
    return ((int64_t)rule >> RULE_OFFSET_SHIFT) * 8;
}

extern HIDDEN uint64_t (*rule_cache)[RULE_WAYS]; /* NULL until started */
extern HIDDEN bool rule_cache_in_memory;

/* Takes the table's 32 page faults in one system call, at the first walk: later they would fall
 * on the first samples one by one, and at the start they would be a cost (some 50 us) of every
 * short program that is never sampled. */
void rule_cache_prefault(void);

/* The key in the upper 47 bits. */
static inline uint64_t rule_key_(uint32_t publication, uintptr_t pc)
{
    uint64_t sum = (pc >> UNWIND_PC_SPARE_BITS) + publication * 0x9e3779b97f4a7c15ull;
    return sum * (0xd6e8feb86659fd93ull << (64 - RULE_KEY_BITS));
}

static inline uint64_t *rule_set_(uint64_t key)
{
    return rule_cache[key >> (64 - (RULE_KEY_BITS - RULE_TAG_BITS))];
}

/* All of a word but the rule. */
static inline uint64_t rule_word_(uint32_t publication, uint64_t key)
{
    uint64_t tag = key >> (64 - RULE_KEY_BITS) & ((1ull << RULE_TAG_BITS) - 1);
    uint64_t low = publication & ((1u << RULE_PUBLICATION_BITS) - 1);
    return low << RULE_TAG_BITS | tag;
}

static inline uint64_t rule_find_(uint32_t publication, uintptr_t pc)
{
    uint64_t key = rule_key_(publication, pc);
    uint64_t wanted = rule_word_(publication, key);
    const uint64_t *set = rule_set_(key);
    uint64_t word = load_relaxed(&set[0]);
    if (likely((word ^ wanted) << RULE_BITS == 0))
        return word;
    word = load_relaxed(&set[1]);
    return (word ^ wanted) << RULE_BITS == 0 ? word : rule_make(RULE_NONE, 0, 0);
}

#ifdef LIBAGENT_TEST
/* Sees every rule that is found, in the walker's context. Set it before threads start. */
extern void (*rule_watch)(uint32_t publication, uintptr_t pc, uint64_t rule);
#endif

/* RULE_NONE when there is none. `pc` is below 2^RULE_PC_BITS. What is below a rule's bits is
 * undefined. */
static inline uint64_t rule_lookup(uint32_t publication, uintptr_t pc)
{
    uint64_t rule = rule_find_(publication, pc);
#ifdef LIBAGENT_TEST
    if (rule_watch && rule_kind(rule) != RULE_NONE)
        rule_watch(publication, pc, rule);
#endif
    return rule;
}

void rule_store(uint32_t publication, uintptr_t pc, uint64_t rule);
/* 0 or -ENOMEM. The table stays for the life of the process. */
int rule_cache_start(void) MUST_USE;

#endif
