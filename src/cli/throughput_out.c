/* throughput_out: rows of `weft bench throughput` as Markdown, JSON and CSV, all from one table of columns.
 */
#include "cli/throughput.h"

#include <string.h>

double wf_throughput_pct(const wf_throughput_row *r)
{
    return r->optimum > 0 ? 100 * r->total_rate / r->optimum : -1;
}

static double pct_at_best(const wf_throughput_row *r)
{
    return r->at_best > 0 ? 100 * r->total_rate / r->at_best : -1;
}

/* ---- columns ------------------------------------------------------------------------------ */

static double p(const wf_throughput_row *r, enum wf_metric m, double percent)
{
    return r->stats.metric[m].n ? wf_percentile(&r->stats.metric[m], percent) : -1;
}

static double rate(const wf_throughput_row *r)
{
    return r->rate;
}
static double requests(const wf_throughput_row *r)
{
    return (double)r->stats.completed;
}
static double skipped(const wf_throughput_row *r)
{
    return (double)r->skipped;
}
static double n_in(const wf_throughput_row *r)
{
    return (double)r->stats.n_in;
}
static double n_out(const wf_throughput_row *r)
{
    return (double)r->stats.n_out;
}
static double seconds(const wf_throughput_row *r)
{
    return r->stats.seconds;
}
static double total_rate(const wf_throughput_row *r)
{
    return r->total_rate;
}
static double request_rate(const wf_throughput_row *r)
{
    return (double)r->stats.completed / r->stats.seconds;
}
static double ttft_p50(const wf_throughput_row *r)
{
    return p(r, WF_TTFT, 50);
}
static double ttft_p99(const wf_throughput_row *r)
{
    return p(r, WF_TTFT, 99);
}
static double itl_p50(const wf_throughput_row *r)
{
    return p(r, WF_ITL, 50);
}
static double itl_p99(const wf_throughput_row *r)
{
    return p(r, WF_ITL, 99);
}
static double norm_mean(const wf_throughput_row *r)
{
    return r->stats.metric[WF_NORM].n ? r->stats.metric[WF_NORM].mean : -1;
}
static double norm_p99(const wf_throughput_row *r)
{
    return p(r, WF_NORM, 99);
}
static double mean_step_tokens(const wf_throughput_row *r)
{
    return r->mean_step_tokens;
}
static double preempted(const wf_throughput_row *r)
{
    return (double)r->preempted;
}
static double idle_pct(const wf_throughput_row *r)
{
    double all = (double)(r->busy_ns + r->idle_ns);
    return all > 0 ? 100 * (double)r->idle_ns / all : -1;
}

typedef struct column {
    const char *title, *key;
    int width, digits;
    double (*value)(const wf_throughput_row *r);  /* negative: unknown */
    enum { ALWAYS, ARRIVALS, PROFILE, KNOWN } when; /* ARRIVALS: only where requests arrive over time; KNOWN: by the cost model */
} column;

static const column columns[] = {
    {"rate", "rate", 8, 3, rate, ARRIVALS},
    {"requests", "requests", 8, 0, requests, ALWAYS},
    {"skipped", "skipped", 7, 0, skipped, ALWAYS},
    {"in", "input_tokens", 8, 0, n_in, ALWAYS},
    {"out", "output_tokens", 8, 0, n_out, ALWAYS},
    {"time s", "seconds", 8, 2, seconds, ALWAYS},
    {"tokens/s", "total_tokens_s", 9, 1, total_rate, ALWAYS},
    {"req/s", "requests_s", 8, 3, request_rate, ALWAYS},
    {"TTFT p50", "ttft_p50_ms", 9, 2, ttft_p50, ALWAYS},
    {"p99", "ttft_p99_ms", 9, 2, ttft_p99, ALWAYS},
    {"ITL p50", "itl_p50_ms", 8, 2, itl_p50, ALWAYS},
    {"p99", "itl_p99_ms", 8, 2, itl_p99, ALWAYS},
    {"norm. mean", "norm_mean_ms", 10, 2, norm_mean, ARRIVALS},
    {"p99", "norm_p99_ms", 9, 2, norm_p99, ARRIVALS},
    {"tok/step", "mean_step_tokens", 8, 1, mean_step_tokens, ALWAYS},
    {"preempted", "preempted", 9, 0, preempted, ALWAYS},
    {"idle %", "idle_pct", 7, 2, idle_pct, PROFILE},
    {"% of opt.", "optimum_pct", 9, 2, wf_throughput_pct, ALWAYS},
    {"% of model", "model_pct", 10, 2, pct_at_best, KNOWN},
};

