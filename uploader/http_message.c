#include "uploader/http_message.h"

#include <stdarg.h>
#include <string.h>

#include "agent/base/format.h"

enum { HEADER_MAX = 4096 };

void http_request_begin(struct http_request *request)
{
    *request = (struct http_request){.url = ""};
}

void http_add_header(struct http_request *request, const char *pattern, ...)
{
    char *room = buffer_room(&request->headers, HEADER_MAX);
    if (!room)
        return;
    va_list list;
    va_start(list, pattern);
    request->headers.size += format_list(room, HEADER_MAX, pattern, list) + 1;
    va_end(list);
}

int http_request_error(const struct http_request *request)
{
    return request->headers.error ? request->headers.error : request->body.error;
}

void http_request_free(struct http_request *request)
{
    buffer_free(&request->headers);
    buffer_free(&request->body);
}
