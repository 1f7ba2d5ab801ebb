#include "agent/export/export.h"

#include <errno.h>

#include "agent/base/compiler.h"

enum {
    /* Pyroscope's defaults: 16,000 samples of a profile, and a burst of 2 MB, beyond which a 429
     * never clears; somewhat less, as others of the tenant and labels count, too. */
    PYROSCOPE_ROWS = 16000,
    PYROSCOPE_BYTES = 1900000,
    /* What a browser, and flamegraph.pl, take in a second or two. A page of 100,000 stacks has
     * 10 MB; as lines deep stacks are more. */
    PAGE_BYTES = 16 << 20,
    /* Where bytes alone are limited: the first guess of rows that are too many. */
    MANY_ROWS = 1 << 16,
};

static const char *const names[DIALECTS] = {"pprof",     "html",  "collapsed",
                                            "pyroscope", "parca", "datadog"};

const char *export_dialect_name(enum export_dialect dialect)
{
    return names[dialect];
}

static int write_once(const struct window *window, const struct export_request *request,
                      struct buffer *out)
{
    switch (request->dialect) {
    case DIALECT_HTML:
        return export_html(window, request, out);
    case DIALECT_COLLAPSED:
        return export_collapsed(window, request, out);
    default:
        return export_pprof(window, request, out);
    }
}

static size_t least_limit(size_t a, size_t b)
{
    return a && b ? MIN_OF(a, b) : a + b;
}

int export_within_limits(const struct window *window, const struct export_request *request,
                         size_t max_bytes, struct buffer *out)
{
    struct export_request limited = *request;
    if (request->dialect == DIALECT_PYROSCOPE) {
        limited.thread_labels = limited.state_label = limited.user_labels = false;
        limited.row_limit = PYROSCOPE_ROWS - 1; /* and libagent truncated */
        max_bytes = least_limit(max_bytes, PYROSCOPE_BYTES);
    } else if (request->dialect == DIALECT_HTML || request->dialect == DIALECT_COLLAPSED) {
        max_bytes = least_limit(max_bytes, PAGE_BYTES);
    }
    for (;;) {
        limited.byte_limit = limited.row_limit == 1 ? 0 : max_bytes;
        int error = write_once(window, &limited, out);
        bool is_large = error == -E2BIG || (!error && max_bytes && out->size > max_bytes);
        if (!is_large || limited.row_limit == 1)
            return error;
        limited.row_limit = limited.row_limit ? limited.row_limit / 2 : MANY_ROWS;
        buffer_free(out);
    }
}
