/* Which variable says by which proxy a request goes: the order is that of libcurl's documentation.
 */
#include "test/check.h"

#include "uploader/proxies.h"

enum { VARIABLES = 4 };

START_TEST(order_of_the_variables)
{
    static const struct {
        char *environment[VARIABLES + 1];
        const char *http, *https, *except;
    } cases[] = {
        {{NULL}, "", "", ""},
        {{"http_proxy=a", "https_proxy=b", "no_proxy=c"}, "a", "b", "c"},
        {{"HTTP_PROXY=a", "HTTPS_PROXY=b", "NO_PROXY=c"}, "", "b", "c"},
        {{"ALL_PROXY=a"}, "a", "a", ""},
        {{"ALL_PROXY=a", "all_proxy=b"}, "b", "b", ""},
        {{"ALL_PROXY=a", "http_proxy=b"}, "b", "a", ""},
        {{"all_proxy=a", "HTTPS_PROXY=b", "https_proxy=c"}, "a", "c", ""},
        {{"https_proxy=", "HTTPS_PROXY=b", "no_proxy=", "NO_PROXY=c"}, "", "b", "c"},
        {{"xhttp_proxy=a", "http_proxy_=a", "HTTPS_PROXY=", "ALL_PROXY="}, "", "", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct proxies proxies;
        proxies_find(&proxies, cases[i].environment);
        ck_assert_str_eq(proxies_for_url(&proxies, "http://https:1/"), cases[i].http);
        ck_assert_str_eq(proxies_for_url(&proxies, "https://h/"), cases[i].https);
        ck_assert_str_eq(proxies_except(&proxies), cases[i].except);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("proxies");
    TCase *all = tcase_create("all");
    tcase_add_test(all, order_of_the_variables);
    suite_add_tcase(suite, all);
    return suite;
}
