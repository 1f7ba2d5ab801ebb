#include "agent/export/demangle.h"

#include <libiberty/demangle.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/base/scratch_stack.h"
#include "agent/base/sys.h"
#include "agent/export/demangle_heap.h"
#include "agent/export/name_limit.h"

/* One mapping: guard, stack, copy of the name, heap.
 *
 * The stack: 1,024 characters give at most 2,048 components of 32 bytes, then an array of 16
 * bytes times (templates met) times (references to template parameters met), each component met
 * at most twice: "IE" is a template, "RT_" such a reference, so at most 512 times 340, 2.8 MiB;
 * and 1,024 levels of printing, under 1 KiB each. Only what is used is ever touched. */
enum {
    GUARD_SIZE = 64 << 10, /* the largest page */
    STACK_SIZE = 8 << 20,
    NAME_SIZE = 8 << 10,
    HEAP_SIZE = 256 << 10, /* the result doubles as it grows: up to 64 KiB of text */
    STACK_END = GUARD_SIZE + STACK_SIZE,
    HEAP_START = STACK_END + NAME_SIZE,
    MEMORY_SIZE = HEAP_START + HEAP_SIZE,
};
_Static_assert((int)DEMANGLE_RUST_INPUT_MAX < (int)NAME_SIZE, "the copy fits");

/* No DMGL_VERBOSE: std::string for basic_string<char, ...>, and no hashes in Rust's names. */
static const int demangle_options = DMGL_PARAMS | DMGL_ANSI;

struct job {
    char *(*demangler)(const char *name, int options);
    const char *name;
    const char *result;
};

/* The call to end when the heap is exhausted. */
static void *job_mark;

static void run_job(void *argument)
{
    struct job *job = argument;
    job->result = job->demangler(job->name, demangle_options);
}

static void end_job(void)
{
    scratch_stack_leave(job_mark);
}

void demangle_start(struct demangler *demangler, size_t limit)
{
    bool is_good = limit >= NAME_LIMIT_MIN && limit <= DEMANGLE_TEXT_MAX;
    demangler->limit = is_good ? limit : DEMANGLE_TEXT_MAX;
    demangler->memory = sys_map(MEMORY_SIZE);
    if (demangler->memory && sys_call3(SYS_mprotect, demangler->memory, GUARD_SIZE, PROT_NONE) != 0)
        demangle_stop(demangler);
}

void demangle_stop(struct demangler *demangler)
{
    if (demangler->memory)
        sys_unmap(demangler->memory, MEMORY_SIZE);
    demangler->memory = NULL;
}

