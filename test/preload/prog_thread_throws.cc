/* CFLAGS: -O2 */
/* LIBS: -lpthread */
/* prog_thread_throws [x]: exceptions in threads, caught there; pthread_exit and cancellation seen
 * as exceptions. With an argument one is not caught, and ends the process. */
#include <cstdio>
#include <cxxabi.h>
#include <future>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "test/preload/program.h"

struct Tell {
    const char *text;
    ~Tell() { std::printf("%s\n", text); }
};

SITE static void thrower(int depth)
{
    Tell tell{"unwound"};
    keep(&tell);
    if (depth == 0)
        throw std::runtime_error("thrown");
    thrower(depth - 1);
}

static void *forced(void *data)
{
    try {
        Tell tell{"forced"};
        if (data)
            pthread_exit(data);
        for (;;)
            pause();
    } catch (const abi::__forced_unwind &) {
        std::printf("seen\n");
        throw;
    }
}

int main(int argc, char **)
{
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::thread([] {
        try {
            spin(20000000);
            thrower(3);
        } catch (const std::exception &error) {
            std::printf("caught %s\n", error.what());
        }
    }).join();
    auto future = std::async(std::launch::async, [] {
        thrower(1);
        return 0;
    });
    try {
        future.get();
    } catch (const std::exception &error) {
        std::printf("by future %s\n", error.what());
    }
    pthread_t thread;
    void *result = nullptr;
    pthread_create(&thread, nullptr, forced, &result);
    pthread_join(thread, &result);
    std::printf("exited %d\n", result == &result);
    pthread_create(&thread, nullptr, forced, nullptr);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    std::printf("cancelled %d\n", result == PTHREAD_CANCELED);
    if (argc > 1)
        std::thread([] { thrower(0); }).join();
    return 0;
}
