#include "test/stderr_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/check.h"

int stderr_pipe_read = -1;
char stderr_folder[TEMP_PATH_SIZE];
static int saved_stderr = -1;

void stderr_pipe_setup(void)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    saved_stderr = dup(2);
    dup2(ends[1], 2);
    close(ends[1]);
    stderr_pipe_read = ends[0];
    fcntl(stderr_pipe_read, F_SETFL, O_NONBLOCK);
    ck_assert_ptr_nonnull(mkdtemp(temp_path(stderr_folder, "stderr")));
    errno = STDERR_PIPE_ERRNO;
}

void stderr_pipe_teardown(void)
{
    ck_assert_int_eq(errno, STDERR_PIPE_ERRNO); /* the log has left it alone */
    dup2(saved_stderr, 2);
    char command[16 + TEMP_PATH_SIZE];
    snprintf(command, sizeof(command), "rm -rf %s", stderr_folder);
    ck_assert_int_eq(system(command), 0);
}

const char *text_of(int fd)
{
    static char text[1 << 17];
    int kept = errno;
    size_t used = 0;
    ssize_t length;
    while ((length = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)length;
    text[used] = 0;
    errno = kept;
    return text;
}

const char *path_in_folder(const char *name)
{
    static char path[32 + TEMP_PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", stderr_folder, name);
    return path;
}

const char *text_of_file(const char *path)
{
    int kept = errno;
    int fd = open(path, O_RDONLY);
    const char *text = text_of(fd);
    close(fd);
    errno = kept;
    return text;
}

size_t stderr_pipe_fill(void)
{
    static char block[4096];
    int kept = errno;
    int flags = fcntl(2, F_GETFL);
    fcntl(2, F_SETFL, flags | O_NONBLOCK);
    size_t total = 0;
    for (size_t size = sizeof(block); size > 0;) {
        ssize_t written = write(2, block, size);
        if (written < 0)
            size /= 2;
        else
            total += (size_t)written;
    }
    fcntl(2, F_SETFL, flags);
    errno = kept;
    return total;
}

void stderr_pipe_drain(size_t size)
{
    static char block[4096];
    int kept = errno;
    while (size > 0) {
        ssize_t length = read(stderr_pipe_read, block, size < sizeof(block) ? size : sizeof(block));
        ck_assert_int_gt(length, 0);
        size -= (size_t)length;
    }
    errno = kept;
}
