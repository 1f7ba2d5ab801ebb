#include "test/own_log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/log.h"

static char path[64];

void own_log_start(void)
{
    snprintf(path, sizeof(path), "/tmp/libagent-check-log-%d", getpid());
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

void own_log_remove(void)
{
    unlink(path);
}
