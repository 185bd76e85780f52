/* tokens: /tokenize, /detokenize and /apply-template. A text has many tokens, and each takes tens of bytes of JSON, so
 * the list is written as the client reads it: a request holds its ids and one block of text. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK      16384      /* bytes that make a part */
#define SOME       256        /* tokens that are written at once */
#define MAX_TOKENS (1u << 20) /* unless the context has more */

/* What takes about half a second, and a few bytes of memory per token. */
static size_t most_tokens(const wf_served *s) { return WF_MAX(MAX_TOKENS, s->context); }

static bool check_bytes(wf_job *j, const char *name, size_t len)
{
    size_t most = most_tokens(j->served) * 2;
    return len <= most ||
           wf_refuse(&j->refusal, 400, name, "the text has %zu bytes, at most %zu are possible", len, most);
}

/* ---- text to tokens -------------------------------------------------------------------------------------- */

/* A boolean field; sets *ok to false if it is something else. */
static bool flag(wf_job *j, const wf_json *body, const char *name, bool otherwise, bool *ok)
{
    const wf_json *v = wf_json_get(body, name);
    if (wf_json_absent(v)) return otherwise;
    if (!wf_json_is(v, WF_JSON_BOOL)) *ok = wf_refuse(&j->refusal, 400, name, "%s must be true or false", name);
    return wf_json_is_true(v);
}

/* The flags of the tokenizer, and of the list; false: one of the fields is something else. */
static bool read_flags(wf_job *j, const wf_json *body, unsigned *flags)
{
    bool ok = true;
    /* the name in llama.cpp, with default false, and in vLLM, with default true */
    bool special = flag(j, body, "add_special", wf_field(body, "content") == NULL, &ok);
    special = flag(j, body, "add_special_tokens", special, &ok);
    bool parse = flag(j, body, "parse_special", true, &ok);
    j->tokens.pieces = flag(j, body, "with_pieces", false, &ok);
    j->tokens.strings = flag(j, body, "return_token_strs", false, &ok);
    *flags = (special ? 0 : WEFT_TEXT_NO_ADD_SPECIAL) | (parse ? 0 : WEFT_TEXT_NO_PARSE_SPECIAL);
    return ok;
}

/* As a chat would begin. */
static bool tokenize_chat(wf_job *j, const wf_json *body)
{
    bool ok = true;
    j->params.closed = !flag(j, body, "add_generation_prompt", true, &ok);
    if (!ok || !wf_chat_read(j->served, body, &j->params, &j->refusal)) return false;
    j->tokens.ids = j->params.prompts[0].ids;
    j->tokens.n = j->params.prompts[0].n;
    j->params.prompts[0].ids = NULL;
    return true;
}

