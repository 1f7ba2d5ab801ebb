/* shim.h: the exported functions, declared as this library defines them. Their names are libc's;
 * the system's headers are not used for them, since their attributes (nonnull, malloc, the
 * parameters' qualifiers) differ between versions.
 *
 * Owns: nothing. Context: HOOK, THR. Locks: none. */
#ifndef LIBAGENT_SHIM_H
#define LIBAGENT_SHIM_H

#include <stddef.h>

#include "agent/base/compiler.h"
#include "shim/next_lookup.h"

void *malloc(size_t size);
void free(void *pointer);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);
void *reallocarray(void *old, size_t count, size_t size);
int posix_memalign(void **out, size_t alignment, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size);
void *valloc(size_t size);
void *pvalloc(size_t size);
void cfree(void *pointer);
void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);

int pthread_create(void *thread, const void *attributes, void *(*routine)(void *), void *argument);
int pthread_setname_np(unsigned long thread, const char *name);
int pthread_cancel(unsigned long thread);
int thrd_create(void *thread, int (*routine)(void *), void *argument);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

void *dlopen(const char *file, int mode);
int dlclose(void *handle);
void *dlsym(void *handle, const char *name);

int execve(const char *path, char *const arguments[], char *const environment[]);
int execv(const char *path, char *const arguments[]);
int execvp(const char *file, char *const arguments[]);
int execvpe(const char *file, char *const arguments[], char *const environment[]);
int execl(const char *path, const char *argument, ...);
int execlp(const char *file, const char *argument, ...);
int execle(const char *path, const char *argument, ...);
int fexecve(int fd, char *const arguments[], char *const environment[]);

int execveat(int fd, const char *path, char *const arguments[], char *const environment[],
             int flags);

int unshare(int flags);
int setns(int fd, int kind);

int pipe2(int ends[2], int flags);

#endif
