/* Names of code that no object has: from the map that a program writes for perf, against a plain
 * reader of it, and from the process's mappings. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/export/jit_names.h"
#include "test/map_faults.h"
#include "test/temp_folder.h"

static char path[64];
static struct buffer texts;

/* Each test is a process of its own, with a map of its own. */
static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
    unlink(path);
}

static void teardown(void)
{
    sys_override = NULL;
    unlink(path);
    buffer_free(&texts);
}

static void write_map(const char *text)
{
    write_file(path, text, strlen(text));
}

/* "" when there is none; good until the next call. */
static const char *name_of(uint64_t address)
{
    struct symbol_name name = {.length = 0};
    texts.size = 0;
    ck_assert_int_le(perf_map_find(&address, 1, &name, &texts), 0);
    if (!name.length)
        return "";
    ck_assert_uint_eq(strlen((char *)texts.data + name.offset), name.length);
    ck_assert(name.low <= address && address < name.high);
    return (char *)texts.data + name.offset;
}

static const struct {
    const char *map;
    uint64_t address;
    const char *name;
} lines[] = {
    {"1000 10 f\n", 0x1000, "f"},
    {"1000 10 f\n", 0x100f, "f"},
    {"1000 10 f\n", 0x1010, ""},
    {"1000 10 f\n", 0xfff, ""},
    {"1000 10 LazyCompile:*f g /x y.js:3:4\n", 0x1001, "LazyCompile:*f g /x y.js:3:4"},
    {"0x1000 0x10 f\n", 0x1001, "f"},
    {"7fFf00001000 1A f\r\n", 0x7fff00001019, "f"},
    {"ffffffffffffff00 ff f\n", 0xfffffffffffffffe, "f"},
    {"ffffffffffffff00 ffffffffffffffff f\n", 5, ""}, /* no wrapping around */
    {"1000 10 old\n1000 10 new\n", 0x1001, "new"},
    {"1000 100 old\n1010 10 new\n", 0x1011, "new"},
    {"1000 100 old\n1010 10 new\n", 0x1021, "old"},
    {"1010 10 old\n1000 100 new\n", 0x1011, "new"},
    {"1000 10 old\n1000 10 being writ", 0x1001, "old"},
    {"1000 10 being writ", 0x1001, ""},
    {"\n\n1000 10 f\n\n", 0x1001, "f"},
    {"1000 10 f\n1000 10 \n", 0x1001, "f"},
    {"1000 10 f\n1000 10\n", 0x1001, "f"},
    {"1000 10 f\n1000  10 g\n", 0x1001, "f"},
    {"1000 10 f\n 1000 10 g\n", 0x1001, "f"},
    {"1000 10 f\n1000 1g g\n", 0x1001, "f"},
    {"1000 10 f\n00000000000001000 10 g\n", 0x1001, "f"}, /* no number of 64 bits */
    {"1000 10 f\n0x 10 g\n1000 0 h\n", 0x1001, "f"},
    {"1000 10 f\n# a comment\nhello\n", 0x1001, "f"},
    {"", 0x1001, ""},
    {"\n", 0x1001, ""},
};

START_TEST(one_line)
{
    write_map(lines[_i].map);
    ck_assert_str_eq(name_of(lines[_i].address), lines[_i].name);
}
END_TEST

/* Entries of 16 to 300 bytes at addresses that are used again and again, with names of all lengths,
 * over many chunks; a plain reader from the front says what is right. */
