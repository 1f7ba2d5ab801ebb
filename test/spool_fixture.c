#include "test/spool_fixture.h"

#include <stdio.h>

#include "agent/base/clock.h"
#include "test/check.h"
#include "test/temp_folder.h"

char spool_base[64], spool_folder[80];
struct spool test_spool;
struct spool_losses spool_lost;
struct spool_entry spool_got;
uint64_t spool_now;

void spool_fixture_start(void)
{
    snprintf(spool_base, sizeof(spool_base), "%s", temp_folder_make());
    snprintf(spool_folder, sizeof(spool_folder), "%s/spool", spool_base);
    test_spool = (struct spool){spool_folder, 1 << 20};
    spool_lost = (struct spool_losses){0};
    spool_got = (struct spool_entry){.name = ""};
    spool_now = clock_realtime_ns();
}

void spool_fixture_end(void)
{
    fault_clear();
    buffer_free(&spool_got.body);
    temp_folder_remove(spool_base);
}

struct spool_entry make_profile(enum backend_kind kind, uint64_t end, size_t size)
{
    struct spool_entry entry = {.kind = kind,
                                .header = {.family = "cpu",
                                           .service = "a service",
                                           .start_unix_ns = end - 5,
                                           .end_unix_ns = end,
                                           .sequence = 7},
                                .identity = {.host = "h", .runtime = "r", .pid = 42},
                                .plain_size = 1000,
                                .random = {end * 3, UINT64_MAX}};
    ck_assert_ptr_null(tags_add_list(&entry.identity.tags, "env:a b,x:y", false));
    for (size_t i = 0; i < size; i++)
        buffer_append(&entry.body, &(char){(char)(end + i)}, 1);
    return entry;
}

int put_profile(enum backend_kind kind, uint64_t end, size_t size)
{
    struct spool_entry entry = make_profile(kind, end, size);
    int error = spool_put(&test_spool, &entry, spool_now, &spool_lost);
    buffer_free(&entry.body);
    return error;
}

int claim_profile_for(enum backend_kind kind, unsigned place)
{
    buffer_free(&spool_got.body);
    return spool_claim(&test_spool, kind, place, spool_now, &spool_got, &spool_lost);
}

int claim_profile(enum backend_kind kind)
{
    return claim_profile_for(kind, 0);
}
