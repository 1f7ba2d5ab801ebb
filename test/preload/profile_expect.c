#include "test/preload/profile_expect.h"

#include <stdio.h>

#include "test/check.h"

/* Nanoseconds or bytes: the same index in both families. */
enum { MEASURED = CPU_NS };
_Static_assert((int)CPU_NS == (int)ALLOC_BYTES, "one index for both");

static void expect_whole(const struct profile *profile, double share)
{
    double whole = profile_whole_share(profile, MEASURED);
    if (whole >= share)
        return;
    profile_print(profile, MEASURED, true, 5);
    ck_abort_msg("only %.4f is in stacks that reach main or a thread's start", whole);
}

void profile_expect(const char *folder, const char *family, int pid, double whole,
                    const struct expectation *expectations)
{
    struct profile profile;
    profile_load(&profile, folder, family, pid);
    double total = (double)profile_total(&profile, MEASURED);
    ck_assert_msg(total > 0, "no %s profile", family);
    expect_whole(&profile, whole);
    for (; expectations->function; expectations++) {
        double share = (double)profile_under(&profile, MEASURED, expectations->function) / total;
        fprintf(stderr, "%s: %.3f\n", expectations->function, share);
        if (share < expectations->share) {
            profile_print(&profile, MEASURED, false, 5);
            ck_abort_msg("%s has %.4f", expectations->function, share);
        }
    }
    profile_free(&profile);
}
