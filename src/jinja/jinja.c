/* jinja: one rendering from beginning to end: the template as jinja2 reads it, the variables that transformers gives
 * it, and the result. */
#include "base/json.h"
#include "jinja/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* JSON as a value of the run, whose strings stay where the reader put them. */
static wf_jvalue value_of(wf_jrun *r, const wf_json *v)
{
    wf_jvalue out = wf_jnone();
    wf_jstep(r, 0);
    wf_jenter(r);
    switch ((enum wf_json_kind)v->kind) {
    case WF_JSON_NULL: break;
    case WF_JSON_BOOL: out = wf_jbool(v->b); break;
    case WF_JSON_INT: out = wf_jint(v->i); break;
    case WF_JSON_UINT: {
        char *digits = wf_jalloc(r, 1, 24);
        snprintf(digits, 24, "%llu", (unsigned long long)v->u);
        out = wf_jbig(r, (double)v->u, digits);
        break;
    }
    case WF_JSON_BIG: out = wf_jbig(r, wf_json_number(v), v->text); break;
    case WF_JSON_REAL: out = wf_jfloat(v->real); break;
    case WF_JSON_STRING: out = wf_jstring(r, (wf_jstr){.p = v->text, .len = v->n, .data = true}); break;
    case WF_JSON_LIST:
        out = wf_jlist_new(r, WF_JLIST);
        WF_JSON_EACH (one, v) wf_jpush(r, out.l, value_of(r, one));
        break;
    case WF_JSON_OBJECT:
        out = wf_jdict_new(r);
        WF_JSON_EACH_MEMBER (m, v) wf_jdict_set(r, out.d, value_of(r, &m->name), value_of(r, &m->value));
        break;
    }
    out.data = true;
    wf_jleave(r);
    return out;
}

/* All of it counts as data. what: for messages. */
static wf_jvalue read_json(wf_jrun *r, const char *text, const char *what)
{
    wf_json_error e;
    wf_json *root = wf_json_read(text, strlen(text), &(wf_json_rules){.flags = WF_JSON_LOOSE}, &e);
    r->json[r->n_json++] = root;
    if (root) return value_of(r, root);
    if (e.fault == WF_JSON_NO_MEMORY) wf_jfail_plain(r, WEFT_ERR_NOMEM, "%s: out of host memory for its JSON", what);
    weft_status s = e.fault == WF_JSON_TOO_DEEP ? WEFT_ERR_FULL : WEFT_ERR_ARG;
    wf_jfail_plain(r, s, "%s: bad JSON in line %zu, column %zu: %s", what, e.line, e.column, e.text);
}

static wf_jstr data_text(wf_jrun *r, const char *s)
{
    if (s[wf_utf8_valid(s, strlen(s))]) wf_jfail_plain(r, WEFT_ERR_ARG, "a message is no valid UTF-8");
    return (wf_jstr){.p = s, .len = strlen(s), .data = true};
}

static wf_jvalue turns(wf_jrun *r)
{
    wf_jvalue all = wf_jlist_new(r, WF_JLIST);
    for (size_t i = 0; i < r->in->n_turns; i++) {
        const struct weft_message *t = &r->in->turns[i];
        wf_jvalue m = wf_jdict_new(r);
        m.data = true;
        if (!t->role || !t->content)
            wf_jfail_plain(r, WEFT_ERR_ARG, "message %zu has no %s", i, t->role ? "content" : "role");
        wf_jdict_set(r, m.d, wf_jtext(r, "role"), wf_jstring(r, data_text(r, t->role)));
        wf_jdict_set(r, m.d, wf_jtext(r, "content"), wf_jstring(r, data_text(r, t->content)));
        wf_jpush(r, all.l, m);
    }
    all.data = true;
    return all;
}

static wf_jvalue list_of(wf_jrun *r, const char *json, const char *what)
{
    if (!json) return wf_jnone();
    wf_jvalue v = read_json(r, json, what);
    if (v.kind != WF_JLIST && v.kind != WF_JNONE) wf_jfail_plain(r, WEFT_ERR_ARG, "%s: expected a JSON list", what);
    return v;
}

/* A last message that has no content yet is the turn that a template opens. Returns whether it shall open one. */
static bool find_last(wf_jrun *r, wf_jlist *messages)
{
    if (!r->in->continue_last || !messages->n) return r->in->add_generation_prompt;
    const wf_jvalue *content = wf_jdict_find(r, messages->v[messages->n - 1].d, wf_jstr_of("content"));
    wf_jstr text = content && content->kind == WF_JSTRING ? wf_jstr_strip(NULL, *content->s, NULL, 3) : wf_jstr_of("");
    r->last = text.p, r->n_last = text.len;
    messages->n -= !text.len;
    return !text.len;
}

static bool marked(wf_jstr s, size_t i) { return s.marks ? s.marks[i] : s.data; }

/* Behind the content of the last message, which is the last that came with the data. */
static void end_with_last(wf_jrun *r, wf_jbuf *out)
{
    wf_jstr text = wf_jbuf_take(out);
    while (text.len && !marked(text, text.len - 1)) text.len--;
    wf_jstr shown = wf_jstr_strip(NULL, text, NULL, 2);
    if (shown.len < r->n_last || memcmp(shown.p + shown.len - r->n_last, r->last, r->n_last))
        wf_jfail_plain(r, WEFT_ERR_ARG, "the chat template does not end with the last message as it is, so no answer "
                                        "can go on with it");
    out->len = text.len; /* the rest has no marks */
}

