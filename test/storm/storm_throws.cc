// An object for dlopen: storm_throw(count) throws and catches `count` exceptions through some
// frames, and tells how many came as they were thrown.
#include <stdexcept>
#include <string>

#include "test/preload/program.h"

SITE static void throw_from(unsigned long number, unsigned depth)
{
    std::string text = "long enough that it is allocated, number " + std::to_string(number);
    keep(&text);
    if (depth)
        throw_from(number, depth - 1);
    else
        throw std::runtime_error(text);
    keep(&text);
}

extern "C" unsigned long storm_throw(unsigned long count)
{
    unsigned long good = 0;
    for (unsigned long i = 0; i < count; i++)
        try {
            throw_from(i, static_cast<unsigned>(i % 8));
        } catch (const std::runtime_error &error) {
            std::string text = error.what();
            good += text.substr(text.rfind(' ') + 1) == std::to_string(i);
        }
    return good;
}
