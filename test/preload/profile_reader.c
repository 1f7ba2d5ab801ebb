#include "test/preload/profile_reader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <zlib.h>
#include <zstd.h>

#include "test/check.h"

typedef Perftools__Profiles__Profile Profile;

/* Windows follow each other; the clock that they are stamped with may be set meanwhile by ntp. */
#define WINDOW_OVERLAP_NS 50000000

struct bytes {
    uint8_t *data;
    size_t size;
};

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* zlib reads plain files as they are. */
static bool read_gzip_or_plain(const char *path, struct bytes *bytes)
{
    gzFile file = gzopen(path, "rb");
    if (!file)
        return false;
    size_t capacity = 1 << 16;
    bytes->data = malloc(capacity);
    int got;
    while ((got = gzread(file, bytes->data + bytes->size, (unsigned)(capacity - bytes->size))) >
           0) {
        bytes->size += (size_t)got;
        if (bytes->size == capacity)
            bytes->data = realloc(bytes->data, capacity *= 2);
    }
    bool whole = got == 0 && (ends_in(path, ".gz") ? !gzdirect(file) : gzdirect(file));
    return gzclose(file) == Z_OK && whole;
}

static bool read_zstd(const char *path, struct bytes *bytes)
{
    struct bytes packed = {0};
    if (!read_gzip_or_plain(path, &packed) && packed.size == 0)
        return false;
    unsigned long long size = ZSTD_getFrameContentSize(packed.data, packed.size);
    if (size != ZSTD_CONTENTSIZE_ERROR && size != ZSTD_CONTENTSIZE_UNKNOWN) {
        bytes->data = malloc(size + 1);
        bytes->size = ZSTD_decompress(bytes->data, size, packed.data, packed.size);
    }
    free(packed.data);
    return bytes->data && !ZSTD_isError(bytes->size);
}

Profile *profile_read(const char *path, char *why, size_t size)
{
    struct bytes bytes = {0};
    bool good = ends_in(path, ".zst") ? read_zstd(path, &bytes) : read_gzip_or_plain(path, &bytes);
    Profile *message = NULL;
    if (!good)
        snprintf(why, size, "cannot be unpacked");
    else if (!(message = perftools__profiles__profile__unpack(NULL, bytes.size, bytes.data)))
        snprintf(why, size, "is no protocol buffer of a profile");
    free(bytes.data);
    return message;
}

/* PROGRAM.PID.SEQ.FAMILY.pb[.gz|.zst], of a capture FAMILY@NAME.NUMBER; SEQ is 0000, or 0000-2
 * where 0000 was there already. */
static bool name_matches(const char *name, const char *family, int pid)
{
    char end[64];
    static const char *const suffixes[] = {".pb.gz", ".pb.zst", ".pb"}, digits[] = "0123456789";
    for (size_t i = 0; i < 3; i++) {
        snprintf(end, sizeof(end), ".%s%s", family, suffixes[i]);
        if (!ends_in(name, end))
            continue;
        const char *stop = name + strlen(name) - strlen(end);
        const char *sequence = memrchr(name, '.', (size_t)(stop - name));
        const char *process =
            sequence && sequence > name ? memrchr(name, '.', (size_t)(sequence - name)) : NULL;
        ck_assert_msg(process && process > name, "file name %s", name);
        ck_assert_msg(strspn(process + 1, digits) == (size_t)(sequence - process - 1) &&
                          sequence > process + 1,
                      "file name %s", name);
        const char *rest = sequence + 5;
        ck_assert_msg(strspn(sequence + 1, digits) == 4 &&
                          (rest == stop || (rest[0] == '-' && rest + 1 < stop &&
                                            rest + 1 + strspn(rest + 1, digits) == stop)),
                      "file name %s", name);
        return pid == 0 || atoi(process + 1) == pid;
    }
    return false;
}

/* As text, but 0000-2 comes after the 0000 that it found there. */
static int compare_paths(const void *a, const void *b)
{
    const char *first = *(char *const *)a, *second = *(char *const *)b;
    while (*first && *first == *second) {
        first++;
        second++;
    }
    return (*first != '.') - (*second != '.') ?: strcmp(first, second);
}

static int64_t label_number(const Profile *message, const Perftools__Profiles__Sample *sample,
                            const char *key, const char **text)
{
    for (size_t i = 0; i < sample->n_label; i++)
        if (strcmp(message->string_table[sample->label[i]->key], key) == 0) {
            *text = message->string_table[sample->label[i]->str];
            return sample->label[i]->num;
        }
    *text = "";
    return 0;
}

