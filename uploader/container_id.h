/* container_id.h: the container that the process runs in, from the texts of two files under /proc.
 *
 * Method: that of Datadog's libraries. The id is the last part of a path of /proc/self/cgroup, with
 * or without ".scope"; where the container sees no more than "/" there (cgroup version 2), it is
 * the folder that its hostname file is mounted from.
 *
 * Owns: nothing. Context: any (pure). Locks: none. */
#ifndef LIBAGENT_CONTAINER_ID_H
#define LIBAGENT_CONTAINER_ID_H

#include <stdbool.h>

enum { CONTAINER_ID_SIZE = 80 };

/* False, and an empty text: not found. */
bool container_id_of_cgroup(const char *text, char out[CONTAINER_ID_SIZE]);
bool container_id_of_mountinfo(const char *text, char out[CONTAINER_ID_SIZE]);

#endif
