#include "uploader/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/format.h"
#include "agent/base/sys.h"
#include "uploader/folder_file.h"
#include "uploader/oldest_files.h"
#include "uploader/spool_head.h"

#define STALE_NS (3600 * NS_PER_SEC)

enum {
    FOLDER_MODE = 0700,
    FILE_MODE = 0600,
    SHARED_FILE_MODE = 0660,
    SET_GROUP_ID = 02000,
    STEM_SIZE = 64,
    FILE_MAX = 64 << 20, /* a profile beyond is none of ours */
};

static const char ready[] = ".spool", sending[] = ".sending", torn[] = ".torn", fresh[] = ".new";

static int open_folder(const struct spool *spool)
{
    int flags = O_PATH | O_DIRECTORY;
    int fd = folder_open_file(AT_FDCWD, spool->folder, flags, 0);
    if (fd != -ENOENT)
        return fd;
    int error = folder_make(spool->folder, FOLDER_MODE, NULL);
    return error ? error : folder_open_file(AT_FDCWD, spool->folder, flags, 0);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), size = strlen(suffix);
    return length > size && length < SPOOL_NAME_SIZE && strcmp(name + length - size, suffix) == 0;
}

static void change_suffix(char out[SPOOL_NAME_SIZE], const char *name, const char *suffix)
{
    const char *dot = name;
    for (const char *p = name + 1; *p; p++)
        if (*p == '.')
            dot = p;
    format(out, SPOOL_NAME_SIZE, "%.*s%s", (int)(dot - name), name, suffix);
}

enum { SUFFIX_SIZE = 48 };

/* The destination is in the name so that a look at the folder tells it: the second of a kind has
 * "2.pyroscope". */
static void make_suffix(char out[SUFFIX_SIZE], enum backend_kind kind, unsigned place)
{
    size_t used = place ? format(out, SUFFIX_SIZE, ".%u", place + 1) : 0;
    format(out + used, SUFFIX_SIZE - used, ".%s.spool", backend_name(kind));
}

static void make_name(char out[SPOOL_NAME_SIZE], const struct spool_entry *entry)
{
    char suffix[SUFFIX_SIZE];
    make_suffix(suffix, entry->kind, entry->place);
    format(out, SPOOL_NAME_SIZE, "%020lu.%016lx%s", entry->header.end_unix_ns, entry->random[0],
           suffix);
}

static bool is_of_kind(const char *name, enum backend_kind kind)
{
    char suffix[SUFFIX_SIZE];
    make_suffix(suffix, kind, 0);
    return ends_with(name, suffix);
}

/* Time and id, 20 and 16 digits, stand before the suffix. */
static bool is_for(const char *name, enum backend_kind kind, unsigned place)
{
    enum { BEFORE_SUFFIX = 20 + 1 + 16 };
    char suffix[SUFFIX_SIZE];
    make_suffix(suffix, kind, place);
    return strlen(name) > BEFORE_SUFFIX && strcmp(name + BEFORE_SUFFIX, suffix) == 0;
}

/* ---- limits ---- */

struct survey {
    int folder;
    uint64_t now_unix_ns;
    struct spool_losses *losses;
    struct oldest_files *list; /* NULL: what is expired goes, no more */
};

static uint64_t time_of_name(const char *name)
{
    uint64_t time = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        time = time * 10 + (uint64_t)(*name - '0');
    return time;
}

/* What waits is told by its name, of when its window ended; one at work by its time: of when it was
 * claimed, or begun. */
static bool has_waited_too_long(const char *name, uint64_t now_unix_ns)
{
    uint64_t age = now_unix_ns - MIN_OF(now_unix_ns, time_of_name(name));
    if (is_of_kind(name, BACKEND_PYROSCOPE))
        return age > SPOOL_AGE_PYROSCOPE_NS;
    return age > SPOOL_AGE_LIMIT_NS;
}

static bool is_expired(const char *name, const struct file_status *status, uint64_t now_unix_ns)
{
    if (ends_with(name, sending) || ends_with(name, fresh))
        return now_unix_ns > (uint64_t)status->mtime_ns + STALE_NS;
    return has_waited_too_long(name, now_unix_ns);
}

static void look_at(const char *name, void *data)
{
    struct survey *survey = data;
    struct file_status status;
    if ((!ends_with(name, ready) && !ends_with(name, sending) && !ends_with(name, torn) &&
         !ends_with(name, fresh)) ||
        folder_stat(survey->folder, name, &status) < 0 || !status.is_regular)
        return;
    if (is_expired(name, &status, survey->now_unix_ns)) {
        if (folder_unlink(survey->folder, name) == 0) {
            survey->losses->unknown += ends_with(name, sending);
            survey->losses->dropped += ends_with(name, ready);
        }
        return;
    }
    if (survey->list && (ends_with(name, ready) || ends_with(name, torn)))
        oldest_files_add(survey->list, name, (int64_t)time_of_name(name), status.size);
    else if (survey->list)
        survey->list->total += status.size;
}

