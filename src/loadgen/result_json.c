/* result_json: saves the result with the keys of `vllm bench serve --save-result`. */
#include "loadgen/internal.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void set(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
}

static json_t *text(const char *s)
{
    return s ? json_string(s) : json_null();
}

/* ---- setup and totals ---------------------------------------------------------------------- */

static void date_now(char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm tm;
    strftime(buf, cap, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
}

static void add_setup(json_t *o, const wf_target *t, const char *date)
{
    const wf_client_params *p = t->p;
    set(o, "date", text(date));
    set(o, "endpoint_type", text(p->backend));
    set(o, "backend", text(p->backend));
    set(o, "label", text(p->label));
    set(o, "model_id", text(t->model));
    set(o, "tokenizer_id", text(t->model));
    set(o, "num_prompts", json_integer((json_int_t)p->n));
    set(o, "request_rate", isfinite(p->rate) ? json_real(p->rate) : json_string("inf"));
    set(o, "burstiness", json_real(p->burstiness));
    set(o, "max_concurrency",
        p->max_concurrency ? json_integer((json_int_t)p->max_concurrency) : json_null());
}

static void add_totals(json_t *o, const wf_load_stats *s)
{
    double t = s->seconds > 0 ? s->seconds : 1e-9;
    set(o, "duration", json_real(s->seconds));
    set(o, "completed", json_integer((json_int_t)s->completed));
    set(o, "failed", json_integer((json_int_t)s->failed));
    set(o, "total_input_tokens", json_integer((json_int_t)s->n_in));
    set(o, "total_output_tokens", json_integer((json_int_t)s->n_out));
    set(o, "request_throughput", json_real((double)s->completed / t));
    set(o, "request_goodput", json_real((double)s->good / t));
    set(o, "output_throughput", json_real((double)s->n_out / t));
    set(o, "total_token_throughput", json_real((double)(s->n_in + s->n_out) / t));
    set(o, "max_output_tokens_per_s", json_real(s->peak_out));
    set(o, "max_concurrent_requests", json_integer((json_int_t)s->peak_requests));
}

static void add_metric(json_t *o, const wf_client_params *p, const wf_series *s, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "mean_%s_ms", key);
    set(o, name, json_real(s->mean));
    snprintf(name, sizeof name, "median_%s_ms", key);
    set(o, name, json_real(wf_percentile(s, 50)));
    snprintf(name, sizeof name, "std_%s_ms", key);
    set(o, name, json_real(s->stddev));
    for (size_t i = 0; i < p->n_percentiles; i++) {
        snprintf(name, sizeof name, "p%g_%s_ms", p->percentiles[i], key);
        set(o, name, json_real(wf_percentile(s, p->percentiles[i])));
    }
}

/* ---- each request -------------------------------------------------------------------------- */

static json_t *gaps_of(const wf_request_result *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_gaps; i++) json_array_append_new(list, json_real(a->gaps[i]));
    return list;
}

static double ttft(const wf_request_result *a)
{
    return a->first_ns ? (double)(a->first_ns - a->start_ns) * 1e-9 : 0;
}

static void add_details(json_t *o, const wf_load_run *r)
{
    static const char *const keys[] = {"input_lens", "output_lens",     "ttfts",
                                       "itls",       "generated_texts", "errors"};
    json_t *list[WF_LEN(keys)];
    for (size_t k = 0; k < WF_LEN(keys); k++) set(o, keys[k], list[k] = json_array());
    for (size_t i = 0; i < r->n; i++) {
        const wf_transaction *x = &r->x[i];
        if (!x->ended) continue;
        json_array_append_new(list[0], json_integer(x->result->n_in));
        json_array_append_new(list[1], json_integer(x->result->ok ? x->result->n_out : 0));
        json_array_append_new(list[2], json_real(ttft(x->result)));
        json_array_append_new(list[3], gaps_of(x->result));
        json_array_append_new(list[4], text(x->text ? x->text : ""));
        json_array_append_new(list[5], text(x->error ? x->error : ""));
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

/* The default file name, as in vLLM. */
static void default_name(const wf_target *t, const char *date, char *buf, size_t cap)
{
    const wf_client_params *p = t->p;
    const char *model = t->model ? t->model : "model", *slash = strrchr(model, '/');
    char limit[40] = "";
    if (p->max_concurrency) snprintf(limit, sizeof limit, "-concurrency%zu", p->max_concurrency);
    snprintf(buf, cap, "%s-%gqps%s-%s-%s.json", p->label ? p->label : p->backend, p->rate, limit,
             slash ? slash + 1 : model, date);
}

static weft_status find_path(const wf_target *t, const char *date, char *path, size_t cap)
{
    char name[512];
    const wf_client_params *p = t->p;
    default_name(t, date, name, sizeof name);
    bool here = !p->result_dir || (p->result_file && p->result_file[0] == '/');
    int n = snprintf(path, cap, "%s%s%s", here ? "" : p->result_dir, here ? "" : "/",
                     p->result_file ? p->result_file : name);
    return (size_t)n < cap ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", path);
}

weft_status wf_result_json_check(const wf_target *t)
{
    char date[40], path[1200];
    date_now(date, sizeof date);
    WF_TRY(find_path(t, date, path, sizeof path));
    return wf_output_check(path);
}

static weft_status write_file(const wf_target *t, const char *date, const json_t *o)
{
    char path[1200];
    wf_output out;
    WF_TRY(find_path(t, date, path, sizeof path));
    WF_TRY(wf_output_open(path, &out));
    bool whole = !json_dumpf(o, out.f, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    WF_TRY(wf_output_end(&out, whole));
    if (!whole) return wf_fail(WEFT_ERR_IO, "cannot write %s: out of disk space or memory", path);
    if (!t->p->quiet) fprintf(stderr, "weft: wrote %s\n", path);
    return WEFT_OK;
}

weft_status wf_result_json_save(const wf_target *t, const wf_load_run *r, const wf_load_stats *s)
{
    char date[40];
    json_t *o = json_object();
    date_now(date, sizeof date);
    if (!o) return wf_fail(WEFT_ERR_NOMEM, "out of memory for the result");
    add_setup(o, t, date);
    add_totals(o, s);
    for (int m = 0; m < WF_N_METRICS; m++)
        if (t->p->shown[m]) add_metric(o, t->p, &s->metric[m], wf_metric_names[m].key);
    if (t->p->save_detailed) add_details(o, r);
    weft_status st = write_file(t, date, o);
    json_decref(o);
    return st;
}
