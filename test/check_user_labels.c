/* A thread's labels: the same ones are the same words, and whoever looks finds a whole set. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "agent/thread/thread_context.h"
#include "agent/thread/user_labels.h"
#include "test/record_fixture.h"

static void set(struct thread_slot *slot, const char *key, const char *text)
{
    uint64_t label[LABEL_WORDS_MAX];
    ck_assert_int_eq(label_make(label, key, text, NULL), 0);
    ck_assert_int_eq(user_labels_set(slot, label), 0);
}

static const struct label_set *set_here(const struct thread_slot *slot)
{
    const struct label_set *set = user_labels_here(slot->labels).set;
    ck_assert_ptr_nonnull(set);
    return set;
}

START_TEST(the_order_of_setting_does_not_matter)
{
    fixture_threads();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t key[LABEL_WORDS_MAX];
    set(slot, "first", "one");
    set(slot, "second key, longer", "two");
    struct label_set before = *set_here(slot);
    ck_assert_uint_eq(before.count, 2);
    ck_assert_int_eq(label_make(key, "first", "another", NULL), 0);
    ck_assert_int_eq(user_labels_clear(slot, key), 0);
    ck_assert_uint_eq(set_here(slot)->count, 1);
    set(slot, "first", "value of another length");
    set(slot, "first", "one");
    const struct label_set *after = set_here(slot);
    ck_assert_uint_eq(after->words, before.words);
    ck_assert_mem_eq(after->data, before.data, before.words * sizeof(before.data[0]));
    ck_assert_int_eq(user_labels_clear(slot, key), 0);
    ck_assert_int_eq(user_labels_clear(slot, key), -ENOENT);
}
END_TEST

START_TEST(a_slot_taken_anew_has_none)
{
    fixture_threads();
    struct thread_slot *slot = thread_attach(0, 0);
    set(slot, "key", "value");
    ck_assert_ptr_nonnull(user_labels_here(slot->labels).set);
    thread_leave();
    ck_assert_ptr_null(user_labels_here(slot->labels).set);
    ck_assert_ptr_eq(thread_prepare(1, NULL), slot);
    ck_assert_ptr_null(user_labels_here(slot->labels).set);
}
END_TEST

/* A thread that waits is told of when it has gone on, and may have other labels by then. */
START_TEST(kept_labels_are_those_of_then)
{
    fixture_threads();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t until = 7;
    set(slot, "key", "then");
    user_labels_keep(slot->labels);
    set(slot, "key", "now");
    struct label_view view = user_labels_kept(slot->labels, 5, &until);
    const uint64_t *at = view.set->data;
    struct user_label label;
    ck_assert(label_next(&at, at + view.set->words, &label));
    ck_assert_mem_eq(label.text, "then", 5);
    ck_assert_uint_eq(until, 7);
    ck_assert_ptr_null(user_labels_kept(NULL, 5, &until).set);
    user_labels_forget(slot->labels);
    user_labels_keep(slot->labels);
    ck_assert_ptr_null(user_labels_kept(slot->labels, 5, &until).set);
}
END_TEST

START_TEST(a_change_is_not_begun_inside_another)
{
    fixture_threads();
    struct thread_slot *slot = thread_attach(0, 0);
    uint64_t label[LABEL_WORDS_MAX];
    set(slot, "key", "value");
    ck_assert_int_eq(label_make(label, "key", "other", NULL), 0);
    slot->labels->busy = 1;
    ck_assert_int_eq(user_labels_set(slot, label), -EDEADLK);
    slot->labels->busy = 0;
    ck_assert_int_eq(user_labels_set(slot, label), 0);
}
END_TEST

/* ---- torn sets ---- */

enum { CHANGES = 200000, SIGNALS = 2000, READERS = 2 };

static struct thread_slot *changed;
static uint32_t over;
static uint32_t seen_here, torn;

/* Every set of the storm has each of its texts of one letter only, all of the same one. */
static bool is_whole(const struct label_set *set)
{
    const uint64_t *at = set->data;
    struct user_label label;
    char letter = 0;
    while (label_next(&at, set->data + set->words, &label)) {
        if (!letter)
            letter = label.text[0];
        for (size_t i = 0; i < label.text_size; i++)
            if (label.text[i] != letter)
                return false;
    }
    return at == set->data + set->words;
}

static void look(const struct label_view *view)
{
    if (view->set && !is_whole(view->set))
        add_relaxed(&torn, 1);
}

static void handler(int number)
{
    (void)number;
    struct label_view view = user_labels_here(changed->labels);
    look(&view);
    add_relaxed(&seen_here, 1);
}

static void *read_from_outside(void *unused)
{
    struct label_set copy;
    uint64_t found = 0;
    while (!load_relaxed(&over)) {
        struct label_view view = user_labels_of(load_acquire(&changed->labels), &copy);
        look(&view);
        found += view.set != NULL;
    }
    return found ? unused : NULL;
}

static void *send_signals(void *to)
{
    for (int i = 0; i < SIGNALS && !load_relaxed(&over); i++)
        pthread_kill(*(pthread_t *)to, SIGUSR1);
    return to;
}

/* One label, whose length changes with its letter, so that a mixture of two shows. */
START_TEST(nobody_sees_a_torn_set)
{
    fixture_threads();
    changed = thread_attach(0, 0);
    set(changed, "key", "a");
    signal(SIGUSR1, handler);
    pthread_t self = pthread_self(), readers[READERS], sender;
    for (int i = 0; i < READERS; i++)
        pthread_create(&readers[i], NULL, read_from_outside, &over);
    pthread_create(&sender, NULL, send_signals, &self);
    char text[LABEL_VALUE_MAX + 1];
    for (int i = 0; i < CHANGES; i++) {
        size_t length = 1 + (size_t)i % LABEL_VALUE_MAX;
        memset(text, 'a' + i % 26, length);
        text[length] = 0;
        set(changed, "key", text);
    }
    store_relaxed(&over, 1);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    pthread_join(sender, NULL);
    ck_assert_uint_eq(torn, 0);
    ck_assert_uint_gt(seen_here, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("user_labels");
    TCase *labels = tcase_create("labels");
    tcase_set_timeout(labels, 120);
    tcase_add_test(labels, the_order_of_setting_does_not_matter);
    tcase_add_test(labels, a_slot_taken_anew_has_none);
    tcase_add_test(labels, kept_labels_are_those_of_then);
    tcase_add_test(labels, a_change_is_not_begun_inside_another);
    tcase_add_test(labels, nobody_sees_a_torn_set);
    suite_add_tcase(suite, labels);
    return suite;
}