static bool is_shown(const wf_throughput_head *h, const column *c)
{
    bool shown[] = {[ALWAYS] = true, [ARRIVALS] = h->arrivals, [PROFILE] = h->profile, [KNOWN] = *h->cost_on};
    return shown[c->when];
}

static const column *next_column(const wf_throughput_head *h, size_t *i)
{
    while (*i < WF_LEN(columns) && !is_shown(h, &columns[*i])) ++*i;
    return *i < WF_LEN(columns) ? &columns[(*i)++] : NULL;
}

/* Formats a value: "" if unknown; with the column's digits in tables, with full precision elsewhere. */
static const char *text_of(const column *c, const wf_throughput_row *r, bool people, char *buf,
                           size_t cap)
{
    double v = c->value(r);
    buf[0] = 0;
    if (v >= 0 && people) snprintf(buf, cap, "%.*f", c->digits, v);
    if (v >= 0 && !people) snprintf(buf, cap, "%.9g", v);
    return buf;
}

/* ---- Markdown ----------------------------------------------------------------------------- */

static void md_optimum(FILE *f, const wf_throughput_head *h)
{
    double params = (double)weft_model_info(h->model)->n_active;
    if (h->peak_flops > 0)
        fprintf(f,
                "The optimum is NanoFlow's equation 5: %.4g TFLOP/s / (2 x %.4g parameters) = %.0f "
                "tokens/s.\n",
                h->peak_flops / 1e12, params, h->peak_flops / (2 * params));
    bool here = !strcmp(h->cost_on, WF_COST_HERE);
    if (*h->cost_on)
        fprintf(f, "The model is `weft plan --cost%s%s`, with memory and energy, for requests of these lengths.\n", here ? "" : " --on ", here ? "" : h->cost_on);
}

static void md_head(FILE *f, const wf_throughput_head *h)
{
    char label[96];
    size_t i = 0;
    wf_model_label(h->model, label, sizeof label);
    fprintf(f,
            "%s on %s (%s): context %u, %u sequences, dense batch %u. tokens/s counts input and "
            "output; times are in ms.\n",
            label, h->device->name, h->device->id, h->context, h->n_seqs, h->batch);
    md_optimum(f, h);
    fprintf(f, "\n| %-8s | %-12s |", "policy", "load");
    for (const column *c; (c = next_column(h, &i));) fprintf(f, " %*s |", c->width, c->title);
    fprintf(f, "\n| -------- | ------------ |");
    for (i = 0; (next_column(h, &i));) {
        const column *c = &columns[i - 1];
        fprintf(f, " %.*s: |", c->width - 1, "--------------------");
    }
    fprintf(f, "\n");
}

static void md_row(FILE *f, const wf_throughput_head *h, const wf_throughput_row *r, bool first)
{
    char text[48];
    size_t i = 0;
    (void)first;
    fprintf(f, "| %-8s | %-12s |", r->policy, r->load);
    for (const column *c; (c = next_column(h, &i));)
        fprintf(f, " %*s |", c->width, text_of(c, r, true, text, sizeof text));
    fprintf(f, "\n");
}

static bool same_line(const wf_throughput_row *a, const wf_throughput_row *b)
{
    return !strcmp(a->policy, b->policy) && !strcmp(a->load, b->load);
}