START_TEST(as_a_plain_reader_says)
{
    enum { LINES = 20000, ADDRESSES = 3000, SPACE = 100000 };
    static uint32_t owner[SPACE];
    static uint64_t addresses[ADDRESSES];
    static struct symbol_name names[ADDRESSES];
    struct rng rng = {.state = 42};
    FILE *map = fopen(path, "w");
    for (uint32_t i = 1; i <= LINES; i++) {
        uint32_t size = 16 + (uint32_t)(rng_next(&rng) % 285);
        uint32_t start = (uint32_t)(rng_next(&rng) % (SPACE - size));
        if (start % 7 == 0)
            start = start % 100; /* the first ones change most */
        fprintf(map, "%x %x f%u%*s\n", 0x10000 + start, size, i, i % 1000 ? (int)(i % 50) : 6000,
                "x");
        for (uint32_t k = 0; k < size; k++)
            owner[start + k] = i;
    }
    fclose(map);
    for (size_t i = 0; i < ADDRESSES; i++)
        addresses[i] = 0x10000 - 10 + i * (SPACE + 20) / ADDRESSES;
    ck_assert_int_eq(perf_map_find(addresses, ADDRESSES, names, &texts), 0);
    size_t named = 0;
    for (size_t i = 0; i < ADDRESSES; i++) {
        uint64_t at = addresses[i] - 0x10000;
        uint32_t expected = at < SPACE ? owner[at] : 0;
        ck_assert_int_eq(names[i].length != 0, expected != 0);
        if (!expected)
            continue;
        const char *text = (char *)texts.data + names[i].offset;
        ck_assert_uint_eq(strtoul(text + 1, NULL, 10), expected);
        ck_assert_uint_le(strlen(text), SYMBOL_NAME_MAX);
        named++;
    }
    ck_assert_uint_gt(named, ADDRESSES / 2);
}
END_TEST

START_TEST(lines_longer_than_all_buffers)
{
    static char text[600000];
    memset(text, 'y', sizeof(text) - 1);
    for (size_t length = 60000; length < 300000; length += 8191) {
        int head = sprintf(text, "1000 10 first\n2000 10 ");
        text[head] = 'y';
        text[length] = '\n';
        sprintf(text + length + 1, "3000 10 last\n");
        write_map(text);
        ck_assert_str_eq(name_of(0x1001), "first");
        ck_assert_str_eq(name_of(0x3001), "last");
        /* Its name is cut, wherever a chunk ends. */
        const char *name = name_of(0x2001);
        ck_assert_uint_eq(strspn(name, "y"), strlen(name));
        ck_assert_uint_le(strlen(name), SYMBOL_NAME_MAX);
        text[length] = text[length + 14] = 'y';
        text[length + 1] = 'y';
    }
}
END_TEST

static uint64_t bytes_read;

static bool count_reads(long number, const long args[6], long *result)
{
    if (number != SYS_pread64)
        return false;
    *result = sys_raw6(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    bytes_read += (uint64_t)*result;
    return true;
}

START_TEST(no_more_is_read_than_needed)
{
    FILE *map = fopen(path, "w");
    for (uint32_t i = 0; i < 100000; i++)
        fprintf(map, "%x 10 some_function_number_%u\n", 0x100000 + i * 16, i);
    fclose(map);
    sys_override = count_reads;
    ck_assert_str_eq(name_of(0x100000 + 99990 * 16), "some_function_number_99990");
    ck_assert_uint_le(bytes_read, 65536);
    ck_assert_str_eq(name_of(0x100000), "some_function_number_0");
    /* Its end alone, of a file without bounds. */
    ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0);
    bytes_read = 0;
    ck_assert_str_eq(name_of(0x100000), "");
    ck_assert_uint_le(bytes_read, PERF_MAP_READ_MAX);
    /* Nothing where there is nothing to name. */
    bytes_read = 0;
    struct symbol_name name = {.length = 1};
    uint64_t address = 0x100000;
    ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), 0);
    ck_assert_uint_eq(bytes_read, 0);
}
END_TEST

START_TEST(files_that_are_left_alone)
{
    struct symbol_name name = {.length = 0};
    uint64_t address = 0x1001;
    int descriptors = count_descriptors();
    ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), -ENOENT);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), -EPERM);
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), -EPERM);
    unlink(path);
    char other[80];
    snprintf(other, sizeof(other), "%s.other", path);
    write_file(other, "1000 10 f\n", 10);
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), -ELOOP);
    unlink(path);
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert_str_eq(name_of(address), "f");
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        ck_assert_int_eq(perf_map_find(&address, 1, &name, &texts), -EPERM);
        ck_assert_uint_eq(name.length, 0);
    }
    ck_assert_int_eq(count_descriptors(), descriptors);
}
END_TEST

