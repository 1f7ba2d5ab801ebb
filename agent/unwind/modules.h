/* modules.h: the loaded objects, readable from any context without a lock.
 *
 * Protocol:
 *  1. A writer (INIT, THR in the dlopen/dlclose wrappers, TICK) takes LOCK_MODULES, walks the
 *     loader's list (dl_iterate_phdr of libc), builds a new immutable module_list sorted by
 *     address, and publishes it by one release store of `modules_list`.
 *  2. Readers (SIG, HOOK) load that pointer once per walk (acquire) inside a thread guard
 *     (agent/thread/thread_context.h) and use only what hangs on it.
 *  3. A replaced list is retired and reused only once thread_grace_over says that no guard that
 *     could hold it is open; nobody waits for that: a list that is still held stays retired until
 *     the next rescan. Their number is bounded: when all are held, the rescan is refused.
 *  4. Objects (identity, names, segments) are never freed: an object loaded again is found by path,
 *     program headers and build id (without one: by its unwind tables) and used again. So names of
 *     closed objects stay. Their tables are there while a list that a walker may use has them;
 *     those of closed objects are given up for others (object_registry.h).
 *  5. Objects of the start (those that dlclose cannot unload: needed by the main program or by
 *     libagent.so, directly or not) have their .eh_frame read in place, and no file is opened for
 *     them; those of others, which a dlclose during a walk could take away, are copied to memory of
 *     ours while they are certainly loaded. What is too large for that is mapped by us from the
 *     file, until it is closed, and read by walks alone, which meet it as long as its own code
 *     runs: who shortens the file then ends the program anyway. Where .eh_frame_hdr does not lead
 *     to the tables, the file is asked (elf_frames.h): at the start only that of an object most of
 *     whose code has no table, later that of an object in which a walk met no rule.
 *
 *  6. A thread of the parent may have held the loader's lock at a fork, inside the loader or inside
 *     the app's own dl_iterate_phdr: nobody gives it back in the child, and who asks for it waits
 *     forever. Where that is so, or cannot be known (loader_lock.h), a child of a parent with
 * threads refuses to rescan, until its dlopen has given an object that the list does not have: the
 * loader took that lock to add it, so it is free.
 *
 * Address reuse: `generation` of a list grows by one when an object is loaded at addresses where
 * a different object was before. A recorded stack keeps the generation that it was walked with,
 * and modules_resolve answers for that generation.
 *
 * Owns: module lists, objects. Context: as said at each function. Locks: LOCK_MODULES (writers). */
#ifndef LIBAGENT_MODULES_H
#define LIBAGENT_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/compiler.h"

enum { BUILD_ID_MAX = 20, OBJECT_SEGMENTS_MAX = 8 };

/* One executable PT_LOAD, in ELF virtual addresses. */
struct object_segment {
    uint64_t vaddr;
    uint64_t size; /* memory size */
    uint64_t offset;
};

/* A table of the object, wherever its bytes can be read: in the app's mapping, in one of ours, or
 * in a copy. */
struct object_table {
    const uint8_t *data;
    uint64_t vaddr; /* ELF virtual address of data[0] */
    size_t size;
};

/* .debug_frame, copied, with an index of ours: pairs of int32, the first address of the code from
 * code_base on, and where its FDE is in the section. */
struct object_debug_frame {
    struct object_table table; /* vaddr 0 */
    const uint8_t *index;
    uint32_t count;
    uint64_t code_base;
    uint64_t
        code_hash; /* of some of the object's code, which tells objects without build id apart */
};

/* What becomes of an object's tables when it is closed. */
enum object_tables {
    TABLES_STAY,   /* in place, or an index of ours */
    TABLES_COPIED, /* in one piece of the arena: .eh_frame_hdr, .eh_frame */
    TABLES_MAPPED, /* from the file, each of them */
    TABLES_GIVEN_UP,
};

/* Whether an object's functions keep frame records (frame_pointers.c). */
enum object_records { RECORDS_NOT_ASKED, RECORDS_KEPT, RECORDS_NONE };