static void count_dropped(const char *name, uint64_t size, void *data)
{
    struct spool_losses *losses = data;
    (void)size;
    losses->dropped += ends_with(name, ready);
}

static int make_room(const struct spool *spool, int folder, size_t size, uint64_t now_unix_ns,
                     struct spool_losses *losses)
{
    if (size > spool->limit)
        return -EFBIG;
    if (!oldest_files_look_now(spool->limit, size))
        return 0;
    struct oldest_files list = {0};
    struct survey survey = {
        .folder = folder, .now_unix_ns = now_unix_ns, .losses = losses, .list = &list};
    int error = folder_each_name(folder, look_at, &survey);
    if (!error)
        error = oldest_files_remove(&list, folder, oldest_files_target(spool->limit, size),
                                    count_dropped, losses);
    oldest_files_free(&list);
    return error;
}

/* ---- put ---- */

static int write_both(int fd, const char *head, size_t head_size, const struct buffer *body)
{
    long done = sys_write(fd, head, head_size);
    if (done == (long)head_size)
        done = sys_write(fd, body->data, body->size);
    else if (done >= 0)
        return -EIO;
    if (done < 0)
        return (int)done;
    return (size_t)done == body->size ? 0 : -ENOSPC;
}

static int write_file(int folder, const struct spool_entry *entry, const char *head, size_t size)
{
    char name[SPOOL_NAME_SIZE], hidden[SPOOL_NAME_SIZE + 8];
    struct file_status status;
    int error = folder_stat(folder, "", &status);
    if (error)
        return error;
    unsigned mode = status.permissions & SET_GROUP_ID ? SHARED_FILE_MODE : FILE_MODE;
    make_name(name, entry);
    format(hidden, sizeof(hidden), ".%.*s%s", (int)(strlen(name) - strlen(ready)), name, fresh);
    int fd = folder_open_file(folder, hidden, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (fd < 0)
        return fd;
    error = (int)sys_call2(SYS_fchmod, fd, mode);
    if (!error)
        error = write_both(fd, head, size, &entry->body);
    int close_error = folder_close_file(fd);
    if (!error)
        error = close_error;
    if (!error)
        error = folder_rename_new(folder, hidden, name);
    if (error)
        folder_unlink(folder, hidden);
    return error;
}

int spool_put(const struct spool *spool, const struct spool_entry *entry, uint64_t now_unix_ns,
              struct spool_losses *losses)
{
    char head[SPOOL_HEAD_SIZE];
    size_t size = spool_head_make(entry, head);
    int folder = open_folder(spool);
    if (folder < 0)
        return folder;
    int error = make_room(spool, folder, size + entry->body.size, now_unix_ns, losses);
    if (!error)
        error = write_file(folder, entry, head, size);
    sys_close(folder);
    return error;
}

/* ---- claim ---- */

struct search {
    struct survey survey;
    enum backend_kind kind;
    unsigned place;
    bool is_careful;     /* what may not be read is not found */
    const char *behind;  /* the first that may be found comes after this */
    unsigned unreadable; /* of a careful one */
    char oldest[SPOOL_NAME_SIZE];
};

static int open_entry(int folder, const char *name)
{
    /* O_NONBLOCK: a pipe may have that name. */
    return folder_open_file(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
}

static bool may_be_read(int folder, const char *name)
{
    int fd = open_entry(folder, name);
    if (fd >= 0)
        sys_close(fd);
    return fd != -EACCES;
}

/* What waits is told by its name: a call for each of thousands, at each claim, would be seconds. */
static void search_in(const char *name, void *data)
{
    struct search *search = data;
    if (!ends_with(name, ready) || has_waited_too_long(name, search->survey.now_unix_ns))
        look_at(name, &search->survey);
    else if (!is_for(name, search->kind, search->place))
        return;
    else if (search->is_careful && !may_be_read(search->survey.folder, name))
        search->unreadable++;
    else if (strcmp(name, search->behind) > 0 &&
             (!search->oldest[0] || strcmp(name, search->oldest) < 0))
        format(search->oldest, sizeof(search->oldest), "%s", name);
}

/* The profile moves to the begin of the buffer. */
static int read_entry(int folder, const char *name, struct spool_entry *entry)
{
    struct file_status status;
    int fd = open_entry(folder, name);
    if (fd == -ELOOP || fd == -ENXIO) /* a link, a socket */
        return -EBADMSG;
    if (fd < 0)
        return fd;
    long got = folder_stat(fd, "", &status);
    if (!got && !status.is_regular)
        got = -EBADMSG;
    if (!got && status.size > FILE_MAX)
        got = -EFBIG;
    char *room = got ? NULL : buffer_room(&entry->body, status.size + 1);
    if (!got)
        got = room ? sys_read(fd, room, status.size) : -ENOMEM;
    sys_close(fd);
    if (got < 0 || !room)
        return (int)got;
    size_t head = spool_head_parse(room, (size_t)got, entry);
    if (!head)
        return -EBADMSG;
    entry->body.size = (size_t)got - head;
    memmove(room, room + head, entry->body.size);
    return 0;
}

/* Read before it is claimed: what cannot be read keeps its name, for who can. */
static int take(int folder, const char *name, struct spool_entry *entry,
                struct spool_losses *losses)
{
    char to[SPOOL_NAME_SIZE];
    int error = read_entry(folder, name, entry);
    if (error == -EBADMSG || error == -EFBIG) {
        change_suffix(to, name, torn);
        int rename_error = folder_rename(folder, name, to);
        losses->dropped += rename_error == 0;
        return rename_error ? rename_error : error;
    }
    if (error)
        return error;
    change_suffix(to, name, sending);
    /* Its age as a claimed one begins now; before the rename, or it would be stale at once. */
    folder_touch(folder, name);
    error = folder_rename(folder, name, to);
    if (!error)
        memcpy(entry->name, to, sizeof(to));
    return error;
}

static int claim_in(int folder, enum backend_kind kind, unsigned place, uint64_t now_unix_ns,
                    struct spool_entry *entry, struct spool_losses *losses)
{
    enum { TRIES = 16 };
    char behind[SPOOL_NAME_SIZE] = "";
    bool is_careful = false;
    for (unsigned failed = 0;;) {
        struct search search = {
            .survey = {.folder = folder, .now_unix_ns = now_unix_ns, .losses = losses},
            .kind = kind,
            .place = place,
            .is_careful = is_careful,
            .behind = behind};
        int error = folder_each_name(folder, search_in, &search);
        losses->untaken = failed + search.unreadable;
        if (error || !search.oldest[0])
            return error;
        *entry = (struct spool_entry){.kind = kind, .place = place};
        error = take(folder, search.oldest, entry, losses);
        if (!error)
            return 1;
        buffer_free(&entry->body);
        bool is_gone = error == -EBADMSG || error == -EFBIG || error == -ENOENT;
        if (!is_gone && !losses->error) {
            losses->error = error;
            memcpy(losses->name, search.oldest, sizeof(losses->name));
        }
        /* There may be thousands of the same other user: one more look finds them all. */
        bool looks_closer = error == -EACCES && !is_careful;
        is_careful |= looks_closer;
        if (looks_closer)
            continue;
        failed += !is_gone;
        losses->untaken += !is_gone;
        if (failed == TRIES)
            return error;
        memcpy(behind, search.oldest, sizeof(behind));
    }
}

int spool_claim(const struct spool *spool, enum backend_kind kind, unsigned place,
                uint64_t now_unix_ns, struct spool_entry *entry, struct spool_losses *losses)
{
    int folder = folder_open_file(AT_FDCWD, spool->folder, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return folder == -ENOENT ? 0 : folder;
    int result = claim_in(folder, kind, place, now_unix_ns, entry, losses);
    sys_close(folder);
    return result;
}

void spool_end(const struct spool *spool, const char *name)
{
    int folder = folder_open_file(AT_FDCWD, spool->folder, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return;
    folder_unlink(folder, name);
    sys_close(folder);
}

void spool_give_back(const struct spool *spool, const char *name)
{
    char again[SPOOL_NAME_SIZE];
    int folder = folder_open_file(AT_FDCWD, spool->folder, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return;
    change_suffix(again, name, ready);
    /* What cannot be renamed is as if its owner had been killed. */
    (void)!folder_rename(folder, name, again);
    sys_close(folder);
}

/* ---- look ---- */

struct sighting {
    const unsigned *places;
    struct spool_others *others;
};

static void sight(const char *name, void *data)
{
    const struct sighting *sighting = data;
    if (!ends_with(name, ready))
        return;
    for (enum backend_kind kind = 0; kind < BACKEND_FILE; kind++) {
        unsigned place = 0, places = sighting->places[kind];
        while (place < places && !is_for(name, kind, place))
            place++;
        if (place == places && is_of_kind(name, kind)) {
            sighting->others->count++;
            sighting->others->kind = kind;
        }
    }
}

int spool_look(const struct spool *spool, const unsigned places[BACKEND_FILE],
               struct spool_others *others)
{
    *others = (struct spool_others){0};
    int folder = folder_open_file(AT_FDCWD, spool->folder, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return folder;
    int error = (int)sys_call3(SYS_faccessat, folder, ".", R_OK | W_OK | X_OK);
    if (!error)
        error = folder_each_name(folder, sight, &(struct sighting){places, others});
    sys_close(folder);
    return error;
}
