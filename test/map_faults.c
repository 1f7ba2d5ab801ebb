#include "test/map_faults.h"

#include <errno.h>

#include "agent/base/sys.h"

static int until_failure;
static bool has_failed;
static long mapped;

static bool watch(long number, const long args[6], long *result)
{
    if (number == SYS_munmap) {
        mapped -= args[1];
        return false;
    }
    if (number != SYS_mmap && number != SYS_mremap)
        return false;
    if (until_failure-- == 0) {
        has_failed = true;
        *result = -ENOMEM;
        return true;
    }
    mapped += number == SYS_mmap ? args[1] : args[2] - args[1];
    return false;
}

void map_faults_begin(int fail_at)
{
    until_failure = fail_at;
    has_failed = false;
    mapped = 0;
    sys_override = watch;
}

long map_faults_end(bool *failed)
{
    sys_override = 0;
    *failed = has_failed;
    return mapped;
}