/* Prints the highest rate within the latency limit, for each policy and load. */
static void md_within(FILE *f, const wf_throughput_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double best = 0;
        if (i && same_line(&rows[i], &rows[i - 1])) continue;
        for (size_t k = i; k < n && same_line(&rows[i], &rows[k]); k++)
            if (rows[k].stats.completed && norm_mean(&rows[k]) <= WF_SLO_NORM_MS)
                best = WF_MAX(best, rows[k].rate);
        fprintf(f, "%s, %s: ", rows[i].policy, rows[i].load);
        if (best > 0)
            fprintf(f, "%g requests/s is the highest measured rate within %d ms per token.\n", best,
                    WF_SLO_NORM_MS);
        else
            fprintf(f, "no measured rate is within %d ms per token.\n", WF_SLO_NORM_MS);
    }
}

static void md_foot(FILE *f, const wf_throughput_head *h, const wf_throughput_row *rows, size_t n)
{
    fprintf(f, "\n");
    if (h->arrivals) md_within(f, rows, n);
    fprintf(f, "build: weft %s (%s)\n", weft_version(), wf_commit());
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_head(FILE *f, const wf_throughput_head *h)
{
    (void)h;
    fprintf(f, "[");
}

static void json_row(FILE *f, const wf_throughput_head *h, const wf_throughput_row *r, bool first)
{
    char label[96], text[48];
    size_t i = 0;
    wf_model_label(h->model, label, sizeof label);
    fprintf(f, "%s\n  {\n", first ? "" : ",");
    wf_json_text("build_commit", wf_commit());
    wf_json_text("device", h->device->id);
    wf_json_text("device_name", h->device->name);
    wf_json_text("driver", h->device->driver);
    wf_json_text("model_type", label);
    wf_json_text("policy", r->policy);
    wf_json_text("load", r->load);
    fprintf(f, "    \"context\": %u,\n    \"n_seqs\": %u,\n    \"dense_batch\": %u", h->context,
            h->n_seqs, h->batch);
    for (const column *c; (c = next_column(h, &i));) {
        const char *v = text_of(c, r, false, text, sizeof text);
        fprintf(f, ",\n    \"%s\": %s", c->key, *v ? v : "null");
    }
    fprintf(f, "\n  }");
}

static void json_foot(FILE *f, const wf_throughput_head *h, const wf_throughput_row *rows, size_t n)
{
    (void)h, (void)rows, (void)n;
    fprintf(f, "\n]\n");
}

/* ---- CSV ---------------------------------------------------------------------------------- */

static void csv_head(FILE *f, const wf_throughput_head *h)
{
    size_t i = 0;
    fprintf(
        f,
        "build_commit,device,device_name,driver,model_type,policy,load,context,n_seqs,dense_batch");
    for (const column *c; (c = next_column(h, &i));) fprintf(f, ",%s", c->key);
    fprintf(f, "\n");
}

static void csv_row(FILE *f, const wf_throughput_head *h, const wf_throughput_row *r, bool first)
{
    char label[96], text[48];
    size_t i = 0;
    (void)first;
    wf_model_label(h->model, label, sizeof label);
    const char *const texts[] = {wf_commit(), h->device->id, h->device->name, h->device->driver,
                                 label,       r->policy,     r->load};
    for (size_t k = 0; k < WF_LEN(texts); k++) wf_csv_text(f, texts[k]);
    fprintf(f, "%u,%u,%u", h->context, h->n_seqs, h->batch);
    for (const column *c; (c = next_column(h, &i));)
        fprintf(f, ",%s", text_of(c, r, false, text, sizeof text));
    fprintf(f, "\n");
}

static const wf_throughput_format formats[] = {
    {"md", md_head, md_row, md_foot},
    {"json", json_head, json_row, json_foot},
    {"csv", csv_head, csv_row, NULL},
};

const wf_throughput_format *wf_throughput_format_find(const char *name)
{
    for (size_t i = 0; name && i < WF_LEN(formats); i++)
        if (!strcmp(formats[i].name, name)) return &formats[i];
    return &formats[0];
}
