/* page: the page for people at /. It is one file, webui.html, inside the program. Its only script
 * and style are let in by a nonce: the request's id, which is random and belongs to this answer
 * alone. */
#include "serve/internal.h"

#include <stdio.h>
#include <string.h>

extern const char wf_webui[], wf_webui_end[]; /* webui.S */

#define PLACE "{{nonce}}" /* where webui.html wants it */

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
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             j->id, j->id);
    MHD_add_response_header(r, "Content-Security-Policy", policy);
    MHD_add_response_header(r, "Cache-Control", "no-store"); /* a nonce is for once */
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
}
