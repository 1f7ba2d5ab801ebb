/* CFLAGS: -O2 -shared -fPIC */
/* LIBS: -ldl */
/* prog_exit_order: no program but an object that is preloaded: writes into the file `order`, a line
 * for each, which object has registered a function for exit. */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef int add_function(void (*)(void *), void *, void *);

int __cxa_atexit(void (*function)(void *), void *argument, void *dso);

int __cxa_atexit(void (*function)(void *), void *argument, void *dso)
{
    Dl_info info;
    if (dladdr(__builtin_return_address(0), &info) && info.dli_fname) {
        int fd = open("order", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        (void)!write(fd, info.dli_fname, strlen(info.dli_fname));
        (void)!write(fd, "\n", 1);
        close(fd);
    }
    add_function *next = (add_function *)dlsym(RTLD_NEXT, "__cxa_atexit");
    return next(function, argument, dso);
}
