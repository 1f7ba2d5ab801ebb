#include "test/unwind/differences.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "test/unwind/tracee.h"
#include "test/unwind/tracee_modules.h"

enum { KINDS_MAX = 256, KNOWN_MAX = 64, OBJECTS_MAX = 64, FRAMES_SHOWN = 12 };

static const char *const verdict_names[VERDICTS] = {"same", "ours", "libunwind", "both", "unclear"};

struct kind {
    enum verdict verdict;
    const char *what;
    struct place place;        /* of the first one */
    uint64_t times, low, high; /* offsets in the function */
    const struct known *known;
    char example[4096]; /* printed at once: later the address may belong to another object */
};

/* A row of known_differences.txt. */
struct known {
    char verdict[16], what[32], object[64], reason[256];
};

/* Code without rules. */
struct bare {
    char object[256];
    uint64_t stops;
};

static struct kind kinds[KINDS_MAX];
static uint32_t kind_count;
static struct known known[KNOWN_MAX];
static uint32_t known_count;
static struct bare bare[OBJECTS_MAX];
static uint32_t bare_count;
static uint64_t verdicts[VERDICTS], stops, judged, without_rule, lost_kinds, landings,
    landings_foretold;

void differences_load(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];
    if (!file)
        die("cannot open %s", path);
    while (fgets(line, sizeof(line), file)) {
        struct known *k = &known[known_count];
        if (line[0] == '#' || line[0] == '\n')
            continue;
        int fields =
            sscanf(line, "%15s %31s %63s %255[^\n]", k->verdict, k->what, k->object, k->reason);
        if (known_count == KNOWN_MAX || fields != 4)
            die("%s: not understood: %s", path, line);
        known_count++;
    }
    fclose(file);
}

static const struct known *find_known(const struct kind *kind)
{
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known[i].verdict, verdict_names[kind->verdict]) == 0 &&
            strcmp(known[i].what, kind->what) == 0 &&
            fnmatch(known[i].object, kind->place.object, 0) == 0)
            return &known[i];
    return NULL;
}

/* Ours ends early, and says so: nothing in it is wrong. */
static bool is_short(const struct frames *ours, const struct frames *better)
{
    return !(ours->flags & UNWIND_COMPLETE) && ours->count < better->count &&
           memcmp(ours->pcs, better->pcs, ours->count * sizeof(ours->pcs[0])) == 0;
}

/* Names what led to a difference, as known_differences.txt does; `pc` is the last frame that both
 * have. */
static const char *name_what(uintptr_t pc, enum situation situation, const struct frames *ours,
                             const struct frames *better)
{
    static const char *const names[] = {[JUMPING] = "jump",
                                        [SWITCHING] = "switch",
                                        [OVERWRITTEN] = "overwritten",
                                        [CACHED] = "cache"};
    if (situation != ORDINARY)
        return names[situation];
    bool rule = tracee_has_rule(pc);
    if (is_short(ours, better))
        return rule ? "rule-short" : "no-rule-short";
    return rule ? "rule" : "no-rule";
}

static void note(enum verdict verdict, const char *what, uintptr_t pc, const struct frames *ours,
                 const struct frames *theirs, const struct frames *truth)
{
    struct place place = tracee_place(pc);
    uint64_t offset = place.vaddr - place.start;
    uint32_t i = 0;
    while (i < kind_count &&
           (kinds[i].verdict != verdict || strcmp(kinds[i].what, what) != 0 ||
            strcmp(kinds[i].place.object, place.object) != 0 ||
            kinds[i].place.start != place.start || kinds[i].place.has_rule != place.has_rule))
        i++;
    if (i == KINDS_MAX) {
        lost_kinds++;
        return;
    }
    struct kind *kind = &kinds[i];
    if (i == kind_count) {
        kind_count++;
        *kind = (struct kind){.verdict = verdict, .what = what, .place = place, .low = offset};
        kind->known = find_known(kind);
        FILE *out = fmemopen(kind->example, sizeof(kind->example), "w");
        const struct frames *all[] = {ours, theirs, truth};
        static const char *const titles[] = {"ours", "libunwind", "shadow stack"};
        for (int w = 0; w < 3 && out; w++) {
            uint32_t count = all[w] ? all[w]->count : 0;
            fprintf(out, "    %s: %u frames\n", titles[w], count);
            for (uint32_t f = 0; f < count && f < FRAMES_SHOWN; f++) {
                fprintf(out, "      ");
                tracee_print_place(out, all[w]->pcs[f]);
                fprintf(out, "\n");
            }
        }
        if (out)
            fclose(out);
    }
    kind->times++;
    kind->low = MIN_OF(kind->low, offset);
    kind->high = MAX_OF(kind->high, offset);
}

