#include "agent/unwind/object_registry.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "agent/base/arena.h"
#include "agent/base/format.h"
#include "agent/base/stats.h"
#include "agent/base/sys.h"
#include "agent/unwind/elf_frames.h"

/* About 4,500 objects of 400 bytes and a path. */
enum { REGISTRY_BYTES = 2 << 20, REGISTRY_BUCKETS = 256 };

struct registered {
    struct object object;
    uint64_t identity; /* hash of the program headers */
    struct registered *next;
    char path[];
};

static struct {
    struct arena arena;
    struct registered *buckets[REGISTRY_BUCKETS];
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
    bool is_replaced = false;
    for (struct registered *r = *bucket; r; r = r->next) {
        bool is_listed = &r->object == listed;
        if (!may_be(r, image) || !((is_listed && is_relative) || strcmp(r->path, path) == 0))
            continue;
        if (!is_listed && !elf_tables_are_of_file(&r->object, path))
            is_replaced = true;
        else if (has_same_tables(r, image))
            return &r->object;
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
    else if ((is_replaced || elf_tables_from_file(image, path, object) != 0) &&
             elf_tables_copied(image, object) != 0)
        object->fde_count = 0; /* stacks end there */
    object->has_few_frames = elf_frames_are_few(object);
    if (object->has_few_frames && elf_frames_complete(image, object))
        object->has_few_frames = false;
    r->next = *bucket;
    *bucket = r;
    registry.count++;
    stats_add(STAT_MODULES_LOADED, 1);
    return object;
}

#ifdef LIBAGENT_TEST
uint32_t registry_count(void)
{
    return registry.count;
}

void registry_forget(void)
{
    memset(registry.buckets, 0, sizeof(registry.buckets));
    registry.count = 0;
    elf_frames_forget();
    arena_clear(&registry.arena);
}
#endif
