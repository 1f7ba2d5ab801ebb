/* Call frame information of real linkers, in every layout that .eh_frame_hdr does not lead to: each
 * row of each function is what readelf says, whether the object is read by its file or where it is
 * loaded. */
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/base/rng.h"
#include "agent/base/stats.h"
#include "agent/unwind/cfi.h"
#include "agent/unwind/elf_frames.h"
#include "agent/unwind/elf_sections.h"
#include "agent/unwind/modules.h"
#include "test/temp_folder.h"

/* Frames of several shapes: leaf, saved registers, a frame pointer, varying arguments; a second
 * executable segment where the linker is told so; functions that --gc-sections leaves out. */
static const char source[] =
    "#include <stdarg.h>\n"
    "#define SITE __attribute__((noinline, visibility(\"default\")))\n"
    "extern int outside(int);\n"
    "SITE int shape_leaf(int n) { return n * 3; }\n"
    "SITE int shape_alloca(int n) { volatile char b[n]; b[0] = 1; return b[0] + shape_leaf(n); }\n"
    "SITE int shape_saved(int a, int b, int c, int d) {\n"
    "    int x = shape_alloca(a), y = shape_alloca(b), z = shape_alloca(c);\n"
    "    return x * shape_alloca(d) + y * z - a * b * c; }\n"
    "SITE int shape_varying(int n, ...) { va_list v; va_start(v, n); int s = 0;\n"
    "    while (n-- > 0) s += shape_leaf(va_arg(v, int)); va_end(v); return s; }\n"
    "__attribute__((noinline, section(\".far_text\"), visibility(\"default\")))\n"
    "int shape_far(int n) { return shape_saved(n, n, n, n) + 1; }\n"
    "__attribute__((visibility(\"hidden\"))) int left_out(int n) { return shape_saved(n, 1, n, 2); "
    "}\n"
    "__attribute__((visibility(\"hidden\"))) int left_out_too(int n) { return left_out(n) + 1; }\n";

/* Hand-written code, whose rows are in .debug_frame alone. */
static const char assembly[] = ".cfi_sections .debug_frame\n"
                               ".text\n.globl shape_hand\n.type shape_hand, @function\n"
                               "shape_hand:\n.cfi_startproc\n"
                               "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
                               "sub $4096, %rsp\n.cfi_adjust_cfa_offset 4096\n"
                               ".cfi_remember_state\n"
                               "add $4096, %rsp\n.cfi_adjust_cfa_offset -4096\n"
                               "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
                               "ret\n.cfi_restore_state\nnop\nud2\n.cfi_endproc\n"
                               ".size shape_hand, .-shape_hand\n"
                               ".section .note.GNU-stack,\"\",@progbits\n";

enum patch { WHOLE, NO_SECTIONS, TABLE_ENCODING, COUNT_ENCODING };

struct layout {
    const char *flags; /* of the compiler, which is its first word */
    enum patch patch;
    uint8_t value;  /* that is patched in */
    bool has_none;  /* nothing is to be found */
    bool left_out;  /* and that is counted */
    bool with_hand; /* with the assembly */
    bool late;      /* whose rows are looked for when one is missed */
};

