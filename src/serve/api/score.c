/* score: /v1/score and /v1/rerank, of models whose head scores pairs of texts. Each pair is a prompt. */
#include "serve/api/embed.h"
#include "base/options.h"

#include <math.h>
#include <stdlib.h>

/* ---- requests -------------------------------------------------------------------------------------------- */

static bool check_scores(wf_job *j)
{
    uint32_t labels = weft_model_info(j->served->model)->n_embedding;
    if (!wf_embed_check(j, true)) return false;
    return labels == 1 || wf_refuse(&j->refusal, WF_UNSUPPORTED, "model",
                                    "the head of this model has %u labels: only one label is a score", labels);
}

/* A text, or an object that has it. */
static const wf_json *text_of(const wf_json *v)
{
    const wf_json *text = wf_json_is(v, WF_JSON_OBJECT) ? wf_field(v, "text") : v;
    return wf_json_is(text, WF_JSON_STRING) ? text : NULL;
}

static bool read_texts(wf_job *j, const wf_json *body, const char *name, const wf_json **list, size_t *n)
{
    const wf_json *v = *list = wf_field(body, name);
    bool many = wf_json_is(v, WF_JSON_LIST);
    *n = many ? wf_json_count(v) : 1;
    for (size_t i = 0; i < *n; i++)
        if (!text_of(many ? wf_json_at(v, i) : v))
            return wf_refuse(&j->refusal, 400, name, "%s must be a string or a list of strings", name);
    return *n || wf_refuse(&j->refusal, 400, name, "%s is an empty list", name);
}

static const wf_json *text_at(const wf_json *list, size_t n, size_t i)
{
    return text_of(wf_json_is(list, WF_JSON_LIST) ? wf_json_at(list, n > 1 ? i : 0) : list);
}

static bool add_pair(wf_job *j, const char *name, const wf_json *first, const wf_json *second)
{
    const wf_served *s = j->served;
    wf_prompt *to = &j->params.prompts[j->params.n_prompts++];
    size_t at = 0;
    if (weft_tokenize_pair(s->model, first->text, first->n, second->text, second->n, &to->ids, &to->n, &at))
        return wf_refuse(&j->refusal, 400, name, "%s cannot be turned into tokens: %s", name, wf_last_error());
    to->second = (uint32_t)at;
    to->len = second->n;
    if (j->params.echo && !(to->text = wf_strdup(second->text)))
        return wf_refuse(&j->refusal, 500, "", "out of memory");
    return wf_embed_size(j, name, to);
}

/* A text that stands beside many is as much work as many: pairs have no more bytes than a body can have. */
static bool check_pairs(wf_job *j, const char *name, const wf_json *one, size_t n_one, const wf_json *other,
                        size_t n_other)
{
    uint64_t bytes = 0, most = j->server->limits.max_body;
    for (size_t i = 0; i < WF_MAX(n_one, n_other); i++) bytes += text_at(one, n_one, i)->n + text_at(other, n_other, i)->n;
    return bytes <= most || wf_refuse(&j->refusal, 413, name, "the pairs of texts have %llu bytes, at most %llu are "
                                      "possible: send fewer at a time", (unsigned long long)bytes,
                                      (unsigned long long)most);
}

/* The first texts beside the second ones, or one of them beside all. */
static bool read_pairs(wf_job *j, const wf_json *body, const char *first, const char *second)
{
    const wf_json *one, *other;
    size_t n_one, n_other;
    if (!read_texts(j, body, first, &one, &n_one) || !read_texts(j, body, second, &other, &n_other)) return false;
    if (n_one != n_other && n_one != 1 && n_other != 1)
        return wf_refuse(&j->refusal, 400, second, "%s has %zu texts and %s %zu: send as many, or one for all", first,
                         n_one, second, n_other);
    size_t n = WF_MAX(n_one, n_other), most = WF_MIN((size_t)WF_MAX_CHOICES, (size_t)j->served->max_queue);
    if (n > most) return wf_refuse(&j->refusal, 400, second, "%zu pairs of texts, at most %zu are possible", n, most);
    if (!check_pairs(j, second, one, n_one, other, n_other)) return false;
    if (!(j->params.prompts = wf_calloc(n, sizeof *j->params.prompts)))
        return wf_refuse(&j->refusal, 500, "", "out of memory");
    for (size_t i = 0; i < n; i++)
        if (!add_pair(j, second, text_at(one, n_one, i), text_at(other, n_other, i))) return false;
    return true;
}

