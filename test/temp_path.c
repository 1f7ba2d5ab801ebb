#include "test/temp_path.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

char *temp_path(char path[TEMP_PATH_SIZE], const char *what)
{
    const char *folder = getenv("TMPDIR");
    int length = snprintf(path, TEMP_PATH_SIZE, "%s/libagent-%s-XXXXXX",
                          folder && folder[0] ? folder : "/tmp", what);
    ck_assert_msg(length < TEMP_PATH_SIZE, "TMPDIR is too long for the suites");
    return path;
}
