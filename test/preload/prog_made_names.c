/* Code made at run time, and told to perf. It computes in "first made", until a profile
 * is in its folder; then the same addresses are "second made"; code beside them is told to nobody.
 */
#include <dirent.h>
#include <string.h>
#include <sys/mman.h>

#include "test/preload/program.h"

typedef void made_loop(unsigned long rounds);

/* At `at`: goes around as often as it is told. */
static made_loop *make_loop(char *at)
{
#if defined(__x86_64__)
    static const unsigned char code[] = {0x55,             /* push %rbp */
                                         0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
                                         0x48, 0xff, 0xcf, /* dec %rdi */
                                         0x75, 0xfb,       /* jne to the dec */
                                         0x5d, 0xc3};      /* pop %rbp, ret */
    memcpy(at, code, sizeof(code));
#else
    static const unsigned code[] = {0xf1000400, 0x54ffffe1, 0xd65f03c0}; /* subs, b.ne, ret */
    memcpy(at, code, sizeof(code));
    __builtin___clear_cache(at, at + sizeof(code));
#endif
    return (made_loop *)at;
}

static int has_profile(void)
{
    const char *folder = getenv("LIBAGENT_OUTPUT");
    DIR *files = folder ? opendir(folder) : NULL;
    int found = 0;
    for (struct dirent *entry; files && (entry = readdir(files));)
        found |= strstr(entry->d_name, ".cpu.pb.gz") && entry->d_name[0] != '.';
    if (files)
        closedir(files);
    return found;
}

int main(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
    unlink(path);
    FILE *map = fopen(path, "w");
    char *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!map || page == MAP_FAILED)
        return 1;
    made_loop *told = make_loop(page), *untold = make_loop(page + 256);
    fprintf(map, "%lx 40 first made\n", (unsigned long)page);
    fflush(map);
    for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + 30000000000u;
         !has_profile() && clock_ns(CLOCK_MONOTONIC) < end;)
        told(10000000);
    fprintf(map, "%lx 40 second made\n", (unsigned long)page);
    fflush(map);
    for (uint64_t end = thread_cpu_ns() + 2000000000; thread_cpu_ns() < end;) {
        told(10000000);
        untold(10000000);
    }
    exit(0);
}
