#include "agent/unwind/module_list.h"

/* Shell sort: the loader's order is mostly descending, and libc's qsort may use malloc. */
void module_list_sort(struct module_list *list)
{
    for (uint32_t gap = list->count / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < list->count; i++) {
            struct module moved = list->modules[i];
            uint32_t j = i;
            for (; j >= gap && list->modules[j - gap].start > moved.start; j -= gap)
                list->modules[j] = list->modules[j - gap];
            list->modules[j] = moved;
        }
    }
    for (uint32_t i = 1; i < list->count; i++)
        list->modules[i - 1].end = MIN_OF(list->modules[i - 1].end, list->modules[i].start);
}

bool modules_equal(const struct module *a, const struct module *b)
{
    return a->start == b->start && a->end == b->end && a->bias == b->bias && a->object == b->object;
}

bool module_lists_equal(const struct module_list *a, const struct module_list *b)
{
    if (!b || a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!modules_equal(&a->modules[i], &b->modules[i]))
            return false;
    return true;
}

const struct module *modules_find(const struct module_list *list, uintptr_t pc)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->modules[middle].start <= pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low && pc < list->modules[low - 1].end ? &list->modules[low - 1] : NULL;
}
