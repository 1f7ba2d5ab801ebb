/* The look-up of next definitions against the loader's own. This program has the hooks in itself,
 * so it stands where libagent.so stands; the agent stays off. */
#include "test/check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "shim/next_lookup.h"

/* Before the constructor of shim/init.c. */
__attribute__((constructor(101))) static void keep_agent_off(int argc, char **argv)
{
    (void)argc;
    const char *enabled = getenv("LIBAGENT_ENABLED");
    if (enabled && strcmp(enabled, "0") == 0)
        return;
    setenv("LIBAGENT_ENABLED", "0", 1);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* libc's own dlsym: the name itself is a hook here. What is asked for RTLD_NEXT is looked for
 * behind its caller, this program. */
static void *(*libc_dlsym)(void *, const char *);

static void find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]) && !libc_dlsym; i++)
        libc_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    ck_assert(libc_dlsym != NULL);
}

struct member {
    const char *name;
    void **place;
};

static const struct member members[] = {
#define X(type, name, parameters) {#name, (void **)(void *)&next.name},
    NEXT_LIST(X)
#undef X
        {"malloc_usable_size", (void **)(void *)&next.malloc_usable_size}};
enum { MEMBERS = sizeof(members) / sizeof(members[0]) };

static void check_all(void)
{
    for (int i = 0; i < MEMBERS; i++) {
        void *expected = libc_dlsym(RTLD_NEXT, members[i].name);
        ck_assert_msg(*members[i].place == expected, "%s: %p, the loader says %p", members[i].name,
                      *members[i].place, expected);
    }
}

START_TEST(the_constructor_found_what_the_loader_finds)
{
    find_dlsym();
    check_all();
}
END_TEST

START_TEST(a_look_up_finds_what_the_loader_finds)
{
    find_dlsym();
    memset(&next, 0, sizeof(next));
    next_lookup();
    check_all();
}
END_TEST

static __typeof__(next.dl_iterate_phdr) iterate;
static uint32_t iterations;

static int count_iteration(int (*callback)(void *, size_t, void *), void *data)
{
    iterations++;
    ck_assert(!next.pthread_create);
    int result = iterate(callback, data);
    ck_assert(next.pthread_create);
    return result;
}

/* Threads may have objects unloaded by then. */
START_TEST(a_later_look_up_holds_the_lock_of_the_loader)
{
    find_dlsym();
    iterate = next.dl_iterate_phdr;
    next.dl_iterate_phdr = count_iteration;
    next.pthread_create = NULL;
    next_lookup();
    ck_assert_uint_eq(iterations, 1);
    next.dl_iterate_phdr = iterate;
    check_all();
}
END_TEST

START_TEST(names_without_a_hook_are_those_of_everybody)
{
    /* Not interposed here: the first definition is the next one. */
    find_dlsym();
    ck_assert(next.dl_iterate_phdr ==
              (__typeof__(next.dl_iterate_phdr))libc_dlsym(RTLD_DEFAULT, "dl_iterate_phdr"));
    ck_assert((void *)next.pthread_attr_init == libc_dlsym(RTLD_DEFAULT, "pthread_attr_init"));
}
END_TEST

START_TEST(hooks_are_not_their_own_next)
{
    ck_assert((void *)next.malloc != (void *)malloc);
    ck_assert((void *)next.free != (void *)free);
}
END_TEST

static void *other_malloc(size_t size)
{
    (void)size;
    return NULL;
}

START_TEST(what_is_known_stays)
{
    void *(*before)(size_t, size_t) = next.calloc;
    void *(*next_malloc)(size_t) = next.malloc;
    next.malloc = other_malloc;
    next.calloc = NULL;
    next_lookup();
    bool stayed = next.malloc == other_malloc;
    next.malloc = next_malloc; /* Check's assertions allocate */
    ck_assert(stayed);
    ck_assert(next.calloc == before);
}
END_TEST

START_TEST(a_missing_member_is_looked_up_on_use)
{
    void (*before)(void *) = next.free;
    next.free = NULL;
    ck_assert(NEXT(free) == before);
    ck_assert(next.free == before);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shim_next");
    TCase *lookup = tcase_create("look-up");
    tcase_set_timeout(lookup, 60);
    tcase_add_test(lookup, the_constructor_found_what_the_loader_finds);
    tcase_add_test(lookup, a_look_up_finds_what_the_loader_finds);
    tcase_add_test(lookup, a_later_look_up_holds_the_lock_of_the_loader);
    tcase_add_test(lookup, names_without_a_hook_are_those_of_everybody);
    tcase_add_test(lookup, hooks_are_not_their_own_next);
    tcase_add_test(lookup, what_is_known_stays);
    tcase_add_test(lookup, a_missing_member_is_looked_up_on_use);
    suite_add_tcase(suite, lookup);
    return suite;
}
