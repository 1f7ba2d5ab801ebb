/* fuzz_file.h: a file of any content for code that reads it by system calls. It is not on a disk:
 * every path leads to it, and all system calls of the reader are answered here, memory from the
 * heap, so that it has exactly its size.
 *
 * Owns: fuzz_file, and sys_override between fuzz_file_set and fuzz_file_end. */
#ifndef LIBAGENT_TEST_FUZZ_FILE_H
#define LIBAGENT_TEST_FUZZ_FILE_H

#include <sys/stat.h>

#include "agent/base/sys.h"
#include "test/fuzz/fuzz_input.h"

enum { FUZZ_FILE_FD = 1000 };

static struct {
    const uint8_t *part; /* stands in it again and again */
    size_t part_size, size;
    uint64_t opened; /* times: each has an inode of its own */
    size_t there; /* what can be read: less than its size where it was cut since that was asked */
} fuzz_file;

static bool fuzz_file_answer(long number, const long args[6], long *result)
{
    switch (number) {
    case SYS_openat:
        *result = FUZZ_FILE_FD;
        return true;
    case SYS_close:
    case SYS_geteuid:
    case SYS_getuid:
        *result = 0;
        return true;
    case SYS_fstat:
        *(struct stat *)args[1] = (struct stat){
            .st_mode = S_IFREG, .st_size = (off_t)fuzz_file.size, .st_ino = ++fuzz_file.opened};
        *result = 0;
        return true;
    case SYS_pread64: {
        uint64_t offset = (uint64_t)args[3], size = (uint64_t)args[2];
        EXPECT(args[0] == FUZZ_FILE_FD && offset <= fuzz_file.size);
        size = offset < fuzz_file.there ? MIN_OF(size, fuzz_file.there - offset) : 0;
        for (uint64_t done = 0, some; done < size; done += some) {
            uint64_t at = (offset + done) % fuzz_file.part_size;
            some = MIN_OF(size - done, fuzz_file.part_size - at);
            memcpy((uint8_t *)args[1] + done, fuzz_file.part + at, some);
        }
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

/* The rest of the input `repeats` times, but for `cut` bytes at its end that are gone. */
static inline void fuzz_file_set(const struct fuzz_input *input, size_t repeats, size_t cut)
{
    fuzz_file.part = input->at;
    fuzz_file.part_size = input->left;
    fuzz_file.size = input->left * repeats;
    fuzz_file.there = fuzz_file.size - MIN_OF(fuzz_file.size, cut);
    sys_override = fuzz_file_answer;
}

static inline void fuzz_file_end(void)
{
    sys_override = NULL;
}

#endif
