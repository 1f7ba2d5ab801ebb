/* elf_frames.h: call frame information that .eh_frame_hdr does not lead to: .eh_frame of objects
 * that have no .eh_frame_hdr, or one without a table that can be searched; and .debug_frame.
 *
 * Section headers, of the file, tell where they are; without them .eh_frame may still be found by
 * .eh_frame_hdr's pointer. An index is built for each (frame_index.h). .debug_frame is copied to
 * memory of ours, as the loader has it nowhere and a file can be cut short while we read; it is
 * looked for at once where .eh_frame covers less than half of the code, and in all other objects
 * only when a walk has met code of them without a rule: their files are not opened before.
 *
 * Memory: from the arena, at most a quarter of its budget for all objects. What does not fit, or
 * is compressed, is left out and counted.
 * Owns: the sum of that memory. Context: INIT, THR, TICK. Locks: the caller holds LOCK_MODULES. */
#ifndef LIBAGENT_ELF_FRAMES_H
#define LIBAGENT_ELF_FRAMES_H

#include "agent/unwind/elf_object.h"

/* True when the tables that .eh_frame_hdr gave say little of the object's code. */
bool elf_frames_are_few(const struct object *object);
/* Completes them, once, from what is loaded and its file. The object may be in use already: then
 * it has .eh_frame, and .debug_frame appears. True when something was found. */
bool elf_frames_complete(const struct elf_image *image, struct object *object);
#ifdef LIBAGENT_TEST
void elf_frames_forget(void);
#endif

#endif
