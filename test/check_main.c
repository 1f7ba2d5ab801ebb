#include "test/check.h"

#include <string.h>

bool test_is_emulated(void)
{
    return getenv("LEFT_OUT") != NULL;
}

bool test_is_left_out(const char *name)
{
    const char *names = getenv("LEFT_OUT");
    size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
