/* Parts of requests that the suites of whole programs do not vary: tags, labels, credentials,
 * containers, times. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include "uploader/container_id.h"
#include "uploader/shipment.h"

START_TEST(tags_are_clean_and_bounded)
{
    struct tags tags = {.length = 0};
    ck_assert(tags_add(&tags, "a:b c", 5, "x,y\n\xff", 5));
    ck_assert_str_eq(tags.text, "a_b_c:x_y__");
    ck_assert(tags_add(&tags, "a:b c", 5, "again", 5));
    ck_assert(tags_add(&tags, "", 0, "v", 1));
    ck_assert(tags_add(&tags, "n", 1, "", 0));
    ck_assert_str_eq(tags.text, "a_b_c:x_y__");
    char value[TAG_MAX + 1];
    memset(value, 'v', sizeof(value));
    ck_assert(!tags_add(&tags, "long", 4, value, TAG_MAX - 4));
    ck_assert(tags_add(&tags, "long", 4, value, TAG_MAX - 5));
    bool all = true;
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof(name), "t%d", i);
        all &= tags_add(&tags, name, strlen(name), value, 150);
    }
    ck_assert(!all);
    ck_assert_uint_eq(strlen(tags.text), tags.length);
    ck_assert_uint_lt(tags.length, TAGS_SIZE);
    struct tags more = {.length = 0};
    const char *list = "a:1,nothing, b:2:3";
    ck_assert_ptr_eq(tags_add_list(&more, list, false), list + 4);
    ck_assert_str_eq(more.text, "a:1,b:2:3");
    list = "a:1,:2,c:";
    ck_assert_ptr_eq(tags_add_list(&more, list, false), list + 4);
    ck_assert_ptr_null(tags_add_list(&more, "c:,,", false));
    ck_assert_str_eq(more.text, "a:1,b:2:3");
}
END_TEST

START_TEST(attributes)
{
    struct tags tags = {.length = 0};
    ck_assert(tags_add_attributes(
        &tags, "service.name=s%20x, deployment.environment.name=e,a=%zz%4,b==%41,c"));
    ck_assert_str_eq(tags.text, "env:e,a:%zz%4,b:=A");
}
END_TEST

START_TEST(labels_are_unique)
{
    struct tags tags = {.length = 0};
    ck_assert_ptr_null(tags_add_list(&tags, "a-b:1,a.b:2,__x:3,host:4,9:5,ok:6", false));
    static const char *const reserved[] = {"host", NULL};
    static const char *const expected[] = {"a_b=1", "_9=5", "ok=6"};
    const char *place = tags.text;
    struct series_label label;
    int count = 0;
    while (series_label_next(&tags, &place, reserved, &label)) {
        char text[2 * TAG_MAX];
        snprintf(text, sizeof(text), "%s=%.*s", label.name, (int)MIN_OF(label.length, 8),
                 label.value);
        ck_assert_int_lt(count, 3);
        ck_assert_str_eq(text, expected[count++]);
    }
    ck_assert_int_eq(count, 3);
}
END_TEST

static const char *headers_of(const struct credentials *credentials)
{
    static char text[4096];
    struct http_request request;
    http_request_begin(&request);
    credentials_add_headers(credentials, &request);
    ck_assert_uint_lt(request.headers.size, sizeof(text));
    text[request.headers.size] = 0;
    if (request.headers.size)
        memcpy(text, request.headers.data, request.headers.size);
    for (size_t i = 0; i < request.headers.size; i++)
        if (!text[i])
            text[i] = '\n';
    http_request_free(&request);
    return text;
}

START_TEST(credentials_become_headers)
{
    /* RFC 4648's vectors. */
    static const char *const pairs[][3] = {
        {"f", "", "Zjo="}, {"fo", "", "Zm86"}, {"foo", "ba", "Zm9vOmJh"}};
    static struct credentials credentials;
    static const struct destination pyroscope = {.kind = BACKEND_PYROSCOPE, .url = "http://a"};
    for (size_t i = 0; i < 3; i++) {
        char text[128];
        snprintf(text, sizeof(text),
                 "PYROSCOPE_BASIC_AUTH_USER=%s\nPYROSCOPE_BASIC_AUTH_PASSWORD=%s", pairs[i][0],
                 pairs[i][1]);
        ck_assert_uint_eq(credentials_read(&credentials, &pyroscope, text).count, 0);
        char expected[64];
        snprintf(expected, sizeof(expected), "Authorization: Basic %s\n", pairs[i][2]);
        ck_assert_str_eq(headers_of(&credentials), expected);
    }
    ck_assert_uint_eq(
        credentials_read(&credentials, &pyroscope,
                         "PYROSCOPE_AUTH_TOKEN=t\r\nPYROSCOPE_TENANT_ID=o=p\n#x\n\n \n"
                         "DD_API_KEY=k")
            .count,
        0);
    ck_assert_str_eq(headers_of(&credentials), "Authorization: Bearer t\nX-Scope-OrgID: o=p\n");
    /* A line's end in one would be another header. */
    ck_assert(!credentials_take(&credentials, BACKEND_PYROSCOPE,
                                (char *[]){"PYROSCOPE_AUTH_TOKEN=t\r\nX: y", NULL}));
    ck_assert_str_eq(headers_of(&credentials), "");
}
END_TEST

