/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_musl_hello: built with musl, whose loader takes LD_PRELOAD too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *data)
{
    for (size_t i = 0; i < 100000; i++) {
        char *block = malloc(i % 3000 + 1);
        block = realloc(block, i % 5000 + 1);
        block[0] = 1;
        free(block);
    }
    return data;
}

int main(void)
{
    pthread_t thread;
    work(NULL);
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
        return 1;
    char *text = strdup("hello from musl");
    puts(text);
    fflush(stdout);
    free(text);
    pid_t pid = fork();
    work(NULL);
    if (pid == 0)
        return 3;
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    return 4;
}
