/* CFLAGS: -O2 -fomit-frame-pointer */
/* LIBS: -lpthread */
/* prog_wall_alloca: a thread that waits for two seconds, a few milliseconds each time, below a
 * function whose frames vary in size, and which is called at four depths in turn. What waits says
 * by which callers. Before each wait another such function leaves its frames on the stack. */
#include <poll.h>
#include <pthread.h>

#include "test/preload/program.h"

enum { TURNS = 800, WAYS = 4 };

static inline void keep_frame(void)
{
    __asm__ volatile("" ::: "memory");
}

SITE static void wait_plainly(void)
{
    poll(NULL, 0, 2);
    keep_frame();
}

SITE static void wait_deep(void)
{
    poll(NULL, 0, 2);
    keep_frame();
}

SITE static void wait_deeper(void)
{
    poll(NULL, 0, 2);
    keep_frame();
}

SITE static void wait_jumped_to(void)
{
    poll(NULL, 0, 2);
    keep_frame();
}

static void (*const waits[WAYS])(void) = {wait_plainly, wait_deep, wait_deeper, wait_jumped_to};

SITE static void take_room(unsigned turn, void (*call)(void))
{
    volatile char *room = __builtin_alloca(16 + turn * 37 % 1024);
    room[0] = 1;
    call();
    keep_frame();
}

SITE static void leave_room(unsigned turn)
{
    volatile char *room = __builtin_alloca(16 + turn % 64);
    room[0] = 1;
    clock_ns(CLOCK_MONOTONIC);
    keep_frame();
}

SITE static void call_plainly(unsigned turn)
{
    take_room(turn, waits[turn % WAYS]);
    keep_frame();
}

SITE static void call_deep(unsigned turn)
{
    volatile char room[200];
    room[turn % sizeof(room)] = 1;
    call_plainly(turn);
    keep_frame();
}

SITE static void call_deeper(unsigned turn)
{
    volatile char room[100];
    room[turn % sizeof(room)] = 1;
    call_deep(turn);
    keep_frame();
}

/* Its last act is a jump: its own frame is gone then. */
SITE static void call_by_jump(unsigned turn)
{
    take_room(turn, waits[turn % WAYS]);
}

SITE static void take_turn(unsigned turn)
{
    leave_room(turn);
    switch (turn % WAYS) {
    case 0:
        call_plainly(turn);
        break;
    case 1:
        call_deep(turn);
        break;
    case 2:
        call_deeper(turn);
        break;
    default:
        call_by_jump(turn);
    }
    keep_frame();
}

static void *take_turns(void *unused)
{
    (void)unused;
    for (unsigned turn = 0; turn < TURNS; turn++)
        take_turn(turn * 7 + turn * turn / 13 % 5);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, take_turns, NULL);
    pthread_join(thread, NULL);
    return 0;
}