/* For whichever destination it is read, the same lines are told. */
START_TEST(lines_that_are_none)
{
    static const struct {
        const char *text;
        unsigned first, count;
    } cases[] = {
        {"", 0, 0},
        {"\r\n# PYROSCOPE\n[a]\nPARCA_BEARER_TOKEN=t\nUPLOAD_AUTH_TOKEN=\n", 0, 0},
        {"hush", 1, 1},
        {"=hush", 1, 1},
        {"DD_API_KEY=k\nDD_API_KEYS=hush\nhush", 2, 2},
        {"export DD_API_KEY=k\n", 1, 1},
        {"DD_API_KEY\n", 1, 1},
        {"PYROSCOPE_AUTH_TOKEN=a\tb\n", 1, 1},
        {"[a]\n\n[b\n", 3, 1},
    };
    static const enum backend_kind kinds[] = {BACKEND_PYROSCOPE, BACKEND_PARCA, BACKEND_DATADOG,
                                              BACKEND_POST};
    static struct credentials credentials;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            const struct destination destination = {.kind = kinds[k], .url = "http://b"};
            const struct wrong_lines wrong =
                credentials_read(&credentials, &destination, cases[i].text);
            ck_assert_msg(wrong.first == cases[i].first && wrong.count == cases[i].count, "%s",
                          cases[i].text);
        }
}
END_TEST

/* Each destination gets what stands under its address, and none of anybody else's. */
START_TEST(credentials_by_address)
{
    enum { WRONG = 10 }; /* its first line that is none */
    static const char text[] = "PYROSCOPE_AUTH_TOKEN=all\nPYROSCOPE_TENANT_ID=t\n"
                               "[one:4040] \r\nPYROSCOPE_AUTH_TOKEN=one\n"
                               "[two]\n#x\nPYROSCOPE_BASIC_AUTH_USER=u\n"
                               "[three/base]\nPYROSCOPE_TENANT_ID=three\n[]\n[\n"
                               "[two]\nPYROSCOPE_BASIC_AUTH_PASSWORD=p\n"
                               "[/run/a.socket]\nDD_API_KEY=k\n";
    static const struct {
        const char *url, *headers;
    } cases[] = {
        {"http://one:4040", "Authorization: Bearer one\n"},
        {"https://one:4040/x", "Authorization: Bearer one\n"},
        {"http://one:40404", "Authorization: Bearer all\nX-Scope-OrgID: t\n"},
        {"http://one", "Authorization: Bearer all\nX-Scope-OrgID: t\n"},
        {"http://two/base", "Authorization: Basic dTpw\n"},
        {"http://three/base/more", "X-Scope-OrgID: three\n"},
        {"http://three/bases", "Authorization: Bearer all\nX-Scope-OrgID: t\n"},
    };
    static struct credentials credentials;
    struct destination destination = {.kind = BACKEND_PYROSCOPE};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* Of the environment. */
        strcpy(credentials.text[CREDENTIAL_TOKEN], "old");
        credentials.text[CREDENTIAL_USER][0] = credentials.text[CREDENTIAL_TENANT][0] = 0;
        strcpy(destination.url, cases[i].url);
        ck_assert_uint_eq(credentials_read(&credentials, &destination, text).first, WRONG);
        ck_assert_msg(strcmp(headers_of(&credentials), cases[i].headers) == 0, "%s: %s",
                      cases[i].url, headers_of(&credentials));
    }
    destination = (struct destination){.kind = BACKEND_DATADOG, .socket = "/run/a.socket"};
    ck_assert_uint_eq(credentials_read(&credentials, &destination, text).first, WRONG);
    ck_assert_str_eq(credentials.text[CREDENTIAL_KEY], "k");
    ck_assert_str_eq(credentials.text[CREDENTIAL_TENANT], "");
}
END_TEST

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(containers)
{
    static const struct {
        const char *text, *id;
    } cgroups[] = {
        {"0::/\n", ""},
        {"12:cpu:/docker/" ID "\n0::/x\n", ID},
        {"1:a:/\n0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope\n", ID},
        {"0::/kubepods/besteffort/pod3d274242-8ee0-11e9-a8a6-1e68d864ef1a/"
         "7b8952da-2bcd-4a41-8a7d-000000000001",
         "7b8952da-2bcd-4a41-8a7d-000000000001"},
        {"9:cpu:/ecs/x/34dc0b5e626f2c5c4c5170e34b10e765-1234567890\n",
         "34dc0b5e626f2c5c4c5170e34b10e765-1234567890"},
        {"0::/user.slice/session-3.scope\n", ""},
        {"0::/" ID "0\n", ""},
        {"", ""},
    };
    char id[CONTAINER_ID_SIZE];
    for (size_t i = 0; i < sizeof(cgroups) / sizeof(cgroups[0]); i++) {
        ck_assert_int_eq(container_id_of_cgroup(cgroups[i].text, id), cgroups[i].id[0] != 0);
        ck_assert_str_eq(id, cgroups[i].id);
    }
    static const char docker[] = "608 554 0:42 / / rw - overlay overlay rw\n"
                                 "619 608 8:1 /var/lib/docker/containers/" ID
                                 "/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n";
    ck_assert(container_id_of_mountinfo(docker, id));
    ck_assert_str_eq(id, ID);
    static const char sandbox[] = "1 2 0:1 /io.containerd.grpc.v1.cri/sandboxes/" ID
                                  "/hostname /etc/hostname rw - ext4 x rw\n";
    ck_assert(!container_id_of_mountinfo(sandbox, id));
    ck_assert_str_eq(id, "");
    ck_assert(!container_id_of_mountinfo("1 2 0:1 /" ID "/x /etc/hosts rw\n", id));
}
END_TEST

