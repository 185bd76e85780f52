/* http_error: error responses. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 500:
        return "server_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    case 504:
        return "timeout_error";
    default:
        return "invalid_request_error";
    }
}

static bool refuse(wf_http_error *r, int status, const char *param, const char *fmt, va_list ap)
{
    r->status = status;
    r->type = type_of(status);
    wf_copy(r->param, sizeof r->param, param);
    wf_format(r->message, sizeof r->message, fmt, ap);
    return false;
}

bool wf_refuse(wf_http_error *r, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    refuse(r, status, param, fmt, ap);
    va_end(ap);
    return false;
}

bool wf_refuse_unsupported(wf_http_error *r, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    refuse(r, 400, param, fmt, ap);
    va_end(ap);
    r->code = "not_supported";
    return false;
}

json_t *wf_refusal_json(const wf_http_error *r)
{
    json_t *message = wf_json_string(r->message, strlen(r->message));
    json_t *param = r->param[0] ? wf_json_string(r->param, strlen(r->param)) : json_null();
    return json_pack("{s:{s:o,s:s,s:o,s:o}}", "error", "message", message, "type", r->type,
                     "param", param, "code",
                     r->code ? json_string(r->code) : json_integer(r->status));
}
