/* webui: the web UI at /. It is one file, webui.html, embedded in the program. The content security policy admits its only script
 * and style by a nonce: the request id, which is random and unique to the response. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <string.h>

extern const char wf_webui[], wf_webui_end[]; /* webui.S */

#define PLACE "{{nonce}}" /* its placeholder in webui.html */

bool wf_webui_print(wf_job *j, json_t **out, wf_text *text)
{
    const char *at = wf_webui, *place;
    (void)out;
    while ((place = memmem(at, (size_t)(wf_webui_end - at), PLACE, strlen(PLACE)))) {
        wf_text_add(text, at, (size_t)(place - at));
        wf_text_add(text, j->id, strlen(j->id));
        at = place + strlen(PLACE);
    }
    wf_text_add(text, at, (size_t)(wf_webui_end - at));
    return !text->failed || wf_refuse(&j->refusal, 500, "", "out of memory for the page");
}

void wf_webui_headers(const wf_job *j, struct MHD_Response *r)
{
    char policy[400];
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'; trusted-types 'none'", /* so that no text can become HTML or script */
             j->id, j->id);
    MHD_add_response_header(r, "Content-Security-Policy", policy);
    MHD_add_response_header(r, "Cache-Control", "no-store"); /* a nonce must not be reused */
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
}
