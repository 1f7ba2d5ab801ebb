/* CFLAGS: -O2 -rdynamic */
/* prog_environment WAY: while a thread of the agent's is in getenv, and has come to the table of
 * the environment, the program's one thread adds variables until the table has moved often, and
 * takes all memory that was freed. What the reader finds then in the table that it had is said. */
#include <sched.h>
#include <string.h>

#include "test/preload/program.h"

enum { NAMES = 400, ENTRIES_MAX = 4096, SIZE_MAX_TAKEN = 8192 };

static int reader_is_in, may_go_on, answer; /* answer: 1 what was there is there, 2 it is not */

#define load(p)     __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

static int is_walked_whole(char **table)
{
    static char *seen[ENTRIES_MAX];
    size_t count = 0;
    for (; table[count] && count < ENTRIES_MAX; count++)
        seen[count] = table[count];
    store(&reader_is_in, 1);
    while (!load(&may_go_on))
        sched_yield();
    for (size_t i = 0; i < count; i++)
        if (table[i] != seen[i])
            return 0;
    return 1;
}

/* Before libc's: what libcurl and its libraries call. */
char *getenv(const char *name)
{
    static int calls;
    (void)name;
    if (gettid() != getpid() && __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == 0)
        store(&answer, is_walked_whole(environ) ? 1 : 2);
    return NULL;
}

static void add_by_setenv(int number)
{
    char name[32];
    snprintf(name, sizeof(name), "ADDED_%d", number);
    setenv(name, "x", 0);
}

static void add_by_putenv(int number)
{
    static char texts[NAMES][32];
    snprintf(texts[number], sizeof(texts[number]), "ADDED_%d=x", number);
    putenv(texts[number]);
}

static size_t count_all(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    return count;
}

/* As perl does. */
static void add_by_hand(int number)
{
    static char texts[NAMES][32];
    static char **own;
    size_t count = count_all();
    if (!own) {
        own = malloc((count + 2) * sizeof(*own));
        memcpy(own, environ, (count + 1) * sizeof(*own));
    } else {
        own = realloc(own, (count + 2) * sizeof(*own));
    }
    environ = own;
    snprintf(texts[number], sizeof(texts[number]), "ADDED_%d=x", number);
    own[count] = texts[number];
    own[count + 1] = NULL;
}

static void take_what_is_free(void)
{
    for (size_t size = 16; size < SIZE_MAX_TAKEN; size += 16) {
        char *block = malloc(size);
        memset(block, 'A', size);
        keep(block);
    }
}

int main(int argc, char **argv)
{
    static void (*const ways[])(int) = {add_by_setenv, add_by_putenv, add_by_hand};
    void (*add)(int) = ways[number_argument(argc, argv, 1, 0)];
    size_t count = count_all();
    /* libc's first table is none that it has made. */
    add(0);
    add(1);
    while (!load(&reader_is_in))
        allocate_and_spin(1000000);
    int moves = 0;
    for (int i = 2; i < NAMES; i++) {
        char **table = environ;
        add(i);
        moves += environ != table;
        take_what_is_free();
    }
    store(&may_go_on, 1);
    while (!load(&answer))
        sched_yield();
    printf("names %zu\nmoves %d\nwhole %d\n", count_all() - count, moves, answer == 1);
    return 0;
}
