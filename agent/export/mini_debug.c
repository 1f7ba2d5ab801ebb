#include "agent/export/mini_debug.h"

#include <errno.h>
#include <lzma.h>
#include <string.h>

#include "agent/base/sys.h"
#include "agent/export/crc.h"

/* The sizes of xz's parts (xz-file-format.txt, 1.2.0). */
enum {
    HEADER_SIZE = 12,
    FOOTER_SIZE = 12,
    BLOCK_HEADER_MIN = 8,
    VLI_BYTES_MAX = 9,
    PACKED_MAX = MINI_DEBUG_MAX / 2,
    LZMA2_DICTIONARY_MAX = 40, /* greatest code of a dictionary's size */
    CHECK_CRC32 = 1,
    CHECK_CRC64 = 4,
};

/* Bytes that are read one after the other; reading past the end fails, and stays failed. */
struct reader {
    const uint8_t *at, *end;
    bool has_failed;
};

static uint8_t take_byte(struct reader *in)
{
    if (in->at == in->end) {
        in->has_failed = true;
        return 0;
    }
    return *in->at++;
}

static void skip(struct reader *in, uint64_t size)
{
    if (size > (size_t)(in->end - in->at))
        in->has_failed = true;
    else
        in->at += size;
}

/* 7 bits a byte, the lowest first. */
static uint64_t take_number(struct reader *in)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < VLI_BYTES_MAX; i++) {
        uint8_t byte = take_byte(in);
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80))
            return value;
    }
    in->has_failed = true;
    return 0;
}

