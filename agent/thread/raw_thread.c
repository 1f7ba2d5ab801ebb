/* raw_thread.c: see raw_thread.h.
 *
 * A block is, on x86-64, [guard page][stack][static TLS][thread control block], and the thread
 * pointer is the begin of the last; on aarch64 [guard page][stack][thread control block][static
 * TLS], and the thread pointer is the begin of the last, whose first two words are libc's.
 *
 * Protocol of a block:
 *  1. Taken when its `taken` is 0 (the kernel clears it when the thread has ended and is off its
 *     stack), or when `pid` is that of another process (a fork child has the parent's memory, but
 *     not its threads).
 *  2. `taken` stays set from before the clone to the end of the thread. */
#include "agent/thread/raw_thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "agent/base/sys.h"
#include "agent/thread/libc_thread.h"
#include "agent/thread/thread_context.h"

enum {
    BLOCKS = 3, /* the agent's, the uploader's and that of the ticks */
    PAGE = 4096,
    /* glibc's struct pthread has 2.3 KiB (2.36), 1.8 on aarch64: debuggers read it. */
    CONTROL_SIZE = 2 * PAGE,
    TLS_MARGIN = 1024, /* around the variables that are known to lie in the static TLS */
    TAKEN = 1,
};

struct block {
    uint32_t taken;
    int32_t pid;
    char *memory;
    size_t size;
};

static struct block blocks[BLOCKS];

/* Gives the new thread's id or a negative errno. The new thread calls routine(NULL) and ends. */
long raw_thread_clone(unsigned long flags, void *stack_top, uint32_t *tid, uint32_t *tid_too,
                      uintptr_t control, void *(*routine)(void *));

#if defined(__x86_64__)

/* The begin of the control block, as the compiler, glibc and its debuggers know it. */
struct control {
    void *self;
    void *dtv;
    void *self_too;
    int multiple_threads;
    int gscope;
    uintptr_t sysinfo;
    uintptr_t stack_guard;
    uintptr_t pointer_guard;
};

__asm__(".pushsection .text.raw_thread,\"ax\",@progbits\n"
        ".hidden raw_thread_clone\n"
        ".globl raw_thread_clone\n"
        ".type raw_thread_clone, @function\n"
        "raw_thread_clone:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    movq %rcx, %r10\n"
        "    movl $56, %eax\n" /* clone */
        "    syscall\n"
        "    testq %rax, %rax\n"
        "    jz 1f\n"
        "    ret\n"
        "1:\n"
        /* The outermost frame: unwinders end here. */
        "    .cfi_undefined %rip\n"
        "    xorl %ebp, %ebp\n"
        "    xorl %edi, %edi\n"
        "    call *%r9\n"
        "    xorl %edi, %edi\n"
        "    movl $60, %eax\n" /* exit, of this thread */
        "    syscall\n"
        "    hlt\n"
        "    .cfi_endproc\n"
        ".size raw_thread_clone, . - raw_thread_clone\n"
        ".popsection\n");

/* Of static TLS and control block, with the variables that are known to lie in the first. */
static size_t tls_size(void)
{
    uintptr_t low = MIN_OF((uintptr_t)&thread_tls, (uintptr_t)&errno);
    return ALIGN_UP(thread_pointer() - low + TLS_MARGIN, (size_t)PAGE) + CONTROL_SIZE;
}

/* The thread pointer of the thread whose TLS and control block end at `end`. */
static uintptr_t make_control(uintptr_t end, size_t size)
{
    (void)size;
    const struct control *mine = (const struct control *)thread_pointer();
    struct control *control = (struct control *)(end - CONTROL_SIZE);
    control->self = control;
    control->self_too = control;
    control->stack_guard = mine->stack_guard;
    control->pointer_guard = mine->pointer_guard;
    return (uintptr_t)control;
}

#elif defined(__aarch64__)

