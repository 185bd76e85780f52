/* fuzz_sse: libFuzzer target. The input is a script of what an engine writes into the choices of a stream, in any
 * bytes, of when the connection asks for more. What is read must be server-sent events of valid JSON, and the
 * texts in them what went in, with U+FFFD for what is no UTF-8, which another library judges here. */
#include <string.h>
#include <utf8proc.h>

#include "fuzz_serve.h"

#define MAX_CHOICES 3
#define MAX_OPS     64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    bool chat;
    const char *body;
} asks[] = {
    {false, "{\"prompt\": \"One day\", \"stream\": true}"},
    {false, "{\"prompt\": \"One \\\"day\\\"\\n\", \"n\": 3, \"stream\": true, \"echo\": true, \"logprobs\": 2}"},
    {false, "{\"prompt\": [\"One\", \"Two\"], \"stream\": true, \"stream_options\": {\"include_usage\": true}}"},
    {true, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true, \"n\": 2}"},
    {true, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true, \"logprobs\": true, "
           "\"top_logprobs\": 2,"
           " \"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}}"},
};

typedef struct fuzz_stream {
    wf_job job;
    size_t size; /* of the script, which no text is longer than */
    wf_choice choices[MAX_CHOICES];
    wf_text out;               /* all that was read */
    wf_text want[MAX_CHOICES]; /* what the texts in it must be */
    wf_text got[MAX_CHOICES];
    size_t tokens;
    unsigned finished;
    bool ended;
} fuzz_stream;

#define CHECK(x) ((x) ? (void)0 : abort())

/* ---- what goes in --------------------------------------------------------------------------------- */

static void want_text(wf_text *want, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)data + at, (utf8proc_ssize_t)(len - at), &c);
        wf_text_add(want, n > 0 ? data + at : "\xEF\xBF\xBD", n > 0 ? (size_t)n : 3);
        at += n > 0 ? (size_t)n : 1;
    }
}

/* The requests are read once: they are always the same, and streams only look at them. */
static const wf_job *asked(size_t which)
{
    static wf_job jobs[WF_LEN(asks)];
    wf_job *j = &jobs[which];
    if (j->server) return j;
    const char *text = asks[which].body;
    *j = job_of(asks[which].chat);
    wf_json *body = wf_body_parse(text, strlen(text), &j->refusal);
    CHECK(body && wf_params_read(j, body));
    wf_json_free(body);
    return j;
}

static void begin(fuzz_stream *f, uint8_t which, size_t size)
{
    wf_job *j = &f->job;
    *j = *asked(which % WF_LEN(asks));
    f->size = size;
    pthread_mutex_init(&j->lock, NULL);
    memset(j->id, 'a', sizeof j->id - 1);
    j->choices = f->choices;
    j->n_choices = j->n_pending = j->params.n_prompts * (size_t)j->params.n;
    for (size_t i = 0; i < j->n_choices; i++) {
        wf_prompt *p = &j->params.prompts[i / (size_t)j->params.n];
        f->choices[i] = (wf_choice){.job = j, .index = (uint32_t)i};
        if (j->params.echo) want_text(&f->want[i], p->text, p->len);
    }
}

/* A token with its text and two alternatives; the arrays are as large as the script can make them: an op has two bytes.
 */
static void add_token(fuzz_stream *f, wf_choice *c, const uint8_t *data, size_t len)
{
    if (!c->text) {
        size_t ops = WF_MIN(f->size / 2, (size_t)MAX_OPS);
        c->text = wf_calloc(f->size, 1);
        c->tokens = wf_calloc(ops, sizeof *c->tokens);
        c->top = wf_calloc(2 * ops, sizeof *c->top);
        CHECK(c->text && c->tokens && c->top);
    }
    if (len) memcpy(c->text + c->n_text, data, len);
    c->n_text += len;
    int32_t id = len ? data[0] : 0;
    for (int k = 0; k < 2; k++) c->top[c->n_top + (size_t)k] = (struct weft_logprob){id + k, -0.5f * (float)k};
    c->tokens[c->n_tokens++] = (wf_token){
        .id = id, .logprob = -1.25f, .text_end = c->n_text, .top = c->n_top, .n_top = 2};
    c->n_top += 2;
    f->tokens++;
}

static void end_choice(fuzz_stream *f, wf_choice *c, uint8_t how)
{
    static const char message[] = "the device \xff\n\"failed\"";
    if (c->done) return;
    c->done = true;
    c->end.finish = how & 1 ? WEFT_FINISH_STOP : WEFT_FINISH_LENGTH;
    c->end.status = (how & 62) == 62 ? WEFT_ERR_DEVICE : WEFT_OK;
    wf_copy(c->message, sizeof c->message, message);
    f->job.n_pending--;
}

