#include "agent/base/cgroup.h"

#include <string.h>
#include <sys/resource.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"
#include "agent/base/sys.h"

enum { LIMIT_SHARE = 16, LEAST = 8 * 1024 * 1024 };

/* "max", or version 1's huge number, parse as no limit (0). */
static uint64_t read_limit(const char *path)
{
    char text[32];
    if (sys_read_file(path, text, sizeof(text)) <= 0)
        return 0;
    uint64_t value = 0;
    for (const char *at = text; *at >= '0' && *at <= '9'; at++) {
        if (value > UINT64_MAX / 16)
            return 0;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    return value;
}

/* Finds the line of `controller` ("" for version 2) in /proc/self/cgroup's text; ends its path
 * with 0. */
static const char *find_path(char *text, const char *controller)
{
    size_t length = strlen(controller);
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n');
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (names && path && (!end || path < end) && (size_t)(path - names - 1) == length &&
            memcmp(names + 1, controller, length) == 0) {
            if (end)
                *end = 0;
            return path + 1;
        }
        if (!end)
            break;
        line = end + 1;
    }
    return NULL;
}

/* The limit of the process's own group, and, where the hierarchy is that of a container (its
 * root is the group), of the root. Least of those set; 0: none. */
static uint64_t find_limit(const char *root, const char *file, const char *controller)
{
    char text[2048];
    char name[2560];
    uint64_t limit = 0;
    const char *path = NULL;
    if (sys_read_file("/proc/self/cgroup", text, sizeof(text)) > 0)
        path = find_path(text, controller);
    if (path) {
        format(name, sizeof(name), "%s%s/%s", root, path, file);
        limit = read_limit(name);
    }
    format(name, sizeof(name), "%s/%s", root, file);
    uint64_t of_root = read_limit(name);
    return of_root && (!limit || of_root < limit) ? of_root : limit;
}

/* The program's own limits of its mappings: what is ours of them is missing to it. */
static uint64_t least_rlimit(void)
{
    static const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(resources); i++) {
        uint64_t soft_and_hard[2];
        if (sys_call4(SYS_prlimit64, 0, resources[i], NULL, soft_and_hard) == 0)
            least = MIN_OF(least, soft_and_hard[0]);
    }
    return least;
}

uint64_t cgroup_limit_share(uint64_t wanted)
{
    uint64_t limit = find_limit("/sys/fs/cgroup", "memory.max", "");
    if (!limit)
        limit = find_limit("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory");
    if (limit)
        wanted = MIN_OF(wanted, limit / LIMIT_SHARE);
    limit = least_rlimit();
    if (limit != UINT64_MAX) /* RLIM_INFINITY */
        wanted = MIN_OF(wanted, limit / LIMIT_SHARE);
    return MAX_OF(wanted, (uint64_t)LEAST);
}
