/* What becomes of a profile, for each answer. */
#include "test/check.h"

#include <string.h>

#include "uploader/retry.h"

static const uint64_t now = 784111777 * NS_PER_SEC; /* Sun, 06 Nov 1994 08:49:37 GMT */

static struct http_response answer(int status, const char *body)
{
    struct http_response response = {.result = HTTP_ANSWERED, .status = status, .grpc_status = -1};
    response.body_size = strlen(body);
    strcpy(response.body, body);
    return response;
}

static struct verdict decide(enum backend_kind kind, struct http_response response, size_t size,
                             unsigned attempt)
{
    return retry_decide(kind, &response, size, attempt, 1.0, now);
}

START_TEST(statuses)
{
    static const struct {
        int status;
        unsigned attempt;
        size_t size;
        const char *body;
        enum outcome outcome;
        bool too_large, refused;
        uint64_t wait_s;
    } cases[] = {
        {200, 0, 1, "", OUTCOME_SENT, false, false, 0},
        {202, 0, 1, "", OUTCOME_SENT, false, false, 0},
        {302, 0, 1, "", OUTCOME_DROPPED, false, true, 300},
        {400, 0, 1, "", OUTCOME_DROPPED, false, false, 0},
        {401, 0, 1, "", OUTCOME_DROPPED, false, true, 300},
        {403, 0, 1, "", OUTCOME_DROPPED, false, true, 300},
        {404, 0, 1, "", OUTCOME_DROPPED, false, true, 300},
        {408, 0, 1, "", OUTCOME_AGAIN, false, false, 1},
        {408, 1, 1, "", OUTCOME_DROPPED, false, false, 0},
        {413, 0, 1, "", OUTCOME_DROPPED, true, false, 0},
        {415, 0, 1, "", OUTCOME_DROPPED, false, false, 0},
        {422, 0, 1, "bad", OUTCOME_DROPPED, false, false, 0},
        {422, 0, 1, "resource_exhausted: push", OUTCOME_AGAIN, false, false, 1},
        {429, 0, 2u << 20, "", OUTCOME_AGAIN, false, false, 1},
        {429, 0, (2u << 20) + 1, "", OUTCOME_DROPPED, true, false, 0},
        {500, 0, 1, "", OUTCOME_AGAIN, false, false, 1},
        {500, 1, 1, "", OUTCOME_DROPPED, false, false, 0},
        {501, 0, 1, "", OUTCOME_DROPPED, false, false, 0},
        {502, 0, 1, "", OUTCOME_AGAIN, false, false, 1},
        {503, 3, 1, "", OUTCOME_AGAIN, false, false, 8},
        {503, 4, 1, "", OUTCOME_AGAIN, false, false, 16},
        {503, 5, 1, "", OUTCOME_AGAIN, false, false, 30},
        {504, 1000, 1, "", OUTCOME_AGAIN, false, false, 30},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct verdict verdict = decide(BACKEND_PYROSCOPE, answer(cases[i].status, cases[i].body),
                                        cases[i].size, cases[i].attempt);
        ck_assert_msg(verdict.outcome == cases[i].outcome && verdict.refused == cases[i].refused &&
                          verdict.too_large == cases[i].too_large &&
                          verdict.wait_ns == cases[i].wait_s * NS_PER_SEC,
                      "case %zu: %d", i, cases[i].status);
    }
}
END_TEST

START_TEST(results_without_an_answer)
{
    struct http_response response = {.result = HTTP_NOT_SENT};
    ck_assert_int_eq(decide(BACKEND_POST, response, 1, 0).outcome, OUTCOME_AGAIN);
    response.result = HTTP_NO_ANSWER;
    struct verdict verdict = decide(BACKEND_POST, response, 1, 0);
    ck_assert_int_eq(verdict.outcome, OUTCOME_UNKNOWN);
    ck_assert_uint_eq(verdict.wait_ns, NS_PER_SEC);
    response.result = HTTP_NO_CLIENT;
    ck_assert_int_eq(decide(BACKEND_POST, response, 1, 0).outcome, OUTCOME_DROPPED);
    response.result = HTTP_GIVEN_UP;
    ck_assert_int_eq(decide(BACKEND_POST, response, 1, 0).outcome, OUTCOME_AGAIN);
}
END_TEST

/* A draw of the wait: a share of the most. */
START_TEST(jitter_is_full)
{
    struct http_response response = {.result = HTTP_NOT_SENT};
    ck_assert_uint_eq(retry_decide(BACKEND_POST, &response, 1, 2, 0.25, now).wait_ns, NS_PER_SEC);
}
END_TEST

