/* Symbol files that are not what they should be: another file by now, cut, damaged, made to hurt,
 * unreadable. None may crash, hang, or name anything wrongly. */
#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/export/symbols.h"
#include "test/elf_builder.h"
#include "test/temp_folder.h"

enum { SYMBOLS = 60, SYMBOL_SIZE = 16, ADDRESSES = SYMBOLS + 2 };

static const char *folder;
static char path[256];
static struct elf_parts elf;
static struct object object;
static uint64_t addresses[ADDRESSES];
static struct symbol_name names[ADDRESSES];
static struct buffer texts;

/* Functions f0, f1, ... one behind the other; an address in each, one before and one behind. */
static void setup(void)
{
    static char text[SYMBOLS][8];
    struct elf_symbol symbols[SYMBOLS];
    addresses[0] = ELF_CODE - 1;
    for (size_t i = 0; i < SYMBOLS; i++) {
        snprintf(text[i], sizeof(text[i]), "f%zu", i);
        symbols[i] = (struct elf_symbol){.name = text[i],
                                         .value = ELF_CODE + i * SYMBOL_SIZE,
                                         .size = SYMBOL_SIZE,
                                         .type = STT_FUNC,
                                         .binding = STB_GLOBAL};
        addresses[i + 1] = symbols[i].value + i % SYMBOL_SIZE;
    }
    addresses[ADDRESSES - 1] = ELF_CODE + SYMBOLS * SYMBOL_SIZE;
    folder = temp_folder_make();
    strcpy(path, in_folder(folder, "elf"));
    elf = elf_build(symbols, SYMBOLS, SHT_SYMTAB);
    write_file(path, elf.data, elf.size);
    object = elf_built_object(path);
}

static void teardown(void)
{
    sys_override = NULL;
    free(elf.data);
    buffer_free(&texts);
    temp_folder_remove(folder);
}

static int find(void)
{
    texts.size = 0;
    memset(names, 0xff, sizeof(names));
    return symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, ADDRESSES, names, &texts);
}

/* Writes the file in place: truncated and written anew, some file systems would write each
 * version to the disk. */
static void store(size_t size)
{
    int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, elf.data, size, 0), size);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static int find_changed(void)
{
    store(elf.size);
    return find();
}

static void check_none(int result, int expected)
{
    ck_assert_int_eq(result, expected);
    for (size_t i = 0; i < ADDRESSES; i++)
        ck_assert_uint_eq(names[i].length, 0);
}

static void check_all(int result)
{
    ck_assert_int_eq(result, 0);
    ck_assert_uint_eq(names[0].length + names[ADDRESSES - 1].length, 0);
    for (size_t i = 0; i < SYMBOLS; i++) {
        char expected[8];
        snprintf(expected, sizeof(expected), "f%zu", i);
        ck_assert_uint_eq(names[i + 1].length, strlen(expected));
        ck_assert_str_eq((char *)texts.data + names[i + 1].offset, expected);
    }
}

/* Whatever was found lies in the buffer, ends with 0, and is as long as it says. */
static void check_sane(int result)
{
    ck_assert_int_le(result, 0);
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (names[i].length == 0)
            continue;
        ck_assert_int_eq(result, 0);
        ck_assert_uint_le(names[i].length, SYMBOL_NAME_MAX);
        ck_assert_uint_lt((uint64_t)names[i].offset + names[i].length, texts.size);
        ck_assert_uint_eq(strlen((char *)texts.data + names[i].offset), names[i].length);
    }
}

START_TEST(the_file_of_the_object)
{
    check_all(find());
    object.build_id[19] ^= 1;
    check_none(find(), -ESTALE);
    object.build_id_size = 19; /* the file's is longer */
    check_none(find(), -ESTALE);
    object.build_id_size = 0;
    check_all(find());
    object.build_id_size = 20;
    object.build_id[19] ^= 1;
    check_all(find());
    object.segments[0].offset += 4096;
    check_none(find(), -ESTALE);
    object.segments[0].offset -= 4096;
    object.segments[0].size -= 1;
    check_none(find(), -ESTALE);
    object.segments[0].size += 1;
    object.segments[0].vaddr -= 4096;
    check_none(find(), -ESTALE);
}
END_TEST