static void set_variables(wf_jrun *r, wf_jframe *f)
{
    const wf_jinja_input *in = r->in;
    wf_jvalue messages = in->messages ? list_of(r, in->messages, "messages") : turns(r);
    if (messages.kind != WF_JLIST) wf_jfail_plain(r, WEFT_ERR_ARG, "messages: expected a JSON list");
    /* A role that is one of these words counts as the template's: many templates write it into a control token. */
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "ipython", "model"};
    for (size_t i = 0; i < messages.l->n; i++) {
        wf_jvalue m = messages.l->v[i];
        if (m.kind != WF_JDICT) wf_jfail_plain(r, WEFT_ERR_ARG, "message %zu is no object", i);
        const wf_jvalue *role = wf_jdict_find(r, m.d, wf_jstr_of("role"));
        for (size_t k = 0; role && role->kind == WF_JSTRING && k < WF_LEN(roles); k++)
            if (wf_jstr_is(*role->s, roles[k])) wf_jdict_set(r, m.d, wf_jtext(r, "role"), wf_jtext(r, roles[k]));
    }
    bool opens = find_last(r, messages.l);
    wf_jfunctions(r, f);
    wf_jset_text(r, f, "bos_token", wf_jtext(r, in->bos ? in->bos : ""));
    wf_jset_text(r, f, "eos_token", wf_jtext(r, in->eos ? in->eos : ""));
    wf_jvalue more = in->kwargs ? read_json(r, in->kwargs, "the template's further arguments") : wf_jdict_new(r);
    if (more.kind != WF_JDICT)
        wf_jfail_plain(r, WEFT_ERR_ARG, "the template's further arguments: expected a JSON object");
    for (size_t i = 0; i < more.d->n; i++)
        wf_jset(r, f, wf_jintern(r, more.d->e[i].key.s->p, more.d->e[i].key.s->len), more.d->e[i].value);
    wf_jset_text(r, f, "messages", messages);
    wf_jset_text(r, f, "tools", list_of(r, in->tools, "tools"));
    wf_jset_text(r, f, "documents", list_of(r, in->documents, "documents"));
    wf_jset_text(r, f, "add_generation_prompt", wf_jbool(opens));
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static weft_status copy_out(wf_jstr s, wf_jinja_output *out)
{
    size_t cap = 0;
    if (!(out->text = wf_calloc(s.len + 1, 1))) return WEFT_ERR_NOMEM;
    memcpy(out->text, s.p, s.len);
    out->len = s.len;
    for (size_t i = 0, end; i < s.len; i = end) {
        for (end = i + 1; end < s.len && marked(s, end) == marked(s, i);) end++;
        if (!marked(s, i)) continue;
        if (!wf_grow(&out->data, out->n_data, &cap, sizeof *out->data)) return WEFT_ERR_NOMEM;
        out->data[out->n_data++] = (wf_text_span){i, end};
    }
    return WEFT_OK;
}

static size_t data_bytes(const wf_jinja_input *in)
{
    const char *const texts[] = {in->messages, in->tools, in->documents, in->kwargs};
    size_t n = 0;
    for (size_t i = 0; i < WF_LEN(texts); i++) n += texts[i] ? strlen(texts[i]) : 0;
    for (size_t i = 0; i < in->n_turns; i++) n += 64 + (in->turns[i].content ? strlen(in->turns[i].content) : 0);
    return n;
}

static void run(wf_jrun *r, wf_jbuf *out)
{
    /* All line ends become \n, and one at the very end is dropped. */
    const wf_jinja_input *in = r->in;
    if (in->len > WF_JINJA_MAX_TEMPLATE)
        wf_jfail_plain(r, WEFT_ERR_UNSUPPORTED, "%s has %zu bytes; a chat template has at most %d", in->name, in->len,
                       WF_JINJA_MAX_TEMPLATE);
    char *src = wf_jalloc(r, in->len + 1, 1);
    for (size_t i = 0, n; i < in->len; i += n) {
        n = wf_utf8_len(in->text + i, in->len - i);
        if (!n) wf_jfail_plain(r, WEFT_ERR_UNSUPPORTED, "%s is no valid UTF-8 at byte %zu", in->name, i);
        bool cr = in->text[i] == '\r';
        if (cr && i + 1 < in->len && in->text[i + 1] == '\n') continue;
        memcpy(src + r->len, cr ? "\n" : in->text + i, n);
        r->len += n;
    }
    if (r->len && src[r->len - 1] == '\n') r->len--;
    r->src = src;
    r->globals = wf_jframe_new(r, NULL);
    if (out) set_variables(r, r->globals);
    r->in_template = true;
    const wf_jnode *all = wf_jparse(r);
    if (out) wf_jexec(r, wf_jframe_new(r, r->globals), all, out);
    if (out && r->n_last) end_with_last(r, out);
}

/* out: NULL: only parses. */
static weft_status run_guarded(const wf_jinja_input *in, wf_jinja_output *out)
{
    wf_jrun r = {.in = in, .max_memory = WF_JINJA_MAX_MEMORY + 16 * data_bytes(in)};
    wf_jbuf text = {.r = &r}, *volatile to = out ? &text : NULL;
    if (!setjmp(r.failed)) run(&r, to);
    weft_status s = r.status;
    if (!s && out) s = copy_out(wf_jbuf_take(&text), out);
    wf_jrun_free(&r);
    return s;
}

weft_status wf_jinja_render(const wf_jinja_input *in, wf_jinja_output *out)
{
    *out = (wf_jinja_output){0};
    weft_status s = run_guarded(in, out);
    if (s) wf_jinja_output_free(out);
    return s;
}

weft_status wf_jinja_check(const char *name, const char *text, size_t len)
{
    return run_guarded(&(wf_jinja_input){.name = name, .text = text, .len = len}, NULL);
}

void wf_jinja_output_free(wf_jinja_output *out)
{
    free(out->text);
    free(out->data);
    *out = (wf_jinja_output){0};
}
