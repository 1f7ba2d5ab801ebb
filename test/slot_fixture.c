#include "test/slot_fixture.h"

#include <pthread.h>

#include "test/check.h"

void run_in_thread(void *(*routine)(void *), void *argument)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, routine, argument), 0);
    pthread_join(thread, NULL);
}

bool slot_is_used(const struct thread_slot *slot)
{
    return load_acquire(&slot->state) == SLOT_USED;
}

uint32_t slots_in_use(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < thread_slot_count(); i++)
        count += slot_is_used(thread_slot_at(i));
    return count;
}
