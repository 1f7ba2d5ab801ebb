#include "agent/export/symbol_table.h"

#include <errno.h>
#include <string.h>

#include "agent/base/sys.h"
#include "agent/export/address_search.h"

enum {
    CHUNK_SYMBOLS = 2048,     /* 48 KiB a read */
    CHUNK_STRINGS = 32 << 10, /* names of neighbours in the table mostly stand together */
    STEPS_MAX = 64 << 20,     /* addresses looked at, all symbols together: about 0.3 s */
    COMPARE_STEPS = 500,      /* a name read from elsewhere costs as much */
    TEXTS_MAX = 16 << 20,     /* bytes of names; a usual window has under 1 MiB from all objects */
    CODE_SECTIONS_MAX = 16 << 10, /* of a file: real ones have under 10 */
    NO_SOURCE = SYMBOL_SOURCES_MAX,
};

/* A symbol that was the best for some address when it was seen. */
struct candidate {
    uint64_t value;
    uint32_t name; /* offset in its source's strings */
    uint8_t type, binding;
    uint8_t source;
    bool is_written;         /* `offset` and `length` are valid */
    uint32_t offset, length; /* once it is written */
};

struct code_section {
    uint64_t start, end;
    uint32_t index;
};

enum bound_kind { BOUND_NONE, BOUND_END, BOUND_NO_SIZE, BOUND_SIZED };

/* The last start or end of a symbol that is not above an address, and behind the address before. */
struct bound {
    uint64_t at;
    uint32_t candidate; /* BOUND_NO_SIZE: its number */
    uint8_t kind;       /* enum bound_kind; of several at one place the greatest counts */
};

/* What one pass needs, in one mapping. */
struct symbol_work {
    Elf64_Sym chunk[CHUNK_SYMBOLS];
    char name[SYMBOL_NAME_MAX + 1];
    char other_name[SYMBOL_NAME_MAX + 1];
    char strings[CHUNK_STRINGS]; /* of a source, from strings_at on */
    uint64_t strings_at;
    size_t strings_size;
    uint32_t strings_source;
    uint64_t *above; /* by address: the first start or end above it, as far as no address between */
    struct bound *below; /* by address */
    uint32_t *best;      /* by address: the candidate with a size, its number + 1, or 0 */
};

static struct candidate *candidate_at(const struct symbol_pass *pass, uint32_t number)
{
    return (struct candidate *)(void *)pass->candidates.data + number;
}

int symbol_pass_begin(struct symbol_pass *pass, const uint64_t *addresses, size_t count)
{
    *pass = (struct symbol_pass){.addresses = addresses, .count = count};
    struct symbol_work *work;
    pass->work_size =
        sizeof(*work) + count * (sizeof(*work->above) + sizeof(*work->below) + sizeof(*work->best));
    pass->work = work = sys_map(pass->work_size);
    if (!work)
        return -ENOMEM;
    work->above = (uint64_t *)(void *)(work + 1);
    work->below = (struct bound *)(void *)(work->above + count);
    work->best = (uint32_t *)(void *)(work->below + count);
    memset(work->above, 0xff, count * sizeof(work->above[0]));
    work->strings_source = NO_SOURCE;
    return 0;
}

void symbol_pass_end(struct symbol_pass *pass)
{
    if (pass->work)
        sys_unmap(pass->work, pass->work_size);
    pass->work = NULL;
    buffer_free(&pass->candidates);
    buffer_free(&pass->sections);
}

/* ---- Names --------------------------------------------------------------------------------- */

/* Up to `size` bytes of the source's strings. */
static size_t read_strings(struct symbol_pass *pass, uint32_t source, uint64_t at, char *out,
                           size_t size)
{
    struct symbol_work *work = pass->work;
    const struct symbol_source *from = &pass->sources[source];
    if (work->strings_source != source || at < work->strings_at ||
        at - work->strings_at >= work->strings_size) {
        pass->steps += COMPARE_STEPS;
        long got = elf_read_some(from->file, from->strings, at, work->strings, CHUNK_STRINGS);
        work->strings_source = got > 0 ? source : NO_SOURCE;
        work->strings_at = at;
        work->strings_size = got > 0 ? (size_t)got : 0;
    }
    if (work->strings_source == NO_SOURCE)
        return 0;
    size_t offset = (size_t)(at - work->strings_at);
    size = MIN_OF(size, work->strings_size - offset);
    memcpy(out, work->strings + offset, size);
    return size;
}

