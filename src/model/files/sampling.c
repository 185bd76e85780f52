/* sampling: see sampling.h. The table has weft's own defaults, too: those of the OpenAI API and of vLLM. */
#include "model/files/sampling.h"
#include "model/files/folder.h"
#include "base/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_CONFIG (1u << 20)
#define AT(field)  offsetof(struct weft_sampling, field)

static const struct row {
    unsigned bit;
    const char *key, *theirs; /* theirs: in generation_config.json; NULL: not there */
    size_t at;
    bool whole;
    double initial, min, max;
} rows[] = {
    {WEFT_SAMPLING_TEMPERATURE, "general.sampling.temp", "temperature", AT(temperature), false, 1, 0, 100},
    {WEFT_SAMPLING_TOP_K, "general.sampling.top_k", "top_k", AT(top_k), true, 0, -1, INT_MAX},
    {WEFT_SAMPLING_TOP_P, "general.sampling.top_p", "top_p", AT(top_p), false, 1, 1e-6, 1},
    {WEFT_SAMPLING_MIN_P, "general.sampling.min_p", "min_p", AT(min_p), false, 0, 0, 1},
    {WEFT_SAMPLING_REPEAT_PENALTY, "general.sampling.penalty_repeat", "repetition_penalty", AT(repeat_penalty), false,
     1, 1e-3, 100},
    {WEFT_SAMPLING_REPEAT_LAST_N, "general.sampling.penalty_last_n", NULL, AT(repeat_last_n), true, 0, -1, INT_MAX},
};

static void put(struct weft_sampling *s, const struct row *w, double v)
{
    char *at = (char *)s + w->at;
    if (w->whole)
        memcpy(at, &(int32_t){v > 0 ? (int32_t)v : 0}, sizeof(int32_t)); /* -1 is off, or all, in other programs */
    else memcpy(at, &(float){(float)v}, sizeof(float));
}

/* Nobody is kept from a model because of advice that cannot be followed. */
static bool sensible(const wf_gguf *g, const struct row *w, const char *name, bool number, double v)
{
    bool good = number && v >= w->min && v <= w->max && (!w->whole || v == (double)(int64_t)v);
    if (!good)
        wf_log(WEFT_LOG_WARN, "%s: %s is no %s from %g to %g: it is ignored", g->path, name,
               w->whole ? "whole number" : "number", w->min, w->max);
    return good;
}

static bool is_number(enum wf_gguf_type t) { return wf_gguf_type_size(t) && t != WF_GGUF_BOOL; }

unsigned wf_sampling_stated(const wf_gguf *g, struct weft_sampling *out)
{
    unsigned stated = 0;
    *out = (struct weft_sampling){0};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        const wf_gguf_kv *kv = g ? wf_gguf_find(g, rows[i].key) : NULL;
        double v = kv && is_number(kv->type) ? wf_gguf_num_at(kv, 0) : 0;
        bool used = kv && sensible(g, &rows[i], rows[i].key, is_number(kv->type), v);
        put(out, &rows[i], used ? v : rows[i].initial);
        if (used) stated |= rows[i].bit;
    }
    return stated;
}

/* ---- generation_config.json ---------------------------------------------------------------------- */

static weft_status copy_row(wf_gguf *g, const wf_json *config, const struct row *w)
{
    const wf_json *v = wf_json_get(config, w->theirs);
    double x = wf_json_number(v);
    char name[96];
    snprintf(name, sizeof name, "'%s' of generation_config.json", w->theirs);
    if (wf_json_absent(v) || !sensible(g, w, name, wf_json_is_number(v), x)) return WEFT_OK;
    return w->whole ? wf_folder_i32(g, w->key, (int32_t)x) : wf_folder_f32(g, w->key, (float)x);
}

/* A file with ids of tokens alone says nothing about sampling. */
static bool says_something(const wf_json *config)
{
    bool any = wf_json_is(wf_json_get(config, "do_sample"), WF_JSON_BOOL);
    for (size_t i = 0; i < WF_LEN(rows); i++) any |= wf_json_is_number(wf_json_get(config, rows[i].theirs));
    return any;
}

/* As in transformers nothing is sampled where do_sample is not true, whatever temperature there is. */
static weft_status copy_rows(wf_gguf *g, const wf_json *config)
{
    bool sample = wf_json_is_true(wf_json_get(config, "do_sample"));
    if (!says_something(config)) return WEFT_OK;
    if (!sample) WF_TRY(wf_folder_f32(g, rows[0].key, 0));
    for (size_t i = !sample; i < WF_LEN(rows); i++)
        if (sample || rows[i].bit == WEFT_SAMPLING_REPEAT_PENALTY) WF_TRY(copy_row(g, config, &rows[i]));
    return WEFT_OK;
}

weft_status wf_sampling_of_folder(wf_gguf *g)
{
    wf_json *config;
    WF_TRY(wf_json_load_of(g->path, "generation_config.json", MAX_CONFIG, WF_JSON_AN_OBJECT, &config));
    weft_status s = copy_rows(g, config);
    wf_json_free(config);
    return s;
}
