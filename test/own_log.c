#include "test/own_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/log.h"
#include "test/temp_path.h"

static char path[TEMP_PATH_SIZE];

void own_log_start(void)
{
    close(mkstemp(temp_path(path, "log")));
    log_start(LOG_WARN, path);
}

int own_log_lines(const char *text)
{
    char line[1100];
    int count = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

const char *own_log_path(void)
{
    return path;
}

void own_log_remove(void)
{
    unlink(path);
}
