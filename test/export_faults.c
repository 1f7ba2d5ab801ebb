#include "test/export_faults.h"

#include <errno.h>

#include "agent/export/jit_names.h"
#include "agent/export/name_cache.h"
#include "test/check.h"
#include "test/map_faults.h"
#include "test/temp_folder.h"

void expect_whole_or_nothing(const struct window *window, const struct export_request *request)
{
    int descriptors = count_descriptors(), failures = 0;
    struct buffer whole = {0};
    ck_assert_int_eq(export_within_limits(window, request, 0, &whole), 0);
    bool failed = true;
    for (int i = 0; failed; i++) {
        struct buffer out = {0};
        name_cache_clear(); /* or names are read from files in the first and the 33rd alone */
        jit_names_forget();
        map_faults_begin(i);
        int result = export_within_limits(window, request, 0, &out);
        if (result) {
            ck_assert_int_eq(result, -ENOMEM);
            ck_assert_uint_eq(out.size, 0);
            ck_assert_ptr_null(out.data);
        } else { /* the demangler goes without */
            ck_assert_uint_eq(out.size, whole.size);
            ck_assert_mem_eq(out.data, whole.data, whole.size);
        }
        buffer_free(&out);
        name_cache_clear(); /* or what is kept would count */
        jit_names_forget();
        ck_assert_int_eq(map_faults_end(&failed), 0);
        failures += failed && result;
        ck_assert_int_lt(i, 1000);
    }
    ck_assert_int_gt(failures, 25);
    ck_assert_int_eq(count_descriptors(), descriptors);
    buffer_free(&whole);
}