START_TEST(retry_after)
{
    static const struct {
        const char *text;
        uint64_t seconds;
    } cases[] = {
        {"0", 0},
        {"7", 7},
        {"300", 300},
        {"301", 300},
        {"999999999", 300},
        {"9999999999", 0},
        {"", 0},
        {"-1", 0},
        {"7 s", 0},
        {"soon", 0},
        {"Sun, 06 Nov 1994 08:49:39 GMT", 2},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1994 08:49:36 GMT", 0},
        {"Sun, 06 Nov 1994 09:49:37 GMT", 300},
        {"Thu, 29 Feb 2024 00:00:00 GMT", 300},
        {"Sun, 06 Nob 1994 08:49:39 GMT", 0},
        {"Sunday, 06-Nov-94 08:49:39 GMT", 0},
        {"Sun, 06 Nov", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(retry_after_ns(cases[i].text, now) == cases[i].seconds * NS_PER_SEC, "%s",
                      cases[i].text);
    /* The days of a leap year are counted. */
    ck_assert_uint_eq(retry_after_ns("Fri, 01 Mar 2024 00:00:09 GMT", 1709251200ull * NS_PER_SEC) /
                          NS_PER_SEC,
                      9);
    struct http_response response = answer(503, "");
    strcpy(response.retry_after, "12");
    ck_assert_uint_eq(decide(BACKEND_POST, response, 1, 0).wait_ns, 12 * NS_PER_SEC);
    response.status = 401;
    ck_assert_uint_eq(decide(BACKEND_POST, response, 1, 0).wait_ns, RETRY_PROBE_NS);
}
END_TEST

static struct http_response framed(const char *bytes, size_t size)
{
    struct http_response response = {.result = HTTP_ANSWERED, .status = 200, .grpc_status = -1};
    memcpy(response.body, bytes, size);
    response.body_size = size;
    return response;
}

START_TEST(parca_tells_in_its_own_way)
{
#define FRAMED(text) framed(text, sizeof(text) - 1)
    ck_assert_int_eq(
        decide(BACKEND_PARCA, FRAMED("\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n"), 1, 0).outcome,
        OUTCOME_SENT);
    ck_assert_int_eq(
        decide(BACKEND_PARCA, FRAMED("\0\0\0\0\2hi\x80\0\0\0\x0fgrpc-status:14\r\n"), 1, 0).outcome,
        OUTCOME_AGAIN);
    struct verdict verdict =
        decide(BACKEND_PARCA, FRAMED("\x80\0\0\0\x10grpc-status: 8\r\n"), 1, 0);
    ck_assert(verdict.too_large);
    verdict = decide(BACKEND_PARCA, FRAMED("\x80\0\0\0\x11grpc-status: 16\r\n"), 1, 0);
    ck_assert(verdict.refused);
    ck_assert_int_eq(verdict.status, 401);
    /* None at all, or cut, or in data: an answer, but not Parca's. */
    const struct http_response others[] = {
        FRAMED(""),
        FRAMED("<html>"),
        FRAMED("\x80\0\0\0"),
        FRAMED("\x80\xff\xff\xff\xffgrpc-stat"),
        FRAMED("\0\0\0\0\x10grpc-status: 0\r\n"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        verdict = decide(BACKEND_PARCA, others[i], 1, 0);
        ck_assert_int_eq(verdict.outcome, OUTCOME_UNKNOWN);
        ck_assert_int_eq(verdict.status, 200);
        ck_assert(!verdict.refused && verdict.shows_answer);
        ck_assert_str_eq(verdict.reason, "it answers, but not as Parca does");
    }
    struct http_response response = answer(200, "");
    response.grpc_status = 3;
    ck_assert_int_eq(decide(BACKEND_PARCA, response, 1, 0).outcome, OUTCOME_DROPPED);
    response.grpc_status = 0;
    ck_assert_int_eq(decide(BACKEND_PARCA, response, 1, 0).outcome, OUTCOME_SENT);
    response.grpc_status = 99;
    ck_assert_int_eq(decide(BACKEND_PARCA, response, 1, 0).status, 500);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("retry");
    TCase *all = tcase_create("all");
    tcase_add_test(all, statuses);
    tcase_add_test(all, results_without_an_answer);
    tcase_add_test(all, jitter_is_full);
    tcase_add_test(all, retry_after);
    tcase_add_test(all, parca_tells_in_its_own_way);
    suite_add_tcase(suite, all);
    return suite;
}
