#include "agent/base/error_text.h"

#include <errno.h>
#include <stddef.h>

#include "agent/base/compiler.h"

/* What files, starts and stops fail with in practice. */
static const struct {
    int code;
    const char *text;
} texts[] = {
    {EACCES, "permission denied"},
    {EADDRINUSE, "address already in use"},
    {EAGAIN, "too many threads or too little memory"},
    {EBADF, "descriptor closed by the program"},
    {EBUSY, "still in use"},
    {ECANCELED, "a thread of the agent was held up"},
    {EDEADLK, "asked for from within the agent"},
    {EDQUOT, "disk quota exceeded"},
    {EEXIST, "name already taken"},
    {EFBIG, "file too large"},
    {EINVAL, "not of the kind or value that is expected"},
    {EIO, "input/output error"},
    {EISDIR, "no regular file"},
    {ELOOP, "too many symbolic links"},
    {EMFILE, "too many open files in the process"},
    {ENAMETOOLONG, "name too long"},
    {ENFILE, "too many open files in the system"},
    {ENOENT, "no such file or directory"},
    {ENOMEM, "out of memory"},
    {ENOSPC, "no space left on device"},
    {ENOSYS, "not supported by the kernel"},
    {ENOTDIR, "not a directory"},
    {EPERM, "operation not permitted"},
    {EROFS, "read-only file system"},
    {ESHUTDOWN, "the process is ending"},
    {ESTALE, "stale file handle"},
    {ETIMEDOUT, "not done in the time allowed"},
};

const char *error_text(int code)
{
    int value = code < 0 ? -code : code;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (texts[i].code == value)
            return texts[i].text;
    }
    return "unexpected error";
}
