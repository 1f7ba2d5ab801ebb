/* CFLAGS: -O2 */
/* LIBS: -ldl */
/* prog_objects [WAY=PATH]...: opens each object, and runs its code for 0.2 s. By the way it is
 * opened
 * - plain: a copy in the working folder, which has the way's name;
 * - deleted: the same, and the copy is removed then;
 * - replaced: or another object takes its place, that of the argument before;
 * - relative: the same by a relative path, and the working folder is another then;
 * - memory: a copy that is only in memory (memfd), whose descriptor is closed;
 * - there: where it is.
 *
 * At the end, root=PATH: the program's root is changed to that; pivot=PATH: the same by pivot_root,
 * and what was the root is unmounted. */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "test/preload/program.h"

enum { EACH_NS = 400000000 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void copy(const char *path, int to)
{
    static char bytes[1 << 16];
    int from = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    while ((got = read(from, bytes, sizeof(bytes))) > 0)
        if (write(to, bytes, (size_t)got) != got)
            fail("write");
    if (from < 0 || got < 0)
        fail(path);
    close(from);
}

static void copy_to(const char *path, const char *name)
{
    int to = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    copy(path, to);
    close(to);
}

/* The object, by the path that the way gives it. */
static void *open_as(const char *way, const char *path)
{
    char name[4200], folder[4096];
    if (strcmp(way, "memory") == 0) {
        int fd = memfd_create("object", MFD_CLOEXEC);
        copy(path, fd);
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        void *handle = dlopen(name, RTLD_NOW);
        close(fd);
        return handle;
    }
    if (strcmp(way, "there") == 0)
        return dlopen(path, RTLD_NOW);
    copy_to(path, way);
    if (strcmp(way, "relative") == 0) {
        void *handle = dlopen("./relative", RTLD_NOW);
        if (chdir("/"))
            fail("chdir");
        return handle;
    }
    snprintf(name, sizeof(name), "%s/%s", getcwd(folder, sizeof(folder)), way);
    return dlopen(name, RTLD_NOW);
}

/* As container runtimes do it: the new root lies over the old one, which is taken away. */
static void pivot_to(const char *path)
{
    if (chdir(path) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
        fail(path);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *way = argv[i], *path = strchr(argv[i], '=');
        *path++ = 0;
        if (strcmp(way, "root") == 0)
            return chroot(path) != 0 || chdir("/") != 0;
        if (strcmp(way, "pivot") == 0) {
            pivot_to(path);
            return 0;
        }
        void *handle = open_as(way, path);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        if (strcmp(way, "deleted") == 0 && unlink(way))
            fail("unlink");
        if (strcmp(way, "replaced") == 0) {
            copy_to(argv[i - 1] + strlen(argv[i - 1]) + 1, "new");
            if (rename("new", way))
                fail("rename");
        }
        uint64_t (*run)(uint64_t) = NULL;
        *(void **)&run = dlsym(handle, "plugin_run");
        keep((void *)(uintptr_t)run(EACH_NS));
    }
    return 0;
}
