/* CFLAGS: -O2 -shared -fPIC */
/* prog_storm_plugin: not a program but an object for dlopen, with constructors and destructors that
 * allocate, and exceptions of its own. Nothing here makes a unique symbol (std::to_string would, by
 * a static variable), for which the loader would keep it for good. */
#include <map>
#include <stdexcept>
#include <string>

#include "test/preload/program.h"
#include "test/preload/storm.h"

static std::map<int, std::string> made_at_load = {{1, "long enough that it is allocated"},
                                                  {2, "this one is long enough, too"}};

extern "C" storm_plugin_work_fn storm_plugin_work;

SITE static void throw_from(unsigned long seed, unsigned depth)
{
    std::string text = made_at_load.at(1) + static_cast<char>('0' + seed % 10);
    keep(&text);
    if (depth)
        throw_from(seed, depth - 1);
    else if (seed % 2)
        throw std::runtime_error(text);
    else
        keep(&made_at_load.at(3)); /* thrown by libstdc++ */
    keep(&text);
}

SITE int storm_plugin_work(unsigned long seed)
{
    for (int i = 0; i < 20; i++)
        compute();
    try {
        throw_from(seed, 4);
    } catch (const std::runtime_error &error) {
        return seed % 2 == 1 && made_at_load.at(1).compare(0, 4, error.what(), 4) == 0;
    } catch (const std::out_of_range &) {
        return seed % 2 == 0;
    }
    return 0;
}
