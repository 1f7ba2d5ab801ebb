#include "test/backend_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "test/temp_folder.h"

const uint64_t end_ms = 1700000060000;
const uint64_t now_ns = 1700000061000000123;

char base[64];
char output[128];
char default_folder[128];
struct file_backend backend;
struct file_report report;
char body[BODY_SIZE];

void backend_setup(void)
{
    strcpy(base, temp_folder_make());
    snprintf(output, sizeof output, "%s/out", base);
    snprintf(default_folder, sizeof default_folder, "%s/libagent-%u", base, (unsigned)geteuid());
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 + i / 251);
    umask(022);
}

void backend_teardown(void)
{
    sys_override = NULL;
    umask(022);
    if (geteuid() != getuid())
        ck_assert_int_eq(seteuid(getuid()), 0);
    temp_folder_remove(base);
}

void use_folder(const char *folder)
{
    ck_assert_int_eq(file_backend_init(&backend, folder, base, 1 << 20, "app", 77), 0);
}

int write_body_of(size_t size, const char *family)
{
    struct blob_header header = {
        .dialect = "pprof", .end_unix_ns = end_ms * 1000000 + 999999, .sequence = 3};
    strcpy(header.family, family);
    int before = count_descriptors();
    int error =
        file_backend_write(&backend, &header, COMPRESSION_GZIP, body, size, now_ns, &report);
    ck_assert_int_eq(count_descriptors(), before);
    if (error) {
        ck_assert_int_lt(error, 0);
        ck_assert_ptr_nonnull(report.reason);
    } else {
        ck_assert_ptr_null(report.reason);
    }
    return error;
}

int write_body(void)
{
    return write_body_of(sizeof body, "cpu");
}

void assert_names(const char *folder, const char *expected)
{
    char *names = list_folder(folder);
    ck_assert_str_eq(names, expected);
    free(names);
}

mode_t mode_of(const char *path)
{
    struct stat status;
    ck_assert_int_eq(lstat(path, &status), 0);
    return status.st_mode & 07777;
}

void assert_content(const char *path, const void *data, size_t size)
{
    size_t got;
    char *content = read_file(path, &got);
    ck_assert_uint_eq(got, size);
    ck_assert(memcmp(content, data, size) == 0);
    free(content);
}

void assert_body_written(const char *folder)
{
    assert_names(folder, NAME);
    assert_content(in_folder(folder, NAME), body, sizeof body);
    ck_assert_uint_eq(mode_of(in_folder(folder, NAME)), 0600);
    ck_assert_str_eq(report.folder, folder);
    ck_assert_str_eq(report.name, NAME);
}
