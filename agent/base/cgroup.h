/* cgroup.h: the memory limits that the process lives under.
 * Owns: nothing. Context: INIT (reads files under /proc and /sys). Locks: none. */
#ifndef LIBAGENT_CGROUP_H
#define LIBAGENT_CGROUP_H

#include <stdint.h>

/* `wanted` bytes, but at most 1/16 of the memory limit of the cgroup (version 2 or 1) where one
 * is set and readable, and of RLIMIT_AS and RLIMIT_DATA; and at least 8 MiB, the least that the
 * tables work in (address space; what is touched is a fraction). */
uint64_t cgroup_limit_share(uint64_t wanted);

#endif
