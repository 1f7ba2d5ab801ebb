/* LIBAGENT_UPLOAD_URL taken apart, and the variables of other tools that stand in for it. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "test/own_log.h"
#include "uploader/upload_config.h"

static struct destination destination;

static const char *parse(const char *text)
{
    return upload_url_parse(text, strlen(text), &destination);
}

START_TEST(urls_are_understood)
{
    static const struct {
        const char *text;
        enum backend_kind kind;
        bool is_intake;
        const char *url, *socket;
    } good[] = {
        {"pyroscope+http://h:4040", BACKEND_PYROSCOPE, false, "http://h:4040", ""},
        {"pyroscope+https://a.b/base/", BACKEND_PYROSCOPE, false, "https://a.b/base", ""},
        {"parca+http://[::1]:7070", BACKEND_PARCA, false, "http://[::1]:7070", ""},
        {"datadog+http://h:8126/", BACKEND_DATADOG, false, "http://h:8126", ""},
        {"datadog+https://intake.profile.datadoghq.eu", BACKEND_DATADOG, true,
         "https://intake.profile.datadoghq.eu", ""},
        {"datadog+http://h/own/path", BACKEND_DATADOG, true, "http://h/own/path", ""},
        {"datadog+unix:///var/run/datadog/apm.socket", BACKEND_DATADOG, false, "http://localhost",
         "/var/run/datadog/apm.socket"},
        {"http://h", BACKEND_POST, false, "http://h", ""},
        {"http://h:65535", BACKEND_POST, false, "http://h:65535", ""},
        {"http://[::1]/p", BACKEND_POST, false, "http://[::1]/p", ""},
        {"https://h/p@q", BACKEND_POST, false, "https://h/p@q", ""},
        {"file:///var/p", BACKEND_FILE, false, "/var/p", ""},
    };
    char shown[UPLOAD_URL_SIZE];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_ptr_null(parse(good[i].text));
        ck_assert_int_eq(destination.kind, good[i].kind);
        ck_assert_str_eq(destination.url, good[i].url);
        ck_assert_str_eq(destination.socket, good[i].socket);
        ck_assert_int_eq(destination.is_intake, good[i].is_intake);
        size_t length = upload_url_show(&destination, shown, sizeof(shown));
        ck_assert_uint_eq(length, strlen(shown));
        ck_assert_msg(strncmp(shown, good[i].text, length) == 0, "%s", shown);
        ck_assert_uint_le(strlen(good[i].text) - length, 1); /* a final '/' */
    }
}
END_TEST

/* Whose line it is: no path, which may hold what is secret. */
START_TEST(names_for_the_log)
{
    static const char *const cases[][2] = {
        {"pyroscope+http://h:4040/base", "pyroscope at h:4040"},
        {"parca+https://[::1]:7070", "parca at [::1]:7070"},
        {"http://h/put/secret", "post at h"},
        {"datadog+unix:///run/apm.socket", "datadog at /run/apm.socket"},
    };
    char name[DESTINATION_NAME_SIZE];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_ptr_null(parse(cases[i][0]));
        ck_assert_uint_eq(destination_name(&destination, name, sizeof(name)), strlen(cases[i][1]));
        ck_assert_str_eq(name, cases[i][1]);
    }
    /* Of what goes to the spool alone. */
    destination = (struct destination){.kind = BACKEND_PARCA};
    destination_name(&destination, name, sizeof(name));
    ck_assert_str_eq(name, "parca");
}
END_TEST