START_TEST(without_build_id_the_inode_tells)
{
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    object.build_id_size = 0;
    object.device = status.st_dev;
    object.inode = status.st_ino;
    check_all(find());
    object.inode++;
    check_none(find(), -ESTALE);
    object.inode--;
    object.device++;
    check_none(find(), -ESTALE);
}
END_TEST

START_TEST(what_is_no_file)
{
    object.path = "/no/such/file";
    check_none(find(), -ENOENT);
    object.path = folder;
    check_none(find(), -ENOEXEC);
    object.path = in_folder(folder, "pipe");
    ck_assert_int_eq(mkfifo(object.path, 0600), 0);
    check_none(find(), -ENOEXEC);
    object.path = "/dev/zero";
    check_none(find(), -ENOEXEC);
    object.path = in_folder(folder, "empty");
    write_file(object.path, "", 0);
    check_none(find(), -ENOEXEC);
    object.path = "";
    check_none(find(), -ENOENT);
}
END_TEST

#define CHANGED(place, value, expected)                                                            \
    do {                                                                                           \
        __typeof__(place) before = (place);                                                        \
        (place) = (value);                                                                         \
        check_none(find_changed(), expected);                                                      \
        (place) = before;                                                                          \
    } while (0)

START_TEST(headers_that_are_refused)
{
    CHANGED(elf.header->e_ident[0], 'E', -ENOEXEC);
    CHANGED(elf.header->e_ident[EI_CLASS], ELFCLASS32, -ENOEXEC);
    CHANGED(elf.header->e_ident[EI_DATA], ELFDATA2MSB, -ENOEXEC);
    CHANGED(elf.header->e_ident[EI_VERSION], 2, -ENOEXEC);
    CHANGED(elf.header->e_machine, EM_S390, -ENOEXEC);
    CHANGED(elf.header->e_phentsize, 55, -ENOEXEC);
    CHANGED(elf.header->e_phnum, PN_XNUM, -ENOEXEC);
    CHANGED(elf.header->e_phnum, 0, -ESTALE);
    CHANGED(elf.header->e_phoff, UINT64_MAX - 60, -ESTALE);
    CHANGED(elf.header->e_shentsize, 63, -ENOEXEC);
    CHANGED(elf.header->e_shoff, elf.size - 10, -ENOEXEC);
    CHANGED(elf.header->e_shoff, UINT64_MAX - 10, -ENOEXEC);
    CHANGED(elf.header->e_shoff, 0, -ENOENT);
    CHANGED(elf.header->e_shnum, 6, -ENOEXEC);
    CHANGED(elf.header->e_shnum, 0, -ENOENT); /* the first header says 0 */
    CHANGED(elf.sections[ELF_SYMBOLS].sh_type, SHT_NOBITS, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_entsize, 0, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_flags, SHF_COMPRESSED, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_offset, UINT64_MAX - 8, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_size, elf.size, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_size, 0, 0);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_link, ELF_SECTIONS, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_link, UINT32_MAX, -ENOENT);
    CHANGED(elf.sections[ELF_SYMBOLS].sh_link, ELF_TEXT, -ENOENT);
    CHANGED(elf.sections[ELF_STRINGS].sh_flags, SHF_COMPRESSED, -ENOENT);
    CHANGED(elf.sections[ELF_STRINGS].sh_size, UINT64_MAX, -ENOENT);
    CHANGED(elf.sections[ELF_STRINGS].sh_size, 0, 0); /* no symbol has a name */
    CHANGED(elf.programs[1].p_filesz, 15, -ESTALE);   /* the note is cut */
    CHANGED(elf.programs[1].p_filesz, UINT64_MAX, -ESTALE);
    CHANGED(elf.programs[1].p_offset, UINT64_MAX, -ESTALE);
    CHANGED(((Elf64_Nhdr *)(void *)elf.note)->n_namesz, UINT32_MAX, -ESTALE);
    CHANGED(((Elf64_Nhdr *)(void *)elf.note)->n_descsz, UINT32_MAX, -ESTALE);
    CHANGED(((Elf64_Nhdr *)(void *)elf.note)->n_descsz, 19, -ESTALE);
    CHANGED(((Elf64_Nhdr *)(void *)elf.note)->n_type, 1, -ESTALE);
    check_all(find_changed());
}
END_TEST