/* Reads a name without its version, ends it with 0. Its length; 0 when there is none. */
static size_t read_name(struct symbol_pass *pass, const struct candidate *of, char *name)
{
    enum { FIRST_READ = 64, NEXT_READ = 512 };
    size_t length = 0, want = FIRST_READ;
    while (length < SYMBOL_NAME_MAX) {
        size_t got = read_strings(pass, of->source, (uint64_t)of->name + length, name + length,
                                  MIN_OF(want, SYMBOL_NAME_MAX - length));
        if (got == 0)
            break; /* the table ends, or the file was cut: what stands there is the name */
        const char *end = memchr(name + length, 0, got);
        if (end) {
            length = (size_t)(end - name);
            break;
        }
        length += got;
        want = NEXT_READ;
    }
    const char *version = length ? memchr(name + 1, '@', length - 1) : NULL;
    if (version)
        length = (size_t)(version - name);
    name[length] = 0;
    return length;
}

/* Rules 2 and 3: the greater the better. */
static int rank(const struct candidate *candidate)
{
    return (candidate->type != STT_NOTYPE) * 2 + (candidate->binding != STB_LOCAL);
}

static size_t leading_underscores(const char *name)
{
    size_t count = 0;
    while (name[count] == '_')
        count++;
    return count;
}

/* Rules 4 to 6. */
static bool has_better_name(struct symbol_pass *pass, const struct candidate *a,
                            const struct candidate *b)
{
    pass->steps += COMPARE_STEPS;
    const char *name_a = pass->work->name, *name_b = pass->work->other_name;
    size_t length_a = read_name(pass, a, pass->work->name);
    size_t length_b = read_name(pass, b, pass->work->other_name);
    if (length_a == 0 || length_b == 0)
        return length_a > length_b;
    size_t underscores_a = leading_underscores(name_a);
    size_t underscores_b = leading_underscores(name_b);
    if (underscores_a != underscores_b)
        return underscores_a < underscores_b;
    if (a->binding != b->binding)
        return a->binding == STB_GLOBAL;
    if (length_a != length_b)
        return length_a < length_b;
    return strcmp(name_a, name_b) < 0;
}

static bool is_better(struct symbol_pass *pass, const struct candidate *a,
                      const struct candidate *b)
{
    if (a->value != b->value)
        return a->value > b->value;
    if (rank(a) != rank(b))
        return rank(a) > rank(b);
    return has_better_name(pass, a, b);
}

/* ---- Sections of code ---------------------------------------------------------------------- */

static void note_code_section(const Elf64_Shdr *section, uint32_t index, void *data)
{
    struct symbol_pass *pass = data;
    if (!(section->sh_flags & SHF_EXECINSTR) ||
        pass->sections.size >= CODE_SECTIONS_MAX * sizeof(struct code_section))
        return;
    uint64_t end = section->sh_addr + section->sh_size;
    struct code_section code = {.start = section->sh_addr,
                                .end = end < section->sh_addr ? UINT64_MAX : end,
                                .index = index};
    buffer_append(&pass->sections, &code, sizeof(code));
}

