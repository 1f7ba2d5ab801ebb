/* Parts of requests that the suites of whole programs do not vary: tags, labels, credentials,
 * containers, times; and the numbers that are known of libcurl. */
#include "test/check.h"

#include <stdio.h>
#include <string.h>

#include <curl/curl.h>

#include "uploader/container_id.h"
#include "uploader/curl_api.h"
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
    ck_assert(!tags_add_list(&more, "a:1,nothing, b:2:3", false));
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
    ck_assert(tags_add_list(&tags, "a-b:1,a.b:2,__x:3,host:4,9:5,ok:6", false));
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
    for (size_t i = 0; i < 3; i++) {
        char text[128];
        snprintf(text, sizeof(text),
                 "PYROSCOPE_BASIC_AUTH_USER=%s\nPYROSCOPE_BASIC_AUTH_PASSWORD=%s", pairs[i][0],
                 pairs[i][1]);
        ck_assert(credentials_read(&credentials, BACKEND_PYROSCOPE, text));
        char expected[64];
        snprintf(expected, sizeof(expected), "Authorization: Basic %s\n", pairs[i][2]);
        ck_assert_str_eq(headers_of(&credentials), expected);
    }
    ck_assert(
        credentials_read(&credentials, BACKEND_PYROSCOPE,
                         "PYROSCOPE_AUTH_TOKEN=t\r\nPYROSCOPE_TENANT_ID=o=p\n#x\n\nDD_API_KEY=k"));
    ck_assert_str_eq(headers_of(&credentials), "Authorization: Bearer t\nX-Scope-OrgID: o=p\n");
    /* A line's end in one would be another header. */
    ck_assert(!credentials_take(&credentials, BACKEND_PYROSCOPE,
                                (char *[]){"PYROSCOPE_AUTH_TOKEN=t\r\nX: y", NULL}));
    ck_assert_str_eq(headers_of(&credentials), "");
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

START_TEST(numbers_of_libcurl)
{
    static const struct {
        long ours, theirs;
    } numbers[] = {
        {CURL_GLOBAL_EVERYTHING, CURL_GLOBAL_ALL},
        {CURL_OPTION_URL, CURLOPT_URL},
        {CURL_OPTION_POSTFIELDS, CURLOPT_POSTFIELDS},
        {CURL_OPTION_HTTPHEADER, CURLOPT_HTTPHEADER},
        {CURL_OPTION_POST, CURLOPT_POST},
        {CURL_OPTION_POSTFIELDSIZE_LARGE, CURLOPT_POSTFIELDSIZE_LARGE},
        {CURL_OPTION_WRITEDATA, CURLOPT_WRITEDATA},
        {CURL_OPTION_WRITEFUNCTION, CURLOPT_WRITEFUNCTION},
        {CURL_OPTION_HEADERDATA, CURLOPT_HEADERDATA},
        {CURL_OPTION_HEADERFUNCTION, CURLOPT_HEADERFUNCTION},
        {CURL_OPTION_NOSIGNAL, CURLOPT_NOSIGNAL},
        {CURL_OPTION_NOPROGRESS, CURLOPT_NOPROGRESS},
        {CURL_OPTION_FOLLOWLOCATION, CURLOPT_FOLLOWLOCATION},
        {CURL_OPTION_FRESH_CONNECT, CURLOPT_FRESH_CONNECT},
        {CURL_OPTION_FORBID_REUSE, CURLOPT_FORBID_REUSE},
        {CURL_OPTION_TIMEOUT_MS, CURLOPT_TIMEOUT_MS},
        {CURL_OPTION_CONNECTTIMEOUT_MS, CURLOPT_CONNECTTIMEOUT_MS},
        {CURL_OPTION_CAINFO, CURLOPT_CAINFO},
        {CURL_OPTION_UNIX_SOCKET_PATH, CURLOPT_UNIX_SOCKET_PATH},
        {CURL_OPTION_HTTP_VERSION, CURLOPT_HTTP_VERSION},
        {CURL_OPTION_QUICK_EXIT, CURLOPT_QUICK_EXIT},
        {CURL_HTTP_1_1, CURL_HTTP_VERSION_1_1},
        {CURL_INFO_RESPONSE_CODE, CURLINFO_RESPONSE_CODE},
        {CURL_INFO_SIZE_UPLOAD, CURLINFO_SIZE_UPLOAD_T},
        {CURL_INFO_CONNECT_TIME, CURLINFO_CONNECT_TIME},
        {CURL_DONE_MESSAGE, CURLMSG_DONE},
        {CURL_OK, CURLE_OK},
        {sizeof(struct curl_message), sizeof(CURLMsg)},
        {offsetof(struct curl_message, data.result), offsetof(CURLMsg, data.result)},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ck_assert_msg(numbers[i].ours == numbers[i].theirs, "%zu", i);
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
    tcase_add_test(all, containers);
    tcase_add_test(all, datadog_event);
    tcase_add_test(all, numbers_of_libcurl);
    suite_add_tcase(suite, all);
    return suite;
}
