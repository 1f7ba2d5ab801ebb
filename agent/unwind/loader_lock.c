#include "agent/unwind/loader_lock.h"

#include <pthread.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"

static const pthread_mutex_t *lock;

static bool is_held_once(const pthread_mutex_t *mutex, int tid)
{
    return mutex->__data.__lock != 0 && mutex->__data.__count == 1 &&
           mutex->__data.__owner == tid && mutex->__data.__kind == PTHREAD_MUTEX_RECURSIVE;
}

static void search(const char *start, const char *end, uint32_t *found)
{
    int tid = sys_tid();
    for (; start + sizeof(pthread_mutex_t) <= end; start += sizeof(uintptr_t)) {
        const pthread_mutex_t *mutex = (const void *)start;
        if (is_held_once(mutex, tid)) {
            lock = mutex;
            ++*found;
        }
    }
}

void loader_lock_find(const struct dl_phdr_info *loader)
{
    uint32_t found = 0;
    lock = NULL;
    for (int i = 0; i < loader->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &loader->dlpi_phdr[i];
        const char *start = (const char *)ALIGN_UP(loader->dlpi_addr + header->p_vaddr, 8u);
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W))
            search(start, start + header->p_memsz - 8, &found);
    }
    if (found != 1)
        lock = NULL;
}

void loader_lock_confirm(void)
{
    if (lock && lock->__data.__lock != 0)
        lock = NULL;
}

bool loader_lock_is_known(void)
{
    return lock != NULL;
}

bool loader_lock_is_free(void)
{
    return !lock || load_relaxed(&lock->__data.__lock) == 0 ||
           load_relaxed(&lock->__data.__owner) == sys_tid();
}

bool loader_lock_is_unheld(void)
{
    return lock && load_relaxed(&lock->__data.__lock) == 0;
}

#ifdef LIBAGENT_TEST
void loader_lock_forget(void)
{
    lock = NULL;
}
#endif
