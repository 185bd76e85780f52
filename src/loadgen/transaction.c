/* transaction: one request and its event stream, from the first byte to the reason why it ended. */
#include "loadgen/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_transaction_init(wf_transaction *x, const wf_request_spec *spec, wf_request_result *result, bool keep_text)
{
    *x = (wf_transaction){
        .spec = spec, .result = result, .keep_text = keep_text, .prompt_tokens = -1, .completion_tokens = -1};
}

void wf_transaction_free(wf_transaction *x)
{
    wf_sse_free(&x->sse);
    free(x->body);
    free(x->error);
    free(x->text.data);
}

void wf_transaction_fail(wf_transaction *x, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) *p = ' '; /* the text may be printed to a terminal */
    if (!x->error) x->error = wf_strdup(text);
    x->result->ok = false;
}

/* ---- events ------------------------------------------------------------------------------- */

static const char *text_of(const wf_json *choice)
{
    const char *const names[] = {"content", "reasoning_content", "reasoning"};
    const char *text = wf_json_text(wf_json_get(choice, "text"));
    const wf_json *delta = wf_json_get(choice, "delta");
    for (size_t i = 0; i < WF_LEN(names) && (!text || !*text); i++) text = wf_json_text(wf_json_get(delta, names[i]));
    return text ? text : "";
}

/* A token may have empty text if it is part of a character. The first and the last event of a chat carry no token. */
static void take_choice(wf_transaction *x, const wf_json *choice, uint64_t now)
{
    const char *text = text_of(choice);
    const wf_json *reason = wf_json_get(choice, "finish_reason");
    bool opens = wf_json_get(wf_json_get(choice, "delta"), "role") != NULL, ends = wf_json_is(reason, WF_JSON_STRING);
    x->finished |= ends;
    if (!*text && (opens || (ends && x->n_chunks))) return;
    wf_request_result_token(x->result, now);
    x->n_chunks++;
    if (x->keep_text) wf_text_add(&x->text, text, strlen(text));
}

static bool take_object(wf_transaction *x, const wf_json *event, uint64_t now)
{
    const wf_json *error = wf_json_get(event, "error"), *choices = wf_json_get(event, "choices");
    if (!wf_json_absent(error)) {
        const char *text = wf_json_text(wf_json_get(error, "message"));
        wf_transaction_fail(x, "error in the stream: %.300s", text ? text : "no message");
        return false;
    }
    if (wf_json_count(choices)) take_choice(x, wf_json_at(choices, 0), now);
    const wf_json *usage = wf_json_get(event, "usage"), *in = wf_json_get(usage, "prompt_tokens"),
                  *out = wf_json_get(usage, "completion_tokens");
    if (wf_json_is(in, WF_JSON_INT)) x->prompt_tokens = wf_json_int(in);
    if (wf_json_is(out, WF_JSON_INT)) x->completion_tokens = wf_json_int(out);
    return true;
}

static bool on_event(void *user, const char *data, size_t len)
{
    wf_transaction *x = user;
    uint64_t now = wf_now_ns();
    if (len == 6 && !memcmp(data, "[DONE]", 6)) return x->done = true;
    wf_json *event = wf_json_read(data, len, NULL, NULL);
    bool ok = wf_json_is(event, WF_JSON_OBJECT) && take_object(x, event, now);
    if (!wf_json_is(event, WF_JSON_OBJECT))
        wf_transaction_fail(x, "invalid JSON in the stream: %.*s", (int)WF_MIN(len, 100u), data);
    wf_json_free(event);
    return ok;
}

/* ---- bytes -------------------------------------------------------------------------------- */

size_t wf_transaction_read(char *bytes, size_t size, size_t n, void *user)
{
    wf_transaction *x = user;
    long status = 0;
    n *= size;
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    size_t head = x->sse.n_events ? 0 : WF_MIN(n, sizeof x->head - 1 - x->n_head);
    memcpy(x->head + x->n_head, bytes, head);
    x->n_head += head;
    if (status != 200) return n;
    if (wf_sse_add(&x->sse, bytes, n, on_event, x)) return n;
    if (!x->error) wf_transaction_fail(x, "a line of the stream is longer than %zu bytes", WF_SSE_LINE);
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------ */

static uint32_t told(int64_t n, uint32_t otherwise) { return n >= 0 && n <= UINT32_MAX ? (uint32_t)n : otherwise; }

void wf_transaction_end(wf_transaction *x, CURLcode rc, long status)
{
    x->ended = true;
    if (!x->error) {
        bool whole = x->done || (x->finished && !rc);
        const char *why = x->curl_error;
        if (rc == CURLE_COULDNT_CONNECT || !*why) why = curl_easy_strerror(rc);
        /* libcurl's message has a time that differs for every request. */
        if (rc == CURLE_OPERATION_TIMEDOUT) why = "the response was not complete in time (--request-timeout)";
        if (status && status != 200) {
            wf_json *body = wf_json_read(x->head, x->n_head, NULL, NULL);
            const wf_json *error = wf_json_get(body, "error");
            const char *text = wf_json_text(wf_json_is(error, WF_JSON_STRING) ? error : wf_json_get(error, "message"));
            if (!text) text = wf_json_text(wf_json_get(body, "message"));
            if (text) wf_transaction_fail(x, "HTTP %ld: %.300s", status, text);
            else wf_transaction_fail(x, "HTTP %ld: %.300s", status, x->n_head ? x->head : "empty response");
            wf_json_free(body);
        } else if (!whole && rc) wf_transaction_fail(x, "%s", why);
        else if (!x->sse.n_events)
            wf_transaction_fail(x, "the response is not an event stream: %.100s", x->n_head ? x->head : "(empty)");
        else if (!whole) wf_transaction_fail(x, "the stream ended before the response was complete");
        else if (!x->n_chunks || !x->completion_tokens) wf_transaction_fail(x, "the response contains no token");
    }
    x->result->ok = !x->error;
    x->result->n_in = told(x->prompt_tokens, x->spec->n_in);
    x->result->n_out = told(x->completion_tokens, x->n_chunks);
}
