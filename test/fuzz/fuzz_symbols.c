/* A symbol file of any content. It is not on a disk: all system calls of the reader are answered
 * here, memory from the heap, so that it has exactly its size.
 *
 * Input: a struct head, then the file. */
#include "test/fuzz/fuzz_input.h"

#include <errno.h>
#include <sys/stat.h>

#include "agent/base/sys.h"
#include "agent/export/symbols.h"
#include "test/elf_builder.h"

enum { ADDRESSES = 24, FD = 1000 };

struct head {
    uint16_t cut;     /* bytes that the file has lost since its size was asked */
    uint8_t identify; /* the object has a build id and a segment, as elf_builder's */
    uint8_t distance; /* between addresses */
    uint32_t first;   /* address */
};

static const uint8_t *file;
static size_t file_size, there;

static bool answer(long number, const long args[6], long *result)
{
    switch (number) {
    case SYS_openat:
        *result = FD;
        return true;
    case SYS_close:
        *result = 0;
        return true;
    case SYS_fstat:
        *(struct stat *)args[1] = (struct stat){.st_mode = S_IFREG, .st_size = (off_t)file_size};
        *result = 0;
        return true;
    case SYS_pread64: {
        uint64_t offset = (uint64_t)args[3], size = (uint64_t)args[2];
        EXPECT(args[0] == FD && offset <= INT64_MAX);
        size = offset < there ? MIN_OF(size, there - offset) : 0;
        if (size)
            memcpy((void *)args[1], file + offset, size);
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
    file_size = input.left;
    there = file_size - MIN_OF(file_size, (size_t)head.cut);
    struct object object = {.path = "/any"};
    if (head.identify & 1)
        object = elf_built_object("/any");
    object.is_main = head.identify >> 1 & 1;
    uint64_t addresses[ADDRESSES];
    struct symbol_name names[ADDRESSES];
    struct buffer texts = {0};
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = head.first + i * head.distance;
    /* The last ones as far up as there is. */
    addresses[ADDRESSES - 1] = UINT64_MAX;
    sys_override = answer;
    int error = symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, ADDRESSES, names, &texts);
    EXPECT(error <= 0);
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (!names[i].length)
            continue;
        EXPECT(!error && names[i].length <= SYMBOL_NAME_MAX);
        EXPECT((size_t)names[i].offset + names[i].length < texts.size);
        EXPECT(texts.data[names[i].offset + names[i].length] == 0);
    }
    buffer_free(&texts);
    sys_override = NULL;
    return 0;
}
