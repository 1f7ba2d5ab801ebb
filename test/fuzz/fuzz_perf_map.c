/* A map of made code of any content. It is not on a disk: all system calls of the reader are
 * answered here, memory from the heap, so that it has exactly its size.
 *
 * Input: a struct head, then the file, as often as it says. */
#include "test/fuzz/fuzz_input.h"

#include <errno.h>
#include <sys/stat.h>

#include "agent/base/sys.h"
#include "agent/export/perf_map.h"

enum { ADDRESSES = 24, FD = 1000 };

struct head {
    uint16_t cut;    /* bytes that the file has lost since its size was asked */
    uint8_t repeats; /* so that it is larger than a chunk */
    uint8_t distance;
    uint32_t first; /* address */
};

static const uint8_t *file;
static size_t part_size, file_size, there;

static bool answer(long number, const long args[6], long *result)
{
    switch (number) {
    case SYS_openat:
        *result = FD;
        return true;
    case SYS_close:
    case SYS_geteuid:
    case SYS_getuid:
        *result = 0;
        return true;
    case SYS_fstat:
        *(struct stat *)args[1] = (struct stat){.st_mode = S_IFREG, .st_size = (off_t)file_size};
        *result = 0;
        return true;
    case SYS_pread64: {
        uint64_t offset = (uint64_t)args[3], size = (uint64_t)args[2];
        EXPECT(args[0] == FD && offset <= file_size);
        size = offset < there ? MIN_OF(size, there - offset) : 0;
        for (uint64_t i = 0; i < size; i++)
            ((uint8_t *)args[1])[i] = file[(offset + i) % part_size];
        *result = (long)size;
        return true;
    }
    case SYS_mmap:
        *result = (long)calloc(1, (size_t)args[1]);
        return true;
    case SYS_munmap:
        free((void *)args[0]);
        *result = 0;
        return true;
    case SYS_mremap:
        *result = (long)realloc((void *)args[0], (size_t)args[2]);
        return true;
    default:
        return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct head head;
    fuzz_take(&input, &head, sizeof(head));
    file = input.at;
    part_size = input.left;
    file_size = part_size * head.repeats;
    there = file_size - MIN_OF(file_size, (size_t)head.cut);
    uint64_t addresses[ADDRESSES];
    struct symbol_name names[ADDRESSES] = {{.length = 0}};
    struct buffer texts = {0};
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = head.first + i * head.distance;
    addresses[ADDRESSES - 1] = UINT64_MAX;
    sys_override = answer;
    int error = perf_map_find(addresses, ADDRESSES, names, &texts);
    EXPECT(error <= 0);
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (!names[i].length)
            continue;
        EXPECT(names[i].length <= SYMBOL_NAME_MAX);
        EXPECT((size_t)names[i].offset + names[i].length < texts.size);
        EXPECT(strlen((char *)texts.data + names[i].offset) == names[i].length);
    }
    buffer_free(&texts);
    sys_override = NULL;
    return 0;
}
