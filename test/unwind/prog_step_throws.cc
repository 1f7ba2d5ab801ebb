/* CFLAGS: -O2 */
/* Exceptions through frames with and without something to destroy, and through qsort. */
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

static volatile int sink;

static int compare(const void *a, const void *b)
{
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 7 || y == 7)
        throw std::runtime_error("thrown in qsort");
    return x - y;
}

__attribute__((noinline)) static void descend(int depth, int way)
{
    std::string text = "depth " + std::to_string(depth);
    sink = static_cast<int>(text.size());
    if (depth > 0) {
        descend(depth - 1, way);
    } else if (way % 3 == 0) {
        int numbers[] = {3, 9, 7, 1};
        std::qsort(numbers, 4, sizeof(numbers[0]), compare);
    } else if (way % 3 == 1) {
        text.at(1000) = 'x';
    } else {
        throw way;
    }
    sink = 2;
}

int main()
{
    std::map<std::string, int> seen;
    for (int way = 0; way < 30; way++) {
        try {
            descend(way % 9, way);
        } catch (const std::exception &e) {
            seen[e.what()]++;
        } catch (int number) {
            seen[std::to_string(number)]++;
        }
    }
    return seen.size() > 3 ? 0 : 1;
}
