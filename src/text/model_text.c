/* model_text: texts and conversations of a model as tokens and back: the functions of weft.h. */
#include "model/model.h"
#include "text/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- text ---------------------------------------------------------------------------------------------------- */

weft_status weft_tokenize(const struct weft_model *m, const char *text, size_t len, unsigned flags, int32_t **ids,
                          size_t *n)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL_LIST(text, len);
    WF_NOT_NULL(ids);
    WF_NOT_NULL(n);
    return wf_tokenize(m->tokenizer, text, len, flags, ids, n);
}

weft_status weft_tokenize_pair(const struct weft_model *m, const char *first, size_t first_len, const char *text,
                               size_t len, int32_t **ids, size_t *n, size_t *second)
{
    WF_NOT_NULL(ids);
    WF_NOT_NULL(n);
    *ids = NULL, *n = 0;
    WF_NOT_NULL(second);
    *second = 0;
    WF_NOT_NULL(m);
    WF_NOT_NULL_LIST(first, first_len);
    WF_NOT_NULL_LIST(text, len);
    return wf_tokenize_pair(m->tokenizer, first ? first : "", first_len, text ? text : "", len, ids, n, second);
}

weft_status weft_detokenize(const struct weft_model *m, const int32_t *ids, size_t n, unsigned flags, char **text,
                            size_t *len)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL_LIST(ids, n);
    WF_NOT_NULL(text);
    WF_NOT_NULL(len);
    return wf_detokenize(m->tokenizer, ids, n, flags, text, len);
}

size_t weft_token_text(const struct weft_model *m, int32_t id, unsigned flags, char *buf, size_t cap)
{
    return m ? wf_token_piece(m->tokenizer, id, flags, buf, buf ? cap : 0) : 0;
}

/* ---- conversations ------------------------------------------------------------------------------------------- */

static char *special_text(const struct weft_model *m, int32_t id)
{
    char *text = NULL;
    size_t len;
    if (id < 0 || wf_detokenize(m->tokenizer, &id, 1, 0, &text, &len) != WEFT_OK) return wf_strdup("");
    return text;
}

/* Of two templates that a model may have, as transformers chooses. */
static weft_status find_template(const struct weft_model *m, const char *own, bool tools, wf_jinja_input *in)
{
    if (!own && !m) return wf_fail(WEFT_ERR_ARG, "the model is NULL: then a chat template is needed");
    const char *for_tools = tools && !own ? m->info.tool_template : NULL;
    in->name = own ? "chat template" : for_tools ? "the model's chat template for tools" : "the model's chat template";
    in->text = own ? own : for_tools ? for_tools : m->info.chat_template;
    in->len = in->text ? strlen(in->text) : 0;
    return in->text ? WEFT_OK
                    : wf_fail(WEFT_ERR_UNSUPPORTED,
                              "%s: this model has no chat template; give one (weft_chat_params.chat_template)",
                              m->info.path);
}

weft_status wf_chat_render(const wf_jinja_input *in, wf_chat_text *out)
{
    *out = (wf_chat_text){0};
    WF_TRY(wf_jinja_render(in, &out->rendered));
    const wf_jinja_output *o = &out->rendered;
    size_t bos = in->bos ? strlen(in->bos) : 0;
    bool own = !o->n_data || o->data[0].begin >= bos;
    out->has_bos = bos && own && o->len >= bos && !memcmp(o->text, in->bos, bos);
    return WEFT_OK;
}

void wf_chat_text_free(wf_chat_text *t) { wf_jinja_output_free(&t->rendered); }

static weft_status render_chat(const struct weft_model *m, const struct weft_chat_params *p, wf_chat_text *out)
{
    wf_jinja_input in = {.messages = p->messages_json, .turns = p->messages, .n_turns = p->n_messages,
                         .tools = p->tools_json, .kwargs = p->kwargs_json,
                         .add_generation_prompt = !p->no_generation_prompt, .continue_last = p->continue_last,
                         .now = p->now ? p->now : (int64_t)time(NULL)};
    if (p->n_messages && !p->messages)
        return wf_fail(WEFT_ERR_ARG, "n_messages is %zu, but messages is NULL", p->n_messages);
    if (p->messages && p->messages_json)
        return wf_fail(WEFT_ERR_ARG, "messages and messages_json exclude each other: set one of them");
    WF_TRY(find_template(m, p->chat_template, p->tools_json, &in));
    char *bos = m && !p->bos ? special_text(m, m->info.bos) : wf_strdup(p->bos ? p->bos : "");
    char *eos = m && !p->eos ? special_text(m, m->info.eos) : wf_strdup(p->eos ? p->eos : "");
    in.bos = bos, in.eos = eos;
    weft_status s = bos && eos ? wf_chat_render(&in, out) : WEFT_ERR_NOMEM;
    free(bos);
    free(eos);
    return s;
}

weft_status weft_chat_tokenize(const struct weft_model *m, const struct weft_chat_params *p, int32_t **ids,
                               size_t *n_ids)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(ids);
    WF_NOT_NULL(n_ids);
    wf_chat_text text = {0};
    WF_TRY(WF_UNUSED(p));
    weft_status s = render_chat(m, p, &text);
    const wf_jinja_output *o = &text.rendered;
    unsigned flags = text.has_bos ? WEFT_TEXT_NO_ADD_SPECIAL : WEFT_TEXT_DEFAULT;
    if (!s) s = wf_tokenize_around(m->tokenizer, o->text, o->len, o->data, o->n_data, flags, ids, n_ids);
    wf_chat_text_free(&text);
    return s;
}

weft_status weft_chat_render(const struct weft_model *m, const struct weft_chat_params *p, char **text, size_t *len)
{
    WF_NOT_NULL(p);
    WF_NOT_NULL(text);
    WF_NOT_NULL(len);
    wf_chat_text t = {0};
    WF_TRY(WF_UNUSED(p));
    weft_status s = render_chat(m, p, &t);
    *text = t.rendered.text;
    *len = t.rendered.len;
    t.rendered.text = NULL;
    wf_chat_text_free(&t);
    return s;
}

weft_status weft_chat_check(const struct weft_model *m, const char *chat_template)
{
    wf_jinja_input in = {0};
    WF_TRY(find_template(m, chat_template, false, &in));
    return wf_jinja_check(in.name, in.text, in.len);
}
