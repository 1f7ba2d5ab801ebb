/* Mini debug info of any content: an xz file, unpacked, and read as the ELF file in memory that it
 * ought to be.
 *
 * Input: the xz file. */
#include "test/fuzz/fuzz_input.h"

#include "agent/base/sys.h"
#include "agent/export/mini_debug.h"
#include "agent/export/symbol_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *out = NULL;
    size_t out_size = 0;
    int error = xz_unpack(data, size, &out, &out_size);
    EXPECT(error <= 0);
    if (error)
        return 0;
    EXPECT(out_size > 0 && out_size <= MINI_DEBUG_MAX);
    /* In memory of exactly its size. */
    uint8_t *exact = malloc(out_size);
    memcpy(exact, out, out_size);
    sys_unmap(out, out_size);
    struct elf_file file;
    if (elf_open_memory(&file, exact, out_size) == 0) {
        struct symbol_source source = {.file = &file};
        (void)!elf_find_symbols(&file, SHT_SYMTAB, &source.symbols, &source.strings);
        elf_close(&file);
    }
    free(exact);
    return 0;
}
