#include "test/preload/run_pair.h"

#include <stdio.h>
#include <string.h>

#include "test/check.h"

void run_pair(struct run_pair *pair, const struct run_request *request)
{
    struct run_request one = *request;
    one.without_agent = true;
    run_start(&pair->without, &one);
    one.without_agent = false;
    run_start(&pair->with, &one);
    run_wait(&pair->without);
    run_wait(&pair->with);
    run_expect_same(&pair->with, &pair->without);
}

void run_pair_free(struct run_pair *pair)
{
    run_free(&pair->with);
    run_free(&pair->without);
}

void run_script_path(const char *name, char path[PATH_MAX])
{
    char relative[128];
    snprintf(relative, sizeof(relative), "test/preload/%s", name);
    ck_assert_msg(realpath(relative, path) != NULL, "no %s here", relative);
}

const char *run_script_interpreter(const char *name)
{
    const char *end = strrchr(name, '.');
    ck_assert_ptr_nonnull(end);
    if (strcmp(end, ".py") == 0)
        return "/usr/bin/python3";
    return strcmp(end, ".pl") == 0 ? "/usr/bin/perl" : "/bin/bash";
}