START_TEST(more_sections_than_the_header_can_say)
{
    elf.header->e_shnum = 0;
    elf.sections[0].sh_size = ELF_SECTIONS;
    check_all(find_changed());
    elf.sections[0].sh_size = UINT64_MAX;
    check_none(find_changed(), -ENOEXEC);
    /* In a file that is large enough: up to 65,536 are looked through. */
    elf.sections[0].sh_size = 65536;
    store(elf.size);
    ck_assert_int_eq(truncate(path, 8 << 20), 0);
    check_all(find());
    elf.sections[0].sh_size = 65537;
    store(elf.size);
    ck_assert_int_eq(truncate(path, 8 << 20), 0);
    check_none(find(), -ENOEXEC);
}
END_TEST

/* A bad .symtab does not keep .dynsym from being read. */
START_TEST(dynsym_where_symtab_is_bad)
{
    Elf64_Shdr *sections = elf.sections;
    sections[ELF_DATA] = sections[ELF_SYMBOLS];
    sections[ELF_DATA].sh_type = SHT_DYNSYM;
    sections[ELF_SYMBOLS].sh_link = 99;
    check_all(find_changed());
    /* A table of strings that would be good, but is no section. */
    sections[ELF_DATA].sh_link = ELF_SECTIONS;
    sections[ELF_SECTIONS] = sections[ELF_STRINGS];
    elf.size += sizeof(sections[0]);
    check_none(find_changed(), -ENOEXEC);
}
END_TEST

START_TEST(names_at_the_end_of_their_table)
{
    /* The last name lacks its 0: it ends with the table. */
    elf.sections[ELF_STRINGS].sh_size--;
    check_all(find_changed());
    /* Behind the table: no name, even if it is the only one. */
    elf.symbols[1].st_name = (uint32_t)elf.sections[ELF_STRINGS].sh_size;
    elf.symbols[2].st_name = UINT32_MAX;
    check_sane(find_changed());
    ck_assert_uint_eq(names[1].length + names[2].length, 0);
    ck_assert_uint_eq(names[3].length, 2);
}
END_TEST

START_TEST(long_names)
{
    enum { LONG = 100000 };
    char *text = malloc(LONG + 1);
    memset(text, 'x', LONG);
    text[LONG] = 0;
    const int lengths[] = {255, 256, 257, SYMBOL_NAME_MAX - 1, SYMBOL_NAME_MAX, SYMBOL_NAME_MAX + 1,
                           LONG};
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        const struct elf_symbol symbol = {.name = text + LONG - lengths[i],
                                          .value = ELF_CODE,
                                          .size = SYMBOL_SIZE,
                                          .type = STT_FUNC};
        free(elf.data);
        elf = elf_build(&symbol, 1, SHT_SYMTAB);
        check_sane(find_changed());
        ck_assert_uint_eq(names[1].length,
                          lengths[i] < SYMBOL_NAME_MAX ? lengths[i] : SYMBOL_NAME_MAX);
    }
    free(text);
}
END_TEST

START_TEST(cut_files)
{
    for (size_t size = 0; size < elf.size; size += 1 + size / 50) {
        store(size);
        check_sane(find());
    }
}
END_TEST

static int reads_until_cut;

