/* CFLAGS: -O2 */
/* prog_status MS: computes for MS and allocates, then prints what the kernel knows of the process
 * that an agent would leave traces in. */
#include <dirent.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "test/preload/program.h"

static void print_lines(const char *path, const char *const *keys)
{
    char line[512];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        for (int i = 0; keys[i]; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                fputs(line, stdout);
    if (file)
        fclose(file);
}

static void print_count(const char *what, const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    printf("%s %d\n", what, count);
}

int main(int argc, char **argv)
{
    uint64_t ns = number_argument(argc, argv, 1, 50) * 1000000;
    for (int i = 0; i < 2000; i++) {
        void *block = malloc(20000);
        keep(block);
        free(block);
    }
    spin(ns);
    print_lines("/proc/self/status", (const char *const[]){"SigBlk", "SigIgn", "SigCgt", "SigPnd",
                                                           "ShdPnd", "Threads", NULL});
    print_lines("/proc/self/timers", (const char *const[]){"ID", "signal", NULL});
    print_count("tasks", "/proc/self/task");
    print_count("descriptors", "/proc/self/fd");
    printf("secure %lu\n", getauxval(AT_SECURE));
    return 0;
}
