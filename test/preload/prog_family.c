/* CFLAGS: -O2 */
/* prog_family: a parent that works before, beside and after a child that works too. Prints the CPU
 * clocks of both. */
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/program.h"

enum { ALLOCATIONS = 1000, SIZE = 100000 };

SITE static void site_parent(void)
{
    for (int i = 0; i < ALLOCATIONS; i++) {
        void *block = malloc(SIZE);
        keep(block);
        free(block);
    }
    spin(700000000);
    keep(&site_parent);
}

SITE static void site_child(void)
{
    for (int i = 0; i < ALLOCATIONS; i++) {
        void *block = malloc(SIZE);
        keep(block);
        free(block);
    }
    spin(900000000);
    keep(&site_child);
}

int main(void)
{
    site_parent();
    pid_t pid = fork();
    if (pid == 0) {
        site_child();
        printf("child %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
        printf("child-pid %d\n", (int)getpid());
        return 0;
    }
    site_parent();
    waitpid(pid, NULL, 0);
    printf("parent %lu\n", (unsigned long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
