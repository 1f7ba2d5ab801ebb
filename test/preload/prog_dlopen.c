/* CFLAGS: -O2 -rdynamic */
/* LIBS: -Wl,-rpath,$ORIGIN/sub -Wl,--enable-new-dtags -ldl -lpthread */
/* prog_dlopen CASE: opens sub/libplugin.so and sub/deeper/libother.so (beside the program), by the
 * RUNPATH of who calls. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/program.h"

typedef uint64_t work_fn(uint64_t);

static void told(const char *what, const void *handle)
{
    if (handle)
        printf("%s: opened\n", what);
    else
        printf("%s: %s\n", what, dlerror());
}

static void look_ups(void)
{
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_NOLOAD);
    told("not yet", plugin);
    plugin = dlopen("libplugin.so", RTLD_LAZY);
    told("by the program's RUNPATH", plugin);
    if (!plugin)
        return;
    told("again", dlopen("libplugin.so", RTLD_NOW | RTLD_NOLOAD));
    told("of the plugin's RUNPATH", dlopen("libother.so", RTLD_NOW));
    const char *(*open_other)(const char *) =
        (const char *(*)(const char *))dlsym(plugin, "plugin_open_other");
    printf("by the plugin's RUNPATH: %s\n", open_other("libother.so"));
    printf("from the plugin's folder: %s\n", open_other("$ORIGIN/deeper/libother.so"));
    told("from the program's folder", dlopen("$ORIGIN/sub/deeper/libother.so", RTLD_NOW));
    told("the program", dlopen(NULL, RTLD_NOW));
    told("missing", dlopen("libmissing.so", RTLD_NOW));
    told("no object", dlopen("/etc/passwd", RTLD_NOW));
    told("bad flags", dlopen("libplugin.so", 0));
    told("empty", dlopen("", RTLD_NOW));
    Dl_info info;
    if (dladdr(dlsym(plugin, "plugin_work"), &info))
        printf("%s in %s\n", info.dli_sname, strrchr(info.dli_fname, '/') + 1);
    printf("not global: %d\n", dlsym(RTLD_DEFAULT, "plugin_work") == NULL);
    told("global", dlopen("libplugin.so", RTLD_NOW | RTLD_GLOBAL));
    printf("global: %d\n", dlsym(RTLD_DEFAULT, "plugin_work") != NULL);
    told("another namespace", dlmopen(LM_ID_NEWLM, "libplugin.so", RTLD_NOW));
    printf("closed: %d\n", dlclose(plugin));
    printf("wrong handle: %d\n", dlclose((void *)&info) != 0);
}

/* libchain.so has a DT_RPATH, and needs libother.so: which finds by it, too. */
static void chain(void)
{
    void *first = dlopen("libchain.so", RTLD_NOW);
    told("by the program's RUNPATH", first);
    if (!first)
        return;
    const char *(*open_third)(const char *) =
        (const char *(*)(const char *))dlsym(first, "other_plugin_open");
    printf("by its loader's RPATH: %s\n", open_third("libthird.so"));
    printf("from the folder of who has no path: %s\n", open_third("$ORIGIN/libthird.so"));
}

/* The two work in turn, each closed before the other comes, often at the same addresses. */
static void turns(uint64_t rounds)
{
    static const char *const names[2] = {"libplugin.so", "sub/deeper/libother.so"};
    static const char *const functions[2] = {"plugin_work", "other_plugin_work"};
    uint64_t ns[2] = {0, 0}, random = 3;
    void *first = NULL;
    unsigned same = 0;
    for (uint64_t i = 0; i < 2 * rounds; i++) {
        void *plugin = dlopen(names[i % 2], RTLD_NOW);
        if (!plugin) {
            printf("%s\n", dlerror());
            exit(1);
        }
        work_fn *work = (work_fn *)dlsym(plugin, functions[i % 2]);
        if (i == 0)
            first = (void *)((uintptr_t)work & ~(uintptr_t)4095);
        else
            same += ((uintptr_t)work & ~(uintptr_t)4095) == (uintptr_t)first;
        ns[i % 2] += work((i % 2 ? 2000000 : 1000000) + next_random(&random) % 20000000);
        dlclose(plugin);
    }
    printf("plugin_work %lu\nother_plugin_work %lu\nsame %u\n", (unsigned long)ns[0],
           (unsigned long)ns[1], same);
}

/* Its file is cut short as soon as it is closed. */
static void cut(void)
{
    static const char path[] = "sub/libplugin.so";
    char line[512];
    int lines = 0;
    struct link_map *plugin = dlopen(path, RTLD_NOW);
    if (!plugin)
        exit(1);
    work_fn *work = (work_fn *)dlsym(plugin, "plugin_work");
    printf("start %lu\n", (unsigned long)((uintptr_t)work - plugin->l_addr));
    printf("plugin_work %lu\n", (unsigned long)work(500000000));
    dlclose(plugin);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        lines += strstr(line, path) != NULL;
    if (!maps || fclose(maps) != 0 || truncate(path, 0) != 0)
        exit(1);
    printf("mapped %d\n", lines);
}

static volatile bool stop;

static void *churn(void *data)
{
    while (!stop) {
        free(malloc(300));
        compute();
    }
    return data;
}

static void *open_and_close(void *data)
{
    uint64_t rounds = *(uint64_t *)data, failed = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        void *plugin = dlopen("libplugin.so", RTLD_NOW);
        work_fn *work = plugin ? (work_fn *)dlsym(plugin, "plugin_work") : NULL;
        if (!work || !work(10000))
            failed++;
        if (plugin)
            dlclose(plugin);
    }
    return (void *)failed;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A third of the rounds fills what remembers closed objects. */
static void loop(uint64_t rounds)
{
    uint64_t third = rounds / 3, rest = rounds - third;
    uintptr_t failed = (uintptr_t)open_and_close(&third);
    long early = resident_kib();
    failed += (uintptr_t)open_and_close(&rest);
    printf("failed: %lu\nearly-rss-kib %ld\nlate-rss-kib %ld\n", (unsigned long)failed, early,
           resident_kib());
}

static int count_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size;
    ++*(int *)data;
    return 0;
}

/* Openers, walkers of the loader's list, and threads that are sampled, all at once. */
static void crowd(uint64_t rounds)
{
    enum { OPENERS = 3 };
    pthread_t openers[OPENERS], worker;
    uintptr_t failed = 0;
    pthread_create(&worker, NULL, churn, NULL);
    for (int i = 0; i < OPENERS; i++)
        pthread_create(&openers[i], NULL, open_and_close, &rounds);
    for (int i = 0; i < 1000; i++) {
        int count = 0;
        dl_iterate_phdr(count_object, &count);
        failed += count < 3;
    }
    for (int i = 0; i < OPENERS; i++) {
        void *result = NULL;
        pthread_join(openers[i], &result);
        failed += (uintptr_t)result;
    }
    stop = true;
    pthread_join(worker, NULL);
    printf("failed: %lu\n", (unsigned long)failed);
}

int main(int argc, char **argv)
{
    uint64_t rounds = number_argument(argc, argv, 2, 50);
    if (argc > 1 && strcmp(argv[1], "turns") == 0)
        turns(rounds);
    else if (argc > 1 && strcmp(argv[1], "crowd") == 0)
        crowd(rounds);
    else if (argc > 1 && strcmp(argv[1], "loop") == 0)
        loop(rounds);
    else if (argc > 1 && strcmp(argv[1], "cut") == 0)
        cut();
    else if (argc > 1 && strcmp(argv[1], "chain") == 0)
        chain();
    else
        look_ups();
    return 0;
}
