/* plt_program.h: a program that calls many functions of libraries by PLT stubs, which the loader
 * binds at their first call. prog_step_plt_*.c are it with one form of stubs each. */
#ifndef LIBAGENT_TEST_PLT_PROGRAM_H
#define LIBAGENT_TEST_PLT_PROGRAM_H

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static __attribute__((noinline)) void call_libraries(int round)
{
    char text[256],
        *words[8] = {text, "delta", "alpha", "charlie", "bravo", "echo", "golf", "hotel"};
    wchar_t wide[32];
    struct timespec now;
    volatile double number = atof("1.25") + sin(round) * pow(1.5, round % 7) + fmod(round, 3.5);
    snprintf(text, sizeof(text), "%d %g %s", round, number, words[1 + round % 7]);
    qsort(words, 8, sizeof(words[0]), compare);
    clock_gettime(CLOCK_MONOTONIC, &now);
    mbstowcs(wide, "wide words", 32);
    char *copy = strdup(text), *more = realloc(copy, 5000);
    memmove(more + 100, more, strlen(more) + 1);
    number = (double)wcslen(wide) + (double)strtol(text, NULL, 10) + toupper(text[0]);
    free(more);
    (void)getppid();
}

int main(void)
{
    for (int round = 0; round < 40; round++)
        call_libraries(round);
    return 0;
}

#endif
