/* What comes out of uploader/compress is read back by the libraries' own decompressors and by the
 * tools that people use, whole and byte for byte; every mapping is refused once. */
#include "test/check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "agent/base/sys.h"
#include "uploader/compress.h"

enum { MIB = 1 << 20, MAX_SIZE = 20 * MIB };

static const size_t sizes[] = {0, 1, 64 << 10, 20 * MIB};
static const enum compression methods[] = {COMPRESSION_GZIP, COMPRESSION_ZSTD, COMPRESSION_NONE};

/* As compressible as a profile: runs of a few words among numbers. */
static uint8_t *make_data(size_t size)
{
    uint8_t *data = malloc(size + 1);
    uint32_t x = 12345;
    for (size_t i = 0; i < size; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (x >> 28) < 9 ? (uint8_t) "std::vector<int>"[i % 16] : (uint8_t)(x >> 20);
    }
    return data;
}

static size_t gunzip(const struct buffer *in, uint8_t *out, size_t size)
{
    z_stream stream = {
        .next_in = in->data, .avail_in = (uInt)in->size, .next_out = out, .avail_out = (uInt)size};
    ck_assert_int_eq(inflateInit2(&stream, 15 + 16), Z_OK);
    ck_assert_int_eq(inflate(&stream, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(stream.avail_in, 0);
    size_t got = stream.total_out;
    inflateEnd(&stream);
    return got;
}

static size_t decompress(enum compression method, const struct buffer *in, uint8_t *out,
                         size_t size)
{
    if (method == COMPRESSION_GZIP)
        return gunzip(in, out, size);
    if (method == COMPRESSION_ZSTD) {
        size_t got = ZSTD_decompress(out, size, in->data, in->size);
        ck_assert(!ZSTD_isError(got));
        return got;
    }
    if (in->size > 0)
        memcpy(out, in->data, in->size);
    return in->size;
}

/* Exit status of a tool that reads `in` from its standard input. */
static int run_tool(const char *command, const struct buffer *in)
{
    FILE *tool = popen(command, "w");
    ck_assert_ptr_nonnull(tool);
    ck_assert_uint_eq(fwrite(in->data, 1, in->size, tool), in->size);
    return WEXITSTATUS(pclose(tool));
}

START_TEST(round_trip)
{
    enum compression method = methods[_i];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *data = make_data(sizes[i]);
        uint8_t *back = malloc(sizes[i] + 1);
        struct buffer out = {0};
        ck_assert_int_eq(compress_bytes(method, data, sizes[i], &out), 0);
        ck_assert_uint_eq(decompress(method, &out, back, sizes[i] + 1), sizes[i]);
        ck_assert(memcmp(data, back, sizes[i]) == 0);
        if (method != COMPRESSION_NONE && sizes[i] > 100)
            ck_assert_uint_lt(out.size, sizes[i] * 8 / 10);
        buffer_free(&out);
        free(back);
        free(data);
    }
}
END_TEST

START_TEST(output_is_appended)
{
    struct buffer out = {0};
    buffer_append(&out, "head", 4);
    ck_assert_int_eq(compress_bytes(methods[_i], "body", 4, &out), 0);
    ck_assert_uint_gt(out.size, 4);
    ck_assert(memcmp(out.data, "head", 4) == 0);
    struct buffer rest = {.data = out.data + 4, .size = out.size - 4};
    uint8_t back[8];
    ck_assert_uint_eq(decompress(methods[_i], &rest, back, sizeof back), 4);
    ck_assert(memcmp(back, "body", 4) == 0);
    buffer_free(&out);
}
END_TEST

START_TEST(tools_accept_it)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *data = make_data(sizes[i]);
        struct buffer gzip = {0};
        struct buffer zstd = {0};
        ck_assert_int_eq(compress_bytes(COMPRESSION_GZIP, data, sizes[i], &gzip), 0);
        ck_assert_int_eq(compress_bytes(COMPRESSION_ZSTD, data, sizes[i], &zstd), 0);
        ck_assert_int_eq(run_tool("gzip -t", &gzip), 0);
        ck_assert_int_eq(run_tool("zstd -q -t", &zstd), 0);
        /* Both carry a checksum: a flipped bit in a body of some size is told. */
        if (sizes[i] > 100) {
            gzip.data[gzip.size / 2] ^= 1;
            zstd.data[zstd.size / 2] ^= 1;
            ck_assert_int_ne(run_tool("gzip -t 2>/dev/null", &gzip), 0);
            ck_assert_int_ne(run_tool("zstd -q -t 2>/dev/null", &zstd), 0);
        }
        buffer_free(&gzip);
        buffer_free(&zstd);
        free(data);
    }
}
END_TEST