static bool cut_meanwhile(long number, const long args[6], long *result)
{
    (void)args, (void)result;
    if (number == SYS_pread64 && reads_until_cut-- == 0)
        ck_assert_int_eq(truncate(path, (off_t)elf.size / 4), 0);
    return false;
}

START_TEST(files_that_are_cut_while_they_are_read)
{
    for (int reads = 0;; reads++) {
        store(elf.size);
        reads_until_cut = reads;
        sys_override = cut_meanwhile;
        int result = find();
        sys_override = NULL;
        check_sane(result);
        if (reads_until_cut >= 0)
            break; /* fewer reads than that */
        ck_assert_int_lt(reads, 10000);
    }
}
END_TEST

static bool short_and_interrupted(long number, const long args[6], long *result)
{
    static int calls;
    if (number != SYS_pread64)
        return false;
    *result = ++calls % 3 == 0
                  ? -EINTR
                  : sys_raw6(number, args[0], args[1], MIN_OF(args[2], 7), args[3], 0, 0);
    return true;
}

START_TEST(reads_that_fail)
{
    for (int reads = 0;; reads++) {
        fault_set(SYS_pread64, reads, 1, -EIO);
        int result = find();
        if (fault_clear() == 0)
            break;
        check_sane(result);
        ck_assert_int_lt(reads, 10000);
    }
    fault_set(SYS_fstat, 0, 1, -EIO);
    check_none(find(), -EIO);
    ck_assert_int_eq(fault_clear(), 1);
    fault_set(SYS_openat, 0, 1, -EMFILE);
    check_none(find(), -EMFILE);
    ck_assert_int_eq(fault_clear(), 1);
    sys_override = short_and_interrupted;
    check_all(find());
    sys_override = NULL;
}
END_TEST

