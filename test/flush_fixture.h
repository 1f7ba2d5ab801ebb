/* flush_fixture.h: the way from a sample to a file, started for a suite, and the files read. */
#ifndef LIBAGENT_TEST_FLUSH_FIXTURE_H
#define LIBAGENT_TEST_FLUSH_FIXTURE_H

#include <stdint.h>

#include "agent/record/time_recorder.h"
#include "test/preload/profile_reader.h"
#include "test/temp_path.h"
#include "uploader/uploader.h"

extern char flush_folder[TEMP_PATH_SIZE]; /* empty at the start */

/* Options, tables, modules, unwinder and uploader; profiles are not compressed. */
void flush_fixture_start(void);
/* A sample of the calling thread in flush_site: one, of `amount` nanoseconds or bytes. In its
 * guard, which may be open already. */
void flush_site(void);
void flush_add_sample(enum record_family family, uint64_t amount);
/* The same with its labels. */
void flush_add_labelled_sample(enum record_family family, uint64_t amount);
/* The same elsewhere. */
void flush_add_sample_at(enum record_family family, uintptr_t pc, uint64_t amount);
/* Writes what is queued, in the calling thread. */
void flush_write_out(void);
/* Writes, then reads this process's files of the family; valid until the next call. */
struct profile *flush_read(const char *family);
/* Removes the files. */
void flush_forget_files(void);

#endif