__asm__(".pushsection .text.raw_thread,\"ax\",@progbits\n"
        ".hidden raw_thread_clone\n"
        ".globl raw_thread_clone\n"
        ".type raw_thread_clone, @function\n"
        "raw_thread_clone:\n"
        "    .cfi_startproc\n"
        "    mov x9, x3\n"
        "    mov x3, x4\n"
        "    mov x4, x9\n"
        "    mov x8, #220\n" /* clone */
        "    svc #0\n"
        "    cbz x0, 1f\n"
        "    ret\n"
        "1:\n"
        /* The outermost frame: unwinders end here. */
        "    .cfi_undefined x30\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    blr x5\n"
        "    mov x0, #0\n"
        "    mov x8, #93\n" /* exit, of this thread */
        "    svc #0\n"
        "    udf #0\n"
        "    .cfi_endproc\n"
        ".size raw_thread_clone, . - raw_thread_clone\n"
        ".popsection\n");

static size_t tls_size(void)
{
    uintptr_t high = MAX_OF((uintptr_t)(&thread_tls + 1), (uintptr_t)(&errno + 1));
    return CONTROL_SIZE + ALIGN_UP(high - thread_pointer() + TLS_MARGIN, (size_t)PAGE);
}

/* The guards are the process's, not the thread's. */
static uintptr_t make_control(uintptr_t end, size_t size)
{
    return end - size + CONTROL_SIZE;
}

#endif

static struct block *take_block(void)
{
    int pid = sys_pid();
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *block = &blocks[i];
        uint32_t taken = load_acquire(&block->taken);
        if ((taken == 0 || block->pid != pid) &&
            __atomic_compare_exchange_n(&block->taken, &taken, TAKEN, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            store_relaxed(&block->pid, pid);
            return block;
        }
    }
    return NULL;
}

static int map_block(struct block *block, size_t size)
{
    if (block->memory && block->size != size) {
        sys_unmap(block->memory, block->size);
        block->memory = NULL;
    }
    if (!block->memory) {
        char *memory = sys_map(size);
        if (!memory)
            return -ENOMEM;
        long error = sys_call3(SYS_mprotect, (uintptr_t)memory, PAGE, PROT_NONE);
        if (error) {
            sys_unmap(memory, size);
            return (int)error;
        }
        block->memory = memory;
        block->size = size;
        return 0;
    }
    /* As new. */
    return (int)sys_call3(SYS_madvise, (uintptr_t)block->memory, block->size, MADV_DONTNEED);
}

bool raw_thread_is_current(void)
{
    uintptr_t pointer = thread_pointer();
    for (size_t i = 0; i < BLOCKS; i++)
        if (pointer - (uintptr_t)blocks[i].memory < blocks[i].size)
            return true;
    return false;
}

void raw_threads_wait_ended(void)
{
    static const struct timespec look_again = {0, 1000000};
    int pid = sys_pid();
    for (size_t i = 0; i < BLOCKS; i++) {
        uint32_t taken;
        /* Not a private futex: the kernel wakes it as one that processes may share. And it wakes
         * one waiter: where several threads wait, the others look again by themselves. */
        while ((taken = load_acquire(&blocks[i].taken)) != 0 && load_relaxed(&blocks[i].pid) == pid)
            sys_call4(SYS_futex, (uintptr_t)&blocks[i].taken, FUTEX_WAIT, taken, &look_again);
    }
}

int raw_thread_create(void *(*routine)(void *), size_t stack_size)
{
    struct block *block = take_block();
    if (!block)
        return -EAGAIN;
    size_t own_size = tls_size();
    int error = map_block(block, PAGE + stack_size + own_size);
    if (error) {
        store_release(&block->taken, 0);
        return error;
    }
    uintptr_t control = make_control((uintptr_t)block->memory + block->size, own_size);
    /* glibc's own flags: emulators know no other set. */
    unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SIGHAND |
                          CLONE_THREAD | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    /* gdb takes a thread whose word is 0 for the main thread. */
    uint32_t *id = (uint32_t *)(control + (uintptr_t)libc_thread_id_offset());
    long tid;
#ifdef LIBAGENT_TEST
    if (!sys_override || !sys_override(SYS_clone, (const long[6]){(long)flags}, &tid))
#endif
        tid = raw_thread_clone(flags, block->memory + PAGE + stack_size, id, &block->taken, control,
                               routine);
    if (tid < 0)
        store_release(&block->taken, 0);
    return tid < 0 ? (int)tid : 0;
}
