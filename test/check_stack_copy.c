/* Stacks that are read by copies: of a thread that is blocked, with pc and stack pointer alone, and
 * of another process. */
#include "test/check.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "agent/base/sys.h"
#include "agent/unwind/cfi.h"
#include "test/stack_copy_fixture.h"

static struct frames direct;

/* The caller's stack, straight and by copies into windows of several sizes. */
static __attribute__((noinline)) void walk_both_ways(void)
{
    ucontext_t context;
    getcontext(&context);
    agent_walk(&context, &direct);
    /* One byte in: a copy need not lie as the stack does. */
    for (size_t size = WINDOW; size >= 2 * (size_t)PAGE; size /= 2) {
        const struct stack_copy copy = {getpid(), window + 1, size};
        struct unwind_regs regs;
        unwind_regs_from_context(&regs, &context);
        memset(window, 0x55, sizeof(window));
        walk_copied(&regs, ALL_VALID, true, &copy);
        ck_assert(same_frames(&direct, &copied));
        ck_assert_uint_eq(copied.flags, direct.flags & ~(uint32_t)UNWIND_CLEAN);
        ck_assert_int_eq(window[0], 0x55);
    }
    KEEP_FRAME();
}

START_TEST(windows_that_follow_each_other)
{
    start();
    at_bottom = walk_both_ways;
    recurse(3);
    ck_assert(direct.flags & UNWIND_COMPLETE);
    recurse(150);
    ck_assert(direct.flags & UNWIND_COMPLETE);
    ck_assert_uint_gt(direct.count, 150);
}
END_TEST

static void on_signal(int number)
{
    (void)number;
    walk_both_ways();
}

static void raise_signal(void)
{
    raise(SIGUSR1);
    KEEP_FRAME();
}

START_TEST(through_a_handler_on_another_stack)
{
    start();
    static char memory[1 << 16];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    at_bottom = raise_signal;
    recurse(20);
    ck_assert_uint_eq(direct.flags, UNWIND_COMPLETE | UNWIND_INTERRUPTED);
}
END_TEST

/* ---- Threads that wait
 * -------------------------------------------------------------------------*/

static int gate[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static bool released; /* under mutex */
static int waiter_tid;
static void (*descend)(int depth) = recurse;
static uint32_t guessed; /* walks */

/* What the walk of the waiting thread must end in. */
static __attribute__((noinline)) void wait_at_gate(void)
{
    char byte;
    walk_here(&direct);
    store_release(&waiter_tid, sys_tid());
    ck_assert_int_eq(read(gate[0], &byte, 1), 1);
    KEEP_FRAME();
}

static __attribute__((noinline)) void wait_for_condition(void)
{
    walk_here(&direct);
    store_release(&waiter_tid, sys_tid());
    pthread_mutex_lock(&mutex);
    while (!released)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    KEEP_FRAME();
}

static void *waiter_main(void *unused)
{
    (void)unused;
    test_home_set();
    descend(20);
    return NULL;
}

/* Stack pointer and pc of a thread in a system call: the last two words of that file. Waits until
 * the thread is in one of `number`. */
static void registers_of_waiter(int pid, int tid, long number, struct unwind_regs *regs)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
    for (;;) {
        long size = sys_read_file(path, text, sizeof(text));
        ck_assert_int_gt(size, 0);
        unsigned long sp, pc;
        long current;
        if (sscanf(text, "%ld %*x %*x %*x %*x %*x %*x %lx %lx", &current, &sp, &pc) == 3 &&
            current == number) {
            memset(regs, 0xee, sizeof(*regs)); /* the others are not known */
            regs->r[UNWIND_SP] = sp;
            regs->r[UNWIND_PC] = pc;
            return;
        }
        usleep(1000);
    }
}

/* The copied walk leads into the waiting function's callers as that function saw them, and passes
 * through itself. */
static void check_waiter(const char *title)
{
    uint32_t callers = direct.count - 1;
    bool same = copied.count > callers && memcmp(copied.pcs + copied.count - callers,
                                                 direct.pcs + 1, callers * sizeof(uint64_t)) == 0;
    if (!same) {
        print_frames(stdout, title, &copied);
        print_frames(stdout, "as the thread walked", &direct);
    }
    ck_assert(same);
    ck_assert_uint_gt(callers, 20);
    ck_assert_uint_eq(copied.flags & ~(uint32_t)UNWIND_GUESSED, UNWIND_COMPLETE);
    guessed += (copied.flags & UNWIND_GUESSED) != 0;
}

