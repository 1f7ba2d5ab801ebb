#include "test/flush_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/log.h"
#include "agent/base/options.h"
#include "agent/base/sys.h"
#include "agent/flush.h"
#include "agent/unwind/unwind.h"
#include "test/check.h"
#include "test/next_libc.h"
#include "test/record_fixture.h"
#include "test/temp_folder.h"

char flush_folder[TEMP_PATH_SIZE];

void flush_fixture_start(void)
{
    snprintf(flush_folder, sizeof(flush_folder), "%s", temp_folder_make());
    options.profiles = PROFILE_CPU | PROFILE_ALLOC;
    options.frequency = 100;
    options.alloc_interval = 1;
    options.service = "suite";
    options.thread_labels = true;
    log_start(LOG_ERROR, "/dev/null");
    fixture_start((size_t)32 << 20);
    recorder_reset_in_child(clock_monotonic_ns(), clock_realtime_ns()); /* windows begin now */
    ck_assert_int_eq(modules_start((modules_iterate_fn)next.dl_iterate_phdr), 0);
    ck_assert_int_eq(unwind_start(), 0);
    flush_start(true);
    const struct uploader_config config = {
        .folder = flush_folder,
        .output_limit = 1 << 30,
        .compression = COMPRESSION_NONE,
        .program = "app",
        .pid = getpid(),
    };
    ck_assert_int_eq(uploader_start(&config), 0);
}

__attribute__((noinline)) void flush_site(void)
{
    __asm__ volatile("nop; nop; nop; nop");
}

static void add_sample(enum record_family family, uintptr_t pc, uint64_t amount, bool is_labelled)
{
    const struct {
        uint64_t generation, pc;
    } stack = {load_acquire(&modules_list)->generation, pc};
    struct thread_label label = {.tid = (uint64_t)sys_tid(), .name = "suite"};
    uint64_t units = family == RECORD_ALLOC ? amount << RECORD_AMOUNT_BITS_ALLOC : amount;
    struct thread_slot *slot = thread_tls.slot;
    bool opens = slot && !(slot->guard & 1);
    if (opens)
        thread_guard_enter(slot);
    struct label_view labels = {0};
    if (is_labelled && slot)
        labels = user_labels_here(slot->labels);
    recorder_add_labelled(family, (const struct record_stack *)(const void *)&stack, 1, &label,
                          &labels, (struct record_values){1 << RECORD_FRACTION_BITS, units}, true);
    if (opens)
        thread_guard_leave(slot);
}

void flush_add_sample(enum record_family family, uint64_t amount)
{
    add_sample(family, (uintptr_t)flush_site + 1, amount, false);
}

void flush_add_labelled_sample(enum record_family family, uint64_t amount)
{
    add_sample(family, (uintptr_t)flush_site + 1, amount, true);
}

void flush_add_sample_at(enum record_family family, uintptr_t pc, uint64_t amount)
{
    add_sample(family, pc, amount, true);
}

void flush_write_out(void)
{
    uploader_finish();
    uploader_run(false);
    uploader_resume();
}

struct profile *flush_read(const char *family)
{
    static struct profile profile;
    flush_write_out();
    profile_free(&profile);
    profile_load(&profile, flush_folder, family, getpid());
    return &profile;
}

void flush_forget_files(void)
{
    char path[256];
    char *names = list_folder(flush_folder);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        snprintf(path, sizeof(path), "%s/%s", flush_folder, name);
        unlink(path);
    }
    free(names);
}
