/* names_of FILE: reads addresses (hexadecimal, ascending, a line each), and prints the name that
 * the agent finds for each in the file, or an empty line.
 *
 * names_of FILE lines: of each the functions that it is in, the innermost first, as name, path,
 * line and first line between tabulators, and an empty line. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/base/buffer.h"
#include "agent/base/options.h"
#include "agent/export/lines.h"
#include "agent/export/symbols.h"

enum { ADDRESSES_MAX = 1 << 20 };

static void read_build_id(struct object *object, const char *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof(note));
        size_t data = at + sizeof(note) + ALIGN_UP((size_t)note.n_namesz, 4);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= BUILD_ID_MAX &&
            data + note.n_descsz <= size && strcmp(notes + at + sizeof(note), "GNU") == 0) {
            object->build_id_size = (uint8_t)note.n_descsz;
            memcpy(object->build_id, notes + data, note.n_descsz);
        }
        at = data + ALIGN_UP((size_t)note.n_descsz, 4);
    }
}

/* As the loader would have it. */
static struct object object_of(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status))
        exit(2);
    const char *elf = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (elf == MAP_FAILED)
        exit(2);
    const Elf64_Ehdr *header = (const void *)elf;
    const Elf64_Phdr *programs = (const void *)(elf + header->e_phoff);
    struct object object = {.path = path};
    for (size_t i = 0; i < header->e_phnum; i++) {
        const Elf64_Phdr *p = &programs[i];
        if (p->p_type == PT_NOTE)
            read_build_id(&object, elf + p->p_offset, p->p_filesz);
        if (p->p_type == PT_LOAD && p->p_flags & PF_X && object.segment_count < OBJECT_SEGMENTS_MAX)
            object.segments[object.segment_count++] = (struct object_segment){
                .vaddr = p->p_vaddr, .size = p->p_memsz, .offset = p->p_offset};
    }
    return object;
}

static const char *text_at(const struct buffer *texts, uint32_t at)
{
    return at == LINES_NO_TEXT ? "" : (const char *)texts->data + at;
}

static int print_lines(const struct object *object, const uint64_t *addresses, size_t count)
{
    static struct line_answer answers[ADDRESSES_MAX];
    struct buffer frames = {0}, texts = {0};
    struct line_budget budget = {.steps = UINT64_MAX, .room = (size_t)1 << 30};
    int error = lines_find(object, addresses, count, &budget, answers, &frames, &texts);
    if (error)
        fprintf(stderr, "%s: error %d\n", object->path, -error);
    for (size_t i = 0; i < count; i++) {
        const struct line_frame *frame = (const void *)frames.data;
        for (uint32_t k = 0; k < answers[i].count; k++) {
            struct line_frame at = frame[answers[i].first + k];
            printf("%s\t%s\t%u\t%u\n", text_at(&texts, at.name), text_at(&texts, at.file), at.line,
                   at.start_line);
        }
        puts("");
    }
    fprintf(stderr, "steps %llu\n", (unsigned long long)(UINT64_MAX - budget.steps));
    buffer_free(&frames);
    buffer_free(&texts);
    return error ? 1 : 0;
}

int main(int argc, char **argv)
{
    static uint64_t addresses[ADDRESSES_MAX];
    static struct symbol_name names[ADDRESSES_MAX];
    struct buffer texts = {0};
    unsigned long long address;
    size_t count = 0;
    if (argc != 2 && (argc != 3 || strcmp(argv[2], "lines") != 0))
        return 2;
    options.debug_path = getenv("LIBAGENT_DEBUG_PATH");
    struct object object = object_of(argv[1]);
    while (count < ADDRESSES_MAX && scanf("%llx", &address) == 1)
        addresses[count++] = address;
    if (argc == 3)
        return print_lines(&object, addresses, count);
    int error = symbols_find(&object, SYMBOLS_NOT_LOADED, addresses, count, names, &texts);
    if (error)
        fprintf(stderr, "%s: error %d\n", argv[1], -error);
    for (size_t i = 0; i < count; i++)
        puts(names[i].length ? (char *)texts.data + names[i].offset : "");
    buffer_free(&texts);
    return error ? 1 : 0;
}
