/* untabled.h: a program whose functions have no call frame information (not in .debug_frame either,
 * so -g0), and leave old return addresses on the stack: logger's lie in store's table. Allocates
 * and computes in store, which request calls, which server calls. */
#ifndef LIBAGENT_TEST_UNTABLED_H
#define LIBAGENT_TEST_UNTABLED_H

#include <stdlib.h>

#include "test/preload/program.h"

enum { ROUNDS = 300000, SIZE = 4000 };

static volatile uint64_t sum;
static void *volatile kept;

SITE void tick(int n)
{
    for (int i = 0; i < n; i++)
        sum += (uint64_t)i;
}

SITE void logger(int n)
{
    volatile char line[16];
    line[0] = (char)n;
    tick(10);
    sum += (uint64_t)line[0];
}

SITE void store(int n)
{
    volatile char table[400];
    table[0] = (char)n;
    void *block = malloc(SIZE);
    kept = block;
    free(block);
    tick(300);
    sum += (uint64_t)table[0];
}

SITE void request(int n)
{
    store(n);
    sum++;
}

SITE void server(int n)
{
    for (int i = 0; i < n; i++) {
        logger(i);
        request(i);
    }
}

int main(void)
{
    server(ROUNDS);
    return 0;
}

#endif
