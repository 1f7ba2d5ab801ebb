/* backend_fixture.h: a file backend on a temporary folder, for the suites of its parts.
 *
 * Suites run as root too, who is refused nothing: refusals are made by owners, links and answered
 * system calls, and some again as another user. */
#ifndef LIBAGENT_TEST_BACKEND_FIXTURE_H
#define LIBAGENT_TEST_BACKEND_FIXTURE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "uploader/file_backend.h"

#define NAME "app.77.0003.cpu.pb.gz"

enum { NOBODY = 65534, BODY_SIZE = 100000 };

extern const uint64_t end_ms; /* of the window, since 1970 */
extern const uint64_t now_ns;
extern char base[64];    /* of this test */
extern char output[128]; /* base/out, made by the test or by the backend */
extern char default_folder[128];
extern struct file_backend backend;
extern struct file_report report;
extern char body[BODY_SIZE];

void backend_setup(void);
void backend_teardown(void);
/* Sets the backend up for `folder` (NULL: the default one, which lies in base). */
void use_folder(const char *folder);
/* Writes so much of body; asserts that no descriptor stays open, and a reason for a failure. */
int write_body_of(size_t size, const char *family);
int write_body(void); /* all of it, family cpu */
void assert_names(const char *folder, const char *expected);
void assert_content(const char *path, const void *data, size_t size);
mode_t mode_of(const char *path);
/* body is in the file as it should be, and nothing else in the folder. */
void assert_body_written(const char *folder);

#endif
