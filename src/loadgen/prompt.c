/* prompt: the contents of requests. Random prompts are lists of token ids if the endpoint accepts them and the server
 * has /tokenize, so that their length is exact. Otherwise they are words, most of which are one token each. */
#include "loadgen/internal.h"

#include "base/file.h"

#include <stdlib.h>

const char *const wf_prompt_words[WF_PROMPT_WORDS] = {
    "the",  "of",   "and",   "to",    "in",    "is",    "you",  "that",  "it",     "he",   "was",  "for",   "on",
    "are",  "as",   "with",  "his",   "they",  "at",    "be",   "this",  "have",   "from", "or",   "one",   "had",
    "by",   "word", "but",   "not",   "what",  "all",   "were", "we",    "when",   "your", "can",  "said",  "there",
    "use",  "an",   "each",  "which", "she",   "do",    "how",  "their", "if",     "will", "up",   "other", "about",
    "out",  "many", "then",  "them",  "these", "so",    "some", "her",   "would",  "make", "like", "him",   "into",
    "time", "has",  "look",  "two",   "more",  "write", "go",   "see",   "number", "no",   "way",  "could", "people",
    "my",   "than", "first", "water", "been",  "call",  "who",  "oil",   "its",    "now",  "find", "long",  "down",
    "day",  "did",  "get",   "come",  "made",  "may",   "part",
};

/* ---- datasets ----------------------------------------------------------------------------- */

static weft_status read_sharegpt(wf_target *t, size_t n, wf_request_specs *out)
{
    const wf_client_params *p = t->p;
    bool json = false;
    /* --dataset-name sharegpt accepts a CSV trace or ShareGPT's JSON, which begins with a bracket. */
    int c;
    WF_TRY(wf_need_regular(p->dataset_path)); /* a pipe cannot be read twice */
    FILE *f = fopen(p->dataset_path, "r");
    if (!f) return wf_fail(WEFT_ERR_IO, "cannot open %s: check --dataset-path", p->dataset_path);
    do c = getc(f);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0xEF || c == 0xBB || c == 0xBF);
    fclose(f);
    json = c == '[';
    if (json) return wf_sharegpt_read(p->dataset_path, n, p->text_out, p->seed, wf_target_count, t, out);
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

static void put_prompt(wf_text *out, const wf_target *t, const wf_request_spec *a, uint64_t i)
{
    uint32_t n = a->n_in + t->p->n_prefix;
    if (a->text) {
        wf_json_print(out, "%s", a->text);
        return;
    }
    wf_text_add(out, t->pool ? "[" : "\"", 1);
    for (uint32_t k = 0; k < n; k++) {
        /* All requests sample their prefix from the same seed. */
        uint64_t x = wf_random((t->p->seed << 20) + (k < t->p->n_prefix ? 0 : 1 + i), k);
        if (t->pool) wf_text_print(out, "%s%d", k ? "," : "", t->pool[x % t->n_pool]);
        else wf_text_print(out, "%s%s", k ? " " : "", wf_prompt_words[x % WF_PROMPT_WORDS]);
    }
    wf_text_add(out, t->pool ? "]" : "\"", 1);
}

/* What the user gives besides replaces what is here under the same name. */
static bool is_ours(const wf_target *t, const char *name) { return !wf_json_get(t->extra, name); }

char *wf_prompt_body(const wf_target *t, const wf_request_spec *spec, uint64_t i)
{
    const wf_client_params *p = t->p;
    wf_text out = {0};
    const char *prompt = p->chat ? "messages" : "prompt";
    wf_text_print(&out, "{");
    if (is_ours(t, prompt)) {
        wf_json_print(&out, p->chat ? "%s:[{'role':'user','content':" : "%s:", prompt);
        put_prompt(&out, t, spec, i);
        wf_text_print(&out, p->chat ? "}]" : "");
    }
    if (t->model && is_ours(t, "model")) wf_json_comma(&out), wf_json_print(&out, "'model':%s", t->model);
    if (is_ours(t, "max_tokens")) wf_json_comma(&out), wf_json_print(&out, "'max_tokens':%u", spec->n_out);
    if (p->chat && is_ours(t, "max_completion_tokens"))
        wf_json_comma(&out), wf_json_print(&out, "'max_completion_tokens':%u", spec->n_out);
    if (is_ours(t, "temperature"))
        wf_json_comma(&out), wf_json_print(&out, "'temperature':%.9g", (double)p->temperature);
    if (p->ignore_eos && is_ours(t, "ignore_eos")) wf_json_comma(&out), wf_json_print(&out, "'ignore_eos':true");
    if (is_ours(t, "stream")) wf_json_comma(&out), wf_json_print(&out, "'stream':true");
    if (is_ours(t, "stream_options"))
        wf_json_comma(&out), wf_json_print(&out, "'stream_options':{'include_usage':true}");
    WF_JSON_EACH_MEMBER (m, t->extra) {
        wf_json_comma(&out);
        wf_json_put(&out, &m->name);
        wf_text_add(&out, ":", 1);
        wf_json_put(&out, &m->value);
    }
    wf_text_print(&out, "}");
    if (!out.failed) return out.data;
    free(out.data);
    return NULL;
}