static bool read_scored(wf_job *j, const wf_json *body, enum wf_where here)
{
    bool activation = true;
    if (!wf_fields_check(j->server, body, here, &j->refusal) || !wf_model_check(j, body, &j->refusal) ||
        !check_scores(j) || !wf_embed_fields(j, body) || !wf_embed_flag(j, body, "use_activation", &activation))
        return false;
    j->params.embed_raw = !activation;
    return true;
}

bool wf_score_read(wf_job *j, const wf_json *body)
{
    return read_scored(j, body, WF_OF_SCORE) && read_pairs(j, body, "text_1", "text_2");
}

bool wf_rerank_read(wf_job *j, const wf_json *body)
{
    const wf_json *query = wf_field(body, "query"), *documents = wf_field(body, "documents");
    if (!read_scored(j, body, WF_OF_RERANK) || !wf_embed_flag(j, body, "return_documents", &j->params.echo) ||
        !wf_embed_whole(body, "top_n", 1, WF_MAX_CHOICES, &j->params.dimensions, &j->refusal))
        return false;
    if (!wf_json_is(query, WF_JSON_STRING)) return wf_refuse(&j->refusal, 400, "query", "query must be a string");
    if (!wf_json_is(documents, WF_JSON_LIST))
        return wf_refuse(&j->refusal, 400, "documents", "documents must be a list");
    return read_pairs(j, body, "query", "documents");
}

/* ---- replies --------------------------------------------------------------------------------------------- */

/* What the head gives is the logarithm of odds. */
static double score_of(const wf_choice *c)
{
    double x = c->n_embedding ? (double)c->embedding[0] : 0;
    return c->job->params.embed_raw ? x : 1 / (1 + exp(-x));
}

static void write_scores(wf_job *j)
{
    wf_text *out = &j->out;
    size_t n = wf_embed_tokens(j);
    wf_text_print(out, "{\"id\":\"score-%s\",\"object\":\"list\",\"created\":%lld,\"data\":[", j->id,
                  (long long)j->created);
    for (size_t i = 0; i < j->n_choices; i++) {
        wf_json_comma(out);
        wf_json_print(out, "{'index':%zu,'object':'score','score':%.9g}", i, score_of(&j->choices[i]));
    }
    wf_json_print(out, "],'model':%s,'usage':{'prompt_tokens':%zu,'total_tokens':%zu}}", wf_reply_model(j), n, n);
}

/* The best first; of equals, the earlier. */
static int better_first(const void *a, const void *b)
{
    const wf_choice *const *x = a, *const *y = b;
    double s = score_of(*x), t = score_of(*y);
    return s != t ? (s < t) - (s > t) : ((*x)->index > (*y)->index) - ((*x)->index < (*y)->index);
}

static void write_ranks(wf_job *j)
{
    wf_text *out = &j->out;
    size_t n = wf_embed_tokens(j), top = j->n_choices, made_of = j->reply_held;
    const wf_choice **order = wf_calloc(j->n_choices, sizeof *order);
    if (!order) {
        wf_refuse(&j->refusal, 500, "", "out of memory for the answer");
        return;
    }
    for (size_t i = 0; i < j->n_choices; i++) order[i] = &j->choices[i];
    qsort(order, j->n_choices, sizeof *order, better_first);
    if (j->params.dimensions) top = WF_MIN(top, (size_t)j->params.dimensions);
    wf_text_print(out, "{\"id\":\"rerank-%s\",\"results\":[", j->id);
    for (size_t i = 0; i < top && !out->failed && wf_reply_has_room(j, made_of); i++) {
        const wf_prompt *p = &j->params.prompts[order[i]->index];
        wf_json_comma(out);
        wf_json_print(out, "{'index':%u,'relevance_score':%.9g", order[i]->index, score_of(order[i]));
        if (p->text) wf_json_print(out, ",'document':{'text':%.*s}", (int)p->len, p->text);
        wf_text_add(out, "}", 1);
    }
    wf_json_print(out, "],'model':%s,'usage':{'prompt_tokens':%zu,'total_tokens':%zu}}", wf_reply_model(j), n, n);
    free(order);
}

const wf_api wf_api_score = {.put_refusal = wf_refusal_put, .write = write_scores};
const wf_api wf_api_rerank = {.put_refusal = wf_refusal_put, .write = write_ranks};
