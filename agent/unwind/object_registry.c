#include "agent/unwind/object_registry.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/format.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/unwind/elf_frames.h"

enum {
    /* About 4,500 objects of 400 bytes and a path. */
    REGISTRY_BYTES = 2 << 20,
    REGISTRY_BUCKETS = 256,
    /* Of the budget, for copies of tables: 4 MiB of the default. */
    COPIES_SHARE = 16,
};

struct registered {
    struct object object;
    uint64_t identity; /* hash of the program headers */
    struct registered *next;
    struct registered *next_with_tables; /* that can be given up */
    char path[];
};

static struct {
    struct arena arena;
    struct registered *buckets[REGISTRY_BUCKETS];
    struct registered *with_tables;
    size_t copied;   /* bytes */
    uint32_t oldest; /* publication that may be in use */
    uint32_t count;
    char path[PATH_MAX];
} registry;

int registry_start(void)
{
    return registry.arena.base ? 0 : arena_create(&registry.arena, REGISTRY_BYTES);
}

/* The objects whose locks an interrupted thread could hold; the allocator below is marked later. */
static bool is_system_name(const char *path)
{
    static const char *const patterns[] = {
        "libc.so*",       "libc-2.*",  "ld-linux*", "ld-2.*",    "libpthread.so*",
        "libpthread-2.*", "libdl.so*", "libdl-2.*", "librt.so*", "librt-2.*"};
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
        if (glob_match(patterns[i], base_name(path)))
            return true;
    return false;
}

/* Whether what a build id tells is that of the image. */
static bool may_be(const struct registered *r, const struct elf_image *image)
{
    return r->identity == image->identity && r->object.build_id_size == image->build_id_size &&
           (!image->build_id_size ||
            memcmp(r->object.build_id, image->build_id, image->build_id_size) == 0);
}

static bool has_same_tables(const struct registered *r, const struct elf_image *image)
{
    if (image->build_id_size)
        return true;
    return elf_tables_equal(image, &r->object) &&
           (!r->object.debug_frame || r->object.debug_frame->code_hash == elf_code_hash(image));
}

static size_t copy_size(const struct object *object)
{
    return ALIGN_UP(object->eh_frame_hdr.size + object->eh_frame.size, (size_t)PAGE_SIZE_MIN);
}

/* `place` is where the list leads to it. */
static void give_up(struct registered **place)
{
    struct registered *r = *place;
    if (r->object.tables == TABLES_COPIED)
        registry.copied -= copy_size(&r->object);
    *place = r->next_with_tables;
    elf_tables_give_up(&r->object);
}

static bool is_closed(const struct object *object)
{
    return object->listed < registry.oldest;
}

static bool give_up_oldest_copy(void)
{
    struct registered **oldest = NULL;
    for (struct registered **p = &registry.with_tables; *p; p = &(*p)->next_with_tables)
        if ((*p)->object.tables == TABLES_COPIED && is_closed(&(*p)->object) &&
            (!oldest || (*p)->object.listed < (*oldest)->object.listed))
            oldest = p;
    if (oldest)
        give_up(oldest);
    return oldest != NULL;
}

bool registry_note_oldest(uint32_t oldest, uint32_t current)
{
    bool is_waiting = false;
    registry.oldest = oldest;
    for (struct registered **p = &registry.with_tables; *p;) {
        const struct object *object = &(*p)->object;
        bool is_mapped = object->tables == TABLES_MAPPED;
        if (is_mapped && is_closed(object)) {
            give_up(p);
            continue;
        }
        is_waiting = is_waiting || (is_mapped && object->listed < current);
        p = &(*p)->next_with_tables;
    }
    return is_waiting;
}

static int copy_tables(const struct elf_image *image, struct object *object)
{
    size_t size = ALIGN_UP(elf_tables_size(image), (size_t)PAGE_SIZE_MIN);
    size_t limit = arena_budget() / COPIES_SHARE;
    do {
        bool fits = size <= limit - MIN_OF(registry.copied, limit);
        int error = fits ? elf_tables_copied(image, object) : -ENOMEM;
        if (error != -ENOMEM)
            return error;
    } while (size <= limit && give_up_oldest_copy());
    return -ENOMEM;
}

static void take_tables(const struct elf_image *image, struct registered *r)
{
    struct object *object = &r->object;
    /* Else stacks end there. */
    if (copy_tables(image, object) != 0 && elf_tables_mapped(image, r->path, object) != 0)
        return;
    if (object->tables == TABLES_COPIED)
        registry.copied += copy_size(object);
    if (object->tables == TABLES_COPIED || object->tables == TABLES_MAPPED) {
        r->next_with_tables = registry.with_tables;
        registry.with_tables = r;
    }
}

/* Has the object in the list that is being made. */
static struct object *listed_now(const struct elf_image *image, struct registered *r)
{
    if (r->object.tables == TABLES_GIVEN_UP && is_closed(&r->object))
        take_tables(image, r);
    r->object.listed = UINT32_MAX;
    return &r->object;
}

struct object *registry_object(const struct elf_image *image, const char *given,
                               enum object_role role, bool pinned, const struct object *listed)
{
    /* The loader keeps a path as it came, and the program may change its folder. */
    bool is_relative = role == OBJECT_PLAIN && given[0] != '/' && strchr(given, '/');
    const char *path = is_relative ? registry.path : given;
    while (is_relative && given[0] == '.' && given[1] == '/')
        given += 2;
    if (is_relative)
        (void)!sys_absolute(given, registry.path, sizeof(registry.path));
    struct registered **bucket = &registry.buckets[image->identity % REGISTRY_BUCKETS];
    for (struct registered *r = *bucket; r; r = r->next) {
        bool is_listed = is_relative && &r->object == listed;
        if (may_be(r, image) && (is_listed || strcmp(r->path, path) == 0) &&
            has_same_tables(r, image))
            return listed_now(image, r);
    }
    size_t length = strlen(path) + 1;
    struct registered *r = arena_take(&registry.arena, sizeof(*r) + length);
    if (!r)
        return NULL;
    memcpy(r->path, path, length);
    r->identity = image->identity;
    struct object *object = &r->object;
    object->path = r->path;
    object->is_main = role == OBJECT_MAIN;
    object->is_vdso = role == OBJECT_VDSO;
    object->is_system = role == OBJECT_PLAIN && is_system_name(path);
    elf_describe(image, object);
    if (pinned)
        elf_tables_in_place(image, object);
    else
        take_tables(image, r);
    if (!pinned)
        elf_note_file(image, path, object);
    object->has_few_frames = object->tables != TABLES_MAPPED && elf_frames_are_few(object);
    if (object->has_few_frames && elf_frames_complete(image, object))
        object->has_few_frames = false;
    r->next = *bucket;
    *bucket = r;
    registry.count++;
    stats_add(STAT_MODULES_LOADED, 1);
    return listed_now(image, r);
}

#ifdef LIBAGENT_TEST
uint32_t registry_count(void)
{
    return registry.count;
}

void registry_forget(void)
{
    while (registry.with_tables)
        give_up(&registry.with_tables);
    memset(registry.buckets, 0, sizeof(registry.buckets));
    registry.count = registry.oldest = 0;
    elf_frames_forget();
    arena_clear(&registry.arena);
}
#endif
