#include "test/temp_folder.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/sys.h"

const char *temp_folder_make(void)
{
    static char path[TEMP_PATH_SIZE];
    ck_assert_ptr_nonnull(mkdtemp(temp_path(path, "check")));
    return path;
}

void temp_folder_remove(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+rwx %s 2>/dev/null; rm -rf %s", path, path);
    ck_assert_int_eq(system(command), 0);
}

const char *in_folder(const char *folder, const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

void write_file_at(const char *path, size_t size, int64_t mtime_ns)
{
    write_file(path, "", 0);
    ck_assert_int_eq(truncate(path, (off_t)size), 0);
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file, "%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    ck_assert_uint_eq(fread(data, 1, *size, file), *size);
    data[*size] = 0;
    fclose(file);
    return data;
}

bool file_exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

char *list_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, not_dots, compare_names);
    ck_assert_int_ge(count, 0);
    char *out = calloc((size_t)count + 1, 257);
    for (int i = 0; i < count; i++) {
        if (i > 0)
            strcat(out, " ");
        strcat(out, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return out;
}

int count_files(const char *path)
{
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += not_dots(entry);
    closedir(folder);
    return count;
}

int count_descriptors(void)
{
    return count_files("/proc/self/fd");
}

static struct {
    long number;
    int flags;
    int skip;
    int count;
    long result;
    int answered;
} fault;

static bool answer(long number, const long args[6], long *result)
{
    if (number != fault.number || (fault.flags && (args[2] & fault.flags) != fault.flags))
        return false;
    if (fault.skip > 0) {
        fault.skip--;
        return false;
    }
    if (fault.answered >= fault.count)
        return false;
    fault.answered++;
    *result = fault.result;
    return true;
}

void fault_set(long number, int skip, int count, long result)
{
    fault.number = number;
    fault.flags = 0;
    fault.skip = skip;
    fault.count = count;
    fault.result = result;
    fault.answered = 0;
    sys_override = answer;
}

void fault_set_open(int flags, int skip, int count, long result)
{
    fault_set(SYS_openat, skip, count, result);
    fault.flags = flags;
}

int fault_clear(void)
{
    sys_override = NULL;
    return fault.answered;
}