/* ---- what comes out ------------------------------------------------------------------------------- */

static void read_some(fuzz_stream *f)
{
    size_t sent[MAX_CHOICES];
    wf_slice part;
    for (size_t i = 0; i < f->job.n_choices; i++) sent[i] = f->choices[i].sent_text;
    enum wf_httpd_more more = wf_sse_fill(&f->job, &part);
    CHECK(more != WF_HTTP_BREAK);
    f->ended = more == WF_HTTP_END;
    wf_text_add(&f->out, part.p, part.n);
    for (size_t i = 0; i < f->job.n_choices; i++) {
        const wf_choice *c = &f->choices[i];
        if (c->text) want_text(&f->want[i], c->text + sent[i], c->sent_text - sent[i]);
    }
}

static void check_choice(fuzz_stream *f, const wf_json *choice)
{
    int64_t i = wf_json_int(wf_json_get(choice, "index"));
    CHECK(i >= 0 && i < (int64_t)f->job.n_choices && !(f->finished >> i & 1));
    const wf_json *delta = wf_json_get(choice, "delta");
    const wf_json *text = delta ? wf_json_get(delta, "content") : wf_json_get(choice, "text");
    CHECK(!text || wf_json_is(text, WF_JSON_STRING));
    if (text) wf_text_add(&f->got[i], wf_json_text(text), wf_json_bytes(text));
    if (wf_json_is(wf_json_get(choice, "finish_reason"), WF_JSON_STRING)) f->finished |= 1u << i;
}

/* One event without the empty line; false: it is an error. */
static bool check_event(fuzz_stream *f, const char *text, size_t len)
{
    CHECK(len > 6 && !memcmp(text, "data: ", 6) && !memchr(text, '\n', len));
    wf_json *event = wf_json_read(text + 6, len - 6, &(wf_json_rules){.flags = WF_JSON_UNIQUE | WF_JSON_LOOSE}, NULL);
    CHECK(event);
    const wf_json *choices = wf_json_get(event, "choices"), *usage = wf_json_get(event, "usage");
    bool fine = !wf_json_get(event, "error");
    CHECK(fine ? wf_json_is(choices, WF_JSON_LIST)
               : wf_json_is(wf_json_get(wf_json_get(event, "error"), "message"), WF_JSON_STRING));
    for (size_t i = 0; i < wf_json_count(choices); i++) check_choice(f, wf_json_at(choices, i));
    if (fine && !wf_json_count(choices))
        CHECK((size_t)wf_json_int(wf_json_get(usage, "completion_tokens")) == f->tokens);
    wf_json_free(event);
    return fine;
}

static void check_out(fuzz_stream *f)
{
    static const char done[] = "data: [DONE]\n\n";
    bool fine = true;
    CHECK(f->out.len >= strlen(done) && !strcmp(f->out.data + f->out.len - strlen(done), done));
    for (char *at = f->out.data, *end; strcmp(at, done); at = end + 2) {
        end = strstr(at, "\n\n");
        CHECK(end && fine); /* nothing comes behind an error but the end */
        if (*at != ':') fine = check_event(f, at, (size_t)(end - at)); /* else a comment, where nothing has come */
    }
    if (fine) CHECK(f->finished == (1u << f->job.n_choices) - 1);
    for (size_t i = 0; i < f->job.n_choices; i++) {
        const wf_text *got = &f->got[i], *want = &f->want[i];
        CHECK(fine ? got->len == want->len : got->len <= want->len);
        CHECK(!got->len || !memcmp(got->data, want->data, got->len));
    }
}

static void end(fuzz_stream *f)
{
    for (size_t i = 0; i < f->job.n_choices; i++) {
        free(f->choices[i].text);
        free(f->choices[i].tokens);
        free(f->choices[i].top);
        free(f->want[i].data);
        free(f->got[i].data);
    }
    free(f->out.data);
    free(f->job.out.data);
    pthread_mutex_destroy(&f->job.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_stream f = {0};
    if (!size) return 0;
    begin(&f, data[0], size);
    size_t at = 1, ops = 0;
    while (at + 2 <= size && ops++ < MAX_OPS) {
        uint8_t op = data[at], n = data[at + 1];
        wf_choice *c = &f.choices[op % f.job.n_choices];
        size_t len = WF_MIN((size_t)n, size - at - 2);
        at += 2;
        if (op >> 6 == 0) {
            if (!f.ended) read_some(&f);
        } else if (op >> 6 == 1) {
            end_choice(&f, c, n);
        } else if (!c->done) {
            add_token(&f, c, data + at, len);
            at += len;
        }
    }
    for (size_t i = 0; i < f.job.n_choices; i++) end_choice(&f, &f.choices[i], 0);
    while (!f.ended) read_some(&f);
    check_out(&f);
    end(&f);
    return 0;
}