#define NO_HDR     "-Wl,--no-eh-frame-hdr "
#define DEBUG_ONLY "-fno-asynchronous-unwind-tables -fno-unwind-tables "
static const struct layout layouts[] = {
    {"gcc -fuse-ld=bfd", .patch = WHOLE},
    {"gcc -fuse-ld=gold", .patch = WHOLE},
    {"gcc -fuse-ld=lld", .patch = WHOLE},
    {"gcc -fuse-ld=bfd " NO_HDR, .patch = WHOLE},
    {"gcc -fuse-ld=gold " NO_HDR, .patch = WHOLE},
    {"gcc -fuse-ld=lld " NO_HDR, .patch = WHOLE},
    {"clang -fuse-ld=lld " NO_HDR "-Wl,--build-id=none", .patch = WHOLE},
    {"gcc -fuse-ld=bfd " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -fuse-ld=gold " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -fuse-ld=lld " DEBUG_ONLY "-Wl,--build-id=none", .patch = WHOLE},
    {"clang -gdwarf-5 -gdwarf64 " DEBUG_ONLY, .patch = WHOLE},
    {"clang -gdwarf-4 -fuse-ld=lld " DEBUG_ONLY NO_HDR, .patch = WHOLE},
    {"gcc -Wa,--gdwarf-cie-version=4 " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -Wa,--gdwarf-cie-version=3 -Wl,--build-id=none " DEBUG_ONLY NO_HDR, .patch = WHOLE},
    {"gcc -ffunction-sections -Wl,--gc-sections -fuse-ld=bfd " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -ffunction-sections -Wl,--gc-sections -fuse-ld=gold " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -ffunction-sections -Wl,--gc-sections -fuse-ld=lld " DEBUG_ONLY, .patch = WHOLE},
    {"gcc -Wl,-z,noseparate-code -Wl,--gc-sections -ffunction-sections " DEBUG_ONLY,
     .patch = WHOLE},
    {"gcc -Wl,--section-start=.eh_frame=0x40000", .patch = WHOLE},
    {"gcc -Wl,--section-start=.eh_frame=0x40000 " NO_HDR, .patch = WHOLE},
    {"gcc -Wl,--section-start=.far_text=0x200000", .patch = WHOLE},
    {"gcc -Wl,--section-start=.far_text=0x200000 " NO_HDR, .patch = WHOLE},
    {"gcc -Wl,--section-start=.far_text=0x200000 " DEBUG_ONLY, .patch = WHOLE},
    {"gcc", .with_hand = true, .late = true},
    {"gcc -fuse-ld=lld", .with_hand = true},
    {"gcc " DEBUG_ONLY NO_HDR, .with_hand = true},
    /* .eh_frame_hdr's table as something else, or not there. */
    {"gcc", .patch = TABLE_ENCODING, .value = 0x3c},
    {"gcc", .patch = TABLE_ENCODING, .value = 0x00},
    {"gcc -fuse-ld=lld", .patch = TABLE_ENCODING, .value = 0x33},
    {"gcc -fuse-ld=gold", .patch = TABLE_ENCODING, .value = 0xff},
    {"gcc", .patch = COUNT_ENCODING, .value = 0xff},
    {"gcc -Wl,--section-start=.eh_frame=0x40000", .patch = COUNT_ENCODING, .value = 0xff},
    {"gcc", .patch = NO_SECTIONS},
    {"gcc " NO_HDR, .patch = NO_SECTIONS, .has_none = true},
    {"gcc " DEBUG_ONLY, .patch = NO_SECTIONS, .has_none = true},
    {"gcc -gz=zlib " DEBUG_ONLY, .has_none = true, .left_out = true},
    {"gcc -gz=zlib-gnu " DEBUG_ONLY, .has_none = true, .left_out = true},
    {"gcc -g0 " DEBUG_ONLY, .has_none = true},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static const char *folder;
static char library[256];
static void *handle;
static uintptr_t bias;
static bool late;

/* ---- Building and loading ---- */

static const ElfW(Phdr) * hdr_of(const char *file)
{
    const ElfW(Ehdr) *head = (const void *)file;
    const ElfW(Phdr) *programs = (const void *)(file + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (programs[i].p_type == PT_GNU_EH_FRAME)
            return &programs[i];
    ck_abort_msg("no .eh_frame_hdr");
    return NULL;
}

static void patch_library(const struct layout *layout)
{
    size_t size;
    char *file = read_file(library, &size);
    ElfW(Ehdr) *head = (void *)file;
    if (layout->patch == NO_SECTIONS)
        head->e_shoff = head->e_shnum = head->e_shstrndx = 0;
    else
        file[hdr_of(file)->p_offset + (layout->patch == TABLE_ENCODING ? 3 : 2)] =
            (char)layout->value;
    write_file(library, file, size);
    free(file);
}

static void build(const struct layout *layout)
{
    char command[2048];
    folder = temp_folder_make();
    write_file(in_folder(folder, "source.c"), source, sizeof(source) - 1);
    write_file(in_folder(folder, "hand.s"), assembly, sizeof(assembly) - 1);
    snprintf(library, sizeof(library), "%s/library.so", folder);
    const char *behind = strchr(layout->flags, ' ');
    int compiler = behind ? (int)(behind - layout->flags) : (int)strlen(layout->flags);
    snprintf(command, sizeof(command),
             "cd %s && %.*s -g -O2 -fPIC -shared %s -o library.so source.c %s", folder, compiler,
             layout->flags, layout->flags + compiler, layout->with_hand ? "hand.s" : "");
    ck_assert_msg(system(command) == 0, "%s", command);
    if (layout->patch != WHOLE)
        patch_library(layout);
}

static void load(void)
{
    handle = dlopen(library, RTLD_NOW);
    ck_assert_msg(handle != NULL, "%s", dlerror());
    bias = *(uintptr_t *)handle; /* a struct link_map */
}

static int read_in_place(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    if (strcmp(info->dlpi_name, library) != 0)
        return 0;
    struct object *object = data;
    struct elf_image image;
    elf_read_image(info, &image);
    object->path = library;
    elf_describe(&image, object);
    elf_tables_in_place(&image, object);
    if (elf_frames_are_few(object) || late)
        (void)elf_frames_complete(&image, object);
    return 1;
}

/* ---- What readelf says ---- */

static const char *const names[UNWIND_REGS] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
                                               "rbp", "rsp", "r8",  "r9",  "r10", "r11",
                                               "r12", "r13", "r14", "r15", "ra"};

static int number_of(const char *name)
{
    for (int i = 0; i < UNWIND_REGS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    ck_abort_msg("register %s", name);
    return 0;
}

struct row_text {
    uint64_t start;
    char cfa[32];
    int count; /* of registers */
    int registers[UNWIND_REGS];
    char rules[UNWIND_REGS][16];
};

static void expect_row(const struct object *object, uint64_t vaddr, const struct row_text *text)
{
    struct cfi_row row;
    int error = cfi_row_at(object, vaddr, &row);
    ck_assert_msg(error == 0, "%#lx: %d", (unsigned long)vaddr, error);
    char cfa[32];
    if (row.cfa_is_expression)
        strcpy(cfa, "exp");
    else
        snprintf(cfa, sizeof(cfa), "%s%+d", names[row.cfa_register], row.cfa_offset);
    ck_assert_msg(strcmp(cfa, text->cfa) == 0, "%#lx: %s, not %s", (unsigned long)vaddr, cfa,
                  text->cfa);
    for (int i = 0; i < text->count; i++) {
        int reg = text->registers[i];
        char rule[16] = "u";
        if (row.kind[reg] == CFI_OFFSET)
            snprintf(rule, sizeof(rule), "c%+d", row.value[reg]);
        else if (row.kind[reg] == CFI_EXPRESSION)
            strcpy(rule, "exp");
        else
            ck_assert_int_eq(row.kind[reg], CFI_SAME);
        ck_assert_msg(strcmp(rule, text->rules[i]) == 0, "%#lx, %s: %s, not %s",
                      (unsigned long)vaddr, names[reg], rule, text->rules[i]);
    }
}

/* Compares all rows of both sections with readelf's; returns their number. */
static uint32_t expect_rows_of_readelf(const struct object *object)
{
    char command[512], line[512];
    snprintf(command, sizeof(command), "readelf -W --debug-dump=frames-interp %s", library);
    FILE *dump = popen(command, "r");
    ck_assert_ptr_nonnull(dump);
    struct row_text row = {0};
    uint32_t rows = 0;
    unsigned long end = 0;
    bool wanted = false, has_row = false;
    while (fgets(line, sizeof(line), dump)) {
        char *words[24], *rest = NULL;
        int count = 0;
        for (char *w = strtok_r(line, " \n", &rest); w && count < 24;
             w = strtok_r(NULL, " \n", &rest))
            words[count++] = w;
        unsigned long at, first;
        char *pc = count > 3 ? strstr(words[count - 1], "pc=") : NULL;
        bool is_row = wanted && count >= 2 && strlen(words[0]) == 16 &&
                      sscanf(words[0], "%16lx", &at) == 1 && !strstr(words[1], "00000");
        if (has_row) {
            /* The row before holds until here. */
            uint64_t last = (is_row ? at : end) - 1;
            if (last >= row.start) {
                expect_row(object, row.start, &row);
                expect_row(object, last, &row);
                rows++;
            }
            has_row = false;
        }
        if (pc && sscanf(pc, "pc=%lx..%lx", &first, &end) == 2) {
            wanted = first != 0 && end > first;
        } else if (count > 2 && strcmp(words[0], "LOC") == 0) {
            row.count = count - 2;
            for (int i = 2; i < count; i++)
                row.registers[i - 2] = number_of(words[i]);
        } else if (is_row) {
            ck_assert_int_eq(count, row.count + 2);
            has_row = true;
            row.start = at;
            snprintf(row.cfa, sizeof(row.cfa), "%s", words[1]);
            for (int i = 2; i < count; i++)
                snprintf(row.rules[i - 2], sizeof(row.rules[0]), "%s", words[i]);
        } else {
            wanted = wanted && count != 0;
        }
    }
    ck_assert_int_eq(pclose(dump), 0);
    return rows;
}

static void expect_functions(const struct object *object, const struct layout *layout)
{
    static const char *const functions[] = {"shape_leaf",    "shape_alloca", "shape_saved",
                                            "shape_varying", "shape_far",    "shape_hand"};
    for (int i = 0; i < (layout->with_hand ? 6 : 5); i++) {
        uintptr_t function = (uintptr_t)dlsym(handle, functions[i]);
        ck_assert_msg(function != 0, "%s", functions[i]);
        struct cfi_row row;
        int error = cfi_row_at(object, function - bias, &row);
        ck_assert_msg(error == (layout->has_none ? -ENOENT : 0), "%s: %d", functions[i], error);
        if (!error)
            ck_assert_uint_eq(row.start, function - bias);
    }
}

static void expect_layout(const struct object *object, const struct layout *layout)
{
    expect_functions(object, layout);
    uint64_t expected = layout->left_out ? 1 : 0;
    ck_assert_uint_eq(stats_get(STAT_FRAMES_LEFT_OUT), expected);
    if (layout->has_none || layout->patch == NO_SECTIONS)
        return;
    uint32_t rows = expect_rows_of_readelf(object);
    printf("%s: %u rows, %u + %u FDEs\n", layout->flags, rows, object->fde_count,
           object->debug_frame ? object->debug_frame->count : 0);
    ck_assert_uint_ge(rows, 15);
}

static const struct object *loaded_object(void)
{
    const struct module *module =
        modules_find(modules_list, (uintptr_t)dlsym(handle, "shape_leaf"));
    ck_assert_ptr_nonnull(module);
    return module->object;
}

static void miss_a_row(const struct object *object)
{
    struct cfi_row row;
    uint64_t hand = (uintptr_t)dlsym(handle, "shape_hand") - bias;
    ck_assert_int_eq(cfi_row_at(object, hand, &row), -ENOENT);
    ck_assert(!object->frames_complete);
    uint32_t publication = modules_list->publication;
    modules_note_miss(object);
    ck_assert_uint_eq(modules_stale, 1);
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_uint_eq(modules_list->publication, publication + 1);
    /* What is missed now is in no file. */
    modules_note_miss(object);
    ck_assert_uint_eq(modules_stale, 0);
}

START_TEST(layouts_of_linkers)
{
    const struct layout *layout = &layouts[_i];
    struct object in_place = {0};
    late = layout->late;
    build(layout);
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    stats_reset();
    load();
    /* By the file, as what dlopen brings. */
    ck_assert_int_eq(modules_rescan(), 0);
    const struct object *object = loaded_object();
    ck_assert(!object->in_place);
    /* Also where it is in a segment of its own. */
    const struct module *far = modules_find(modules_list, (uintptr_t)dlsym(handle, "shape_far"));
    ck_assert(far && far->object == object);
    if (layout->late)
        miss_a_row(object);
    expect_layout(object, layout);
    /* As what is loaded at start. */
    uint64_t objects = stats_get(STAT_MODULES_LOADED);
    stats_reset();
    ck_assert_int_eq(dl_iterate_phdr(read_in_place, &in_place), 1);
    expect_layout(&in_place, layout);
    /* All of it stays when the object is closed, and serves it when it comes again. */
    dlclose(handle);
    ck_assert_int_eq(modules_rescan(), 0);
    if (!layout->has_none && layout->patch != NO_SECTIONS)
        ck_assert_uint_ge(expect_rows_of_readelf(object), 15);
    load();
    ck_assert_int_eq(modules_rescan(), 0);
    ck_assert_ptr_eq(loaded_object(), object);
    ck_assert_uint_eq(objects, 1);
    ck_assert_uint_eq(stats_get(STAT_MODULES_LOADED), 0);
    dlclose(handle);
    temp_folder_remove(folder);
}
END_TEST

static void expect_inside(const struct elf_section *section, uint64_t size)
{
    ck_assert_uint_le(section->size, size);
    ck_assert_uint_le(section->offset, size - section->size);
}

/* Section headers with random bytes, of files cut anywhere: what is found lies in the file. */
START_TEST(section_headers_changed)
{
    const struct layout layout = {"gcc " DEBUG_ONLY NO_HDR, .patch = WHOLE};
    struct rng rng = {3};
    size_t size;
    uint32_t found = 0, missing = 0;
    build(&layout);
    char *file = read_file(library, &size);
    ElfW(Ehdr) head = *(ElfW(Ehdr) *)(void *)file;
    size_t headers = head.e_shnum * sizeof(ElfW(Shdr));
    char *saved = malloc(headers);
    memcpy(saved, file + head.e_shoff, headers);
    int fd = memfd_create("headers", 0);
    for (int round = 0; round < 3000; round++) {
        for (int i = 0; i < 1 + round % 8; i++)
            file[head.e_shoff + rng_next(&rng) % headers] = (char)rng_next(&rng);
        if (round % 4 == 0)
            file[offsetof(ElfW(Ehdr), e_shoff) + rng_next(&rng) % 24] = (char)rng_next(&rng);
        size_t length = round % 5 ? size : rng_next(&rng) % size;
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq((int)pwrite(fd, file, length, 0), (int)length);
        struct elf_sections sections;
        elf_read_sections(fd, length, &sections);
        expect_inside(&sections.eh_frame, length);
        expect_inside(&sections.debug_frame, length);
        sections.debug_frame.size ? found++ : missing++;
        memcpy(file + head.e_shoff, saved, headers);
        memcpy(file, &head, sizeof(head));
    }
    printf("found %u times, missing %u times\n", found, missing);
    ck_assert_uint_gt(found, 300);
    ck_assert_uint_gt(missing, 300);
    close(fd);
    free(saved);
    free(file);
    temp_folder_remove(folder);
}
END_TEST

START_TEST(functions_of_the_kernel)
{
    static const char *const functions[] = {"__vdso_clock_gettime", "__vdso_gettimeofday",
                                            "__vdso_time", "__vdso_getcpu"};
    void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!vdso)
        return; /* as under some emulators */
    ck_assert_int_eq(modules_start(dl_iterate_phdr), 0);
    for (int i = 0; i < 4; i++) {
        uintptr_t function = (uintptr_t)dlvsym(vdso, functions[i], "LINUX_2.6");
        const struct module *module = modules_find(modules_list, function);
        struct cfi_row row;
        ck_assert_msg(module && module->object->is_vdso, "%s", functions[i]);
        ck_assert_int_eq(cfi_row_at(module->object, function - module->bias, &row), 0);
        ck_assert_uint_eq(row.start, function - module->bias);
        ck_assert_int_eq(row.cfa_register, UNWIND_SP);
        ck_assert_int_eq(row.cfa_offset, 8);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("frames");
    TCase *t = tcase_create("frames");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, layouts_of_linkers, 0, LAYOUTS);
    tcase_add_test(t, section_headers_changed);
    tcase_add_test(t, functions_of_the_kernel);
    suite_add_tcase(s, t);
    return s;
}
