/* result_json: saves the result with the keys of `vllm bench serve --save-result`. */
#include "loadgen/internal.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- setup and totals ---------------------------------------------------------------------- */

static void date_now(char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm tm;
    strftime(buf, cap, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
}

static void put_totals(wf_text *o, const wf_load_stats *s)
{
    double t = s->seconds > 0 ? s->seconds : 1e-9;
    wf_json_print(o,
                  ",\n  'duration': %.9g,\n  'completed': %zu,\n  'failed': %zu,\n  'total_input_tokens': %llu,\n  "
                  "'total_output_tokens': %llu",
                  s->seconds, s->completed, s->failed, (unsigned long long)s->n_in, (unsigned long long)s->n_out);
    wf_json_print(o,
                  ",\n  'request_throughput': %.9g,\n  'request_goodput': %.9g,\n  'output_throughput': %.9g,\n  "
                  "'total_token_throughput': %.9g",
                  (double)s->completed / t, (double)s->good / t, (double)s->n_out / t,
                  (double)(s->n_in + s->n_out) / t);
    wf_json_print(o, ",\n  'max_output_tokens_per_s': %.9g,\n  'max_concurrent_requests': %zu", s->peak_out,
                  s->peak_requests);
}

static void put_figure(wf_text *o, const char *what, const char *key, double v)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_ms", what, key);
    wf_json_print(o, ",\n  %s: %.9g", name, v);
}

static void put_metric(wf_text *o, const wf_client_params *p, const wf_series *s, const char *key)
{
    put_figure(o, "mean", key, s->mean);
    put_figure(o, "median", key, wf_percentile(s, 50));
    put_figure(o, "std", key, s->stddev);
    for (size_t i = 0; i < p->n_percentiles; i++) {
        char what[32];
        snprintf(what, sizeof what, "p%g", p->percentiles[i]);
        put_figure(o, what, key, wf_percentile(s, p->percentiles[i]));
    }
}

/* ---- each request -------------------------------------------------------------------------- */

enum { INPUT_LENS, OUTPUT_LENS, TTFTS, ITLS, TEXTS }; /* else errors */

static void put_detail(wf_text *o, size_t column, const wf_transaction *x)
{
    const wf_request_result *a = x->result;
    switch (column) {
    case INPUT_LENS: wf_json_print(o, "%u", a->n_in); break;
    case OUTPUT_LENS: wf_json_print(o, "%u", a->ok ? a->n_out : 0); break;
    case TTFTS: wf_json_print(o, "%.9g", a->first_ns ? (double)(a->first_ns - a->start_ns) * 1e-9 : 0); break;
    case ITLS:
        wf_text_add(o, "[", 1);
        for (size_t i = 0; i < a->n_gaps; i++) wf_json_comma(o), wf_json_print(o, "%.9g", a->gaps[i]);
        wf_text_add(o, "]", 1);
        break;
    case TEXTS: wf_json_print(o, "%s", x->text.data ? x->text.data : ""); break;
    default: wf_json_print(o, "%s", x->error ? x->error : "");
    }
}

static void put_details(wf_text *o, const wf_load_run *r)
{
    static const char *const columns[] = {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"};
    for (size_t k = 0; k < WF_LEN(columns); k++) {
        wf_json_print(o, ",\n  %s: [", columns[k]);
        for (size_t i = 0; i < r->n; i++)
            if (r->x[i].ended) wf_json_comma(o), put_detail(o, k, &r->x[i]);
        wf_text_add(o, "]", 1);
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

/* The default file name is that of vLLM. */
static weft_status find_path(const wf_target *t, const char *date, char *path, size_t cap)
{
    char name[512], limit[40] = "";
    const wf_client_params *p = t->p;
    const char *model = t->model ? t->model : "model", *slash = strrchr(model, '/');
    if (p->max_concurrency) snprintf(limit, sizeof limit, "-concurrency%u", p->max_concurrency);
    snprintf(name, sizeof name, "%s-%gqps%s-%s-%s.json", p->label ? p->label : p->backend, p->rate, limit,
             slash ? slash + 1 : model, date);
    const char *given = p->result_file ? p->result_file : ".";
    struct stat st;
    bool folder = !stat(given, &st) && S_ISDIR(st.st_mode);
    int n = snprintf(path, cap, "%s%s%s", given, folder ? "/" : "", folder ? name : "");
    return (size_t)n < cap ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", path);
}

weft_status wf_result_json_check(const wf_target *t)
{
    char date[40], path[1200];
    date_now(date, sizeof date);
    WF_TRY(find_path(t, date, path, sizeof path));
    return wf_output_check(path);
}

static weft_status write_file(const wf_target *t, const char *date, const wf_text *o)
{
    char path[1200];
    wf_output out;
    WF_TRY(find_path(t, date, path, sizeof path));
    WF_TRY(wf_output_open(path, &out));
    bool whole = fwrite(o->data, 1, o->len, out.f) == o->len;
    WF_TRY(wf_output_end(&out, whole));
    if (!whole) return wf_fail(WEFT_ERR_IO, "cannot write %s: out of disk space", path);
    if (!t->p->quiet) fprintf(stderr, "weft: wrote %s\n", path);
    return WEFT_OK;
}

weft_status wf_result_json_save(const wf_target *t, const wf_load_run *r, const wf_load_stats *s)
{
    char date[40];
    wf_text o = {0};
    date_now(date, sizeof date);
    const wf_client_params *p = t->p;
    wf_json_print(&o,
                  "{\n  'date': %s,\n  'endpoint_type': %s,\n  'backend': %s,\n  'label': %s,\n  'model_id': %s,\n  "
                  "'tokenizer_id': %s,\n  'num_prompts': %u,\n",
                  date, p->backend, p->backend, p->label, t->model, t->model, p->n);
    if (isfinite(p->rate)) wf_json_print(&o, "  'request_rate': %.9g,\n", p->rate);
    else wf_json_print(&o, "  'request_rate': 'inf',\n");
    wf_json_print(&o, "  'burstiness': %.9g,\n", (double)p->burstiness);
    if (p->max_concurrency) wf_json_print(&o, "  'max_concurrency': %u", p->max_concurrency);
    else wf_json_print(&o, "  'max_concurrency': null");
    put_totals(&o, s);
    for (int m = 0; m < WF_N_METRICS; m++) put_metric(&o, t->p, &s->metric[m], wf_metric_names[m].key);
    if (t->p->save_detailed) put_details(&o, r);
    wf_text_print(&o, "\n}\n");
    weft_status st = o.failed ? wf_fail(WEFT_ERR_NOMEM, "out of memory for the result") : write_file(t, date, &o);
    free(o.data);
    return st;
}
