/* CFLAGS: -O1 */
/* LIBS: -ldl */
/* prog_own_openssl [ends]: sets OpenSSL up, with its engines, and computes for 0.3 s; exit ends
 * OpenSSL, or the program itself, before. */
#include <dlfcn.h>
#include <stdio.h>

#include "test/preload/program.h"

SITE static void work(void)
{
    spin(300000000);
}

int main(int argc, char **argv)
{
    (void)argv;
    void *library = dlopen("libcrypto.so.3", RTLD_NOW);
    enum { OPENSSL_INIT_ENGINES = 0x7e00 };
    int (*set_up)(uint64_t, const void *) = NULL;
    void *(*first_engine)(void) = NULL;
    void (*end)(void) = NULL;
    if (library) {
        *(void **)&set_up = dlsym(library, "OPENSSL_init_crypto");
        *(void **)&first_engine = dlsym(library, "ENGINE_get_first");
        *(void **)&end = dlsym(library, "OPENSSL_cleanup");
    }
    if (!set_up || !first_engine || !end || !set_up(OPENSSL_INIT_ENGINES, NULL) || !first_engine())
        return 1;
    work();
    if (argc > 1)
        end();
    puts("done");
    return 0;
}
