#include "uploader/retry.h"

#include <string.h>

enum { TRIES_OF_DOUBTFUL = 2 };

/* ---- Retry-After ---- */

static bool take_number(const char **text, size_t most, uint64_t *value)
{
    size_t digits = 0;
    for (*value = 0; **text >= '0' && **text <= '9' && digits < most; (*text)++, digits++)
        *value = *value * 10 + (uint64_t)(**text - '0');
    return digits > 0;
}

/* "Sun, 06 Nov 1994 08:49:37 GMT"; the two older forms of dates are not sent any more. */
static bool parse_date(const char *text, uint64_t *unix_seconds)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    uint64_t day, year, hour, minute, second;
    const char *p = strchr(text, ',');
    if (!p || p[1] != ' ')
        return false;
    p += 2;
    if (!take_number(&p, 2, &day) || *p++ != ' ')
        return false;
    unsigned month = 0;
    while (month < 12 && strncmp(p, months + 3 * (size_t)month, 3) != 0)
        month++;
    if (month == 12 || p[3] != ' ')
        return false;
    p += 4;
    if (!take_number(&p, 4, &year) || *p++ != ' ' || !take_number(&p, 2, &hour) || *p++ != ':' ||
        !take_number(&p, 2, &minute) || *p++ != ':' || !take_number(&p, 2, &second) || year < 1970)
        return false;
    /* Days since 1970 (Howard Hinnant's days_from_civil, of years from March on). */
    uint64_t y = month < 2 ? year - 1 : year;
    uint64_t march_month = month < 2 ? month + 10 : month - 2;
    uint64_t days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * march_month + 2) / 5 + day - 1;
    *unix_seconds = (days - 719468) * 86400 + hour * 3600 + minute * 60 + second;
    return true;
}

uint64_t retry_after_ns(const char *text, uint64_t now_unix_ns)
{
    const char *p = text;
    uint64_t seconds;
    if (take_number(&p, 9, &seconds) && !*p)
        return MIN_OF(seconds * NS_PER_SEC, RETRY_AFTER_LIMIT_NS);
    if (!parse_date(text, &seconds) || seconds > UINT64_MAX / NS_PER_SEC ||
        seconds * NS_PER_SEC <= now_unix_ns)
        return 0;
    return MIN_OF(seconds * NS_PER_SEC - now_unix_ns, RETRY_AFTER_LIMIT_NS);
}

/* ---- statuses ---- */

/* Parca's answer: the status stands in a header or, behind the message's frame, in the trailer's,
 * which begins with 0x80. -1: nowhere, so it is another's answer. */
static int grpc_status(const struct http_response *response)
{
    if (response->grpc_status >= 0)
        return response->grpc_status;
    const uint8_t *p = (const uint8_t *)response->body;
    size_t left = response->body_size;
    while (left >= 5) {
        size_t length = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
        size_t here = MIN_OF(length, left - 5);
        static const char name[] = "grpc-status:";
        for (size_t i = 0; p[0] & 0x80 && i + sizeof(name) <= here; i++) {
            const char *text = (const char *)p + 5 + i;
            if (memcmp(text, name, sizeof(name) - 1) != 0)
                continue;
            const char *digits = text + sizeof(name) - 1;
            digits += *digits == ' ';
            uint64_t value;
            return take_number(&digits, 2, &value) ? (int)value : -1;
        }
        p += 5 + here;
        left -= 5 + here;
    }
    return -1;
}

/* A gRPC status as HTTP has it (google.rpc.Code). Unknown (2) is a 500: Parca says so of what it
 * will never take, too. */
static int http_of_grpc(int status)
{
    static const int table[] = {200, 499, 500, 400, 504, 404, 409, 403, 413,
                                400, 503, 400, 404, 500, 503, 500, 401};
    return (size_t)status < ARRAY_SIZE(table) ? table[status] : 500;
}

static struct verdict drop(const char *reason)
{
    return (struct verdict){.outcome = OUTCOME_DROPPED, .reason = reason};
}

