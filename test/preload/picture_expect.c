#include "test/preload/picture_expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/check.h"

static void expect_equal(const char *what, const char *name, int64_t seen, int64_t truth)
{
    ck_assert_msg(seen == truth, "%s of %s: %lld, in the pprof file %lld", what, name,
                  (long long)seen, (long long)truth);
}

/* Each function once, in the order in which stacks bring them; ends with NULL, to be freed. */
static const char **functions_of(const struct profile *profile)
{
    size_t count = 0, all = 0;
    for (size_t i = 0; i < profile->stack_count; i++)
        all += profile->stacks[i].depth;
    const char **names = calloc(all + 1, sizeof(names[0]));
    ck_assert_ptr_nonnull(names);
    for (size_t i = 0; i < profile->stack_count; i++)
        for (uint32_t k = 0; k < profile->stacks[i].depth; k++) {
            const char *name = profile->stacks[i].frames[k].function;
            size_t known = 0;
            while (known < count && strcmp(names[known], name) != 0)
                known++;
            if (known == count)
                names[count++] = name;
        }
    return names;
}

/* The profile's value of that name. */
static int value_of_type(const char *type)
{
    static const struct {
        const char *type;
        int value;
    } values[] = {{"samples", CPU_SAMPLES},
                  {"cpu", CPU_NS},
                  {"wall", WALL_NS},
                  {"alloc_objects", ALLOC_OBJECTS},
                  {"alloc_space", ALLOC_BYTES},
                  {"inuse_objects", LIVE_OBJECTS},
                  {"inuse_space", LIVE_BYTES}};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (strcmp(values[i].type, type) == 0)
            return values[i].value;
    ck_abort_msg("type %s", type);
}

static void expect_labels(const struct picture *page, int type, const struct profile *profile,
                          int value)
{
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        int64_t by_tid = 0;
        for (size_t k = 0; k < profile->stack_count; k++)
            if (profile->stacks[k].tid == stack->tid &&
                strcmp(profile->stacks[k].thread, stack->thread) == 0)
                by_tid += profile->stacks[k].values[value];
        if (stack->tid || stack->thread[0])
            expect_equal("thread", stack->thread,
                         picture_of_thread(page, type, stack->thread, stack->tid), by_tid);
        if (stack->state[0])
            expect_equal("state", stack->state,
                         picture_of_label(page, type, "state", stack->state, 0),
                         profile_of_state(profile, value, stack->state));
    }
}

void picture_expect_page(const struct picture *page, const struct profile *profile)
{
    const char **functions = functions_of(profile);
    for (int type = 0; type < (int)page->type_count; type++) {
        const char *name = json_string_value(json_object_get(
            json_array_get(json_object_get(page->data, "types"), (size_t)type), "type"));
        int value = value_of_type(name);
        expect_equal("sum", name, picture_total(page, type), profile_total(profile, value));
        for (const char **function = functions; *function; function++) {
            expect_equal("self", *function, picture_self(page, type, *function),
                         profile_self(profile, value, *function));
            expect_equal("total", *function, picture_under(page, type, *function),
                         profile_under(profile, value, *function));
        }
        expect_labels(page, type, profile, value);
    }
    ck_assert_uint_eq(page->row_count, profile->stack_count);
    free((void *)functions);
}

static bool same_stack(const struct stack *a, const struct stack *b)
{
    if (a->depth != b->depth)
        return false;
    for (uint32_t i = 0; i < a->depth; i++)
        if (strcmp(a->frames[i].function, b->frames[i].function) != 0)
            return false;
    return true;
}

static int64_t line_of(const struct picture *lines, const struct stack *stack)
{
    int64_t sum = 0;
    for (size_t i = 0; i < lines->row_count; i++) {
        const struct picture_row *row = &lines->rows[i];
        uint32_t at = 0;
        while (at < row->depth && row->depth == stack->depth &&
               strcmp(lines->names[row->first + at],
                      stack->frames[stack->depth - 1 - at].function) == 0)
            at++;
        sum += at == stack->depth ? row->values[0] : 0;
    }
    return sum;
}

void picture_expect_collapsed(const struct picture *lines, const struct profile *profile, int value)
{
    int64_t total = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        bool is_first = true;
        int64_t sum = 0;
        for (size_t k = 0; k < profile->stack_count; k++)
            if (same_stack(stack, &profile->stacks[k])) {
                is_first = is_first && k >= i;
                sum += profile->stacks[k].values[value];
            }
        if (!is_first)
            continue;
        sum = sum > 0 ? sum : 0;
        expect_equal("line", stack->frames[0].function, line_of(lines, stack), sum);
        total += sum;
    }
    ck_assert_int_eq(picture_total(lines, 0), total);
}