static void check_waiting_thread(void (*wait)(void), long number, const char *title)
{
    pthread_t thread;
    struct unwind_regs regs;
    const struct stack_copy copy = {getpid(), window, WINDOW};
    at_bottom = wait;
    waiter_tid = 0;
    released = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, waiter_main, NULL), 0);
    while (!load_acquire(&waiter_tid))
        usleep(1000);
    registers_of_waiter(getpid(), waiter_tid, number, &regs);
    walk_copied(&regs, PC_AND_SP, true, &copy);
    check_waiter(title);
    pthread_mutex_lock(&mutex);
    released = true;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    if (wait == wait_at_gate)
        ck_assert_int_eq(write(gate[1], "", 1), 1);
    pthread_join(thread, NULL);
}

#if defined(__x86_64__)
/* Frames that hang on rbp: made as with frame pointers, by a start that tells the frame's size; and
 * of a size that no instruction tells, with an old frame of the same function inside. */
__asm__(".pushsection .text\n"
        ".type recurse_by_records, @function\n"
        "recurse_by_records:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset rbp, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register rbp\n"
        "push %r12\n"
        "mov $0, %eax\n"
        "push %rbx\n"
        ".cfi_offset r12, -24\n"
        ".cfi_offset rbx, -32\n"
        "sub $0x1230, %rsp\n"
        "dec %edi\n"
        "js 1f\n"
        "call recurse_by_records\n"
        "jmp 2f\n"
        "1: call *at_bottom(%rip)\n"
        "2: lea -16(%rbp), %rsp\n"
        "pop %rbx\n"
        "pop %r12\n"
        "pop %rbp\n"
        ".cfi_def_cfa rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size recurse_by_records, . - recurse_by_records\n"
        ".popsection\n");
void recurse_by_records(int depth);

static __attribute__((noinline)) void recurse_on_alloca(int depth)
{
    /* From both ends of what a page holds, and none of it written. */
    char *room = __builtin_alloca((size_t)depth * 160 + 24);
    __asm__ volatile("" : : "r"(room) : "memory");
    if (depth == 0)
        at_bottom();
    else
        recurse_on_alloca(depth - 1);
    KEEP_FRAME();
}

START_TEST(frames_that_hang_on_the_frame_pointer)
{
    start();
    ck_assert_int_eq(pipe(gate), 0);
    void (*const ways[])(int) = {recurse_by_records, recurse_on_alloca};
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        descend = ways[i];
        check_waiting_thread(wait_at_gate, SYS_read, "in read");
        /* This one saves the frame pointer. */
        check_waiting_thread(wait_for_condition, SYS_futex, "in pthread_cond_wait");
#ifndef __SANITIZE_THREAD__ /* whose read and wait save it */
        ck_assert_uint_gt(guessed, i);
#endif
    }
}
END_TEST
#endif

START_TEST(thread_that_waits)
{
    start();
    ck_assert_int_eq(pipe(gate), 0);
    check_waiting_thread(wait_at_gate, SYS_read, "in read");
    check_waiting_thread(wait_for_condition, SYS_futex, "in pthread_cond_wait");
    ck_assert_uint_eq(guessed, 0);
}
END_TEST

