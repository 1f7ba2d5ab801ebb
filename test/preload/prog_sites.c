/* CFLAGS: -O2 */
/* prog_sites COUNT...: the n-th COUNT is how often site_N allocates 2^(n+3) bytes, 8 to 1 MiB. */
#include "test/preload/program.h"

#define SITE_OF(size)                                                                              \
    SITE static void site_##size(uint64_t count)                                                   \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            void *block = malloc(size);                                                            \
            keep(block);                                                                           \
            free(block);                                                                           \
        }                                                                                          \
    }

SITE_OF(8)
SITE_OF(16)
SITE_OF(32)
SITE_OF(64)
SITE_OF(128)
SITE_OF(256)
SITE_OF(512)
SITE_OF(1024)
SITE_OF(2048)
SITE_OF(4096)
SITE_OF(8192)
SITE_OF(16384)
SITE_OF(32768)
SITE_OF(65536)
SITE_OF(131072)
SITE_OF(262144)
SITE_OF(524288)
SITE_OF(1048576)

static void (*const sites[])(uint64_t) = {
    site_8,     site_16,    site_32,     site_64,     site_128,    site_256,
    site_512,   site_1024,  site_2048,   site_4096,   site_8192,   site_16384,
    site_32768, site_65536, site_131072, site_262144, site_524288, site_1048576};

int main(int argc, char **argv)
{
    enum { SITES = sizeof(sites) / sizeof(sites[0]) };
    for (int i = 0; i < SITES && i + 1 < argc; i++)
        sites[i](number_argument(argc, argv, i + 1, 0));
    return 0;
}