START_TEST(others_are_refused)
{
    static const char *const wrong[] = {
        "",
        "h:4040",
        "ftp://h",
        "pyroscope://h",
        "pyroscope+http://",
        "pyroscope+http:///p",
        "pyroscope+http://:80",
        "http://me:secret@h",
        "http://me@h/p",
        "http://h:99999",
        "http://h:65536/p",
        "http://h:4294967376",
        "http://h:0",
        "http://h:",
        "http://h:80x",
        "http://[::1]80",
        "http://[::1]:65536",
        "http://h h",
        "http://h\r\nX: y",
        "http://h/a b",
        "http://h/?q=1",
        "http://h/#f",
        "datadog+unix://relative",
        "datadog+unix:///",
        "file://x",
        "file://",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(parse(wrong[i]) != NULL, "%s", wrong[i]);
    char text[UPLOAD_URL_SIZE + 32];
    for (size_t length = UPLOAD_URL_SIZE - 2; length < UPLOAD_URL_SIZE + 1; length++) {
        memset(text, 'h', sizeof(text));
        memcpy(text, "http://", 7);
        text[length] = 0;
        ck_assert_int_eq(parse(text) == NULL, length < UPLOAD_URL_SIZE);
    }
    memcpy(text, "datadog+unix:///", 16);
    text[15 + UPLOAD_SOCKET_SIZE - 1] = 0;
    ck_assert_ptr_null(parse(text));
    memset(text + 16, 's', UPLOAD_SOCKET_SIZE);
    text[15 + UPLOAD_SOCKET_SIZE] = 0;
    ck_assert_ptr_nonnull(parse(text));
}
END_TEST

START_TEST(lists)
{
    struct destination all[UPLOAD_DESTINATIONS];
    size_t count;
    ck_assert_ptr_null(upload_urls_parse(
        "pyroscope+http://a, parca+http://b ,datadog+http://c,http://d,", all, &count));
    ck_assert_uint_eq(count, 4);
    ck_assert_str_eq(all[1].url, "http://b");
    ck_assert_str_eq(all[3].url, "http://d");
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(all[i].place, 0);
    ck_assert_ptr_null(upload_urls_parse(
        "http://a,parca+http://a,http://b,datadog+unix:///a,http://c,datadog+unix:///b", all,
        &count));
    static const unsigned places[] = {0, 0, 1, 0, 2, 1};
    ck_assert_uint_eq(count, 6);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(all[i].place, places[i]);
    /* The same twice would be stored twice; files have one folder. */
    ck_assert_ptr_nonnull(upload_urls_parse("http://a,http://b,http://a/", all, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_ptr_nonnull(upload_urls_parse("file:///a,file:///b", all, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_ptr_nonnull(upload_urls_parse("http://a,,parca+http://b", all, &count));
    ck_assert_ptr_nonnull(upload_urls_parse(
        "http://1,http://2,http://3,http://4,http://5,http://6,http://7,http://8,http://9", all,
        &count));
    ck_assert_uint_eq(count, UPLOAD_DESTINATIONS);
}
END_TEST

/* ---- the environment ---- */

static struct upload_config config;

static void load(const struct upload_options *options, char *const *environment)
{
    memset(&config, 'x', sizeof(config));
    upload_config_load(&config, options, environment, 42);
}

START_TEST(variables_of_others)
{
    static const struct {
        char *environment[5];
        const char *url; /* NULL: nowhere */
        enum backend_kind kind;
        const char *url_option;
    } cases[] = {
        {{"PYROSCOPE_SERVER_ADDRESS=http://p:4040"}, "http://p:4040", BACKEND_PYROSCOPE, NULL},
        {{"PYROSCOPE_SERVER_ADDRESS=http://p:4040"}, "http://o", BACKEND_POST, "http://o"},
        {{"PYROSCOPE_SERVER_ADDRESS=http://p:4040", "DD_PROFILING_ENABLED=1", "DD_AGENT_HOST=h"},
         "http://p:4040",
         BACKEND_PYROSCOPE,
         NULL},
        {{"DD_PROFILING_ENABLED=true", "DD_AGENT_HOST=h"}, "http://h:8126", BACKEND_DATADOG, NULL},
        {{"DD_PROFILING_ENABLED=true", "DD_AGENT_HOST=h", "DD_TRACE_AGENT_PORT=9"},
         "http://h:9",
         BACKEND_DATADOG,
         NULL},
        {{"DD_PROFILING_ENABLED=true", "DD_AGENT_HOST=h", "DD_TRACE_AGENT_URL=https://u:1"},
         "https://u:1",
         BACKEND_DATADOG,
         NULL},
        {{"DD_AGENT_HOST=h"}, NULL, BACKEND_FILE, NULL},
        {{"DD_PROFILING_ENABLED=false", "DD_AGENT_HOST=h"}, NULL, BACKEND_FILE, NULL},
        {{"DD_PROFILING_ENABLED=true"}, NULL, BACKEND_FILE, NULL},
        {{"PYROSCOPE_SERVER_ADDRESS="}, NULL, BACKEND_FILE, NULL},
        {{"PYROSCOPE_SERVER_ADDRESS=p:4040"}, NULL, BACKEND_FILE, NULL},
        {{NULL}, NULL, BACKEND_FILE, "nonsense"},
        {{"PYROSCOPE_SERVER_ADDRESS=http://p:4040"}, NULL, BACKEND_FILE, "nonsense"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        load(&(struct upload_options){.url = cases[i].url_option}, cases[i].environment);
        ck_assert_msg(config.count == (cases[i].url != NULL), "case %zu", i);
        if (!config.count)
            continue;
        ck_assert_str_eq(config.destinations[0].url, cases[i].url);
        ck_assert_int_eq(config.destinations[0].kind, cases[i].kind);
    }
    load(&(struct upload_options){.url = "http://o", .is_off = true},
         (char *[]){"PYROSCOPE_SERVER_ADDRESS=http://p:4040", NULL});
    ck_assert_uint_eq(config.count, 0);
}
END_TEST

/* What libcurl would have sent goes to the spool, else nowhere; files are files. */
START_TEST(without_a_client_nothing_is_sent)
{
    char *none[] = {NULL}, *datadog[] = {"DD_PROFILING_ENABLED=true", "DD_AGENT_HOST=h", NULL};
    char text[4096];
    struct upload_options options = {.url = "http://a,file:///f,parca+http://b,http://c",
                                     .lacks_client = true};
    own_log_start();
    load(&options, none);
    ck_assert_uint_eq(config.count, 1);
    ck_assert_int_eq(config.destinations[0].kind, BACKEND_FILE);
    ck_assert(!config.spools_only);
    ck_assert_int_eq(own_log_lines("profiles are not sent from under this sanitizer"), 1);
    load(&(struct upload_options){.lacks_client = true}, datadog);
    ck_assert_uint_eq(config.count, 0);
    ck_assert_int_eq(own_log_lines("profiles are not sent from under this sanitizer"),
                     1); /* once */
    load(&(struct upload_options){.url = "file:///f", .lacks_client = true}, none);
    ck_assert_uint_eq(config.count, 1);
    options.spool.folder = "/s";
    load(&options, none);
    ck_assert_uint_eq(config.count, 4);
    ck_assert(config.spools_only);
    ck_assert_uint_eq(config.destinations[3].place, 1);
    ck_assert_uint_gt(upload_config_describe(&config, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "profiles for post are left in /s (by LIBAGENT_SPOOL)\n"
                           "profiles are sent to file, /f (by LIBAGENT_UPLOAD_URL)\n"
                           "profiles for parca are left in /s (by LIBAGENT_SPOOL)\n"
                           "profiles for post are left in /s (by LIBAGENT_SPOOL)\n");
    ck_assert_int_eq(own_log_lines("libagent: "), 1);
    own_log_remove();
}
END_TEST

START_TEST(first_name_of_a_tag_wins)
{
    load(&(struct upload_options){.url = "http://o", .tags = "env:mine,team:a b"},
         (char *[]){
             "OTEL_RESOURCE_ATTRIBUTES=service.name=s,service.version=1,env=other,x%2Cy=1%2c2",
             "DD_ENV=theirs", "DD_VERSION=2", "DD_TAGS=a:1 b:2,env:x", "POD_NAME=p",
             "POD_NAMESPACE=n", "NODE_NAME=m", NULL});
    ck_assert_str_eq(config.identity.tags.text,
                     "env:mine,team:a b,version:1,x_y:1_2,a:1,b:2,pod_name:p,pod_namespace:n,"
                     "node_name:m");
    ck_assert_int_eq(config.identity.pid, 42);
    ck_assert_uint_eq(strlen(config.identity.runtime), 36);
}
END_TEST

START_TEST(each_tag_that_is_left_out_is_named)
{
    own_log_start();
    load(&(struct upload_options){.url = "http://o", .tags = "abc,x:1,:2,y:"},
         (char *[]){"POD_NAME=p", NULL});
    ck_assert_str_eq(config.identity.tags.text, "x:1,pod_name:p");
    ck_assert_int_eq(own_log_lines("LIBAGENT_TAGS: \"abc\" is no name:value"), 1);
    ck_assert_int_eq(own_log_lines("LIBAGENT_TAGS: \":2\" is no name:value"), 1);
    ck_assert_int_eq(own_log_lines("libagent: "), 2);
    own_log_remove();
}
END_TEST

START_TEST(secrets_are_not_described)
{
    char text[4096];
    load(&(struct upload_options){.url = "pyroscope+http://h,parca+http://h"},
         (char *[]){"PYROSCOPE_BASIC_AUTH_USER=me-user", "PYROSCOPE_BASIC_AUTH_PASSWORD=me-pass",
                    "PARCA_BEARER_TOKEN=me-token", "DD_ENV=e", NULL});
    ck_assert_uint_gt(upload_config_describe(&config, text, sizeof(text)), 0);
    ck_assert_ptr_null(strstr(text, "me-"));
    ck_assert_ptr_nonnull(strstr(text, "pyroscope, http://h (by LIBAGENT_UPLOAD_URL); with user "
                                       "(hidden), password (hidden)\n"));
    ck_assert_ptr_nonnull(strstr(text, "parca, http://h (by LIBAGENT_UPLOAD_URL); with token "
                                       "(hidden)\ntags: env:e\n"));
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("upload_url");
    TCase *all = tcase_create("all");
    tcase_add_test(all, urls_are_understood);
    tcase_add_test(all, names_for_the_log);
    tcase_add_test(all, others_are_refused);
    tcase_add_test(all, lists);
    tcase_add_test(all, variables_of_others);
    tcase_add_test(all, without_a_client_nothing_is_sent);
    tcase_add_test(all, first_name_of_a_tag_wins);
    tcase_add_test(all, each_tag_that_is_left_out_is_named);
    tcase_add_test(all, secrets_are_not_described);
    suite_add_tcase(suite, all);
    return suite;
}
