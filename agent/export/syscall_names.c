#include "agent/export/syscall_names.h"

#include <sys/syscall.h>

#include "agent/base/compiler.h"
#include "agent/base/format.h"

/* Those that a thread can wait in for long. Calls that only one processor has are behind their own
 * names; the youngest, which older headers lack, have the same number everywhere. */
#define NAMED(name)                                                                                \
    {                                                                                              \
        SYS_##name, #name                                                                          \
    }
static const struct {
    uint16_t number;
    char name[18];
} names[] = {
    NAMED(accept),
    NAMED(accept4),
    NAMED(brk),
    NAMED(clock_nanosleep),
    NAMED(clone),
    NAMED(close),
    NAMED(connect),
#ifdef SYS_copy_file_range
    NAMED(copy_file_range),
#endif
    NAMED(epoll_pwait),
#ifdef SYS_epoll_wait
    NAMED(epoll_wait),
#endif
    NAMED(execve),
    NAMED(exit),
    NAMED(exit_group),
    NAMED(fallocate),
    NAMED(fcntl),
    NAMED(fdatasync),
    NAMED(flock),
    NAMED(fsync),
    NAMED(ftruncate),
    NAMED(futex),
    NAMED(getdents64),
#ifdef SYS_getrandom
    NAMED(getrandom),
#endif
    NAMED(io_getevents),
    NAMED(io_uring_enter),
    NAMED(ioctl),
    NAMED(madvise),
#ifdef SYS_membarrier
    NAMED(membarrier),
#endif
    NAMED(mlock),
    NAMED(mmap),
    NAMED(mount),
    NAMED(mprotect),
    NAMED(mq_timedreceive),
    NAMED(mq_timedsend),
    NAMED(mremap),
    NAMED(msgrcv),
    NAMED(msgsnd),
    NAMED(msync),
    NAMED(munmap),
    NAMED(nanosleep),
    NAMED(newfstatat),
#ifdef SYS_open
    NAMED(open),
#endif
    NAMED(openat),
#ifdef SYS_pause
    NAMED(pause),
#endif
#ifdef SYS_poll
    NAMED(poll),
#endif
    NAMED(ppoll),
    NAMED(pread64),
    NAMED(preadv),
#ifdef SYS_preadv2
    NAMED(preadv2),
#endif
    NAMED(process_vm_readv),
    NAMED(process_vm_writev),
    NAMED(pselect6),
    NAMED(pwrite64),
    NAMED(pwritev),
#ifdef SYS_pwritev2
    NAMED(pwritev2),
#endif
    NAMED(read),
    NAMED(readahead),
    NAMED(readv),
    NAMED(recvfrom),
    NAMED(recvmmsg),
    NAMED(recvmsg),
#ifdef SYS_rename
    NAMED(rename),
#endif
#ifdef SYS_renameat2
    NAMED(renameat2),
#endif
    NAMED(restart_syscall),
    NAMED(rt_sigsuspend),
    NAMED(rt_sigtimedwait),
    NAMED(sched_yield),
#ifdef SYS_select
    NAMED(select),
#endif
    NAMED(semop),
    NAMED(semtimedop),
    NAMED(sendfile),
    NAMED(sendmmsg),
    NAMED(sendmsg),
    NAMED(sendto),
    NAMED(splice),
#ifdef SYS_statx
    NAMED(statx),
#endif
    NAMED(sync),
    NAMED(sync_file_range),
    NAMED(syncfs),
    NAMED(tee),
#ifdef SYS_unlink
    NAMED(unlink),
#endif
    NAMED(unlinkat),
#ifdef SYS_vfork
    NAMED(vfork),
#endif
    NAMED(vmsplice),
    NAMED(wait4),
    NAMED(waitid),
    NAMED(write),
    NAMED(writev),
    {435, "clone3"},
    {441, "epoll_pwait2"},
    {449, "futex_waitv"},
    {455, "futex_wait"},
};

const char *syscall_name(uint32_t number, char buffer[SYSCALL_NUMBER_SIZE])
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (names[i].number == number)
            return names[i].name;
    }
    format(buffer, SYSCALL_NUMBER_SIZE, "%u", number);
    return buffer;
}
