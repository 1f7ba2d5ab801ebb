/* profile_name.h: the names of profile files, PROGRAM.PID.SEQ.FAMILY.pb.gz (.pb.zst, .pb; of other
 * formats .html and .collapsed), and of
 * those of captures, PROGRAM.PID.SEQ.FAMILY@NAME.NUMBER.pb.gz. (No other part has a @ in it; and
 * who adds up *.FAMILY.pb.gz counts nothing twice.)
 *
 * SEQ has four digits, more when needed. Where that name is taken (containers that share a
 * folder all have pid 1 and start at 0000) SEQ becomes SEQ-N. The making and the knowing again
 * stand in one file because the output limit removes files by these names: what the one writes
 * the other must match, and nothing else.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_PROFILE_NAME_H
#define LIBAGENT_PROFILE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/options.h"
#include "uploader/blob.h"

enum {
    PROFILE_NAME_SIZE = 256,    /* NAME_MAX of Linux and the 0 */
    PROFILE_PROGRAM_SIZE = 128, /* leaves room for the rest of the name */
    PROFILE_FAMILIES = 6,       /* that files are named after */
    PROFILE_FORMATS = 3,
};

/* The program's part of the name: bytes outside [A-Za-z0-9._-] and a leading dot become _, cut
 * where too long, "unknown" when there is nothing. `out` has PROFILE_PROGRAM_SIZE bytes. */
void profile_name_program(char *out, const char *program);
/* `copy` 0: no -N. `out` has PROFILE_NAME_SIZE bytes. */
void profile_name_make(char *out, const char *program, int pid, const struct blob_header *header,
                       enum compression compression, uint64_t copy);
/* The name under which a file is written before it gets its own. */
void profile_name_make_temporary(char *out, int pid, uint64_t unique);
/* Is the dialect one that people and their tools read as it is? It is not compressed. */
bool profile_name_is_text(const char *dialect);
/* True for the families that files are named after. */
bool profile_name_family_known(const char *family);
/* True when profile_name_make may have made `name`, for any program, process and family. */
bool profile_name_matches(const char *name);
bool profile_name_matches_temporary(const char *name);

#endif