/* The last frame that both have. */
static uintptr_t last_common(const struct frames *a, const struct frames *b)
{
    uint32_t i = 0;
    while (i < a->count && i < b->count && a->pcs[i] == b->pcs[i])
        i++;
    return a->pcs[i ? i - 1 : 0];
}

/* Where a stack ends as it should no rule is missing: the loader's entry has none. */
static void note_bare(const struct frames *frames)
{
    bool any = false;
    uint32_t count = frames->count - (frames->count > 1 && (frames->flags & UNWIND_COMPLETE));
    for (uint32_t i = 0; i < count; i++) {
        if (tracee_has_rule(frames->pcs[i]))
            continue;
        any = true;
        const char *object = tracee_place(frames->pcs[i]).object;
        uint32_t at = 0;
        while (at < bare_count && strcmp(bare[at].object, object) != 0)
            at++;
        if (at == OBJECTS_MAX)
            continue;
        if (at == bare_count)
            snprintf(bare[bare_count++].object, sizeof(bare[at].object), "%s", object);
        bare[at].stops++;
    }
    without_rule += any;
}

enum verdict differences_judge(const struct frames *ours, const struct frames *theirs,
                               const struct frames *truth, enum situation situation)
{
    enum verdict verdict = SAME;
    bool same = same_frames(ours, theirs);
    if (truth && same && !same_frames(ours, truth))
        verdict = BOTH_WRONG;
    else if (!same && !truth)
        verdict = UNCLEAR;
    else if (!same)
        verdict = same_frames(ours, truth)     ? LIBUNWIND_WRONG
                  : same_frames(theirs, truth) ? OURS_WRONG
                                               : BOTH_WRONG;
    stops++;
    judged += truth != NULL;
    verdicts[verdict]++;
    if (verdict != SAME) {
        const struct frames *better = truth ? truth : theirs;
        uintptr_t pc = last_common(ours, better);
        if (verdict == LIBUNWIND_WRONG)
            pc = last_common(theirs, truth);
        note(verdict, name_what(pc, situation, ours, better), pc, ours, theirs, truth);
    }
    note_bare(ours);
    return verdict;
}

bool differences_report(const char *name, bool rules)
{
    uint64_t unknown = lost_kinds;
    for (uint32_t i = 0; i < kind_count; i++)
        if (!kinds[i].known)
            unknown += kinds[i].times;
    printf("%-12s %9lu stops, %9lu judged by a shadow stack, same %9lu (%.4f %%), wrong: ours %lu, "
           "libunwind %lu, both %lu, unclear %lu; not known %lu; without a rule %lu\n",
           name, stops, judged, verdicts[SAME], 100.0 * (double)verdicts[SAME] / (double)stops,
           verdicts[OURS_WRONG], verdicts[LIBUNWIND_WRONG], verdicts[BOTH_WRONG], verdicts[UNCLEAR],
           unknown, without_rule);
    for (uint32_t i = 0; i < kind_count; i++) {
        const struct kind *k = &kinds[i];
        printf("  wrong: %s, %s: %lu at %s 0x%lx %s + 0x%lx to 0x%lx: %s\n",
               verdict_names[k->verdict], k->what, k->times, k->place.object, k->place.start,
               k->place.name, k->low, k->high, k->known ? k->known->reason : "NOT KNOWN");
        if (!k->known)
            printf("%s", k->example);
    }
    if (landings)
        printf("  jumps that landed: %lu, where ours had said: %lu\n", landings, landings_foretold);
    for (uint32_t i = 0; i < bare_count; i++)
        printf("  no rule: %lu frames in %s\n", bare[i].stops, bare[i].object);
    fflush(stdout);
    return unknown * 10000 <= stops && landings == landings_foretold &&
           (!rules || without_rule * 1000 <= stops);
}

void differences_landing(bool foretold)
{
    landings++;
    landings_foretold += foretold;
}

uint64_t differences_stops(void)
{
    return stops;
}
