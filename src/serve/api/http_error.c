/* http_error: error responses. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } all[] = {{401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"}, {500, "server_error"},
               {501, "not_supported_error"},  {503, "unavailable_error"}, {504, "timeout_error"}};
    for (size_t i = 0; i < WF_LEN(all); i++)
        if (all[i].status == status) return all[i].type;
    return "invalid_request_error";
}

static bool fill_error(wf_http_error *r, int status, const char *param, const char *fmt, va_list ap)
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
    fill_error(r, status, param, fmt, ap);
    va_end(ap);
    return false;
}

bool wf_refuse_unsupported(wf_http_error *r, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill_error(r, 400, param, fmt, ap);
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