START_TEST(checksum_and_size_are_in_the_frame)
{
    uint8_t *data = make_data(MIB);
    struct buffer out = {0};
    ck_assert_int_eq(compress_bytes(COMPRESSION_ZSTD, data, MIB, &out), 0);
    ck_assert_uint_eq(ZSTD_getFrameContentSize(out.data, out.size), MIB);
    /* Content_Checksum_flag, bit 2 of the byte after the magic number. */
    ck_assert_int_ne(out.data[4] & 4, 0);
    buffer_free(&out);
    free(data);
}
END_TEST

START_TEST(equal_input_gives_equal_output)
{
    uint8_t *data = make_data(MIB);
    struct buffer first = {0};
    struct buffer second = {0};
    ck_assert_int_eq(compress_bytes(methods[_i], data, MIB, &first), 0);
    /* Other contents in the memory that the libraries get must not show. */
    uint8_t *noise = make_data(MIB / 2 + 17);
    struct buffer between = {0};
    ck_assert_int_eq(compress_bytes(methods[_i], noise, MIB / 2 + 17, &between), 0);
    ck_assert_int_eq(compress_bytes(methods[_i], data, MIB, &second), 0);
    ck_assert_uint_eq(first.size, second.size);
    ck_assert(memcmp(first.data, second.data, first.size) == 0);
    if (methods[_i] == COMPRESSION_GZIP)
        ck_assert(memcmp(first.data + 4, "\0\0\0\0", 4) == 0); /* mtime */
    buffer_free(&first);
    buffer_free(&second);
    buffer_free(&between);
    free(data);
    free(noise);
}
END_TEST

/* --- Faults: the n-th call that maps is refused, and what stays mapped is counted. ----------- */

static int calls_until_refusal;
static bool refused;
static long mapped_bytes;
static int mappings;

static bool count_mappings(long number, const long args[6], long *result)
{
    if (number != SYS_mmap && number != SYS_mremap && number != SYS_munmap)
        return false;
    if (number != SYS_munmap && calls_until_refusal-- == 0) {
        refused = true;
        *result = -ENOMEM;
        return true;
    }
    *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    if (*result < 0 && *result > -4096)
        return true;
    if (number == SYS_mmap) {
        mapped_bytes += args[1];
        mappings++;
    } else if (number == SYS_mremap)
        mapped_bytes += args[2] - args[1];
    else
        mapped_bytes -= args[1];
    return true;
}

START_TEST(refused_memory_is_an_error_and_no_leak)
{
    uint8_t *data = make_data(4 * MIB);
    int failures = 0;
    sys_override = count_mappings;
    for (int n = 0;; n++) {
        struct buffer out = {0};
        calls_until_refusal = n;
        refused = false;
        mappings = 0;
        int error = compress_bytes(methods[_i], data, 4 * MIB, &out);
        if (!refused) {
            ck_assert_int_eq(error, 0);
            buffer_free(&out);
            ck_assert_int_eq(mapped_bytes, 0);
            break;
        }
        failures++;
        ck_assert_int_eq(error, -ENOMEM);
        ck_assert_ptr_null(out.data);
        ck_assert_uint_eq(out.size, 0);
        ck_assert_int_eq(out.error, 0);
        ck_assert_int_eq(mapped_bytes, 0);
    }
    sys_override = NULL;
    /* One is the output's (which grows by mremap); the libraries' are the others, and had they
     * used malloc instead they would not be here: zlib takes five, zstd two or more. */
    ck_assert_int_ge(failures, mappings);
    ck_assert_int_ge(mappings, methods[_i] == COMPRESSION_GZIP   ? 5 + 1
                               : methods[_i] == COMPRESSION_ZSTD ? 2 + 1
                                                                 : 1);
    free(data);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("compress");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, round_trip, 0, 3);
    tcase_add_loop_test(all, output_is_appended, 0, 3);
    tcase_add_test(all, tools_accept_it);
    tcase_add_test(all, checksum_and_size_are_in_the_frame);
    tcase_add_loop_test(all, equal_input_gives_equal_output, 0, 3);
    tcase_add_loop_test(all, refused_memory_is_an_error_and_no_leak, 0, 3);
    suite_add_tcase(suite, all);
    return suite;
}
