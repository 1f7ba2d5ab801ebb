#include "agent/export/unpack_section.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* for an allocator of ours */
#include <zstd.h>

#include "agent/base/sys.h"

enum {
    KIND_ZLIB = 1, /* ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD: old headers lack the second */
    KIND_ZSTD = 2,
    INPUT_SIZE = 64 << 10,
    BLOCK_HEADER = 16, /* the mapping's size, in front of what is given out */
};

static void *take_memory(void *opaque, size_t size)
{
    (void)opaque;
    size_t total = size + BLOCK_HEADER;
    uint8_t *block = size <= INT_MAX ? sys_map(total) : NULL;
    if (!block)
        return NULL;
    memcpy(block, &total, sizeof(total));
    return block + BLOCK_HEADER;
}

static void give_memory(void *opaque, void *memory)
{
    (void)opaque;
    size_t total;
    if (!memory)
        return;
    uint8_t *block = (uint8_t *)memory - BLOCK_HEADER;
    memcpy(&total, block, sizeof(total));
    sys_unmap(block, total);
}

static void *take_zlib(void *opaque, uInt count, uInt size)
{
    return take_memory(opaque, (size_t)count * size);
}

static int inflate_all(z_stream *stream, const struct elf_file *file, struct elf_extent packed,
                       uint8_t *input)
{
    for (uint64_t at = 0;;) {
        if (stream->avail_in == 0) {
            long got = elf_read_some(file, packed, at, input, INPUT_SIZE);
            if (got < 0)
                return (int)got;
            if (got == 0)
                return -ENOEXEC;
            at += (uint64_t)got;
            stream->next_in = input;
            stream->avail_in = (uInt)got;
        }
        int state = inflate(stream, Z_NO_FLUSH);
        if (state == Z_STREAM_END)
            return stream->avail_out == 0 ? 0 : -ENOEXEC;
        if (state != Z_OK)
            return state == Z_MEM_ERROR ? -ENOMEM : -ENOEXEC;
    }
}

static int unpack_zlib(const struct elf_file *file, struct elf_extent packed, uint8_t *out,
                       size_t size)
{
    z_stream stream = {.zalloc = take_zlib, .zfree = give_memory};
    if (size > UINT_MAX)
        return -ENOEXEC;
    stream.next_out = out;
    stream.avail_out = (uInt)size;
    uint8_t *input = sys_map(INPUT_SIZE);
    if (!input || inflateInit(&stream) != Z_OK) {
        sys_unmap(input, INPUT_SIZE);
        return -ENOMEM;
    }
    int error = inflate_all(&stream, file, packed, input);
    inflateEnd(&stream);
    sys_unmap(input, INPUT_SIZE);
    return error;
}

static int unpack_zstd(const struct elf_file *file, struct elf_extent packed, uint8_t *out,
                       size_t size)
{
    uint8_t *input = packed.size && packed.size <= INT_MAX ? sys_map((size_t)packed.size) : NULL;
    ZSTD_DCtx *context = ZSTD_createDCtx_advanced((ZSTD_customMem){take_memory, give_memory, NULL});
    int error = input && context ? 0 : -ENOMEM;
    if (!error)
        error = elf_read(file, packed.offset, input, (size_t)packed.size);
    if (!error && ZSTD_decompressDCtx(context, out, size, input, (size_t)packed.size) != size)
        error = -ENOEXEC;
    ZSTD_freeDCtx(context);
    sys_unmap(input, input ? (size_t)packed.size : 0);
    return error;
}

int unpack_section(const struct elf_file *file, struct elf_extent packed, uint32_t kind,
                   uint8_t *out, size_t size)
{
    if (kind == KIND_ZLIB)
        return unpack_zlib(file, packed, out, size);
    return kind == KIND_ZSTD ? unpack_zstd(file, packed, out, size) : -ENOEXEC;
}
