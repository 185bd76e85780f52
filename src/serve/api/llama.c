/* llama: what clients of llama.cpp's server ask for besides OpenAI's API: /infill, for models that fill in the middle
 * of a text, and /props. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <string.h>

/* ---- the middle of a text -------------------------------------------------------------------------------- */

#define DEEPSEEK(word) "<\xEF\xBD\x9C" "fim\xE2\x96\x81" word "\xEF\xBD\x9C>"

/* The tokens by which models know it, of which one has those of one row. NULL: there is none. */
static const struct marks {
    const char *prefix, *suffix, *middle, *repository, *file;
} all_marks[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
                 {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
                 {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
                 {DEEPSEEK("begin"), DEEPSEEK("hole"), DEEPSEEK("end"), NULL, NULL},
                 {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL},
                 {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", NULL, NULL},
                 {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>", NULL, NULL}};

typedef struct fill { /* a prompt as it grows */
    const wf_job *job;
    const struct marks *marks;
    wf_text *out;
    size_t bytes;
    bool ok;
    wf_http_error *r;
} fill;

/* The token that this text is; -1: none. Some models call it a control token, others only one that was added. */
static int32_t infill_mark_of(const wf_served *s, const char *text)
{
    int32_t *ids = NULL, id = -1;
    size_t n = 0;
    if (text && !weft_tokenize(s->model, text, strlen(text), WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n) && n == 1) id = ids[0];
    weft_free(ids);
    return id;
}

static bool infill_begins_with(const char *text, size_t len, const char *mark)
{
    size_t n = mark ? strlen(mark) : 0;
    return n && n <= len && !memcmp(text, mark, n);
}

/* How much of a text may be tokenised at once: up to behind the first character of a mark, which tokenizers find in any
 * text where it is no control token. */
static size_t infill_part_of(const struct marks *m, const char *text, size_t len)
{
    const char *const all[] = {m->prefix, m->suffix, m->middle, m->repository, m->file};
    for (size_t i = 0; i < len; i++)
        for (size_t k = 0; k < WF_LEN(all); k++)
            if (infill_begins_with(text + i, len - i, all[k]))
                return i + WF_MAX(wf_utf8_len(text + i, len - i), (size_t)1);
    return len;
}

static void infill_add_id(fill *f, int32_t id)
{
    wf_json_comma(f->out);
    wf_text_print(f->out, "%d", id);
}

static bool infill_add_mark(fill *f, const char *text)
{
    int32_t id = infill_mark_of(f->job->served, text);
    if (id >= 0) infill_add_id(f, id);
    return id >= 0;
}

/* Nothing in it becomes a control token. */
static void infill_add_text(fill *f, const char *text, size_t len)
{
    const wf_served *s = f->job->served;
    uint64_t most;
    f->bytes += len;
    if (!f->ok || !len) return;
    if (wf_exceeds_context(s->model, s->context, f->bytes, &most)) {
        f->r->code = "context_length_exceeded";
        f->ok = wf_refuse(f->r, 400, "input_prefix",
                          "the texts have %zu bytes and more, but at most %llu fit the context of %u tokens", f->bytes,
                          (unsigned long long)most, s->context);
    }
    for (size_t at = 0, part; f->ok && at < len; at += part) {
        const unsigned flags = WEFT_TEXT_NO_ADD_SPECIAL | WEFT_TEXT_NO_PARSE_SPECIAL;
        int32_t *ids = NULL;
        size_t n = 0;
        part = infill_part_of(f->marks, text + at, len - at);
        if (weft_tokenize(s->model, text + at, part, flags, &ids, &n))
            f->ok = wf_refuse(f->r, 400, "input_prefix", "a text cannot be turned into tokens: %s", wf_last_error());
        for (size_t i = 0; i < n; i++) infill_add_id(f, ids[i]);
        weft_free(ids);
    }
}

static void infill_add_string(fill *f, const wf_json *v, const char *name)
{
    if (v && !wf_json_is(v, WF_JSON_STRING)) f->ok = wf_refuse(f->r, 400, name, "%s must be a string", name);
    else if (v) infill_add_text(f, v->text, v->n);
}

/* Other files of the same repository, for models that know what that is. */
static void infill_add_files(fill *f, const struct marks *m, const wf_json *files)
{
    if (files && !wf_json_is(files, WF_JSON_LIST))
        f->ok = wf_refuse(f->r, 400, "input_extra", "input_extra must be a list of objects with a text");
    if (!f->ok || !wf_json_count(files)) return;
    if (infill_mark_of(f->job->served, m->file) < 0) {
        f->ok = wf_refuse(f->r, WF_UNSUPPORTED, "input_extra", "this model has no token for other files: leave it out");
        return;
    }
    if (infill_add_mark(f, m->repository)) infill_add_text(f, "repository\n", 11);
    WF_JSON_EACH(file, files) {
        const wf_json *name = wf_field(file, "filename"), *text = wf_field(file, "text");
        infill_add_mark(f, m->file);
        if (name) infill_add_string(f, name, "filename");
        else infill_add_text(f, "file", 4);
        infill_add_text(f, "\n", 1);
        if (text) infill_add_string(f, text, "text");
        else f->ok = wf_refuse(f->r, 400, "input_extra", "each of input_extra must be an object with a text");
        if (!f->ok) return;
    }
    infill_add_mark(f, m->file);
    infill_add_text(f, "this\n", 5);
}

/* NULL: the model has none. */
static const struct marks *infill_find_marks(const wf_served *s)
{
    for (size_t i = 0; i < WF_LEN(all_marks); i++) {
        const struct marks *m = &all_marks[i];
        if (infill_mark_of(s, m->prefix) >= 0 && infill_mark_of(s, m->suffix) >= 0 &&
            infill_mark_of(s, m->middle) >= 0)
            return m;
    }
    return NULL;
}

bool wf_infill_put(wf_job *j, const wf_json *prefix, const wf_json *suffix, const wf_json *files, const wf_json *begun,
                   wf_text *out)
{
    const struct weft_model_info *info = weft_model_info(j->served->model);
    const struct marks *m = infill_find_marks(j->served);
    fill f = {.job = j, .marks = m, .out = out, .ok = true, .r = &j->refusal};
    int32_t *ids = NULL;
    size_t n = 0;
    if (!m)
        return wf_refuse(&j->refusal, WF_UNSUPPORTED, "suffix",
                         "this model has no tokens by which it would fill in the middle of a text: send a prompt");
    wf_json_put_name(out, "prompt");
    wf_text_add(out, "[", 1);
    if (!weft_tokenize(j->served->model, "", 0, WEFT_TEXT_DEFAULT, &ids, &n) && n && ids[0] == info->bos)
        infill_add_id(&f, ids[0]);
    weft_free(ids);
    infill_add_files(&f, m, files);
    infill_add_mark(&f, m->prefix);
    infill_add_string(&f, prefix, "input_prefix");
    infill_add_mark(&f, m->suffix);
    infill_add_string(&f, suffix, "input_suffix");
    infill_add_mark(&f, m->middle);
    infill_add_string(&f, begun, "prompt");
    wf_text_add(out, "]", 1);
    return f.ok;
}

static bool infill_translate(wf_job *j, const wf_json *body, wf_text *out)
{
    static const char *const lengths[] = {"n_predict", "max_tokens", "max_new_tokens", "num_predict",
                                          "max_output_tokens"};
    bool bounded = false;
    j->params.may_only_cache = true; /* as editors ask with what stands around the cursor, before one types */
    if (!wf_fields_pass(body, WF_OF_INFILL, out, &j->refusal)) return false;
    for (size_t i = 0; i < WF_LEN(lengths); i++) bounded |= wf_field(body, lengths[i]) != NULL;
    if (!bounded) wf_json_put_name(out, "n_predict"), wf_text_add(out, "-1", 2);
    return wf_infill_put(j, wf_field(body, "input_prefix"), wf_field(body, "input_suffix"),
                         wf_field(body, "input_extra"), wf_field(body, "prompt"), out);
}

/* ---- replies --------------------------------------------------------------------------------------------- */

/* ended: as the last one. */
static void infill_put_content(const wf_choice *c, wf_slice text, bool ended, wf_text *out)
{
    const struct weft_event *e = &c->end;
    const wf_job *j = c->job;
    wf_json_print(out, "{'content':%.*s,'tokens':[],'index':0,'id_slot':0,'stop':%hhd", (int)text.n, text.p, ended);
    if (ended) {
        const char *word = e->stop_text ? j->params.stop[e->stop_text - 1] : "";
        wf_json_print(out,
                      ",'truncated':false,'model':%s,'tokens_predicted':%u,'tokens_evaluated':%u,'tokens_cached':%u",
                      wf_reply_model(j), e->n_generated, e->n_prompt, e->n_cached);
        wf_json_print(out,
                      ",'stop_type':%s,'stopping_word':%s,'timings':{'prompt_n':%u,'prompt_ms':%g,'predicted_n':%u,"
                      "'predicted_ms':%g}",
                      e->finish != WEFT_FINISH_STOP ? "limit" : *word ? "word" : "eos", word, e->n_prompt - e->n_cached,
                      (double)e->prompt_ns * 1e-6, e->n_generated, (double)e->decode_ns * 1e-6);
    }
    wf_text_add(out, "}", 1);
}

static void infill_put_reply(const wf_choice *c, wf_text *out)
{
    const wf_text *text = &c->blocks.text;
    infill_put_content(c, (wf_slice){text->data ? text->data : "", text->len}, true, out);
}

static void infill_put_event(wf_choice *c, wf_slice text, bool ended)
{
    wf_text *out = &c->job->out;
    wf_text_add(out, "data: ", 6);
    infill_put_content(c, text, ended, out);
    wf_text_add(out, "\n\n", 2);
}

static void infill_stream_delta(wf_choice *c, const wf_block *b, wf_slice text)
{
    (void)b; /* there is only text */
    infill_put_event(c, text, false);
}

static void infill_stream_end(wf_choice *c, const wf_http_error *failed)
{
    if (!failed) {
        infill_put_event(c, (wf_slice){"", 0}, true);
        return;
    }
    wf_text_add(&c->job->out, "data: ", 6);
    wf_refusal_put(&c->job->out, failed);
    wf_text_add(&c->job->out, "\n\n", 2);
}

const wf_api wf_api_infill = {.translate = infill_translate,
                              .put_refusal = wf_refusal_put,
                              .put_reply = infill_put_reply,
                              .stream_type = WF_SSE_TYPE,
                              .silence = ": waiting\n\n",
                              .delta = infill_stream_delta,
                              .end = infill_stream_end};

/* ---- the server ------------------------------------------------------------------------------------------ */

static void props_put_token(const wf_served *s, const char *name, int32_t id, wf_text *out)
{
    char text[256] = "";
    size_t n = id < 0 ? 0 : WF_MIN(weft_token_text(s->model, id, WEFT_TEXT_DEFAULT, text, sizeof text), sizeof text);
    wf_json_put_name(out, name);
    wf_json_put_string(out, text, n);
}

bool wf_llama_props(wf_job *j, wf_text *out)
{
    const wf_served *s = j->served;
    if (!s) {
        /* Of several models none is the server's: as llama-server's router says so. */
        wf_json_print(out, "{'role':'router','models_autoload':true,'model_alias':%s,'model_path':''",
                      j->server->models.usual ? j->server->models.usual->name : "");
        wf_text_print(out, ",\"build_info\":\"weft %s\"}", weft_version());
        return true;
    }
    const struct weft_model_info *m = weft_model_info(s->model);
    const struct weft_sampling *d = &s->sampling;
    const char *template = s->server->p.chat_template ? s->server->p.chat_template : m->chat_template;
    wf_json_print(out,
                  "{'default_generation_settings':{'n_ctx':%u,'params':{'temperature':%.6g,'top_k':%d,'top_p':%.6g,"
                  "'min_p':%.6g,'repeat_penalty':%.6g,'n_predict':-1}}",
                  s->context, (double)d->temperature, d->top_k, (double)d->top_p, (double)d->min_p,
                  (double)d->repeat_penalty);
    wf_json_print(out, ",'total_slots':%u,'model_alias':%s,'model_path':%s,'modalities':{'vision':false,'audio':false}",
                  s->max_running, s->name, s->name);
    wf_text_print(out, ",\"build_info\":\"weft %s\"", weft_version());
    props_put_token(s, "bos_token", m->bos, out);
    props_put_token(s, "eos_token", m->eos, out);
    wf_json_put_name(out, "chat_template");
    wf_json_put_string(out, template ? template : "", template ? strlen(template) : 0);
    wf_text_add(out, "}", 1);
    return true;
}
