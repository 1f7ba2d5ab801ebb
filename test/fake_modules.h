/* fake_modules.h: objects that are not there, for the export suites. It defines the functions of
 * agent/unwind/modules.c that export calls, so only one file of a suite may include it (as a
 * helper of all suites it would stand in for the true ones everywhere).
 *
 * The main program is this test program itself, with its true segments, so that its functions
 * have true names. */
#ifndef LIBAGENT_TEST_FAKE_MODULES_H
#define LIBAGENT_TEST_FAKE_MODULES_H

#include <check.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "agent/unwind/cfi.h"
#include "agent/unwind/modules.h"

/* Where they are loaded. */
#define LIB_BIAS    0x7f0000000000ull /* fake_lib, in all generations */
#define VDSO_BIAS   0x7e0000000000ull
#define BAD_BIAS    0x7d0000000000ull
#define REUSED_BIAS 0x7c0000000000ull /* fake_lib in generation 2, fake_bad in 3 */
#define JIT_CODE    0x7b0000001234ull /* nothing */

static struct object fake_main;
static uint64_t fake_main_bias;
/* Two executable segments, the second one not at a page's border. */
static const struct object fake_lib = {
    .path = "/opt/fake/libfake.so.1",
    .build_id = {0xAB, 0xCD, 0x00, 0x0F, 0x10},
    .build_id_size = 5,
    .segment_count = 2,
    .segments = {{.vaddr = 0x1000, .size = 0x5000, .offset = 0x1000},
                 {.vaddr = 0x10234, .size = 0x800, .offset = 0xf234}},
};
static const struct object fake_vdso = {
    .path = "[vdso]",
    .is_vdso = true,
    .segment_count = 1,
    .segments = {{.vaddr = 0, .size = 0x1000}},
};
static const struct object fake_bad = {
    .path = "/opt/\xff\xfe/b\xe2\x82-d.so",
    .segment_count = 1,
    .segments = {{.vaddr = 0x2000, .size = 0x10000, .offset = 0x2000}},
};

static int fake_find_main(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    fake_main_bias = info->dlpi_addr;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_flags & PF_X)
            fake_main.segments[fake_main.segment_count++] = (struct object_segment){
                .vaddr = header->p_vaddr, .size = header->p_memsz, .offset = header->p_offset};
    }
    return 1; /* the first one is the main program */
}

static void fake_modules_start(void)
{
    static char path[PATH_MAX];
    ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
    fake_main = (struct object){.path = path, .is_main = true};
    dl_iterate_phdr(fake_find_main, NULL);
    ck_assert_uint_ge(fake_main.segment_count, 1);
}

const struct object *modules_main(void)
{
    return &fake_main;
}

struct module_address modules_resolve(uint32_t generation, uintptr_t pc)
{
    const struct {
        const struct object *object;
        uint64_t bias;
        uint32_t generation; /* 0: all */
    } loaded[] = {
        {&fake_main, fake_main_bias, 0}, {&fake_lib, LIB_BIAS, 0},    {&fake_vdso, VDSO_BIAS, 0},
        {&fake_bad, BAD_BIAS, 0},        {&fake_lib, REUSED_BIAS, 2}, {&fake_bad, REUSED_BIAS, 3},
    };
    for (size_t i = 0; i < ARRAY_SIZE(loaded); i++) {
        const struct object *object = loaded[i].object;
        for (size_t s = 0; s < object->segment_count; s++)
            if ((loaded[i].generation == 0 || loaded[i].generation == generation) &&
                pc - loaded[i].bias - object->segments[s].vaddr < object->segments[s].size)
                return (struct module_address){.object = object, .vaddr = pc - loaded[i].bias};
    }
    return (struct module_address){.object = NULL};
}

uint64_t modules_function_start(const struct object *object, uint64_t vaddr)
{
    return cfi_function_start(object, vaddr);
}

#endif