START_TEST(no_descriptor_is_left)
{
    int before = count_descriptors();
    check_all(find());
    object.build_id[0] ^= 1;
    check_none(find(), -ESTALE);
    object.is_main = true; /* two files are tried */
    check_none(find(), -ESTALE);
    elf.header->e_shnum = 6;
    check_none(find_changed(), -ESTALE);
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

static const uint64_t odd_numbers[] = {
    0,      1,      UINT64_MAX, UINT64_MAX - 7, INT64_MAX,    1ull << 63, UINT32_MAX, 1ull << 31,
    0xffff, 0xff00, 4096,       ELF_CODE,       ELF_CODE - 1, 24,         1ull << 40, 7};

/* Files with some numbers changed: anywhere, to odd values or random ones. */
START_TEST(damaged_files)
{
    struct rng rng = {.state = 7};
    uint8_t *whole = malloc(elf.size);
    memcpy(whole, elf.data, elf.size);
    size_t good = 0;
    for (int i = 0; i < 4000; i++) {
        memcpy(elf.data, whole, elf.size);
        for (int changes = 1 + (int)(rng_next(&rng) % 4); changes > 0; changes--) {
            static const size_t widths[] = {1, 2, 4, 8};
            size_t width = widths[rng_next(&rng) % 4];
            /* half of them in the headers: the file's begin and end */
            size_t zone = rng_next(&rng) % 4;
            size_t at = zone == 0   ? rng_next(&rng) % 256
                        : zone == 1 ? elf.size - 8 - rng_next(&rng) % (ELF_SECTIONS * 64 - 8)
                                    : rng_next(&rng) % (elf.size - 8);
            uint64_t value = rng_next(&rng) & 1
                                 ? rng_next(&rng)
                                 : odd_numbers[rng_next(&rng) % ARRAY_SIZE(odd_numbers)];
            memcpy(elf.data + at / width * width, &value, width);
        }
        object.build_id_size = rng_next(&rng) & 1 ? BUILD_ID_MAX : 0;
        int result = find_changed();
        check_sane(result);
        good += result == 0;
    }
    free(whole);
    ck_assert_uint_gt(good, 400); /* many go deep */
}
END_TEST

static void find_within_seconds(size_t symbol_count, size_t address_count)
{
    uint64_t *many = calloc(address_count, sizeof(uint64_t));
    struct symbol_name *found = calloc(address_count, sizeof(found[0]));
    for (size_t i = 0; i < address_count; i++)
        many[i] = ELF_CODE + 16 + i;
    store(elf.size);
    struct timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    ck_assert_int_eq(symbols_find(&object, SYMBOLS_NOT_LOADED, many, address_count, found, &texts),
                     0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    /* 0.5 s, more under sanitizers; without bounds some minutes */
    ck_assert_msg(end.tv_sec - start.tv_sec < 6, "%zu symbols", symbol_count);
    for (size_t i = 0; i < address_count; i++)
        ck_assert_uint_gt(found[i].length, 0);
    free(many);
    free(found);
}

enum { SLOW_SYMBOLS = 100000, SLOW_ADDRESSES = 2000 };

/* Each holds all addresses, and is better than the one before. */
START_TEST(symbols_that_are_all_better)
{
    struct elf_symbol *symbols = calloc(SLOW_SYMBOLS, sizeof(symbols[0]));
    for (size_t i = 0; i < SLOW_SYMBOLS; i++)
        symbols[i] = (struct elf_symbol){
            .name = "f", .value = i * ELF_CODE / SLOW_SYMBOLS, .size = 1 << 30, .type = STT_FUNC};
    free(elf.data);
    elf = elf_build(symbols, SLOW_SYMBOLS, SHT_SYMTAB);
    find_within_seconds(SLOW_SYMBOLS, SLOW_ADDRESSES);
    free(symbols);
}
END_TEST

/* First one for each address, all from one place on, each shorter and better than the one before;
 * then those that are worse than all of them, which only their names tell. */
START_TEST(symbols_that_are_all_compared)
{
    char *longest = malloc(SLOW_ADDRESSES + 2);
    memset(longest, 'f', SLOW_ADDRESSES + 1);
    longest[SLOW_ADDRESSES + 1] = 0;
    struct elf_symbol *symbols = calloc(SLOW_SYMBOLS, sizeof(symbols[0]));
    for (size_t i = 0; i < SLOW_SYMBOLS; i++)
        symbols[i] = (struct elf_symbol){
            .name = i == 0 ? longest : "x",
            .value = ELF_CODE,
            .size = 16 + (i < SLOW_ADDRESSES ? SLOW_ADDRESSES - i : SLOW_ADDRESSES),
            .type = STT_FUNC};
    free(elf.data);
    elf = elf_build(symbols, SLOW_SYMBOLS, SHT_SYMTAB);
    /* All names are ends of the longest. */
    for (size_t i = 0; i < SLOW_SYMBOLS; i++)
        elf.symbols[1 + i].st_name = (uint32_t)(i < SLOW_ADDRESSES ? 2 + i : 1);
    find_within_seconds(SLOW_SYMBOLS, SLOW_ADDRESSES);
    free(symbols);
    free(longest);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("symbols_hostile");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, the_file_of_the_object);
    tcase_add_test(files, without_build_id_the_inode_tells);
    tcase_add_test(files, what_is_no_file);
    tcase_add_test(files, headers_that_are_refused);
    tcase_add_test(files, more_sections_than_the_header_can_say);
    tcase_add_test(files, dynsym_where_symtab_is_bad);
    tcase_add_test(files, names_at_the_end_of_their_table);
    tcase_add_test(files, long_names);
    tcase_add_test(files, cut_files);
    tcase_add_test(files, files_that_are_cut_while_they_are_read);
    tcase_add_test(files, reads_that_fail);
    tcase_add_test(files, no_descriptor_is_left);
    tcase_add_test(files, damaged_files);
    tcase_add_test(files, symbols_that_are_all_better);
    tcase_add_test(files, symbols_that_are_all_compared);
    tcase_set_timeout(files, 60);
    suite_add_tcase(suite, files);
    return suite;
}
