/* default_folder.h: where profiles go unless LIBAGENT_OUTPUT says where, which is
 * ${TMPDIR:-/tmp}/libagent-UID.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_DEFAULT_FOLDER_H
#define LIBAGENT_DEFAULT_FOLDER_H

/* Of the effective user's number. */
#define DEFAULT_FOLDER_NAME "libagent-%u"

/* The folder that it lies in; `tmpdir`: the value of TMPDIR, or NULL. */
static inline const char *default_folder_parent(const char *tmpdir)
{
    return tmpdir && *tmpdir ? tmpdir : "/tmp";
}

#endif
