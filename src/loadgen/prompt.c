/* prompt: the contents of requests. Random prompts are lists of token ids if the endpoint accepts them and the server has
 * /tokenize, so that their length is exact. Otherwise they are words, most of which are one token each. */
#include "loadgen/internal.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

const char *const wf_prompt_words[WF_PROMPT_WORDS] = {
    "the",   "of",    "and",   "to",     "in",   "is",   "you",   "that",   "it",    "he",
    "was",   "for",   "on",    "are",    "as",   "with", "his",   "they",   "at",    "be",
    "this",  "have",  "from",  "or",     "one",  "had",  "by",    "word",   "but",   "not",
    "what",  "all",   "were",  "we",     "when", "your", "can",   "said",   "there", "use",
    "an",    "each",  "which", "she",    "do",   "how",  "their", "if",     "will",  "up",
    "other", "about", "out",   "many",   "then", "them", "these", "so",     "some",  "her",
    "would", "make",  "like",  "him",    "into", "time", "has",   "look",   "two",   "more",
    "write", "go",    "see",   "number", "no",   "way",  "could", "people", "my",    "than",
    "first", "water", "been",  "call",   "who",  "oil",  "its",   "now",    "find",  "long",
    "down",  "day",   "did",   "get",    "come", "made", "may",   "part",
};

/* ---- datasets ----------------------------------------------------------------------------- */

/* --dataset-name sharegpt accepts a CSV trace or ShareGPT's JSON, which begins with a bracket. */
static weft_status is_json(const char *path, bool *out)
{
    int c;
    WF_TRY(wf_need_regular(path)); /* a pipe cannot be read twice */
    FILE *f = fopen(path, "r");
    if (!f) return wf_fail(WEFT_ERR_IO, "cannot open %s: check --dataset-path", path);
    do c = getc(f);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0xEF || c == 0xBB || c == 0xBF);
    fclose(f);
    *out = c == '[';
    return WEFT_OK;
}

static weft_status read_sharegpt(wf_target *t, size_t n, wf_request_specs *out)
{
    const wf_client_params *p = t->p;
    bool json = false;
    WF_TRY(is_json(p->dataset_path, &json));
    if (json)
        return wf_sharegpt_read(p->dataset_path, n, p->text_out, p->seed, wf_target_count, t, out);
    WF_TRY(wf_trace_read(p->dataset_path, out));
    out->n = WF_MIN(out->n, n);
    for (size_t i = 0; i < out->n; i++) {
        wf_request_spec *a = &out->list[i];
        a->n_in = WF_MAX(a->n_in, 1u);
        a->n_out = WF_MAX(p->text_out ? p->text_out : a->n_out, 1u);
    }
    return WEFT_OK;
}

weft_status wf_prompts_make(wf_target *t, size_t n, wf_request_specs *out)
{
    const wf_client_params *p = t->p;
    if (p->dataset == WF_DATASET_RANDOM)
        return wf_request_specs_random(n, p->n_in, p->n_out, p->range_ratio, p->seed, out);
    WF_TRY(p->dataset == WF_DATASET_SHAREGPT
               ? read_sharegpt(t, n, out)
               : wf_custom_read(p->dataset_path, n, p->text_out, wf_target_count, t, out));
    return wf_request_specs_repeat(out, n);
}

/* ---- bodies ------------------------------------------------------------------------------- */

/* All requests sample their prefix from the same seed. */
static uint64_t draw(const wf_target *t, uint64_t i, uint32_t k)
{
    uint64_t seed = t->p->seed << 20;
    return k < t->p->n_prefix ? wf_random(seed, k) : wf_random(seed + 1 + i, k);
}

static json_t *random_ids(const wf_target *t, uint32_t n, uint64_t i)
{
    json_t *ids = json_array();
    for (uint32_t k = 0; ids && k < n; k++)
        json_array_append_new(ids, json_integer(t->pool[draw(t, i, k) % t->n_pool]));
    return ids;
}

static json_t *random_words(const wf_target *t, uint32_t n, uint64_t i)
{
    char *text = wf_calloc((size_t)n * 8 + 1, 1),
         *p = text; /* no word is longer than six letters */
    for (uint32_t k = 0; p && k < n; k++)
        p += sprintf(p, "%s%s", k ? " " : "", wf_prompt_words[draw(t, i, k) % WF_PROMPT_WORDS]);
    json_t *out = text ? json_stringn(text, (size_t)(p - text)) : NULL;
    free(text);
    return out;
}

static json_t *prompt_of(const wf_target *t, const wf_request_spec *a, uint64_t i)
{
    uint32_t n = a->n_in + (a->text ? 0 : t->p->n_prefix);
    if (a->text) return json_string(a->text);
    return t->pool ? random_ids(t, n, i) : random_words(t, n, i);
}

static void set_limits(const wf_target *t, const wf_request_spec *a, json_t *body)
{
    json_object_set_new(body, "max_tokens", json_integer(a->n_out));
    if (t->p->chat) json_object_set_new(body, "max_completion_tokens", json_integer(a->n_out));
    if (t->p->temperature >= 0)
        json_object_set_new(body, "temperature", json_real(t->p->temperature));
    if (t->p->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
}

char *wf_prompt_body(const wf_target *t, const wf_request_spec *spec, uint64_t i)
{
    json_t *prompt = prompt_of(t, spec, i);
    json_t *body = t->p->chat
                       ? json_pack("{s:[{s:s,s:o}]}", "messages", "role", "user", "content", prompt)
                       : json_pack("{s:o}", "prompt", prompt);
    if (!body) return NULL;
    if (t->model) json_object_set_new(body, "model", json_string(t->model));
    set_limits(t, spec, body);
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (t->extra) json_object_update(body, t->extra);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}
