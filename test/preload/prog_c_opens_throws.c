/* CFLAGS: -O2 */
/* LIBS: -ldl */
/* prog_c_opens_throws LAYER COUNT: a C program that has no C++ library, opens a layer for itself
 * alone, and has it throw COUNT exceptions. */
#include <dlfcn.h>

#include "test/preload/program.h"
#include "test/preload/throw_layer.h"

int main(int argc, char **argv)
{
    printf("C++ before: %d\n", dlsym(RTLD_DEFAULT, "__cxa_throw") != NULL);
    void *layer = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!layer) {
        printf("%s\n", dlerror());
        return 1;
    }
    unsigned long (*throw_and_catch)(unsigned long);
    *(void **)&throw_and_catch = dlsym(layer, "layer_throw_and_catch");
    unsigned long (*destroyed)(void);
    *(void **)&destroyed = dlsym(layer, "layer_destroyed");
    unsigned long caught = throw_and_catch(number_argument(argc, argv, 2, 1000));
    printf("caught %lu, destroyed %lu\n", caught, destroyed());
    printf("global after: %d %d\n", dlsym(RTLD_DEFAULT, "__cxa_throw") != NULL,
           dlsym(RTLD_DEFAULT, "_Unwind_RaiseException") != NULL);
    printf("closed %d\n", dlclose(layer));
    return 0;
}