static struct verdict refuse(const char *reason)
{
    return (struct verdict){.outcome = OUTCOME_DROPPED,
                            .wait_ns = RETRY_PROBE_NS,
                            .refused = true,
                            .shows_answer = true,
                            .reason = reason};
}

static struct verdict too_large(const char *reason)
{
    return (struct verdict){.outcome = OUTCOME_DROPPED, .too_large = true, .reason = reason};
}

/* Full jitter: clients that failed together do not come back together. */
static struct verdict again(const char *reason, unsigned attempt, double unit)
{
    uint64_t most = attempt < 5 ? RETRY_FIRST_NS << attempt : RETRY_LONGEST_NS;
    return (struct verdict){
        .outcome = OUTCOME_AGAIN, .wait_ns = (uint64_t)((double)most * unit), .reason = reason};
}

static struct verdict unknown(const char *reason, unsigned attempt, double unit)
{
    struct verdict verdict = again(reason, attempt, unit);
    verdict.outcome = OUTCOME_UNKNOWN;
    return verdict;
}

static struct verdict doubtful(const char *reason, unsigned attempt, double unit)
{
    return attempt + 1 < TRIES_OF_DOUBTFUL ? again(reason, attempt, unit) : drop(reason);
}

static bool is_overloaded(const struct http_response *response)
{
    return strstr(response->body, "resource_exhausted") != NULL;
}

static struct verdict by_status(int status, const struct http_response *response, size_t size,
                                unsigned attempt, double unit)
{
    struct verdict verdict;
    switch (status) {
    case 400:
        verdict = drop("it does not take the profile");
        verdict.shows_answer = true;
        return verdict;
    case 401:
    case 403:
        return refuse("it refuses the credentials");
    case 404:
    case 405:
        return refuse("it does not know the address: a wrong URL, or an old server");
    case 408:
    case 500:
        return doubtful("the server fails", attempt, unit);
    case 413:
        return too_large("the profile is too large for it");
    case 422:
        if (is_overloaded(response))
            return again("it takes no more at the moment", attempt, unit);
        verdict = drop("it does not take the profile");
        verdict.shows_answer = true;
        return verdict;
    case 429:
        if (size > RETRY_BURST_BYTES)
            return too_large("the profile is larger than its burst");
        return again("it takes no more at the moment", attempt, unit);
    case 502:
    case 503:
    case 504:
        return again("the server is not available", attempt, unit);
    default:
        break;
    }
    if (status >= 200 && status < 300)
        return (struct verdict){.outcome = OUTCOME_SENT};
    if (status >= 300 && status < 400)
        return refuse("it redirects, which is not followed: give the address that it leads to");
    verdict = drop("it does not take the profile");
    verdict.shows_answer = true;
    return verdict;
}

struct verdict retry_decide(enum backend_kind kind, const struct http_response *response,
                            size_t size, unsigned attempt, double unit, uint64_t now_unix_ns)
{
    struct verdict verdict = {0};
    switch (response->result) {
    case HTTP_NOT_SENT:
        return again(NULL, attempt, unit);
    case HTTP_GIVEN_UP:
        return (struct verdict){.outcome = OUTCOME_AGAIN};
    case HTTP_NO_CLIENT:
        return drop("there is no libcurl");
    case HTTP_NO_ANSWER:
        return unknown(NULL, attempt, unit);
    case HTTP_ANSWERED:
        break;
    }
    int status = response->status;
    if (kind == BACKEND_PARCA && status == 200) {
        int told = grpc_status(response);
        if (told < 0) {
            verdict = unknown("it answers, but not as Parca does", attempt, unit);
            verdict.status = status;
            verdict.shows_answer = true;
            return verdict;
        }
        status = http_of_grpc(told);
    }
    verdict = by_status(status, response, size, attempt, unit);
    verdict.status = status;
    uint64_t asked = retry_after_ns(response->retry_after, now_unix_ns);
    if (verdict.outcome == OUTCOME_AGAIN && asked)
        verdict.wait_ns = asked;
    return verdict;
}
