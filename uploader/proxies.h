/* proxies.h: the proxy that a request goes by, found as libcurl finds it: http_proxy (for reasons
 * of CGI in small letters alone), https_proxy or HTTPS_PROXY, for both else all_proxy or ALL_PROXY;
 * none for the hosts of no_proxy or NO_PROXY.
 *
 * Why not by libcurl: it calls getenv at each request, in a thread of ours. A program may have a
 * getenv of its own (bash), for its one thread, or free the texts that it has in its environment.
 *
 * Owns: nothing; the texts are the environment's. Context: INIT, UP. Locks: none. */
#ifndef LIBAGENT_PROXIES_H
#define LIBAGENT_PROXIES_H

/* NULL: none. */
struct proxies {
    const char *http, *https, *except;
};

void proxies_find(struct proxies *proxies, char *const *environment);
/* For libcurl, which looks no further then: "" where there is none. */
const char *proxies_for_url(const struct proxies *proxies, const char *url);
const char *proxies_except(const struct proxies *proxies);

#endif
