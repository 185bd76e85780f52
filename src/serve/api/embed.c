/* embed: /v1/embeddings, and Ollama's /api/embed and /api/embeddings. Each text is a prompt of the one way of requests,
 * which gives an embedding in place of an answer; a reply is written when all have come. */
#include "serve/api/embed.h"

#include <math.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------------------- */

bool wf_embed_check(wf_job *j, bool scores)
{
    const wf_served *m = j->served;
    if (!m->pooling)
        return wf_refuse(&j->refusal, WF_UNSUPPORTED, "model",
                         "the model '%.80s' generates text: name one for embeddings, or start the server with "
                         "WEFT_POOLING=last", m->name);
    if (scores && !wf_served_ranks(m))
        return wf_refuse(&j->refusal, WF_UNSUPPORTED, "model",
                         "the model '%.80s' has no head that scores pairs of texts: it gives embeddings at "
                         "/v1/embeddings", m->name);
    if (!scores && wf_served_ranks(m))
        return wf_refuse(&j->refusal, WF_UNSUPPORTED, "model",
                         "the model '%.80s' scores pairs of texts, at /v1/score and /v1/rerank: it gives no embeddings",
                         m->name);
    return true;
}

bool wf_embed_whole(const wf_json *body, const char *name, double min, double max, int64_t *out, wf_http_error *r)
{
    const wf_json *v = wf_field(body, name);
    double x = wf_json_number(v);
    if (v && !(wf_is_whole(v) && x >= min && x <= max))
        return wf_refuse(r, 400, name, "%s must be a whole number from %.15g to %.15g", name, min, max);
    if (v) *out = (int64_t)x;
    return true;
}

bool wf_embed_flag(wf_job *j, const wf_json *body, const char *name, bool *out)
{
    const wf_json *v = wf_field(body, name);
    if (v && !wf_json_is(v, WF_JSON_BOOL)) return wf_refuse(&j->refusal, 400, name, "%s must be true or false", name);
    if (v) *out = wf_json_is_true(v);
    return true;
}

bool wf_embed_fields(wf_job *j, const wf_json *body)
{
    wf_params *p = &j->params;
    wf_http_error *r = &j->refusal;
    int64_t cut = 0;
    p->n = 1;
    p->embed = true;
    if (!wf_embed_whole(body, "truncate_prompt_tokens", -1, j->served->context, &cut, r)) return false;
    if (!cut && wf_field(body, "truncate_prompt_tokens"))
        return wf_refuse(r, 400, "truncate_prompt_tokens", "truncate_prompt_tokens must not be 0");
    p->most_tokens = cut < 0 ? j->served->context : (size_t)cut;
    return wf_salt_read(j, body, p, r);
}

/* What follows the texts of a prompt stays behind it, such as [SEP]. */
static void cut_prompt(const wf_served *s, size_t most, wf_prompt *p)
{
    if (p->n <= most) return;
    int32_t last = p->ids[p->n - 1];
    bool special = weft_token_text(s->model, last, 0, NULL, 0) && !weft_token_text(s->model, last,
                                                                                   WEFT_TEXT_HIDE_SPECIAL, NULL, 0);
    if (special) p->ids[most - 1] = last;
    p->n = most;
}

static bool read_dimensions(wf_job *j, const wf_json *body)
{
    uint32_t most = weft_model_info(j->served->model)->n_embedding;
    return wf_embed_whole(body, "dimensions", 1, most, &j->params.dimensions, &j->refusal);
}

bool wf_embed_size(wf_job *j, const char *name, wf_prompt *p)
{
    const wf_served *s = j->served;
    if (j->params.most_tokens) cut_prompt(s, j->params.most_tokens, p);
    if (!j->params.echo) {
        weft_free(p->text);
        p->text = NULL, p->len = 0;
    }
    if (p->n <= s->context) return true;
    j->refusal.code = "context_length_exceeded";
    return wf_refuse(&j->refusal, 400, name,
                     "%s has a text of %zu tokens, but the context of this server is %u tokens: send a shorter one, or "
                     "truncate_prompt_tokens", name, p->n, s->context);
}

static bool read_texts(wf_job *j, const wf_json *body, const char *name)
{
    if (!wf_prompts_read(j->served, wf_field(body, name), name, &j->params, &j->refusal)) return false;
    for (size_t i = 0; i < j->params.n_prompts; i++)
        if (!wf_embed_size(j, name, &j->params.prompts[i])) return false;
    return true;
}