struct object {
    const char *path; /* as the loader has it, made absolute; the main program's from
                         /proc/self/exe, or as it was executed; "[vdso]" */
    uint8_t build_id[BUILD_ID_MAX];
    uint8_t build_id_size; /* 0: none */
    uint8_t segment_count;
    bool is_main;
    bool is_vdso;
    bool is_system; /* libc, loader, libpthread, ..., or the allocator below: see stack_is_clean */
    bool code_readable;   /* no segment that may be executed only */
    bool in_place;        /* unwind tables are those of the app's own mapping */
    bool has_few_frames;  /* code without rules is what it mostly has */
    bool frames_complete; /* nothing more is to be found in its file (elf_frames.h) */
    uint8_t records;      /* enum object_records; relaxed: all who ask find the same */
    struct object_segment segments[OBJECT_SEGMENTS_MAX];
    struct object_table eh_frame_hdr; /* data is NULL where fde_index is ours */
    struct object_table eh_frame; /* the section, or from hdr's pointer to the end of its segment */
    const uint8_t *fde_index;     /* pairs of int32 relative to eh_frame_hdr.vaddr: hdr's or ours */
    uint32_t fde_count;           /* 0: no table that can be searched */
    const struct object_debug_frame *debug_frame; /* NULL: none is known (release, acquire) */
    uint64_t device, inode;                       /* 0: unknown, or there is a build id */
    /* Under LOCK_MODULES: */
    enum object_tables tables;
    uint32_t listed;      /* the last publication that it is in */
    uint64_t tables_hash; /* of .eh_frame that was given up, or is mapped */
};

/* One executable segment of a loaded object: an object with several has several modules (other
 * objects may lie between them). */
struct module {
    uintptr_t start, end; /* run-time addresses */
    uintptr_t bias;       /* run-time address - ELF virtual address */
    const struct object *object;
};

struct module_list {
    uint32_t publication; /* grows by one with each list: never the same for two lists */
    uint32_t generation;
    uint32_t count;
    uint32_t capacity;
    struct module modules[]; /* by start, not overlapping */
};

extern HIDDEN struct module_list *modules_list;
/* That list's generation, for readers outside a guard. */
extern HIDDEN uint32_t modules_generation;
/* Executable range of libagent.so itself, for walkers that leave its frames out. In the test
 * flavour, whose objects are part of the test program, empty until the test sets it. */
extern HIDDEN uintptr_t modules_self_start, modules_self_end;
/* Set (relaxed) by a walker that met a pc in no module, or no rule in one whose file may have some
 * (elf_frames.h), and by a dlopen that could not be watched; read by whoever may rescan. */
extern HIDDEN uint32_t modules_stale;
/* Grows with each scan of the loaded objects that came to its end, whoever made it (relaxed). */
extern HIDDEN uint32_t modules_scans;
/* The next moment at which that is safe rescans. Any context. */
void modules_want_rescan(void);
/* A walker met an address of the object without a rule. SIG, HOOK. */
void modules_note_miss(const struct object *object);

/* INIT. `iterate` is libc's own dl_iterate_phdr (the app may have put another in front).
 * 0 or a negative errno. */
struct dl_phdr_info;
typedef int (*modules_iterate_fn)(int (*callback)(struct dl_phdr_info *, size_t, void *), void *);
int modules_start(modules_iterate_fn iterate) MUST_USE;
/* INIT, THR, TICK. Sees what was loaded and unloaded. 0 or a negative errno: -EAGAIN when every
 * list is still held or the loader is distrusted, -ETIMEDOUT when another rescan does not end (the
 * app may call dlopen inside its dl_iterate_phdr callback); modules_stale is then set. */
int modules_rescan(void) MUST_USE;
/* The same, waiting for locks at most so long. */
int modules_rescan_within(uint64_t wait_ns) MUST_USE;
/* dlopen gave this (a handle of glibc's is a struct link_map, which begins with the load bias), or
 * NULL: see step 6. THR; takes LOCK_MODULES in a child that distrusts the loader. */
void modules_note_loaded(const void *handle);
/* Marks the object that holds `address` as is_system (the allocator below; INIT, before the first
 * sample). */
void modules_mark_system(uintptr_t address);
/* Any context inside a guard: NULL when pc is in no executable segment. */
const struct module *modules_find(const struct module_list *list, uintptr_t pc);

/* A recorded address, resolved. vaddr is the ELF virtual address. */
struct module_address {
    const struct object *object; /* NULL: unknown code */
    uint64_t vaddr;
};
/* INIT, TICK; takes LOCK_MODULES. Also answers for objects that are closed by now. */
struct module_address modules_resolve(uint32_t generation, uintptr_t pc);
/* Where the function that the tables of a resolved object have `vaddr` in begins; `vaddr` itself
 * where they tell nothing. INIT, TICK; takes LOCK_MODULES. */
uint64_t modules_function_start(const struct object *object, uint64_t vaddr);
/* The main program's object. */
const struct object *modules_main(void);
/* Around fork: held in prepare, released in parent and child. */
void modules_lock_for_fork(void);
/* In a fork child before that release, if the parent had other threads: see step 6. */
void modules_distrust_loader(void);
void modules_unlock_after_fork(void);
#ifdef LIBAGENT_TEST
/* All as before modules_start (what is mapped for closed objects stays). */
void modules_forget(void);
#endif

#endif
