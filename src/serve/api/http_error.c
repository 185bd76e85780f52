/* http_error: error responses. */
#include "serve/api/internal.h"

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

bool wf_refuse(wf_http_error *r, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    r->status = status == WF_UNSUPPORTED ? 400 : status;
    r->type = type_of(r->status);
    if (status == WF_UNSUPPORTED) r->code = "not_supported";
    wf_copy(r->param, sizeof r->param, param);
    va_start(ap, fmt);
    wf_format(r->message, sizeof r->message, fmt, ap);
    va_end(ap);
    return false;
}

void wf_refusal_put(wf_text *out, const wf_http_error *r)
{
    wf_json_print(out, "{'error':{'message':%s,'type':%s,'param':%s,'code':", r->message, r->type,
                  r->param[0] ? r->param : NULL);
    if (r->code) wf_json_print(out, "%s}}", r->code);
    else wf_json_print(out, "%d}}", r->status);
}