static int64_t number_or_none(const Profile *message, const Perftools__Profiles__Sample *sample,
                              const char *key)
{
    for (size_t i = 0; i < sample->n_label; i++)
        if (strcmp(message->string_table[sample->label[i]->key], key) == 0)
            return sample->label[i]->num;
    return -1;
}

/* Where the file's values begin among ours. */
static int first_value(const Profile *message)
{
    const char *first = message->string_table[message->sample_type[0]->type];
    return strcmp(first, "inuse_objects") == 0 ? LIVE_OBJECTS : 0;
}

static uint32_t add_location(const Profile *message, uint64_t id, struct frame *out)
{
    const Perftools__Profiles__Location *location = message->location[id - 1];
    const char *object =
        location->mapping_id
            ? message->string_table[message->mapping[location->mapping_id - 1]->filename]
            : "";
    if (location->n_line == 0) {
        *out = (struct frame){"", object, location->address};
        return 1;
    }
    for (size_t i = 0; i < location->n_line; i++) {
        const Perftools__Profiles__Function *function =
            message->function[location->line[i]->function_id - 1];
        out[i] = (struct frame){message->string_table[function->name], object, location->address};
    }
    return (uint32_t)location->n_line;
}

static size_t frames_of(const Profile *message, const Perftools__Profiles__Sample *sample)
{
    size_t count = 0;
    for (size_t i = 0; i < sample->n_location_id; i++) {
        size_t lines = message->location[sample->location_id[i] - 1]->n_line;
        count += lines ? lines : 1;
    }
    return count;
}

static void flatten(struct profile *profile)
{
    size_t stacks = 0, frames = 0;
    for (uint32_t i = 0; i < profile->file_count; i++) {
        stacks += profile->files[i]->n_sample;
        for (size_t k = 0; k < profile->files[i]->n_sample; k++)
            frames += frames_of(profile->files[i], profile->files[i]->sample[k]);
    }
    profile->stacks = calloc(stacks + 1, sizeof(*profile->stacks));
    profile->frames = calloc(frames + 1, sizeof(*profile->frames));
    ck_assert(profile->stacks && profile->frames);
    struct frame *next = profile->frames;
    for (uint32_t i = 0; i < profile->file_count; i++) {
        const Profile *message = profile->files[i];
        for (size_t k = 0; k < message->n_sample; k++) {
            const Perftools__Profiles__Sample *sample = message->sample[k];
            struct stack *stack = &profile->stacks[profile->stack_count++];
            const char *ignored;
            label_number(message, sample, "thread name", &stack->thread);
            stack->tid = label_number(message, sample, "thread id", &ignored);
            label_number(message, sample, "state", &stack->state);
            label_number(message, sample, "approximate", &ignored);
            stack->approximate = ignored[0] != 0;
            stack->file = i;
            stack->sample = sample;
            stack->frames = next;
            memcpy(&stack->values[first_value(message)], sample->value,
                   sample->n_value * sizeof(stack->values[0]));
            stack->age_s = number_or_none(message, sample, "age_seconds");
            stack->bytes = number_or_none(message, sample, "bytes");
            for (size_t j = 0; j < sample->n_location_id; j++) {
                uint32_t added = add_location(message, sample->location_id[j], next);
                next += added;
                stack->depth += added;
            }
        }
    }
}

static void check_windows_follow(const struct profile *profile)
{
    for (uint32_t i = 1; i < profile->file_count; i++) {
        const Profile *before = profile->files[i - 1], *after = profile->files[i];
        ck_assert_msg(before->time_nanos + before->duration_nanos <=
                          after->time_nanos + WINDOW_OVERLAP_NS,
                      "%s begins before the window ahead of it ends", profile->paths[i]);
    }
}

void profile_load(struct profile *profile, const char *folder, const char *file_part, int pid)
{
    char family[16];
    snprintf(family, sizeof(family), "%.*s", (int)strcspn(file_part, "@"), file_part);
    *profile = (struct profile){0};
    DIR *directory = opendir(folder);
    ck_assert_msg(directory != NULL, "no folder %s", folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!name_matches(entry->d_name, file_part, pid))
            continue;
        ck_assert(profile->file_count < PROFILE_FILES_MAX);
        ck_assert(asprintf(&profile->paths[profile->file_count++], "%s/%s", folder, entry->d_name) >
                  0);
    }
    closedir(directory);
    qsort(profile->paths, profile->file_count, sizeof(profile->paths[0]), compare_paths);
    for (uint32_t i = 0; i < profile->file_count; i++) {
        char why[256] = "";
        profile->files[i] = profile_read(profile->paths[i], why, sizeof(why));
        ck_assert_msg(profile->files[i] &&
                          profile_is_valid(profile->files[i], family, why, sizeof(why)),
                      "%s: %s", profile->paths[i], why);
    }
    if (pid)
        check_windows_follow(profile);
    flatten(profile);
}

