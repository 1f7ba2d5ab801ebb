/* CFLAGS: -O2 */
/* prog_descriptors CASE: looks at its descriptors, closes them, uses their numbers again, while the
 * agent flushes each second. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { LOOKS = 30 };

static void work(void)
{
    for (int i = 0; i < 200; i++) {
        void *block = malloc(20000);
        keep(block);
        free(block);
    }
    spin(100000000);
}

static void print_descriptors(FILE *out)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        char target[256];
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (length <= 0 || atoi(entry->d_name) == dirfd(folder))
            continue;
        target[length] = 0;
        /* Files of the run itself are in another folder each time. */
        const char *base = strrchr(target, '/');
        fprintf(out, " %s:%s", entry->d_name, base ? base : target);
    }
    fprintf(out, "\n");
    closedir(folder);
}

static void look(void)
{
    for (int i = 0; i < LOOKS; i++) {
        work();
        print_descriptors(stdout);
    }
}

/* What it prints has the lowest number that is free. */
static void list(void)
{
    FILE *file = fopen("list", "w");
    print_descriptors(file);
    fclose(file);
}

static void close_all(void)
{
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "own-%d", i);
        if (open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600) != i)
            _exit(3);
    }
    for (int k = 0; k < LOOKS; k++) {
        work();
        for (int i = 0; i < 4; i++)
            if (write(i, "text", 4) != 4)
                _exit(4);
    }
    list();
}

/* A reader of the pipe must see its end now, not when the agent's threads end. */
static void leave_pipe(void)
{
    for (int i = 0; i < 15; i++)
        work();
    close(0);
    close(1);
    close(2);
    for (int i = 0; i < 20; i++)
        work();
    close(open("left", O_WRONLY | O_CREAT, 0600));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "look") == 0)
        look();
    else if (argc > 1 && strcmp(argv[1], "close-all") == 0)
        close_all();
    else if (argc > 1 && strcmp(argv[1], "list") == 0)
        list();
    else
        leave_pipe();
    return 0;
}
