/* webui: the web UI at /. It is one file, webui.html, embedded in the program. The content security policy admits its
 * only script and style by a nonce: the request id, which is random and unique to the response. */
#include "serve/api/internal.h"

#include <string.h>

extern const char wf_webui[], wf_webui_end[]; /* webui.S */

#define PLACE "{{nonce}}" /* its placeholder in webui.html */

bool wf_webui_print(wf_job *j, wf_text *text)
{
    const char *at = wf_webui, *place;
    while ((place = memmem(at, (size_t)(wf_webui_end - at), PLACE, strlen(PLACE)))) {
        wf_text_add(text, at, (size_t)(place - at));
        wf_text_add(text, j->id, strlen(j->id));
        at = place + strlen(PLACE);
    }
    wf_text_add(text, at, (size_t)(wf_webui_end - at));
    return !text->failed || wf_refuse(&j->refusal, 500, "", "out of memory for the page");
}

void wf_webui_fields(const wf_job *j, wf_text *fields)
{
    wf_text_print(
        fields,
        "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'\r\n" /* so that no text can become HTML or script */
        "Cache-Control: no-store\r\n"                                  /* a nonce must not be reused */
        "Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n",
        j->id, j->id);
}
