/* bench_memory.c: a process that is only there, for its resident memory to be read from outside.
 * `bench_memory THREADS SECONDS` starts so many threads that wait, burns CPU and allocates for so
 * long, prints its pid, and waits until its standard input ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t all_there;

static void *wait_for_ever(void *argument)
{
    pthread_barrier_wait(&all_there);
    while (pause() != 0)
        continue;
    return argument;
}

int main(int argc, char **argv)
{
    char end;
    if (argc != 3)
        return 2;
    int threads = atoi(argv[1]);
    pthread_barrier_init(&all_there, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
            return 1;
    }
    pthread_barrier_wait(&all_there);
    clock_t until = (clock_t)(atof(argv[2]) * CLOCKS_PER_SEC);
    while (clock() < until) {
        void *block = malloc(1000);
        __asm__ volatile("" : "+r"(block) : : "memory");
        free(block);
    }
    printf("%d\n", getpid());
    fflush(stdout);
    return (int)read(0, &end, 1);
}
