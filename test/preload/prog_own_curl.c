/* prog_own_curl URL CA SECONDS: posts to the URL by a libcurl of its own, built with another TLS
 * library than the one that is found first, in two threads, until the time is over. */
/* LIBS: -l:libcurl-gnutls.so.4 -lpthread */
#include <curl/curl.h>
#include <pthread.h>
#include <string.h>

#include "test/preload/program.h"

static const char *url, *ca;
static uint64_t end;

static size_t ignore(char *data, size_t size, size_t count, void *context)
{
    (void)data, (void)context;
    return size * count;
}

static void post(long expected)
{
    CURL *easy = curl_easy_init();
    long status = 0;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, ca);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "text");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK || status != expected)
        printf("%s, status %ld\n", curl_easy_strerror(code), status);
    curl_easy_cleanup(easy);
}

static void *post_on(void *unused)
{
    (void)unused;
    while (clock_ns(CLOCK_MONOTONIC) < end)
        post(200);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    url = argv[1];
    ca = argv[2];
    end = clock_ns(CLOCK_MONOTONIC) + number_argument(argc, argv, 3, 1) * 1000000000u;
    curl_global_init(CURL_GLOBAL_ALL);
    pthread_create(&thread, NULL, post_on, NULL);
    spin(300000000);
    post_on(NULL);
    pthread_join(thread, NULL);
    puts(strstr(curl_version(), "GnuTLS") ? "good" : curl_version());
    return 0;
}
