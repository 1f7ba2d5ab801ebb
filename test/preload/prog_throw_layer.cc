/* CFLAGS: -O2 -shared -fPIC */
/* LIBS: -lpthread */
/* prog_throw_layer: not a program but an object for dlopen, that exceptions pass through, or are
 * thrown and caught in. */
#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/preload/program.h"
#include "test/preload/throw_layer.h"

static std::atomic<unsigned long> destroyed;

namespace
{
struct Counted {
    std::string text;
    ~Counted() { destroyed++; }
};
} // namespace

SITE void layer_call(enum layer_way way, layer_fn *below, void *argument)
{
    Counted outer{"long enough that it is allocated, outer"};
    keep(&outer);
    if (way == LAYER_PASS) {
        below(argument);
        return;
    }
    try {
        Counted inner{"long enough that it is allocated, inner"};
        keep(&inner);
        below(argument);
    } catch (const std::runtime_error &error) {
        if (way == LAYER_THROW_AGAIN)
            throw;
        if (way == LAYER_THROW_COPY)
            std::rethrow_exception(std::current_exception());
        std::throw_with_nested(std::logic_error(std::string(error.what()) + " and another"));
    }
}

unsigned long layer_destroyed()
{
    return destroyed;
}

SITE static void thrower(unsigned long i, unsigned depth)
{
    Counted counted{"long enough that it is allocated"};
    keep(&counted);
    if (depth != 0)
        thrower(i, depth - 1);
    else if (i % 3 == 0)
        throw std::runtime_error("thrown");
    else if (i % 3 == 1)
        keep(&std::vector<int>(3).at(i)); /* thrown by libstdc++ */
    else
        keep(&i), throw static_cast<int>(i);
}

static unsigned long catch_all(unsigned long count)
{
    unsigned long caught = 0;
    for (unsigned long i = 0; i < count; i++)
        try {
            thrower(3 + i, 5);
        } catch (const std::exception &) {
            caught++;
        } catch (int value) {
            caught += static_cast<unsigned long>(value) == 3 + i;
        }
    return caught;
}

unsigned long layer_throw_and_catch(unsigned long count)
{
    auto other = std::async(std::launch::async, catch_all, count / 2);
    unsigned long caught = catch_all(count - count / 2);
    return caught + other.get();
}
