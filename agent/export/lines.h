/* lines.h: the source files, lines and inlined functions of addresses of one object, from the
 * debugging information of its file or of its separate debug file (debug_file.h).
 *
 * Only units that hold addresses asked for are read, one after the other, as far as the budget
 * goes; what was not reached is put off.
 *
 * Owns: nothing. Context: INIT, TICK. Locks: none. Memory: that of dwarf_file.h and buffers, freed
 * before it returns; see line_budget. Time: the budget's, and LINES_UNIT_STEPS. */
#ifndef LIBAGENT_LINES_H
#define LIBAGENT_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buffer.h"
#include "agent/base/compiler.h"
#include "agent/unwind/modules.h"

/* A step is an entry, an attribute or an operation: 25 ns with all that it takes (bench_names). */
enum {
    LINES_PROFILE_STEPS = 4 << 20, /* of a profile, all objects together: 0.1 s */
    LINES_UNIT_STEPS = 20 << 20,   /* of a unit, and of the list of units: 0.5 s */
    LINES_FRAMES_MAX = 128,        /* inlined into one another; what is between is left out */
    LINES_NO_TEXT = UINT32_MAX,
};

/* One function that an address is in, the innermost first. Texts end with 0. */
struct line_frame {
    uint32_t name; /* in `texts`; LINES_NO_TEXT: not known */
    uint32_t file;
    uint32_t line;       /* 0: not known */
    uint32_t start_line; /* of the function, in the same file; 0: not known */
};

enum line_state { LINES_NONE, LINES_FOUND, LINES_PUT_OFF };

struct line_answer {
    enum line_state state;
    uint32_t first, count; /* LINES_FOUND: in `frames`; the last is the code's own function */
};

struct line_budget {
    uint64_t steps; /* is lessened */
    bool is_first;  /* no unit was read yet: one may be, whatever it takes */
    size_t room;    /* bytes of memory */
    size_t
        left_out; /* is added to: addresses of units that could not be read, or not within limits */
};

/* Answers for `count` addresses, ascending; appends struct line_frame to `frames`, and texts. 0 or
 * a negative errno, with no answer but LINES_NONE: -ENOENT where there is no debugging information,
 * -E2BIG where it is packed and there is no room for it, -ENOEXEC, -ENOMEM, ... */
int lines_find(const struct object *object, const uint64_t *addresses, size_t count,
               struct line_budget *budget, struct line_answer *answers, struct buffer *frames,
               struct buffer *texts) MUST_USE;

#endif
