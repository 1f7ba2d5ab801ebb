#include "agent/export/export.h"

#include "agent/base/compiler.h"

enum {
    /* Pyroscope's defaults: 16,000 samples of a profile, and a burst of 2 MB, beyond which a 429
     * never clears; somewhat less, as others of the tenant and labels count, too. */
    PYROSCOPE_ROWS = 16000,
    PYROSCOPE_BYTES = 1900000,
    /* Where bytes alone are limited: the first guess of rows that are too many. */
    MANY_ROWS = 1 << 16,
};

static const char *const names[DIALECTS] = {"pprof", "pyroscope", "parca", "datadog"};

const char *export_dialect_name(enum export_dialect dialect)
{
    return names[dialect];
}

int export_within_limits(const struct window *window, const struct export_request *request,
                         size_t max_bytes, struct buffer *out)
{
    struct export_request limited = *request;
    if (request->dialect == DIALECT_PYROSCOPE) {
        limited.thread_labels = limited.state_label = limited.user_labels = false;
        limited.row_limit = PYROSCOPE_ROWS - 1; /* and libagent truncated */
        max_bytes = max_bytes ? MIN_OF(max_bytes, (size_t)PYROSCOPE_BYTES) : PYROSCOPE_BYTES;
    }
    for (;;) {
        int error = export_pprof(window, &limited, out);
        if (error || !max_bytes || out->size <= max_bytes || limited.row_limit == 1)
            return error;
        limited.row_limit = limited.row_limit ? limited.row_limit / 2 : MANY_ROWS;
        buffer_free(out);
    }
}
