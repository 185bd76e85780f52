/* fuzz_request: libFuzzer target. The input is the body of a request to the server, behind a byte that says to
 * which path. Either it is refused with a status and a message, or what goes to the engine is within bounds. */
#include <string.h>

#include "arena.h"
#include "fuzz_serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const wf_server *s, const wf_params *p)
{
    size_t n = p->n_prompts * (size_t)p->n;
    if (!n || n > WF_MAX_CHOICES) abort();
    for (size_t i = 0; i < n; i++) {
        struct weft_request_params r = wf_params_request(p, i);
        if (!r.n_tokens || r.n_tokens >= s->context || r.max_tokens > s->context || r.n_top > WEFT_MAX_TOP) abort();
        for (size_t k = 0; k < r.n_tokens; k++)
            if (r.tokens[k] < 0 || (uint32_t)r.tokens[k] >= weft_model_info(s->model)->n_vocab) abort();
        for (size_t k = 0; k < r.n_stop; k++)
            if (!r.stop[k][0]) abort();
    }
}

/* It can be written, as the server does it. */
static void check_json(json_t *j)
{
    wf_text text = {0};
    if (!wf_text_json(&text, j)) abort();
    free(text.data);
    json_decref(j);
}

static void check_refusal(const wf_http_error *r)
{
    if (r->status < 400 || r->status > 599 || !r->message[0]) abort();
    check_json(wf_refusal_json(r));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    wf_job j = job_of(data[0] & 1);
    const char *text = (const char *)data + 1;
    arena_begin();
    check_json(wf_json_string(text, size - 1)); /* whatever the bytes are, they become a JSON string */
    json_t *body = wf_json_parse(text, size - 1, &j.refusal);
    if (body && wf_params_read(&j, body)) check_request(j.server, &j.params);
    else check_refusal(&j.refusal);
    json_decref(body);
    wf_params_free(&j.params);
    arena_end();
    return 0;
}