void profile_free(struct profile *profile)
{
    for (uint32_t i = 0; i < profile->file_count; i++) {
        perftools__profiles__profile__free_unpacked(profile->files[i], NULL);
        free(profile->paths[i]);
    }
    free(profile->stacks);
    free(profile->frames);
    *profile = (struct profile){0};
}

uint32_t stack_depth_of(const struct stack *stack, const char *function)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < stack->depth; i++)
        count += strcmp(stack->frames[i].function, function) == 0;
    return count;
}

/* Where stacks begin, as ELF virtual addresses. */
struct roots {
    uint64_t start_main, start_main_size; /* __libc_start_main, which calls constructors and main */
    uint64_t thread_start;                /* to which a thread's first frames return */
    uint64_t loader_entry;                /* which calls constructors of libraries */
};

/* The loader's entry is a few instructions that call its start and then the constructors. */
enum { LOADER_ENTRY_SIZE = 64 };

/* Return addresses are multiples of it; libunwind, which may have taken the name backtrace, has 1
 * less on aarch64. */
#if defined(__aarch64__)
enum { INSTRUCTION = 4 };
#else
enum { INSTRUCTION = 1 };
#endif

/* The outermost frame is clone's, in libc. */
static void *find_thread_start(void *data)
{
    struct roots *roots = data;
    void *frames[64];
    Dl_info info;
    int depth = backtrace(frames, 64);
    ck_assert_int_gt(depth, 1);
    ck_assert_int_ne(dladdr(frames[depth - 1], &info), 0);
    ck_assert(ends_in(info.dli_fname, "/libc.so.6"));
    uint64_t address = (uint64_t)frames[depth - 1] - (uint64_t)info.dli_fbase;
    roots->thread_start = (address + INSTRUCTION - 1) / INSTRUCTION * INSTRUCTION - 1;
    return NULL;
}

static const struct roots *known_roots(void)
{
    static struct roots roots;
    if (roots.loader_entry == 0) {
        const ElfW(Ehdr) *loader = (const ElfW(Ehdr) *)getauxval(AT_BASE);
        const ElfW(Sym) *symbol = NULL;
        pthread_t thread;
        Dl_info info;
        void *start_main = dlsym(RTLD_DEFAULT, "__libc_start_main");
        ck_assert(start_main && dladdr1(start_main, &info, (void **)&symbol, RTLD_DL_SYMENT));
        roots.start_main = symbol->st_value;
        roots.start_main_size = symbol->st_size;
        roots.loader_entry = loader->e_entry;
        ck_assert_int_eq(pthread_create(&thread, NULL, find_thread_start, &roots), 0);
        pthread_join(thread, NULL);
    }
    return &roots;
}

bool stack_is_pseudo(const struct stack *stack)
{
    return strcmp(stack->frames[0].object, "[libagent]") == 0;
}

bool stack_is_whole(const struct stack *stack)
{
    const struct roots *roots = known_roots();
    const struct frame *last = &stack->frames[stack->depth - 1];
    if (stack_is_pseudo(stack))
        return stack->depth > 1 && strcmp(stack->frames[0].function, "[thread end]") == 0;
    if (strstr(last->object, "/ld-linux"))
        return last->address - roots->loader_entry < LOADER_ENTRY_SIZE;
    if (ends_in(last->object, "/libc.so.6"))
        return last->address == roots->thread_start;
    /* The outermost one is the program's _start. */
    return stack->depth > 1 && ends_in(last[-1].object, "/libc.so.6") &&
           last[-1].address - roots->start_main < roots->start_main_size;
}

bool stack_is_broken(const struct stack *stack)
{
    bool is_own = stack_is_pseudo(stack) && strncmp(stack->frames[0].function, "libagent ", 9) == 0;
    return !is_own && !stack_is_whole(stack);
}

#define SUM_WHERE(condition)                                                                       \
    int64_t sum = 0;                                                                               \
    for (size_t i = 0; i < profile->stack_count; i++) {                                            \
        const struct stack *stack = &profile->stacks[i];                                           \
        if (condition)                                                                             \
            sum += stack->values[value];                                                           \
    }                                                                                              \
    return sum

int64_t profile_total(const struct profile *profile, int value)
{
    SUM_WHERE(stack->depth);
}

int64_t profile_self(const struct profile *profile, int value, const char *function)
{
    SUM_WHERE(strcmp(stack->frames[0].function, function) == 0);
}