bool wf_tokenize_read(wf_job *j, const wf_json *body)
{
    unsigned flags = 0;
    wf_token_list *t = &j->tokens;
    const wf_json *v = wf_field(body, "content");
    if (!v) v = wf_field(body, "prompt");
    if (!wf_fields_check(j->server, body, WF_OF_TOKENS, &j->refusal)) return false;
    if (!v && wf_field(body, "messages")) return read_flags(j, body, &flags) && tokenize_chat(j, body);
    if (!wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(&j->refusal, 400, "prompt", "prompt (or content) must be a string; or send messages");
    size_t len = wf_json_bytes(v);
    if (!read_flags(j, body, &flags) || !check_bytes(j, "prompt", len)) return false;
    if (weft_tokenize(j->served->model, wf_json_text(v), len, flags, &t->ids, &t->n))
        return wf_refuse(&j->refusal, 400, "prompt", "%s", wf_last_error());
    return t->n <= most_tokens(j->served) ||
           wf_refuse(&j->refusal, 400, "prompt", "the text has %zu tokens, at most %zu are possible", t->n,
                     most_tokens(j->served));
}

bool wf_template_read(wf_job *j, const wf_json *body)
{
    const wf_prompt *p;
    bool ok = wf_fields_check(j->server, body, WF_OF_TOKENS, &j->refusal);
    j->params.closed = !flag(j, body, "add_generation_prompt", true, &ok);
    j->params.rendered = true;
    if (!ok || !wf_chat_read(j->served, body, &j->params, &j->refusal)) return false;
    p = &j->params.prompts[0];
    wf_json_print(&j->out, "{'prompt':%.*s}", (int)p->len, p->text);
    return !j->out.failed || wf_refuse(&j->refusal, 500, "", "out of memory for the answer");
}

/* ---- the list of tokens ---------------------------------------------------------------------------------- */

static void write_piece(wf_job *j, int32_t id)
{
    char buf[1024];
    size_t len = WF_MIN(weft_token_text(j->served->model, id, 0, buf, sizeof buf), sizeof buf);
    wf_json_put_string(&j->out, buf, len);
}

static void write_token(wf_job *j, int32_t id, bool string)
{
    const wf_token_list *t = &j->tokens;
    if (string) {
        write_piece(j, id);
    } else if (t->pieces) {
        wf_text_print(&j->out, "{\"id\":%d,\"piece\":", id);
        write_piece(j, id);
        wf_text_add(&j->out, "}", 1);
    } else {
        wf_text_print(&j->out, "%d", id);
    }
}

/* Some more of the list. true: that was the last one. */
static bool write_some(wf_job *j, bool strings)
{
    wf_token_list *t = &j->tokens;
    for (size_t end = WF_MIN(t->n, t->at + SOME); t->at < end; t->at++) {
        if (t->at) wf_text_add(&j->out, ",", 1);
        write_token(j, t->ids[t->at], strings);
    }
    return t->at == t->n;
}

enum wf_httpd_more wf_tokenize_fill(void *job, wf_slice *part)
{
    wf_job *j = job;
    j->out.len = 0;
    while (j->out.len < BLOCK && j->tokens.next != WF_LIST_END) {
        wf_token_list *t = &j->tokens;
        if (t->next == WF_LIST_HEAD) {
            wf_text_print(&j->out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", t->n, j->served->context);
            t->next = WF_LIST_TOKENS;
        } else if (t->next == WF_LIST_TOKENS && write_some(j, false)) {
            wf_text_print(&j->out, t->strings ? "],\"token_strs\":[" : "]}");
            t->next = t->strings ? WF_LIST_STRINGS : WF_LIST_END;
            t->at = 0;
        } else if (t->next == WF_LIST_STRINGS && write_some(j, true)) {
            wf_text_print(&j->out, "]}");
            t->next = WF_LIST_END;
        }
    }
    *part = (wf_slice){j->out.data, j->out.len};
    return j->out.failed ? WF_HTTP_BREAK : j->tokens.next == WF_LIST_END ? WF_HTTP_END : WF_HTTP_MORE;
}

/* ---- tokens to text -------------------------------------------------------------------------------------- */

bool wf_detokenize_read(wf_job *j, const wf_json *body)
{
    size_t n, len = 0;
    char *text = NULL;
    int32_t *ids = NULL;
    bool ok = wf_fields_check(j->server, body, WF_OF_IDS, &j->refusal) &&
              wf_ids_read(j->served, wf_json_get(body, "tokens"), "tokens", most_tokens(j->served), &ids, &n,
                          &j->refusal);
    if (ok && weft_detokenize(j->served->model, ids, n, WEFT_TEXT_DEFAULT, &text, &len))
        ok = wf_refuse(&j->refusal, 400, "tokens", "%s", wf_last_error());
    free(ids);
    ok = ok && check_bytes(j, "tokens", len);
    /* The whole response: it is not longer than the texts that are possible. */
    if (ok) wf_json_print(&j->out, "{'content':%.*s,'prompt':%.*s}", (int)len, text, (int)len, text);
    if (ok && j->out.failed) ok = wf_refuse(&j->refusal, 500, "", "out of memory for the answer");
    weft_free(text);
    return ok;
}

bool wf_detokenize_answer(wf_job *j, wf_text *text)
{
    *text = j->out;
    j->out = (wf_text){0};
    return true;
}
