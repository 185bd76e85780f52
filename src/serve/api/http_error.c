/* http_error: error responses. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } all[] = {{401, "authentication_error"}, {403, "permission_error"},    {404, "not_found_error"},
               {500, "server_error"},         {501, "not_supported_error"}, {503, "unavailable_error"},
               {504, "timeout_error"}};
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

void wf_refusal_put(wf_text *out, const wf_http_error *r)
{
    wf_json_print(out, "{'error':{'message':%s,'type':%s,'param':%s,'code':", r->message, r->type,
                  r->param[0] ? r->param : NULL);
    if (r->code) wf_json_print(out, "%s}}", r->code);
    else wf_json_print(out, "%d}}", r->status);
}
