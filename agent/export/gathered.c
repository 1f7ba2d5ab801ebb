#include "agent/export/gathered.h"

#include <errno.h>

#include "agent/export/families.h"
#include "agent/export/pprof_fields.h"

static bool any_has_value(const struct gathered *gathered)
{
    size_t count;
    const struct row *rows = rows_of(&gathered->rows, &count);
    for (size_t i = 0; i < count; i++)
        if (family_row_is_shown(&gathered->request, &rows[i]))
            return true;
    return false;
}

static int gather(struct gathered *gathered, const struct window *window,
                  const struct export_request *request)
{
    gathered->request = *request;
    gathered->families =
        request->dialect == DIALECT_DATADOG ? request->families : 1u << request->family;
    string_table_begin(&gathered->strings, PROFILE_STRING_TABLE);
    int error = rows_gather(&gathered->rows, window, &gathered->request, gathered->families);
    gathered->has_values = !error && any_has_value(gathered);
    if (gathered->has_values)
        /* A capture is a part of the window, which has had its time for that. */
        error = locations_name(&gathered->rows.locations, &gathered->strings, !request->capture);
    gathered->is_there = !error;
    return error;
}

int gathered_write(const struct window *window, const struct export_request *request,
                   gathered_writer writer, struct buffer *out)
{
    struct gathered alone = {.is_there = false};
    bool can_share = request->shared && request->dialect < DIALECT_FILES && !request->row_limit;
    struct gathered *gathered = can_share ? request->shared : &alone;
    int error = gathered->is_there ? 0 : gather(gathered, window, request);
    if (!error && gathered->has_values)
        error = writer(gathered, request, out);
    if (error)
        buffer_free(out);
    if (error && error != -E2BIG)
        gathered_free(gathered);
    gathered_free(&alone);
    return error;
}

void gathered_free(struct gathered *gathered)
{
    string_table_free(&gathered->strings);
    rows_free(&gathered->rows);
    *gathered = (struct gathered){.is_there = false};
}