/* By its index (they ascend); NULL when that is no section of code. */
static const struct code_section *section_by_index(const struct symbol_pass *pass, uint32_t index)
{
    const struct code_section *sections = (const void *)pass->sections.data;
    size_t low = 0, high = pass->sections.size / sizeof(sections[0]);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sections[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_found = low < pass->sections.size / sizeof(sections[0]) && sections[low].index == index;
    return is_found ? &sections[low] : NULL;
}

static const struct code_section *section_at(const struct symbol_pass *pass, uint64_t address)
{
    const struct code_section *sections = (const void *)pass->sections.data;
    for (size_t i = 0; i < pass->sections.size / sizeof(sections[0]); i++)
        if (address >= sections[i].start && address < sections[i].end)
            return &sections[i];
    return NULL;
}

/* ---- A table ------------------------------------------------------------------------------- */

static bool is_function(const struct symbol_pass *pass, const Elf64_Sym *symbol)
{
    if (symbol->st_name == 0 || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS ||
        symbol->st_shndx == SHN_COMMON)
        return false;
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
        return false;
    if (type != STT_NOTYPE && symbol->st_size != 0)
        return true;
    const struct code_section *section = section_by_index(pass, symbol->st_shndx);
    return section && (symbol->st_size != 0 ||
                       (symbol->st_value >= section->start && symbol->st_value < section->end));
}

/* Something starts or ends at `at`; `next` is the first address that is not below. */
static void note_bound(struct symbol_pass *pass, size_t next, uint64_t at, enum bound_kind kind)
{
    struct symbol_work *work = pass->work;
    if (next > 0)
        work->above[next - 1] = MIN_OF(work->above[next - 1], at);
    if (next == pass->count)
        return;
    struct bound *bound = &work->below[next];
    if (bound->kind == BOUND_NONE || bound->at < at || (bound->at == at && bound->kind < kind))
        *bound = (struct bound){.at = at, .kind = (uint8_t)kind};
}

/* The candidate's number. */
static uint32_t keep(struct symbol_pass *pass, const struct candidate *candidate)
{
    buffer_append(&pass->candidates, candidate, sizeof(*candidate));
    return (uint32_t)(pass->candidates.size / sizeof(*candidate)) - 1;
}

static int add_without_size(struct symbol_pass *pass, const struct candidate *candidate,
                            size_t next)
{
    char first = 0;
    if (read_strings(pass, candidate->source, candidate->name, &first, 1) == 0 || first == '.' ||
        first == '$')
        return 0;
    struct bound *bound = &pass->work->below[next];
    bool is_first =
        next == pass->count || bound->kind != BOUND_NO_SIZE || bound->at != candidate->value;
    note_bound(pass, next, candidate->value, BOUND_NO_SIZE);
    if (next == pass->count || bound->kind != BOUND_NO_SIZE || bound->at != candidate->value ||
        !(is_first || is_better(pass, candidate, candidate_at(pass, bound->candidate))))
        return 0;
    uint32_t number = keep(pass, candidate);
    if (!pass->candidates.error)
        bound->candidate = number;
    return pass->candidates.error;
}

static int add_symbol(struct symbol_pass *pass, const Elf64_Sym *symbol)
{
    const struct candidate candidate = {
        .value = symbol->st_value,
        .name = symbol->st_name,
        .type = ELF64_ST_TYPE(symbol->st_info),
        .binding = ELF64_ST_BIND(symbol->st_info),
        .source = (uint8_t)(pass->source_count - 1),
    };
    uint64_t end = symbol->st_value + symbol->st_size;
    bool wraps = end < symbol->st_value;
    if (symbol->st_value > pass->addresses[pass->count - 1]) {
        note_bound(pass, pass->count, symbol->st_value, BOUND_SIZED);
        return 0;
    }
    size_t i = address_lower_bound(pass->addresses, pass->count, symbol->st_value);
    if (symbol->st_size == 0)
        return add_without_size(pass, &candidate, i);
    note_bound(pass, i, symbol->st_value, BOUND_SIZED);
    uint32_t number = 0;   /* + 1, once it is kept */
    uint32_t compared = 0; /* the last one that it was compared with: neighbours share it */
    bool is_best = true;
    uint32_t *best = pass->work->best;
    for (; i < pass->count && (wraps || pass->addresses[i] < end); i++) {
        if (++pass->steps > STEPS_MAX)
            return 0;
        if (best[i] != compared) {
            compared = best[i];
            is_best = !compared || is_better(pass, &candidate, candidate_at(pass, compared - 1));
        }
        if (!is_best)
            continue;
        if (!number)
            number = keep(pass, &candidate) + 1;
        if (pass->candidates.error)
            return pass->candidates.error;
        best[i] = number;
    }
    if (!wraps)
        note_bound(pass, i, end, BOUND_END);
    return 0;
}

int symbol_pass_scan(struct symbol_pass *pass, struct symbol_source source)
{
    if (pass->count == 0)
        return 0;
    pass->sources[pass->source_count++] = source;
    pass->sections.size = 0;
    int error = elf_each_section(source.file, note_code_section, pass);
    if (!error)
        error = pass->sections.error;
    uint64_t total = MIN_OF(source.symbols.size / sizeof(Elf64_Sym), (uint64_t)SYMBOLS_MAX);
    for (uint64_t first = 0; !error && first < total && pass->steps <= STEPS_MAX;
         first += CHUNK_SYMBOLS) {
        size_t count = (size_t)MIN_OF(total - first, (uint64_t)CHUNK_SYMBOLS);
        error = elf_read(source.file, source.symbols.offset + first * sizeof(Elf64_Sym),
                         pass->work->chunk, count * sizeof(Elf64_Sym));
        for (size_t i = 0; !error && i < count; i++)
            if (is_function(pass, &pass->work->chunk[i]))
                error = add_symbol(pass, &pass->work->chunk[i]);
    }
    return error;
}

/* ---- The answers --------------------------------------------------------------------------- */

static int write_text(struct symbol_pass *pass, struct candidate *candidate, struct buffer *texts,
                      size_t texts_at_start)
{
    candidate->is_written = true;
    if (texts->size - texts_at_start > TEXTS_MAX)
        return 0;
    size_t length = read_name(pass, candidate, pass->work->name);
    if (length == 0)
        return 0;
    candidate->offset = (uint32_t)texts->size;
    candidate->length = (uint32_t)length;
    buffer_append(texts, pass->work->name, length + 1);
    return texts->size > UINT32_MAX ? -ENOMEM : texts->error;
}

/* The interval in which address number i's answer holds; `section` is the one that it is in. */
static void bound_answer(const struct symbol_pass *pass, size_t i,
                         const struct code_section *section, struct symbol_name *name)
{
    const struct bound *below = &pass->work->below[i];
    uint64_t address = pass->addresses[i];
    name->low = address;
    name->high = address + 1 ? address + 1 : address;
    if (!section || pass->steps > STEPS_MAX)
        return; /* what lies around is not known */
    name->low = below->kind == BOUND_NONE ? section->start : MAX_OF(below->at, section->start);
    name->high = MIN_OF(pass->work->above[i], section->end);
}

/* What was noted between addresses holds for those behind, too. */
static void spread_bounds(struct symbol_pass *pass)
{
    struct symbol_work *work = pass->work;
    for (size_t i = 1; i < pass->count; i++)
        if (work->below[i].kind == BOUND_NONE ||
            (work->below[i - 1].kind != BOUND_NONE && work->below[i].at < work->below[i - 1].at))
            work->below[i] = work->below[i - 1];
    for (size_t i = pass->count; i-- > 1;)
        work->above[i - 1] = MIN_OF(work->above[i - 1], work->above[i]);
}

int symbol_pass_write(struct symbol_pass *pass, struct symbol_name *names, struct buffer *texts)
{
    size_t texts_at_start = texts->size;
    spread_bounds(pass);
    const struct code_section *section = NULL;
    for (size_t i = 0; i < pass->count; i++) {
        uint64_t address = pass->addresses[i];
        if (!section || address < section->start || address >= section->end)
            section = section_at(pass, address);
        bound_answer(pass, i, section, &names[i]);
        names[i].length = 0;
        const struct bound *below = &pass->work->below[i];
        uint32_t number = pass->work->best[i];
        if (!number && below->kind == BOUND_NO_SIZE && section && below->at >= section->start)
            number = below->candidate + 1;
        if (!number)
            continue;
        struct candidate *candidate = candidate_at(pass, number - 1);
        int error = candidate->is_written ? 0 : write_text(pass, candidate, texts, texts_at_start);
        if (error)
            return error;
        names[i].offset = candidate->offset;
        names[i].length = candidate->length;
    }
    return 0;
}
