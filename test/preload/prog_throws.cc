/* CFLAGS: -O2 */
/* LIBS: -ldl -lpthread */
/* prog_throws COUNT LAYER...: throws COUNT exceptions in each of two threads, through all layers
 * (copies of prog_throw_layer) and through qsort of libc, and tells what came of them. */
#include <cstdlib>
#include <dlfcn.h>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/preload/program.h"
#include "test/preload/throw_layer.h"

struct Layer {
    decltype(&layer_call) call;
    decltype(&layer_destroyed) destroyed;
};

static std::vector<Layer> layers;

struct Flight {
    unsigned long number;
    size_t layer;
};

SITE static int compare_and_throw(const void *a, const void *b)
{
    if (*static_cast<const int *>(a) != *static_cast<const int *>(b))
        throw std::runtime_error("thrown in qsort");
    return 0;
}

SITE static void descend(void *argument)
{
    Flight *flight = static_cast<Flight *>(argument);
    if (flight->layer < layers.size()) {
        /* The uppermost two take turns in what they do; those below pass it on. */
        layer_way way =
            flight->layer < 2
                ? static_cast<layer_way>(flight->number / (flight->layer + 1) % LAYER_WAYS)
                : LAYER_PASS;
        layers[flight->layer++].call(way, descend, argument);
        return;
    }
    int numbers[] = {1, 2, 3};
    if (flight->number % 5 == 0)
        std::qsort(numbers, 3, sizeof(numbers[0]), compare_and_throw);
    if (flight->number % 5 == 1)
        keep(&std::string("short").at(100 + flight->number % 10));
    if (flight->number % 5 == 2)
        throw static_cast<long>(flight->number);
    throw std::runtime_error("thrown at " + std::to_string(flight->number % 10));
}

static std::map<std::string, unsigned long> fly(unsigned long count)
{
    std::map<std::string, unsigned long> seen;
    for (unsigned long i = 0; i < count; i++) {
        Flight flight{i, 0};
        try {
            descend(&flight);
            seen["nothing"]++;
        } catch (const std::exception &error) {
            std::string text = error.what();
            try {
                std::rethrow_if_nested(error);
            } catch (const std::exception &nested) {
                text += std::string(" from ") + nested.what();
            }
            seen[text]++;
        } catch (long number) {
            seen["number"] += static_cast<unsigned long>(number) == i;
        }
    }
    return seen;
}

int main(int argc, char **argv)
{
    unsigned long count = number_argument(argc, argv, 1, 1000);
    for (int i = 2; i < argc; i++) {
        void *handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            std::printf("%s\n", dlerror());
            return 1;
        }
        layers.push_back(
            {reinterpret_cast<decltype(&layer_call)>(dlsym(handle, "layer_call")),
             reinterpret_cast<decltype(&layer_destroyed)>(dlsym(handle, "layer_destroyed"))});
    }
    auto other = std::async(std::launch::async, fly, count);
    for (const auto &seen : {fly(count), other.get()})
        for (const auto &entry : seen)
            std::printf("%lu %s\n", entry.second, entry.first.c_str());
    for (const Layer &layer : layers)
        std::printf("destroyed %lu\n", layer.destroyed());
    return 0;
}