static const char *made_name(const void *code)
{
    uint64_t address = (uintptr_t)code;
    struct symbol_name name;
    const char *found;
    jit_names_forget();
    ck_assert_int_eq(jit_names_find(&address, 1, &name, &found), 0);
    return name.length ? found + name.offset : "";
}

START_TEST(code_that_no_map_has)
{
    const int code = PROT_READ | PROT_EXEC;
    char *anonymous = mmap(NULL, 8192, code, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *data = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, 4096, code, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int memory = memfd_create("doublemapper", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(memory, 4096), 0);
    char *memfd = mmap(NULL, 4096, code, MAP_SHARED, memory, 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *file = mmap(NULL, 8192, code, MAP_PRIVATE, fd, 4096);
    ck_assert(anonymous != MAP_FAILED && data != MAP_FAILED && shared != MAP_FAILED &&
              memfd != MAP_FAILED && file != MAP_FAILED);
    ck_assert_str_eq(made_name(anonymous + 5), "[jit]");
    ck_assert_str_eq(made_name(shared + 5), "[jit]");
    ck_assert_str_eq(made_name(memfd + 5), "[jit]");
    ck_assert_str_eq(made_name(data + 5), "");
    ck_assert_str_eq(made_name(file + 0x123), "check_perf_map+0x1123");
    munmap(anonymous, 8192);
    ck_assert_str_eq(made_name(anonymous + 5), "");
    ck_assert_str_eq(made_name(NULL), "");
    /* Several at once, of which the map has some. */
    char line[64];
    snprintf(line, sizeof(line), "%lx 10 known\n", (unsigned long)memfd);
    write_map(line);
    uint64_t addresses[] = {5, (uintptr_t)memfd + 5, (uintptr_t)memfd + 20, (uintptr_t)memfd + 30};
    struct symbol_name names[4];
    const char *found;
    jit_names_forget();
    ck_assert_int_eq(jit_names_find(addresses, 4, names, &found), 0);
    ck_assert_uint_eq(names[0].length, 0);
    ck_assert_str_eq(found + names[1].offset, "known");
    ck_assert_str_eq(found + names[2].offset, "[jit]");
    ck_assert_uint_eq(names[3].offset, names[2].offset);
    close(memory);
    close(fd);
}
END_TEST

START_TEST(no_memory)
{
    char *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char line[64];
    snprintf(line, sizeof(line), "%lx 10 known\n", (unsigned long)code);
    write_map(line);
    uint64_t addresses[] = {(uintptr_t)code, (uintptr_t)code + 100};
    bool failed = true;
    for (int i = 0; failed; i++) {
        struct symbol_name names[2];
        const char *found;
        map_faults_begin(i);
        int result = jit_names_find(addresses, 2, names, &found);
        jit_names_forget();
        ck_assert_int_eq(map_faults_end(&failed), 0);
        ck_assert_int_eq(result, failed ? -ENOMEM : 0);
        ck_assert_int_le(i, 20);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("perf_map");
    TCase *map = tcase_create("map");
    tcase_add_checked_fixture(map, setup, teardown);
    tcase_add_loop_test(map, one_line, 0, ARRAY_SIZE(lines));
    tcase_add_test(map, as_a_plain_reader_says);
    tcase_add_test(map, lines_longer_than_all_buffers);
    tcase_add_test(map, no_more_is_read_than_needed);
    tcase_add_test(map, files_that_are_left_alone);
    tcase_add_test(map, code_that_no_map_has);
    tcase_add_test(map, no_memory);
    tcase_set_timeout(map, 60);
    suite_add_tcase(suite, map);
    return suite;
}