/* A forked child has the same objects at the same addresses, and a stack that is not here. */
START_TEST(thread_of_another_process)
{
    start();
    ck_assert_int_eq(pipe(gate), 0);
    void *shared =
        mmap(NULL, sizeof(direct), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    at_bottom = wait_at_gate;
    pid_t pid = fork();
    if (pid == 0) {
        recurse(20);
        memcpy(shared, &direct, sizeof(direct));
        _exit(0);
    }
    struct unwind_regs regs;
    const struct stack_copy copy = {pid, window, WINDOW};
    registers_of_waiter(pid, pid, SYS_read, &regs);
    struct unwind_regs same = regs;
    walk_copied(&regs, PC_AND_SP, true, &copy);
    ck_assert_int_eq(write(gate[1], "", 1), 1);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    memcpy(&direct, shared, sizeof(direct));
    check_waiter("the child's");

    /* The child is gone now. */
    memset(&copied, 0x55, sizeof(copied));
    walk_copied(&same, PC_AND_SP, true, &copy);
    ck_assert_uint_le(copied.count, 1);
    ck_assert_uint_eq(copied.flags, 0);
}
END_TEST

/* Frames that hang on rbx and on rbp, which nobody knows of a thread that waits. */
#define WAIT_ON(reg)                                                                               \
    __asm__(".pushsection .text\n"                                                                 \
            ".type wait_on_" #reg ", @function\n"                                                  \
            "wait_on_" #reg ":\n"                                                                  \
            ".cfi_startproc\n"                                                                     \
            "push %" #reg "\n"                                                                     \
            ".cfi_def_cfa_offset 16\n"                                                             \
            ".cfi_offset " #reg ", -16\n"                                                          \
            "mov %rsp, %" #reg "\n"                                                                \
            ".cfi_def_cfa_register " #reg "\n"                                                     \
            "ret\n"                                                                                \
            ".cfi_endproc\n"                                                                       \
            ".size wait_on_" #reg ", . - wait_on_" #reg "\n"                                       \
            ".popsection\n");                                                                      \
    extern const char wait_on_##reg[]
WAIT_ON(rbx);
WAIT_ON(rbp);
enum { PUSH_AND_MOVE = 4, RBX = 3 };

START_TEST(registers_that_are_not_known)
{
    start();
    static uintptr_t stack[64];
    const struct stack_copy copy = {getpid(), window, WINDOW};
    const char *functions[] = {wait_on_rbx, wait_on_rbp};
    struct unwind_regs regs, known;
    stack[1] = (uintptr_t)start;
    for (size_t i = 0; i < 2; i++) {
        memset(&regs, 0, sizeof(regs));
        regs.r[UNWIND_PC] = (uintptr_t)functions[i] + PUSH_AND_MOVE;
        regs.r[UNWIND_SP] = regs.r[UNWIND_FP] = regs.r[RBX] = (uintptr_t)stack;
        known = regs;
        walk_copied(&known, ALL_VALID, true, &copy);
        ck_assert_uint_ge(copied.count, 2);
        ck_assert_uint_eq(copied.pcs[1], (uintptr_t)start - 1);
        known = regs;
        walk_copied(&known, PC_AND_SP, true, &copy);
        ck_assert_uint_eq(copied.count, 1);
        ck_assert_uint_eq(copied.flags, 0);
    }
    /* Unknown code is followed by rbp, if that is known. */
    stack[2] = (uintptr_t)&stack[4];
    stack[3] = (uintptr_t)start + 1;
    known.r[UNWIND_PC] = (uintptr_t)stack;
    known.r[UNWIND_SP] = (uintptr_t)&stack[8];
    known.r[UNWIND_FP] = (uintptr_t)&stack[10];
    stack[11] = (uintptr_t)start + 1;
    regs = known;
    walk_copied(&regs, ALL_VALID, true, &copy);
    ck_assert_uint_ge(copied.count, 2);
    ck_assert_uint_eq(copied.pcs[1], (uintptr_t)start);
    walk_copied(&known, PC_AND_SP, true, &copy);
    ck_assert_uint_eq(copied.count, 1);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("stack_copy");
    TCase *t = tcase_create("stack_copy");
    tcase_add_test(t, windows_that_follow_each_other);
    /* ThreadSanitizer calls handlers itself, when it likes: then there is no signal frame. */
    if (!THREAD_SANITIZER)
        tcase_add_test(t, through_a_handler_on_another_stack);
    /* Code for AddressSanitizer, and its read, hang on rbp. */
    if (!ADDRESS_SANITIZER) {
        tcase_add_test(t, thread_that_waits);
        tcase_add_test(t, thread_of_another_process);
#if defined(__x86_64__)
        tcase_add_test(t, frames_that_hang_on_the_frame_pointer);
#endif
    }
    tcase_add_test(t, registers_that_are_not_known);
    suite_add_tcase(s, t);
    return s;
}
