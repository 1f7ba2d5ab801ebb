/* prog_upload_pipe: works as prog_paces does until a file `end` is in its folder, and tells then
 * whether a pipe that it had from the start reaches its end when it closes its own end, what
 * descriptors it has, and which of them the agent's thread that sends has, too. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "test/preload/program.h"

enum { LINKS = 64, LINK_SIZE = 256 };

struct links {
    char text[LINKS][LINK_SIZE];
    int count;
};

/* What the descriptors of a folder under /proc are, but for that of the listing. */
static void read_links(struct links *links, const char *folder)
{
    char path[300];
    DIR *listing = opendir(folder);
    links->count = 0;
    for (struct dirent *entry; listing && (entry = readdir(listing));) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        char *text = links->text[links->count];
        ssize_t length = readlink(path, text, LINK_SIZE - 1);
        if (length <= 0 || links->count == LINKS - 1)
            continue;
        text[length] = 0;
        links->count += !strstr(text, "/fd");
    }
    if (listing)
        closedir(listing);
}

static bool is_sender(const char *thread)
{
    char path[300], name[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", thread);
    int fd = open(path, O_RDONLY);
    bool is = fd >= 0 && read(fd, name, sizeof(name) - 1) > 0 && strcmp(name, "libagent-up\n") == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

int main(void)
{
    static struct links before, now, senders;
    int ends[2], shared = 0, sender_count = 0;
    char path[300], byte;
    if (pipe(ends) != 0)
        return 1;
    read_links(&before, "/proc/self/fd");
    while (access("end", F_OK) != 0) {
        spin(4000000);
        nanosleep(&(struct timespec){0, 36000000}, NULL);
    }
    read_links(&now, "/proc/self/fd");
    printf("new %d\n", now.count - before.count);
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (!is_sender(entry->d_name))
            continue;
        sender_count++;
        snprintf(path, sizeof(path), "/proc/self/task/%s/fd", entry->d_name);
        read_links(&senders, path);
        printf("sender has %s\n", senders.count > 0 ? "some" : "none");
        for (int i = 0; i < senders.count; i++)
            for (int j = 0; j < now.count; j++)
                shared += strcmp(senders.text[i], now.text[j]) == 0;
    }
    closedir(threads);
    close(ends[1]);
    bool ended =
        poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 0) == 1 && read(ends[0], &byte, 1) == 0;
    printf("senders %d\nshared %d\n%s\n", sender_count, shared,
           ended ? "end of the pipe" : "somebody has it open");
    return 0;
}