START_TEST(datadog_event)
{
    static struct credentials credentials;
    struct upload_identity identity = {
        .pid = 7, .runtime = "r", .container = "c", .entity = "ci-c"};
    const struct destination destination = {.kind = BACKEND_DATADOG, .url = "http://h"};
    const struct blob_header header = {.family = "all",
                                       .service = "a\"b\\,c",
                                       .start_unix_ns = 951782400123456789ull,
                                       .end_unix_ns = 1709251199000000001ull};
    const struct shipment shipment = {.destination = &destination,
                                      .credentials = &credentials,
                                      .identity = &identity,
                                      .header = &header,
                                      .data = "bytes",
                                      .size = 5};
    struct http_request request;
    ck_assert(tags_add(&identity.tags, "service", 7, "other", 5));
    http_request_begin(&request);
    shipment_request(&shipment, &request);
    buffer_append(&request.body, "", 1);
    const char *body = (const char *)request.body.data;
    ck_assert_str_eq(request.url, "http://h/profiling/v1/input");
    ck_assert_ptr_nonnull(strstr(body, "\"start\":\"2000-02-29T00:00:00.123456789Z\","
                                       "\"end\":\"2024-02-29T23:59:59.000000001Z\""));
    ck_assert_ptr_nonnull(strstr(body, ",service:a\\\"b\\\\_c\",\"start\""));
    ck_assert_ptr_nonnull(strstr(body, "\r\n\r\nbytes\r\n--"));
    bool has_container = false;
    for (size_t at = 0; at < request.headers.size;
         at += strlen((char *)request.headers.data + at) + 1)
        has_container |=
            strcmp((const char *)request.headers.data + at, "Datadog-Entity-ID: ci-c") == 0;
    ck_assert(has_container);
    http_request_free(&request);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("shipment");
    TCase *all = tcase_create("all");
    tcase_add_test(all, tags_are_clean_and_bounded);
    tcase_add_test(all, attributes);
    tcase_add_test(all, labels_are_unique);
    tcase_add_test(all, credentials_become_headers);
    tcase_add_test(all, credentials_by_address);
    tcase_add_test(all, lines_that_are_none);
    tcase_add_test(all, containers);
    tcase_add_test(all, datadog_event);
    suite_add_tcase(suite, all);
    return suite;
}