static bool is_base36(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

static bool is_base62(char c)
{
    return is_base36(c) || (c >= 'a' && c <= 'z');
}

/* How many ways at most lead from the name down to one of its parts: each substitution S<n>_
 * multiplies them by one more than the number of times that it is written. */
static uint64_t count_ways(const struct demangler *demangler, const char *name)
{
    enum { NUMBERS = DEMANGLE_CXX_INPUT_MAX };
    uint16_t *uses = (uint16_t *)(void *)(demangler->memory + HEAP_START);
    memset(uses, 0, NUMBERS * sizeof(uses[0]));
    for (const char *p = name; (p = strchr(p, 'S')); p++) {
        uint32_t number = 0;
        const char *digit = p + 1;
        for (; is_base36(*digit) && number < NUMBERS; digit++)
            number = number * 36 + (uint32_t)(*digit <= '9' ? *digit - '0' : *digit - 'A' + 10);
        if (digit > p + 1)
            number++;
        if (*digit == '_' && number < NUMBERS)
            uses[number]++;
    }
    uint64_t ways = 1;
    for (size_t i = 0; i < NUMBERS && ways < UINT32_MAX; i++)
        ways *= 1u + uses[i];
    return ways;
}

/* A pack of anything but one plain template parameter: libiberty looks for it down all ways. */
static bool has_deep_pack(const char *name)
{
    if (strstr(name, "sp") || strstr(name, "sZ") || strstr(name, "sP"))
        return true;
    for (const char *p = name; (p = strstr(p, "Dp")); p += 2) {
        const char *type = p + 2;
        while (*type == 'O' || *type == 'R' || *type == 'K')
            type++;
        if (*type != 'T')
            return true;
    }
    return false;
}

/* False for names on which libiberty could work for ever without writing anything. None of
 * 340,000 names of LLVM, clang and the JDK comes near the first limit, 14 the second. */
static bool is_cxx_name_bounded(const struct demangler *demangler, const char *name)
{
    enum {
        CONVERSIONS_MAX = 12, /* each is tried twice: 2^12 */
        WAYS_MAX = 1 << 20,   /* a few milliseconds a pack */
    };
    unsigned conversions = 0;
    const char *conversion = strstr(name, "cv");
    for (const char *p = conversion; p && (p = strstr(p, "_I")); p += 2)
        conversions++;
    return conversions <= CONVERSIONS_MAX &&
           !(has_deep_pack(name) && count_ways(demangler, name) > WAYS_MAX);
}

/* Does "Cs" stand before `end`, with only letters and digits between, few enough to be the
 * beginning of a crate's number (11 digits at most)? */
static bool is_in_crate_number(const char *start, const char *end)
{
    enum { CRATE_DIGITS_MAX = 11 };
    for (const char *p = end; p - start >= 2 && end - p <= CRATE_DIGITS_MAX && is_base62(p[-1]);
         p--)
        if (p[-2] == 'C' && p[-1] == 's')
            return true;
    return false;
}

/* The same for Rust's v0: a binder of 62^2 and more lifetimes ("FG" or "DG", three digits or
 * more, "_"), which libiberty counts through even where it prints nothing. The same letters
 * stand in the numbers of some crates, which are not printed: there the digits are made small,
 * so that whatever it was, it is no large binder any more. False: elsewhere; that is given up (6
 * of 100,000 names of rustc: methods of a type CFG). */
static bool bound_rust_name(char *name)
{
    enum { BINDER_DIGITS_MAX = 2 };
    for (char *p = name; (p = strchr(p, 'G')); p++) {
        if (p == name || (p[-1] != 'F' && p[-1] != 'D'))
            continue;
        size_t digits = 0;
        while (is_base62(p[1 + digits]))
            digits++;
        if (p[1 + digits] != '_' || digits <= BINDER_DIGITS_MAX)
            continue;
        if (!is_in_crate_number(name, p - 1))
            return false;
        memset(p + 1, '0', digits - BINDER_DIGITS_MAX);
    }
    return true;
}

/* Copies the name without the ".llvm.NUMBER" that LLVM puts behind functions that it moves between
 * modules: it says nothing to people. Its length, or 0 when the name is too long. */
static size_t copy_without_module(char *copy, const char *name)
{
    static const char module[] = ".llvm.";
    size_t length = strlen(name);
    if (length > DEMANGLE_RUST_INPUT_MAX)
        return 0;
    const char *suffix = strstr(name, module);
    const char *rest = suffix ? suffix + sizeof(module) - 1 : name + length;
    while (*rest >= '0' && *rest <= '9')
        rest++;
    size_t before = suffix ? (size_t)(suffix - name) : length;
    size_t behind = (size_t)(name + length - rest);
    memcpy(copy, name, before);
    memcpy(copy + before, rest, behind + 1);
    return before + behind;
}

static const char *run(const struct demangler *demangler, char *(*function)(const char *, int),
                       const char *name)
{
    struct job job = {.demangler = function, .name = name};
    demangle_heap_use(demangler->memory + HEAP_START, HEAP_SIZE, end_job);
    if (scratch_stack_call(run_job, &job, demangler->memory + STACK_END, &job_mark))
        return NULL;
    return job.result;
}

/* Cuts "@plt" (symbols.c puts it behind names of linkage entries) from the copy. Its length, or 0.
 */
static size_t cut_plt(char *copy, size_t *length)
{
    static const char suffix[] = "@plt";
    const size_t size = sizeof(suffix) - 1;
    if (*length <= size || memcmp(copy + *length - size, suffix, size) != 0)
        return 0;
    *length -= size;
    copy[*length] = 0;
    return size;
}

size_t demangle(const struct demangler *demangler, const char *name, char *out)
{
    bool is_rust_v0 = strncmp(name, "_R", 2) == 0;
    bool is_cxx = strncmp(name, "_Z", 2) == 0 || strncmp(name, "_GLOBAL_", 8) == 0;
    if (!demangler->memory || !(is_rust_v0 || is_cxx))
        return 0;
    char *copy = (char *)demangler->memory + STACK_END;
    size_t length = copy_without_module(copy, name);
    if (length == 0)
        return 0;
    size_t suffix = cut_plt(copy, &length);
    const char *text = NULL;
    if (!is_rust_v0 || bound_rust_name(copy))
        text = run(demangler, rust_demangle, copy);
    if (!text && is_cxx && length <= DEMANGLE_CXX_INPUT_MAX && is_cxx_name_bounded(demangler, copy))
        text = run(demangler, cplus_demangle_v3, copy);
    if (!text)
        return 0;
    size_t written = name_limit_copy(out, text, demangler->limit);
    memcpy(out + written, name + strlen(name) - suffix, suffix + 1);
    return written + suffix;
}
