/* ollama: Ollama's API. Its requests have options in an object of their own, and its streams are lines of JSON. */
#include "serve/api/embed.h"
#include "base/blake2b.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- requests -------------------------------------------------------------------------------------------- */

/* What the context of the server holds is there, whatever a request sets aside for itself. */
static bool ollama_put_options(const wf_job *j, const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *options = wf_field(body, "options"), *context = wf_field(options, "num_ctx");
    uint32_t most = j->served->context;
    if (options && !wf_json_is(options, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "options", "options must be an object");
    if (context && !(wf_json_is_number(context) && wf_json_number(context) <= most))
        return wf_refuse(r, 400, "num_ctx", "num_ctx must be a number of at most %u, the context of this server, which "
                         "its option -c sets", most);
    if (options && !wf_fields_pass(options, WF_OF_OPTIONS, out, r)) return false;
    const wf_json *length = wf_field(options, "num_predict");
    if (wf_json_is_number(length) && wf_json_number(length) == -2) wf_json_print(out, ",'num_predict':-1");
    else if (length) wf_json_put_member(out, "num_predict", length); /* -2: until the context is full, as -1 is here */
    return true;
}

static bool ollama_put_format(const wf_json *format, wf_text *out, wf_http_error *r)
{
    const char *word = wf_json_text(format);
    if (!format || (word && !*word)) return true;
    if (word && !strcmp(word, "json")) {
        wf_json_print(out, ",'response_format':{'type':'json_object'}");
        return true;
    }
    if (!wf_json_is(format, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "format", "format must be \"json\" or a JSON schema, which is an object");
    wf_json_print(out, ",'response_format':{'type':'json_schema','json_schema':{");
    wf_json_put_member(out, "schema", format);
    wf_text_add(out, "}}", 2);
    return true;
}

/* Some members have other names here. */
static bool ollama_put_message(const wf_json *m, wf_text *out, wf_http_error *r)
{
    static const char *const names[][2] = {{"thinking", "reasoning_content"}, {"tool_name", "name"}};
    if (wf_json_count(wf_field(m, "images")))
        return wf_refuse(r, WF_UNSUPPORTED, "messages", "images are not supported, only text: leave them out");
    wf_json_comma(out);
    if (!wf_json_is(m, WF_JSON_OBJECT)) wf_json_put(out, m);
    else wf_text_add(out, "{", 1);
    WF_JSON_EACH_MEMBER(one, m) {
        const char *name = one->name.text;
        for (size_t i = 0; i < WF_LEN(names); i++)
            if (!strcmp(name, names[i][0])) name = names[i][1];
        wf_json_put_member(out, name, &one->value);
    }
    if (wf_json_is(m, WF_JSON_OBJECT)) wf_text_add(out, "}", 1);
    return true;
}

static bool ollama_put_chat(const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *messages = wf_field(body, "messages");
    bool ok = true;
    if (messages && !wf_json_is(messages, WF_JSON_LIST))
        return wf_refuse(r, 400, "messages", "messages must be a list");
    wf_json_print(out, ",'messages':[");
    for (size_t i = 0; ok && i < wf_json_count(messages); i++) ok = ollama_put_message(wf_json_at(messages, i), out, r);
    wf_text_add(out, "]", 1);
    return ok;
}

/* A chat of one message, or a text to go on with where the request or the model wants no template. */
static bool ollama_put_prompt(wf_job *j, const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *prompt = wf_field(body, "prompt"), *system = wf_field(body, "system"), *raw = wf_field(body, "raw"),
                  *suffix = wf_field(body, "suffix");
    if (raw && !wf_json_is(raw, WF_JSON_BOOL)) return wf_refuse(r, 400, "raw", "raw must be true or false");
    if (prompt && !wf_json_is(prompt, WF_JSON_STRING))
        return wf_refuse(r, 400, "prompt", "prompt must be a string");
    if (system && !wf_json_is(system, WF_JSON_STRING))
        return wf_refuse(r, 400, "system", "system must be a string");
    if (suffix && !wf_json_is(suffix, WF_JSON_STRING)) return wf_refuse(r, 400, "suffix", "suffix must be a string");
    j->params.chat = j->served->chat.usable && !wf_json_is_true(raw) && !wf_json_bytes(suffix);
    if (!j->params.chat && wf_json_bytes(system))
        return wf_refuse(r, 400, "system", "without a template there is no system prompt: write it into the prompt");
    if (!j->params.chat) {
        if (!wf_field(wf_field(body, "options"), "num_predict")) wf_json_print(out, ",'num_predict':-1");
        if (wf_json_bytes(suffix)) return wf_infill_put(j, prompt, suffix, NULL, NULL, out);
        wf_json_put_member(out, "prompt", prompt);
        return true;
    }
    wf_json_print(out, ",'messages':[");
    if (wf_json_bytes(system)) wf_json_print(out, "{'role':'system','content':%s},", system->text);
    wf_json_print(out, "{'role':'user','content':%s}]", wf_json_text(prompt));
    return true;
}

/* Without a text to go on with. */
static bool ollama_is_empty(const wf_job *j, const wf_json *body)
{
    bool chat = j->route->chat;
    const wf_json *asked = wf_field(body, chat ? "messages" : "prompt");
    return !asked || (asked->kind == (chat ? WF_JSON_LIST : WF_JSON_STRING) && !asked->n);
}

bool wf_ollama_loads(const wf_job *j, const wf_json *body)
{
    return j->route->api == &wf_api_ollama && ollama_is_empty(j, body);
}

bool wf_ollama_unloads(const wf_job *j, const wf_json *body)
{
    const wf_json *keep = wf_field(body, "keep_alive");
    const char *word = wf_json_text(keep);
    bool none = (wf_json_is_number(keep) && wf_json_number(keep) == 0) ||
                (word && *word == '0' && !word[strspn(word, "0msh")]);
    return j->server->models.several && none && wf_ollama_loads(j, body);
}

static void ollama_put_loaded(wf_job *j, const char *reason);

static bool ollama_translate(wf_job *j, const wf_json *body, wf_text *out)
{
    wf_http_error *r = &j->refusal;
    bool chat = j->route->chat;
    const wf_json *model = wf_field(body, "model"), *stream = wf_field(body, "stream");
    if (!wf_fields_pass(body, chat ? WF_OF_OLLAMA : WF_OF_OLLAMA | WF_OF_GENERATE, out, r) ||
        !wf_model_check(j, body, r))
        return false;
    if (wf_ollama_unloads(j, body)) return ollama_put_loaded(j, "unload"), true; /* done already (models.c) */
    if (!ollama_put_options(j, body, out, r) || !wf_models_keep(j, wf_field(body, "keep_alive"))) return false;
    if (ollama_is_empty(j, body)) return ollama_put_loaded(j, "load"), true; /* sent to have it loaded */
    if (model) wf_json_put_member(out, "model", model);
    wf_json_put_name(out, "stream");
    if (stream) wf_json_put(out, stream);
    else wf_text_add(out, "true", 4);
    return ollama_put_format(wf_field(body, "format"), out, r) &&
           (chat ? ollama_put_chat(body, out, r) : ollama_put_prompt(j, body, out, r));
}

/* ---- replies --------------------------------------------------------------------------------------------- */

void wf_ollama_put_refusal(wf_text *out, const wf_http_error *r) { wf_json_print(out, "{'error':%s}", r->message); }

static void ollama_put_time(int64_t seconds, wf_text *out)
{
    char text[32] = "";
    time_t at = (time_t)seconds;
    struct tm t;
    if (gmtime_r(&at, &t)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
    wf_json_print(out, "%s", text);
}

/* A reply, or a line, with these texts: up to what else a message has. calls: JSON, or n is 0. */
static void ollama_put_message_of(const wf_job *j, wf_slice text, wf_slice thoughts, wf_slice calls, wf_text *out)
{
    bool chat = j->route->chat;
    wf_json_print(out, "{'model':%s,'created_at':", wf_reply_model(j));
    ollama_put_time(j->created, out);
    wf_json_print(out, chat ? ",'message':{'role':'assistant','content':%.*s" : ",'response':%.*s", (int)text.n,
                  text.p);
    if (thoughts.n) wf_json_print(out, ",'thinking':%.*s", (int)thoughts.n, thoughts.p);
    if (calls.n) wf_json_print(out, ",'tool_calls':["), wf_text_add(out, calls.p, calls.n), wf_text_add(out, "]", 1);
    if (chat) wf_text_add(out, "}", 1);
}

/* What the last line has, and a whole reply. */
static void ollama_put_end(const wf_choice *c, wf_text *out)
{
    const struct weft_event *e = &c->end;
    wf_json_print(out, ",'done':true,'done_reason':%s", wf_reply_finish_of(e->finish, 0));
    wf_json_print(out, ",'total_duration':%llu,'load_duration':0,'prompt_eval_count':%u,'prompt_eval_duration':%llu",
                  (unsigned long long)(e->queue_ns + e->prompt_ns + e->decode_ns), e->n_prompt,
                  (unsigned long long)e->prompt_ns);
    wf_json_print(out, ",'eval_count':%u,'eval_duration':%llu}", e->n_generated, (unsigned long long)e->decode_ns);
}

static void ollama_put_loaded(wf_job *j, const char *reason)
{
    const wf_slice none = {"", 0};
    ollama_put_message_of(j, none, none, none, &j->out);
    wf_json_print(&j->out, ",'done':true,'done_reason':%s}", reason);
    wf_text_add(&j->out, "\n", 1);
    j->written = true;
}

/* Of calls only: texts are put together. */
static void ollama_put_block(const wf_choice *c, const wf_block *b, wf_text *out)
{
    (void)c;
    wf_json_print(out, "{'id':%.*s,'function':{'name':%.*s,'arguments':", (int)b->id.n, b->id.p, (int)b->name.n,
                  b->name.p);
    wf_text_add(out, b->text.p, b->text.n);
    wf_text_add(out, "}}", 2);
}

static wf_slice ollama_slice_of(const wf_text *t) { return (wf_slice){t->data ? t->data : "", t->len}; }

static void ollama_put_reply(const wf_choice *c, wf_text *out)
{
    const wf_blocks *b = &c->blocks;
    ollama_put_message_of(c->job, ollama_slice_of(&b->text), ollama_slice_of(&b->thoughts), ollama_slice_of(&b->done),
                          out);
    ollama_put_end(c, out);
}

static void ollama_stream_line(wf_choice *c, wf_slice text, wf_slice thoughts, wf_slice calls)
{
    ollama_put_message_of(c->job, text, thoughts, calls, &c->job->out);
    wf_json_print(&c->job->out, ",'done':false}");
    wf_text_add(&c->job->out, "\n", 1);
}

static void ollama_stream_delta(wf_choice *c, const wf_block *b, wf_slice text)
{
    const wf_slice none = {"", 0};
    if (b->kind == WF_BLOCK_TEXT) ollama_stream_line(c, text, none, none);
    if (b->kind == WF_BLOCK_THOUGHT) ollama_stream_line(c, none, text, none);
}

/* A call is one line. */
static void ollama_stream_block_begin(wf_choice *c, const wf_block *b)
{
    const wf_slice none = {"", 0};
    wf_text call = {0};
    if (b->kind != WF_BLOCK_CALL) return;
    ollama_put_block(c, b, &call);
    ollama_stream_line(c, none, none, ollama_slice_of(&call));
    c->job->out.failed |= call.failed;
    free(call.data);
}

static void ollama_stream_end(wf_choice *c, const wf_http_error *failed)
{
    const wf_slice none = {"", 0};
    wf_text *out = &c->job->out;
    if (failed) wf_ollama_put_refusal(out, failed);
    if (!failed) ollama_put_message_of(c->job, none, none, none, out), ollama_put_end(c, out);
    wf_text_add(out, "\n", 1);
}

const wf_api wf_api_ollama = {.translate = ollama_translate,
                              .put_refusal = wf_ollama_put_refusal,
                              .put_block = ollama_put_block,
                              .put_reply = ollama_put_reply,
                              .stream_type = "application/x-ndjson",
                              .silence = " ", /* stands before the next line, where JSON may have it */
                              .block_begin = ollama_stream_block_begin,
                              .delta = ollama_stream_delta,
                              .end = ollama_stream_end};

/* ---- the models ------------------------------------------------------------------------------------------ */

/* What only its file says is left empty of one that has not been open yet. */
static void ollama_put_details(const wf_served *s, wf_text *out)
{
    wf_models *ms = &s->server->models;
    pthread_mutex_lock(&ms->lock);
    wf_seen seen = s->seen_of;
    pthread_mutex_unlock(&ms->lock);
    bool folder = s->file ? !s->file[wf_models_stem(s->file)] : !weft_model_info(s->model)->gguf_version;
    wf_json_print(out,
                  "'details':{'parent_model':'','format':%s,'family':%s,'families':[%s],'parameter_size':%s,"
                  "'quantization_level':%s}",
                  folder ? "safetensors" : "gguf", seen.family, seen.family, seen.parameters, seen.type);
}

/* Only tells models apart, but the same at every start. */
static void ollama_put_digest(const wf_served *s, uint64_t bytes, wf_text *out)
{
    uint8_t digest[32];
    wf_blake2b b;
    wf_blake2b_begin(&b, sizeof digest, NULL, 0);
    wf_blake2b_field(&b, s->name, strlen(s->name));
    wf_blake2b_field(&b, &bytes, sizeof bytes);
    wf_blake2b_end(&b, digest);
    wf_text_print(out, ",\"digest\":\"");
    for (size_t i = 0; i < sizeof digest; i++) wf_text_print(out, "%02x", digest[i]);
    wf_text_print(out, "\",");
}

static void ollama_put_card(const wf_served *s, const char *name, wf_text *out)
{
    uint64_t bytes = s->file ? (uint64_t)s->file_bytes : weft_model_info(s->model)->file_bytes;
    wf_json_comma(out);
    wf_json_print(out, "{'name':%s,'model':%s,'size':%llu", name, name, (unsigned long long)bytes);
    ollama_put_digest(s, bytes, out);
    ollama_put_details(s, out);
}

bool wf_ollama_tags(wf_job *j, wf_text *out)
{
    wf_served *s = NULL;
    wf_models_scan(j->server);
    wf_json_print(out, "{'models':[");
    while ((s = wf_served_next(j->server, s))) {
        for (size_t i = 0; i < s->n_names; i++) {
            ollama_put_card(s, s->names[i], out);
            wf_json_put_name(out, "modified_at");
            ollama_put_time(s->file ? s->changed : s->server->started, out);
            wf_text_add(out, "}", 1);
        }
    }
    wf_text_add(out, "]}", 2);
    return true;
}

/* One that stays for ever expires a day after whoever asks. */
static int64_t ollama_expires(const wf_job *j, const wf_served *s)
{
    uint64_t used = s->used_ns, keep = s->keep_ns, idle = wf_now_ns() - used, left = keep - WF_MIN(keep, idle);
    return j->created + (!s->file || keep == UINT64_MAX ? 86400 : (int64_t)(left / 1000000000u));
}

/* With what `weft ps` shows of those that are loaded. */
bool wf_ollama_ps(wf_job *j, wf_text *out)
{
    wf_served *s = NULL;
    wf_json_print(out, "{'models':[");
    while ((s = wf_served_next(j->server, s))) {
        if (!wf_served_hold(s)) continue;
        struct weft_stats e;
        weft_engine_stats(s->engine, &e);
        ollama_put_card(s, s->name, out);
        wf_json_print(out, ",'context_length':%u,'size_vram':%llu,'running':%u,'waiting':%u,'expires_at':", s->context,
                      (unsigned long long)(e.weight_bytes + e.kv_bytes + e.activation_bytes), e.running, e.waiting);
        ollama_put_time(ollama_expires(j, s), out);
        wf_text_add(out, "}", 1);
        wf_served_drop(s, false);
    }
    wf_text_add(out, "]}", 2);
    return true;
}

bool wf_ollama_show_read(wf_job *j, const wf_json *body)
{
    const wf_json *former = wf_field(body, "name");
    const wf_json_member named = {{.kind = WF_JSON_STRING, .n = 5, .text = "model"}, former ? *former : (wf_json){0}};
    const wf_json as_model = {.kind = WF_JSON_OBJECT, .n = 1, .members = &named};
    return wf_fields_check(j->server, body, WF_OF_SHOW, &j->refusal) &&
           wf_model_check(j, wf_field(body, "model") ? body : &as_model, &j->refusal);
}

bool wf_ollama_show(wf_job *j, wf_text *out)
{
    const wf_served *s = j->served;
    const struct weft_model_info *m = weft_model_info(s->model);
    const char *template = s->server->p.chat_template ? s->server->p.chat_template : m->chat_template;
    wf_json_print(out, "{'modelfile':'','parameters':'','template':%s,'modified_at':", template ? template : "");
    ollama_put_time(s->file ? s->changed : s->server->started, out);
    wf_text_add(out, ",", 1);
    ollama_put_details(s, out);
    wf_json_print(out, s->pooling ? ",'capabilities':['embedding'" : ",'capabilities':['completion'");
    if (s->chat.calls) wf_json_print(out, ",'tools'");
    if (s->chat.thoughts) wf_json_print(out, ",'thinking'");
    wf_json_print(out, "],'model_info':{'general.architecture':%s,'general.parameter_count':%llu", m->arch,
                  (unsigned long long)m->n_params);
    wf_text_print(out, ",\"%s.context_length\":%u,\"%s.embedding_length\":%u,\"%s.block_count\":%u}}", m->arch,
                  m->context, m->arch, m->hidden_size, m->arch, m->n_layer);
    return true;
}
