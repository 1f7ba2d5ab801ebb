/* pages_fixture.h: windows whose functions have any names, written as pages and collapsed stacks.
 * It stands in for symbols.h's function, as fake_modules.h does for those of modules.h: only one
 * file of a suite may include it. */
#ifndef LIBAGENT_TEST_PAGES_FIXTURE_H
#define LIBAGENT_TEST_PAGES_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/options.h"
#include "agent/export/export.h"
#include "agent/export/gathered.h"
#include "agent/export/page_parts.h"
#include "agent/export/symbols.h"
#include "agent/thread/user_labels.h"
#include "test/check.h"
#include "test/fake_modules.h"
#include "test/preload/page_reader.h"

enum { ONE = 1 << RECORD_FRACTION_BITS, CODE = 0x1000, FUNCTION = 16 };

static char long_name[6000], long_text[6000];
#define LONG_EM "\xe2\x80\x94" /* three bytes, so that a cut may come in the middle */

/* Names of functions at CODE, CODE + FUNCTION, ...; what they are in UTF-8 that is valid; and in a
 * collapsed stack. NULL: as they are. */
static const struct {
    const char *name, *valid, *collapsed;
} hostile[] = {
    {"plain", NULL, NULL},
    {"</script><script>alert(1)</script>", NULL, NULL},
    {"</SCRIPT >", NULL, NULL},
    {"<!--<script>", NULL, NULL},
    {"]]>&lt;&amp;", NULL, "]]>&lt:&amp:"},
    {"a\"b\\c'd`e", NULL, NULL},
    {"\"],[[[", NULL, NULL},
    {"\\u003c\\", NULL, NULL},
    {"new\nline\r\ttab\x01\x1f\x7f", NULL, "new?line??tab???"},
    {"line 2\xe2\x80\xa8paragraph\xe2\x80\xa9", NULL, NULL},
    {"C1 \xc2\x85\xc2\x9f", NULL, "C1 ??"},
    {"bad \xff\xfe\xc3", "bad \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", NULL},
    {"surrogate \xed\xa0\x80", "surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", NULL},
    {"overlong \xc0\xbc", "overlong \xef\xbf\xbd\xef\xbf\xbd", NULL},
    {"[T; 3];main 17", NULL, "[T: 3]:main 17"},
    {" ", NULL, NULL},
    {"__proto__", NULL, NULL},
    {"constructor", NULL, NULL},
    {"${x} %s %n", NULL, NULL},
    {"\xf0\x9f\x94\xa5 \xe6\x97\xa5\xe6\x9c\xac", NULL, NULL},
    {long_name, long_text, NULL},
};
enum { HOSTILE = sizeof(hostile) / sizeof(hostile[0]) };

static inline const char *valid_text(size_t i)
{
    const char *valid = hostile[i].valid ? hostile[i].valid : hostile[i].name;
    if (valid != long_text)
        return valid;
    snprintf(long_text, sizeof(long_text), "%.4095s", long_name); /* 1365 dashes */
    return long_text;
}

/* The agent's own looks into files. Addresses beyond the names have names by number. */
int symbols_find(const struct object *object, uintptr_t bias, const uint64_t *addresses,
                 size_t count, struct symbol_name *names, struct buffer *texts)
{
    (void)bias;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = (addresses[i] - CODE) / FUNCTION;
        char text[32];
        const char *name = text;
        snprintf(text, sizeof(text), "function %llu", (unsigned long long)number);
        if (object == &fake_lib && number < HOSTILE)
            name = hostile[number].name;
        uint64_t low = CODE + number * FUNCTION;
        names[i] = (struct symbol_name){.offset = (uint32_t)texts->size,
                                        .length = (uint32_t)strlen(name),
                                        .low = low,
                                        .high = low + FUNCTION};
        buffer_append(texts, name, strlen(name) + 1);
    }
    return texts->error;
}

static struct export_request request;
static struct gathered gathered;

static void start(size_t budget)
{
    fake_modules_start();
    arena_set_budget(budget);
    options.symbol_limit = 16 << 20;
    ck_assert_int_eq(recorder_start(1, 2), 0);
    long_name[0] = 0;
    while (strlen(long_name) + sizeof(LONG_EM) <= 5000)
        strcat(long_name, LONG_EM);
    request = (struct export_request){
        .has_window = true,
        .family = RECORD_CPU,
        .start_unix_ns = 1700000000123456789,
        .duration_ns = 60000000000,
        .period = 10000000,
        .thread_labels = true,
        .state_label = true,
        .user_labels = true,
        .program = "prog",
        .service = "service",
        .pid = 4711,
    };
}

static void setup(void)
{
    start((size_t)64 << 20);
}

static void teardown(void)
{
    gathered_free(&gathered);
}

static void add(uint64_t state, const uint64_t *pcs, uint32_t count,
                const struct thread_label *thread, const struct label_view *labels, uint64_t amount)
{
    struct {
        uint64_t words[1 + 64];
    } stack = {{1 | state << RECORD_STATE_SHIFT}};
    memcpy(stack.words + 1, pcs, count * sizeof(pcs[0]));
    recorder_add_labelled(request.family, (const struct record_stack *)(const void *)&stack, count,
                          thread, labels, (struct record_values){ONE, amount}, true);
}

static uint64_t pc_of(uint64_t function)
{
    return LIB_BIAS + CODE + function * FUNCTION + 3;
}

static void write_as(const struct window *window, enum export_dialect dialect, struct buffer *out)
{
    request.dialect = dialect;
    ck_assert_int_eq(export_within_limits(window, &request, 0, out), 0);
}

static inline void read_page(const struct window *window, struct picture *page)
{
    struct buffer out = {0};
    write_as(window, DIALECT_HTML, &out);
    const char *text = (const char *)out.data;
    page_parse(page, text, out.size, page_head, page_head_size, page_tail, page_tail_size);
    /* What json_loadb takes, a browser may not. */
    static const char *const never[] = {"\xe2\x80\xa8", "\xe2\x80\xa9", "\xc2\x85", "\x7f"};
    const char *data = text + page_head_size;
    size_t size = out.size - page_head_size - page_tail_size;
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        ck_assert_ptr_null(memmem(data, size, never[i], strlen(never[i])));
    buffer_free(&out);
}

static inline void read_collapsed(const struct window *window, struct picture *lines)
{
    struct buffer out = {0};
    write_as(window, DIALECT_COLLAPSED, &out);
    collapsed_parse(lines, (const char *)out.data, out.size);
    buffer_free(&out);
}

#endif
