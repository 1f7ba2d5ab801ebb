#include "uploader/proxies.h"

#include <stddef.h>
#include <string.h>

#include "agent/base/compiler.h"
#include "agent/base/options.h"

/* Of these, up to a NULL, the first that is set to something. */
static const char *first_of(char *const *environment, const char *const *names)
{
    for (; *names; names++) {
        const char *text = environment_get(environment, *names);
        if (text && *text)
            return text;
    }
    return NULL;
}

void proxies_find(struct proxies *proxies, char *const *environment)
{
    static const char *const http[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const https[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
                                        NULL};
    static const char *const except[] = {"no_proxy", "NO_PROXY", NULL};
    proxies->http = first_of(environment, http);
    proxies->https = first_of(environment, https);
    proxies->except = first_of(environment, except);
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

const char *proxies_for_url(const struct proxies *proxies, const char *url)
{
    bool is_https = strncmp(url, "https:", strlen("https:")) == 0;
    return or_empty(is_https ? proxies->https : proxies->http);
}

const char *proxies_except(const struct proxies *proxies)
{
    return or_empty(proxies->except);
}
