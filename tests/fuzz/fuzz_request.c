/* fuzz_request: libFuzzer target. The input is the body of a request to the server, behind a byte that says to which
 * path: '0' and '1' ours, from '2' on those of other interfaces. Either it is refused with a status and a message, or
 * what goes to the engine is within bounds. */
#include <string.h>

#include "fuzz_serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const wf_served *s, const wf_params *p)
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

static void check_refusal(const wf_http_error *r, void (*put)(wf_text *out, const wf_http_error *r))
{
    wf_text text = {0};
    if (r->status < 400 || r->status > 599 || !r->message[0]) abort();
    put(&text, r);
    if (!wf_json_whole(text.data, text.len)) abort();
    free(text.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    wf_job j = job_of(data[0] >= '2' && data[0] <= '9' ? data[0] - '0' : data[0] & 1);
    const char *text = (const char *)data + 1;
    wf_json *body = wf_body_parse(text, size - 1, &j.refusal);
    bool good = body && wf_params_read(&j, body);
    if (good && j.written && !wf_json_whole(j.out.data, j.out.len)) abort(); /* it asks for nothing */
    if (good && !j.written) check_request(j.served, &j.params);
    if (!good) check_refusal(&j.refusal, j.route->api->put_refusal);
    wf_json_free(body);
    wf_params_free(&j.params);
    free(j.out.data);
    return 0;
}