bool wf_embed_read(wf_job *j, const wf_json *body)
{
    const wf_json *format = wf_field(body, "encoding_format");
    const char *word = format ? wf_json_text(format) : "float";
    if (!wf_fields_check(j->server, body, WF_OF_EMBED, &j->refusal) || !wf_model_check(j, body, &j->refusal) ||
        !wf_embed_check(j, false) || !wf_embed_fields(j, body) || !read_dimensions(j, body))
        return false;
    if (!word || (strcmp(word, "float") && strcmp(word, "base64")))
        return wf_refuse(&j->refusal, 400, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
    j->params.base64 = !strcmp(word, "base64");
    return read_texts(j, body, "input");
}

/* The older of the two has one prompt, and gives what the model does. A text that is too long is cut unless the request
 * says otherwise. */
bool wf_ollama_embed_read(wf_job *j, const wf_json *body)
{
    bool older = !strcmp(j->route->path, "/api/embeddings");
    const char *name = older ? "prompt" : "input";
    const wf_json *v = wf_field(body, name);
    wf_http_error *r = &j->refusal;
    bool cuts = true;
    if (!wf_fields_check(j->server, body, WF_OF_OLLAMA_EMBED, r) || !wf_model_check(j, body, r) ||
        !wf_embed_check(j, false) || !wf_embed_fields(j, body) || !read_dimensions(j, body) ||
        !wf_embed_flag(j, body, "truncate", &cuts))
        return false;
    if (older && v && !wf_json_is(v, WF_JSON_STRING)) return wf_refuse(r, 400, name, "prompt must be a string");
    if (!wf_models_keep(j, wf_field(body, "keep_alive"))) return false;
    if (cuts) j->params.most_tokens = j->served->context;
    j->params.embed_raw = older;
    return read_texts(j, body, name);
}

/* ---- replies --------------------------------------------------------------------------------------------- */

/* The first ones, of length 1 again, as far as all were. */
static uint32_t shorten(const wf_choice *c)
{
    double length = 0;
    int64_t most = c->job->params.dimensions;
    if (!most || most >= c->n_embedding) return c->n_embedding;
    for (int64_t i = 0; i < most; i++) length += (double)c->embedding[i] * c->embedding[i];
    length = c->job->params.embed_raw || length == 0 ? 1 : sqrt(length);
    for (int64_t i = 0; i < most; i++) c->embedding[i] = (float)(c->embedding[i] / length);
    return (uint32_t)most;
}

/* Bytes of floats, the low one first. */
static void put_base64(const float *v, uint32_t n, wf_text *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = n * sizeof *v;
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t three = 0;
        char four[4];
        for (size_t k = i; k < i + 3; k++) {
            uint32_t word = 0;
            if (k < bytes) memcpy(&word, v + k / 4, sizeof word);
            three = three << 8 | (word >> 8 * (k % 4) & 255);
        }
        for (int k = 0; k < 4; k++) four[k] = digits[three >> (18 - 6 * k) & 63];
        if (bytes - i < 3) four[3] = '=';
        if (bytes - i < 2) four[2] = '=';
        wf_text_add(out, four, 4);
    }
}

static void put_numbers(const wf_choice *c, wf_text *out)
{
    uint32_t n = shorten(c);
    bool base64 = c->job->params.base64;
    wf_text_add(out, base64 ? "\"" : "[", 1);
    if (base64) put_base64(c->embedding, n, out);
    for (uint32_t i = 0; i < n && !base64; i++) wf_text_print(out, i ? ",%.9g" : "%.9g", (double)c->embedding[i]);
    wf_text_add(out, base64 ? "\"" : "]", 1);
}

size_t wf_embed_tokens(const wf_job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->params.n_prompts; i++) n += j->params.prompts[i].n;
    return n;
}

static void write_list(wf_job *j)
{
    wf_text *out = &j->out;
    size_t n = wf_embed_tokens(j), made_of = j->reply_held;
    wf_text_print(out, "{\"id\":\"embd-%s\",\"object\":\"list\",\"created\":%lld,\"data\":[", j->id,
                  (long long)j->created);
    for (size_t i = 0; i < j->n_choices && !out->failed && wf_reply_has_room(j, made_of); i++) {
        wf_json_comma(out);
        wf_json_print(out, "{'object':'embedding','index':%zu,'embedding':", i);
        put_numbers(&j->choices[i], out);
        wf_text_add(out, "}", 1);
    }
    wf_json_print(out, "],'model':%s,'usage':{'prompt_tokens':%zu,'total_tokens':%zu}}", wf_reply_model(j), n, n);
}

static void write_ollama(wf_job *j)
{
    wf_text *out = &j->out;
    size_t made_of = j->reply_held;
    if (!strcmp(j->route->path, "/api/embeddings")) {
        wf_json_print(out, "{'embedding':");
        put_numbers(&j->choices[0], out);
        wf_text_add(out, "}", 1);
        return;
    }
    wf_json_print(out, "{'model':%s,'embeddings':[", wf_reply_model(j));
    for (size_t i = 0; i < j->n_choices && !out->failed && wf_reply_has_room(j, made_of); i++) {
        wf_json_comma(out);
        put_numbers(&j->choices[i], out);
    }
    wf_json_print(out, "],'total_duration':%llu,'load_duration':0,'prompt_eval_count':%zu}",
                  (unsigned long long)(wf_now_ns() - j->start_ns), wf_embed_tokens(j));
}

const wf_api wf_api_embeddings = {.put_refusal = wf_refusal_put, .write = write_list};
const wf_api wf_api_ollama_embed = {.put_refusal = wf_ollama_put_refusal, .write = write_ollama};
