/* spool.h: profiles that could not be sent, kept in a folder until they can: by this process, by
 * the next one, or by libagent-uploader beside it.
 *
 * A file is a head of text lines ("name value", an empty line at the end) and the profile as it is
 * to be sent; a sum over both tells a torn one. Protocol of its names (T: the window's end, so that
 * the oldest come first):
 *
 *   1. .T.ID.new while it is written (0600; 0660 where the folder is set-group-id: a process of
 * another user reads it then), then renamed to T.ID.spool.
 *   2. Who sends it reads it, and then claims it: T.ID.spool becomes T.ID.sending by a rename,
 * which one of two makes. What cannot be read (of another user, no descriptor left) keeps its name,
 * and those behind it are taken.
 *   3. Sent, dropped or unknown: it is removed. To be tried again: it becomes T.ID.spool.
 *   4. Of a process that was killed in 2 a T.ID.sending stays. Nobody knows whether it arrived: it
 * is never sent again, and removed after an hour.
 *   5. A torn one becomes T.ID.torn, and is removed by the limit, as all others. So does what is no
 * regular file (a pipe, a folder, a link), which stays for ever.
 *
 * Owns: nothing but the files. Context: UP (or INIT at exit). Locks: none. */
#ifndef LIBAGENT_SPOOL_H
#define LIBAGENT_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "uploader/shipment.h"

enum { SPOOL_NAME_SIZE = 80 };

#define SPOOL_AGE_LIMIT_NS (24 * (3600 * NS_PER_SEC))
/* Pyroscope refuses what is older; some minutes are left for the way. */
#define SPOOL_AGE_PYROSCOPE_NS (3300 * NS_PER_SEC)

struct spool {
    const char *folder;
    uint64_t limit; /* bytes of all in it */
};

struct spool_entry {
    enum backend_kind kind;
    unsigned place; /* of the destination among those of its kind */
    struct blob_header header;
    struct upload_identity identity;
    uint64_t plain_size;
    uint64_t random[2];
    struct buffer body;         /* compressed, as the backend takes it */
    char name[SPOOL_NAME_SIZE]; /* of a claimed one, else empty */
};

/* Oldest files that a limit removed, and their reasons; and what a claim left where it is. */
struct spool_losses {
    unsigned dropped; /* over the size or age limit, or torn */
    unsigned unknown; /* of step 4 */
    unsigned untaken; /* not to be read, or not to be renamed */
    int error;        /* of the first of these, negative; 0: there is none */
    char name[SPOOL_NAME_SIZE];
};

/* Writes the entry, whose body and texts stay. Makes room first (oldest_files.h: mostly without a
 * look). 0 or a negative errno. */
int spool_put(const struct spool *spool, const struct spool_entry *entry, uint64_t now_unix_ns,
              struct spool_losses *losses) MUST_USE;
/* Claims the oldest for the destination of that kind and place, into `entry`, whose body is the
 * caller's then. 1, 0: there is none, or a negative errno. */
int spool_claim(const struct spool *spool, enum backend_kind kind, unsigned place,
                uint64_t now_unix_ns, struct spool_entry *entry,
                struct spool_losses *losses) MUST_USE;
/* The claimed entry has come to an end, or is to be tried again. */
void spool_end(const struct spool *spool, const char *name);
void spool_give_back(const struct spool *spool, const char *name);

/* Profiles that wait for a destination which is not among those that are looked for. */
struct spool_others {
    uint64_t count;
    enum backend_kind kind; /* of one of them */
};

/* May the folder be used? 0 or a negative errno. `places`: how many destinations of each kind there
 * are; what waits for others is told in `others`. */
int spool_look(const struct spool *spool, const unsigned places[BACKEND_FILE],
               struct spool_others *others) MUST_USE;

#endif