int64_t profile_under(const struct profile *profile, int value, const char *function)
{
    SUM_WHERE(stack_has(stack, function));
}

int64_t profile_last_self(const struct profile *profile, int value, const char *function)
{
    SUM_WHERE(stack->file + 1 == profile->file_count &&
              (!function[0] || strcmp(stack->frames[0].function, function) == 0));
}

int64_t profile_last_under(const struct profile *profile, int value, const char *function)
{
    SUM_WHERE(stack->file + 1 == profile->file_count &&
              (!function[0] || stack_has(stack, function)));
}

int64_t profile_of_tid(const struct profile *profile, int value, int64_t tid)
{
    SUM_WHERE(stack->tid == tid);
}

int64_t profile_of_thread(const struct profile *profile, int value, const char *name)
{
    SUM_WHERE(strcmp(stack->thread, name) == 0);
}

static bool has_label(const struct profile *profile, const struct stack *stack, const char *key,
                      const char *text, int64_t number)
{
    const Profile *message = profile->files[stack->file];
    for (size_t i = 0; i < stack->sample->n_label; i++) {
        const Perftools__Profiles__Label *label = stack->sample->label[i];
        if (strcmp(message->string_table[label->key], key) != 0)
            continue;
        return text ? strcmp(message->string_table[label->str], text) == 0
                    : !label->str && label->num == number;
    }
    return false;
}

int64_t profile_under_label(const struct profile *profile, int value, const char *function,
                            const char *key, const char *text, int64_t number)
{
    int64_t sum = 0;
    for (size_t i = 0; i < profile->stack_count; i++) {
        const struct stack *stack = &profile->stacks[i];
        if ((!function || stack_has(stack, function)) &&
            has_label(profile, stack, key, text, number))
            sum += stack->values[value];
    }
    return sum;
}

int64_t profile_of_state(const struct profile *profile, int value, const char *state)
{
    SUM_WHERE(strcmp(stack->state, state) == 0);
}

static int64_t profile_whole(const struct profile *profile, int value)
{
    SUM_WHERE(stack_is_whole(stack));
}

double profile_whole_share(const struct profile *profile, int value)
{
    int64_t overhead = profile_self(profile, value, "libagent overhead");
    return (double)profile_whole(profile, value) /
           (double)(profile_total(profile, value) - overhead);
}

const char *profile_comment(const struct profile *profile, const char *part)
{
    for (uint32_t i = 0; i < profile->file_count; i++) {
        const Profile *message = profile->files[i];
        for (size_t k = 0; k < message->n_comment; k++) {
            const char *found = strstr(message->string_table[message->comment[k]], part);
            if (found)
                return found;
        }
    }
    return NULL;
}

int64_t profile_figure(const struct profile *profile, const char *text)
{
    char begin[128];
    int length = snprintf(begin, sizeof(begin), "libagent: %s: ", text);
    int64_t sum = 0;
    for (uint32_t i = 0; i < profile->file_count; i++) {
        const Profile *message = profile->files[i];
        for (size_t k = 0; k < message->n_comment; k++) {
            const char *comment = message->string_table[message->comment[k]];
            if (strncmp(comment, begin, (size_t)length) == 0)
                sum += strtoll(comment + length, NULL, 10);
        }
    }
    return sum;
}

static int printed_value;

static int compare_stacks(const void *a, const void *b)
{
    int64_t x = (*(const struct stack *const *)a)->values[printed_value];
    int64_t y = (*(const struct stack *const *)b)->values[printed_value];
    return (x < y) - (x > y);
}

void profile_print(const struct profile *profile, int value, bool broken_only, size_t count)
{
    enum { FRAMES = 24 };
    const struct stack **order = calloc(profile->stack_count + 1, sizeof(*order));
    size_t n = 0;
    for (size_t i = 0; i < profile->stack_count; i++)
        if (!broken_only || stack_is_broken(&profile->stacks[i]))
            order[n++] = &profile->stacks[i];
    printed_value = value;
    qsort(order, n, sizeof(*order), compare_stacks);
    for (size_t i = 0; i < n && i < count; i++) {
        fprintf(stderr, "%lld of %lld, thread '%s' %lld, depth %u:\n",
                (long long)order[i]->values[value], (long long)profile_total(profile, value),
                order[i]->thread, (long long)order[i]->tid, order[i]->depth);
        for (uint32_t k = 0; k < order[i]->depth && k < FRAMES; k++)
            fprintf(stderr, "    %s (%s 0x%llx)\n", order[i]->frames[k].function,
                    order[i]->frames[k].object, (unsigned long long)order[i]->frames[k].address);
    }
    free(order);
}
