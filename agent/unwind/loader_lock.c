#include "agent/unwind/loader_lock.h"

#include <pthread.h>

#include "agent/base/compiler.h"
#include "agent/base/sys.h"

static pthread_mutex_t *lock;

static bool is_held_once(const pthread_mutex_t *mutex, int tid)
{
    return mutex->__data.__lock != 0 && mutex->__data.__count == 1 &&
           mutex->__data.__owner == tid && mutex->__data.__kind == PTHREAD_MUTEX_RECURSIVE;
}

static void search(const char *start, const char *end, uint32_t *found)
{
    int tid = sys_tid();
    for (; start + sizeof(pthread_mutex_t) <= end; start += sizeof(uintptr_t)) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)start;
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

bool loader_lock_try(bool *taken)
{
    *taken = false;
    if (!lock || load_relaxed(&lock->__data.__owner) == sys_tid())
        return true;
    int unheld = 0;
    if (!__atomic_compare_exchange_n(&lock->__data.__lock, &unheld, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return false;
    lock->__data.__count = 1;
    store_relaxed(&lock->__data.__owner, sys_tid());
    lock->__data.__nusers++;
    *taken = true;
    return true;
}

void loader_lock_give(bool taken)
{
    if (!taken)
        return;
    lock->__data.__count = 0;
    store_relaxed(&lock->__data.__owner, 0);
    lock->__data.__nusers--;
    /* 2 says that somebody may wait. */
    if (__atomic_exchange_n(&lock->__data.__lock, 0, __ATOMIC_RELEASE) > 1)
        sys_futex_wake((uint32_t *)(void *)&lock->__data.__lock, 1);
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
