#include "agent/export/object_file.h"

#include <errno.h>
#include <sys/auxv.h>

#include "agent/base/sys.h"

/* It is whole in memory. Its size is not told; it is read as far as its pages reach. */
static int open_vdso(struct elf_file *file)
{
    enum { VDSO_MAX = 8 * PAGE_SIZE_MIN }; /* 2 pages on x86-64 and aarch64 */
    const uint8_t *start = (const uint8_t *)sys_auxv(AT_SYSINFO_EHDR);
    size_t size = 0;
    while (start && size < VDSO_MAX && sys_readable((uintptr_t)start + size))
        size += PAGE_SIZE_MIN;
    return size ? elf_open_memory(file, start, size) : -ENOENT;
}

int object_file_open(struct elf_file *file, const struct object *object)
{
    if (object->is_vdso) {
        int error = open_vdso(file);
        return error ? error : elf_check_identity(file, object);
    }
    /* The main program can be read though its path is not its own any more. */
    const char *const paths[] = {object->path, object->is_main ? "/proc/self/exe" : NULL};
    int error = -ENOENT;
    for (size_t i = 0; i < ARRAY_SIZE(paths) && paths[i]; i++) {
        int opened = elf_open(file, paths[i]);
        error = opened ? opened : elf_check_identity(file, object);
        if (!error)
            break;
        if (!opened)
            elf_close(file);
    }
    return error;
}
