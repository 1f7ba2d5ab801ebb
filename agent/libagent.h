/* libagent.h: the public functions of libagent.so, for programs that know it is there.
 *
 * A program finds them by dlsym(RTLD_DEFAULT, "libagent_version") or as weak references; it
 * works alike without the agent.
 *
 * Owns: nothing. Context: any. Locks: none. */
#ifndef LIBAGENT_H
#define LIBAGENT_H

#ifdef __cplusplus
extern "C" {
#endif

#define LIBAGENT_VERSION "0.1.0"

/* The version of the library in force, "MAJOR.MINOR.PATCH". */
const char *libagent_version(void);

#ifdef __cplusplus
}
#endif

#endif