static uint32_t little_endian(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ---- Memory for liblzma -------------------------------------------------------------------- */

enum { BLOCK_HEADER = 16 }; /* the mapping's size, in front of what is given out */

static void *take_memory(void *unused, size_t count, size_t size)
{
    (void)unused;
    size_t total = count * size + BLOCK_HEADER; /* liblzma asks for 16 MiB at most here */
    uint8_t *block = sys_map(total);
    if (!block)
        return NULL;
    memcpy(block, &total, sizeof(total));
    return block + BLOCK_HEADER;
}

static void give_memory(void *unused, void *memory)
{
    (void)unused;
    if (!memory)
        return;
    uint8_t *block = (uint8_t *)memory - BLOCK_HEADER;
    size_t total;
    memcpy(&total, block, sizeof(total));
    sys_unmap(block, total);
}

/* ---- The container ------------------------------------------------------------------------- */

/* The bytes that all blocks unpack to, as the index says, whose start is *index. 0: not good. */
static uint64_t read_index(const uint8_t *in, size_t size, const uint8_t **index)
{
    const uint8_t *footer = in + size - FOOTER_SIZE;
    uint64_t index_size = ((uint64_t)little_endian(footer + 4) + 1) * 4;
    if (memcmp(footer + 10, "YZ", 2) != 0 || index_size > size - HEADER_SIZE - FOOTER_SIZE)
        return 0;
    *index = footer - index_size;
    struct reader reader = {.at = *index, .end = footer};
    if (take_byte(&reader) != 0)
        return 0;
    uint64_t total = 0;
    for (uint64_t records = take_number(&reader); records && !reader.has_failed; records--) {
        (void)take_number(&reader); /* packed */
        uint64_t unpacked = take_number(&reader);
        if (unpacked > MINI_DEBUG_MAX)
            return unpacked;
        total += unpacked;
        if (total > MINI_DEBUG_MAX)
            return total;
    }
    return reader.has_failed ? 0 : total;
}

/* The size of a block's dictionary by its code: 4 KiB, 6 KiB, 8 KiB, 12 KiB, ... */
static uint64_t dictionary_size(uint8_t code)
{
    return code == LZMA2_DICTIONARY_MAX ? UINT32_MAX
                                        : (uint64_t)(2 | (code & 1)) << (code / 2 + 11);
}

/* Reads a block's header; 0 when its data are not just LZMA2. */
static uint64_t read_block_header(struct reader *in)
{
    enum { COUNT_MASK = 3, RESERVED = 0x3c, HAS_PACKED = 0x40, HAS_UNPACKED = 0x80, LZMA2 = 0x21 };
    size_t size = ((size_t)take_byte(in) + 1) * 4;
    struct reader header = {.at = in->at, .end = in->at};
    skip(in, size - 1);
    if (in->has_failed || size < BLOCK_HEADER_MIN)
        return 0;
    header.end = in->at - 4; /* its check */
    uint8_t flags = take_byte(&header);
    if (flags & (COUNT_MASK | RESERVED))
        return 0;
    if (flags & HAS_PACKED)
        (void)take_number(&header);
    if (flags & HAS_UNPACKED)
        (void)take_number(&header);
    uint64_t filter = take_number(&header), properties = take_number(&header);
    uint8_t code = take_byte(&header);
    bool is_good = filter == LZMA2 && properties == 1 && code <= LZMA2_DICTIONARY_MAX;
    return is_good && !header.has_failed ? dictionary_size(code) : 0;
}

static bool is_check_good(unsigned kind, const uint8_t *check, const uint8_t *data, size_t size)
{
    if (kind != CHECK_CRC32 && kind != CHECK_CRC64)
        return true; /* none, or one that is not known here: the ELF reader distrusts all of it */
    bool is_short = kind == CHECK_CRC32;
    struct crc crc;
    crc_begin(&crc, is_short ? CRC_32 : CRC_64);
    uint64_t all = is_short ? UINT32_MAX : UINT64_MAX;
    uint64_t value = crc_more(&crc, all, data, size) ^ all;
    uint64_t expected = little_endian(check);
    if (!is_short)
        expected |= (uint64_t)little_endian(check + 4) << 32;
    return value == expected;
}

static size_t check_size(unsigned kind)
{
    return kind == 0 ? 0 : (size_t)4 << ((kind - 1) / 3);
}

struct output {
    uint8_t *data;
    size_t size, used;
};

static int unpack_block(struct reader *in, unsigned check, struct output *out)
{
    uint64_t dictionary = read_block_header(in);
    if (dictionary == 0)
        return -ENOEXEC;
    /* Distances never reach behind what is there: more than the output is never used. */
    lzma_options_lzma options = {
        .dict_size = (uint32_t)MIN_OF(dictionary, (uint64_t)ALIGN_UP(out->size, 4096))};
    const lzma_filter filters[] = {{.id = LZMA_FILTER_LZMA2, .options = &options},
                                   {.id = LZMA_VLI_UNKNOWN}};
    const lzma_allocator allocator = {.alloc = take_memory, .free = give_memory};
    size_t packed = 0, before = out->used;
    lzma_ret result =
        lzma_raw_buffer_decode(filters, &allocator, in->at, &packed, (size_t)(in->end - in->at),
                               out->data, &out->used, out->size);
    if (result != LZMA_OK)
        return result == LZMA_MEM_ERROR ? -ENOMEM : -ENOEXEC;
    skip(in, ALIGN_UP(packed, (size_t)4)); /* headers are multiples of 4 */
    const uint8_t *value = in->at;
    skip(in, check_size(check));
    return !in->has_failed && is_check_good(check, value, out->data + before, out->used - before)
               ? 0
               : -ENOEXEC;
}

int xz_unpack(const uint8_t *in, size_t in_size, uint8_t **out, size_t *out_size)
{
    static const uint8_t magic[] = {0xfd, '7', 'z', 'X', 'Z', 0, 0};
    if (in_size < HEADER_SIZE + FOOTER_SIZE || memcmp(in, magic, sizeof(magic)) != 0)
        return -ENOEXEC;
    unsigned check = in[sizeof(magic)] & 15;
    const uint8_t *index = NULL;
    uint64_t size = read_index(in, in_size, &index);
    if (size == 0)
        return -ENOEXEC;
    if (size > MINI_DEBUG_MAX)
        return -E2BIG;
    struct output output = {.data = sys_map((size_t)size), .size = (size_t)size};
    if (!output.data)
        return -ENOMEM;
    struct reader reader = {.at = in + HEADER_SIZE, .end = index};
    int error = 0;
    while (!error && reader.at < reader.end)
        error = unpack_block(&reader, check, &output);
    if (!error && output.used != output.size)
        error = -ENOEXEC;
    if (error) {
        sys_unmap(output.data, output.size);
        return error;
    }
    *out = output.data;
    *out_size = output.size;
    return 0;
}

int mini_debug_open(struct mini_debug *mini, const struct elf_file *file)
{
    Elf64_Shdr section;
    *mini = (struct mini_debug){.size = 0};
    int error = elf_find_section(file, ".gnu_debugdata", &section);
    if (error)
        return error;
    if (section.sh_size > PACKED_MAX)
        return -E2BIG;
    if (section.sh_size == 0)
        return -ENOEXEC;
    uint8_t *packed = sys_map((size_t)section.sh_size);
    if (!packed)
        return -ENOMEM;
    error = elf_read(file, section.sh_offset, packed, (size_t)section.sh_size);
    if (!error)
        error = xz_unpack(packed, (size_t)section.sh_size, &mini->data, &mini->size);
    sys_unmap(packed, (size_t)section.sh_size);
    if (!error)
        error = elf_open_memory(&mini->file, mini->data, mini->size);
    if (error)
        mini_debug_close(mini);
    return error;
}

void mini_debug_close(struct mini_debug *mini)
{
    if (mini->data)
        sys_unmap(mini->data, mini->size);
    mini->data = NULL;
}
