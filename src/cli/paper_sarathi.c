/* paper_sarathi: figures of SARATHI (arXiv 2308.16369). The baseline is request-level batching. What a decode costs is the time of a load less that of
 * its prompts alone with the same policy, over the decode steps: the paper's marginal time. */
#include "cli/paper.h"

#include <math.h>
#include <string.h>

#define LLAMA13B "LLaMA-13B on an A6000"
#define AS_LOADS "decodes take the time of a load less that of its prompts alone, instead of timed iterations"

/* ---- loads -------------------------------------------------------------------------------- */

typedef struct lengths {
    uint32_t in, out;
} lengths;

/* Splits `all` tokens by the ratio of prompts to decodes. */
static lengths split(uint32_t all, double ratio)
{
    uint32_t out = WF_MAX((uint32_t)(all / (1 + ratio) + 0.5), 2u);
    return (lengths){all - WF_MIN(out, all - 1), WF_MIN(out, all - 1)};
}

/* A chunk of the paper, which must have room for prompts beside n_seqs - 1 decodes. */
static uint32_t chunk_of(wf_paper *p, uint32_t chunk, uint32_t n_seqs)
{
    uint32_t scaled = wf_paper_length(p, chunk), least = 2 * n_seqs;
    if (scaled < least) wf_paper_note(p, "chunks of %u tokens for %u, not %u: two for each of the %u sequences", least, chunk, scaled, n_seqs);
    return WF_MAX(scaled, least);
}

/* Several waves of sequences, so that decodes of one meet prompts of the next. */
static size_t requests_of(const wf_paper *p, uint32_t n_seqs)
{
    return (size_t)n_seqs * (p->o->paper.quick ? 2 : 4);
}

/* Each of a list, or its first and last one. */
static size_t next_of(const wf_paper *p, size_t i, size_t n)
{
    return p->o->paper.quick && i + 1 < n ? n - 1 : i + 1;
}

typedef struct cost {
    wf_paper_times all, prefill, decode; /* seconds: of the load; of a prompt token and of a generated one */
} cost;

/* Seconds of the load and of its prompts alone, in turns. */
static int run_both(wf_paper *p, wf_paper_engine *e, size_t n, lengths l, wf_paper_times both[2])
{
    wf_request_specs specs[2] = {0};
    weft_status s = wf_paper_equal(n, l.in, l.out, &specs[0]);
    if (!s) s = wf_paper_equal(n, l.in, 0, &specs[1]);
    int rc = s ? wf_say_error(s) : wf_paper_run_specs(p, e, specs, 2, both);
    wf_request_specs_free(&specs[0]), wf_request_specs_free(&specs[1]);
    return rc;
}

static int cost_of(wf_paper *p, wf_paper_engine *e, size_t n, lengths l, cost *c)
{
    wf_paper_times both[2] = {0};
    int rc = run_both(p, e, n, l, both);
    c->all = both[0];
    c->prefill.n = c->decode.n = rc ? 0 : both[1].n;
    for (size_t i = 0; i < c->decode.n; i++) {
        c->prefill.v[i] = both[1].v[i] / ((double)n * l.in);
        c->decode.v[i] = (both[0].v[i] - both[1].v[i]) / ((double)n * (l.out - 1)); /* the prompt gives the first token */
    }
    return rc;
}

/* Costs with `policy` of one load of n requests, on an engine of its own. */
static int cost_with(wf_paper *p, const char *policy, uint32_t n_seqs, uint32_t context, uint32_t batch, size_t n, lengths l, cost *c)
{
    wf_paper_engine e;
    int rc = wf_paper_open(p, policy, n_seqs, context, batch, &e);
    if (rc) return rc;
    rc = cost_of(p, &e, n, l, c);
    weft_engine_close(e.e);
    return rc;
}

/* The same, only the times of the load. */
static int times_with(wf_paper *p, const char *policy, uint32_t n_seqs, uint32_t context, uint32_t batch, size_t n, lengths l, wf_paper_times *t)
{
    wf_paper_engine e;
    int rc = wf_paper_open(p, policy, n_seqs, context, batch, &e);
    if (rc) return rc;
    rc = wf_paper_run(p, &e, n, l.in, l.out, t);
    weft_engine_close(e.e);
    return rc;
}

static int leave_out(wf_paper *p, const char *series, double paper_x)
{
    return wf_paper_note(p, "%s at %g: decodes cost less than the runs vary, so a value is left out", series, paper_x);
}

static int add_all(wf_paper *p, const char *series, double x, double paper_x, const wf_paper_times *t, double unit)
{
    int rc = 0;
    for (size_t i = 0; i < t->n && !rc; i++)
        rc = t->v[i] > 0 ? wf_paper_add(p, series, x, paper_x, t->v[i] * unit) : leave_out(p, series, paper_x);
    return rc;
}

/* How many times as fast as `was` it is. */
static int add_gain(wf_paper *p, const char *series, double x, double paper_x, const wf_paper_times *was, const wf_paper_times *is)
{
    int rc = 0;
    for (size_t i = 0; i < WF_MIN(was->n, is->n) && !rc; i++)
        rc = was->v[i] > 0 && is->v[i] > 0 ? wf_paper_add(p, series, x, paper_x, was->v[i] / is->v[i]) : leave_out(p, series, paper_x);
    return rc;
}

/* ---- figures 3 and 4: what prefill and decode cost ------------------------------------------ */

static const uint32_t batches[] = {1, 2, 4, 8, 12, 18};

static lengths mostly_prompt(uint32_t all)
{
    return split(all, 31);
}

static int add_costs(wf_paper *p, uint32_t n_seqs)
{
    cost c;
    uint32_t all = wf_paper_length(p, 1024);
    int rc = cost_with(p, "request", n_seqs, all, 0, n_seqs, mostly_prompt(all), &c);
    if (!rc) rc = add_all(p, "prefill", n_seqs, n_seqs, &c.prefill, 1);
    return rc ? rc : add_all(p, "decode", n_seqs, n_seqs, &c.decode, 1);
}

static int fig3(wf_paper *p)
{
    int rc = wf_paper_fit(p, 1024);
    for (size_t i = 0; i < WF_LEN(batches) && !rc; i = next_of(p, i, WF_LEN(batches))) rc = add_costs(p, batches[i]);
    wf_paper_divide(p, wf_paper_find(p, "prefill", 1));
    return rc ? rc : wf_paper_note(p, "%s; single ops are not timed", AS_LOADS);
}

static int add_prefill_rate(wf_paper *p, wf_paper_engine *e, uint32_t tokens)
{
    wf_paper_times t;
    uint32_t n = wf_paper_length(p, tokens);
    int rc = wf_paper_run(p, e, 4, n, 0, &t);
    for (size_t i = 0; i < t.n && !rc; i++) rc = wf_paper_add(p, "prefill", n, tokens, 4 * n / t.v[i]);
    return rc;
}

static int add_decode_rate(wf_paper *p, uint32_t n_seqs)
{
    cost c;
    uint32_t all = wf_paper_length(p, 1024);
    int rc = cost_with(p, "request", n_seqs, all, 0, n_seqs, mostly_prompt(all), &c);
    for (size_t i = 0; i < c.decode.n && !rc; i++)
        rc = c.decode.v[i] > 0 ? wf_paper_add(p, "decode", n_seqs, n_seqs, 1 / c.decode.v[i]) : leave_out(p, "decode", n_seqs);
    return rc;
}

static const wf_paper_row *fastest(const wf_paper *p, const char *series)
{
    const wf_paper_row *best = NULL;
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].series, series) && (!best || wf_paper_median(&p->rows[i]) > wf_paper_median(best))) best = &p->rows[i];
    return best;
}

static int fig4(wf_paper *p)
{
    static const uint32_t tokens[] = {32, 64, 128, 256, 512, 1024, 2048}, seqs[] = {1, 2, 4, 8, 18, 32, 64, 128, 256};
    wf_paper_engine e;
    int rc = wf_paper_fit(p, 2048);
    if (!rc) rc = wf_paper_open(p, "request", 1, wf_paper_length(p, 2048), wf_paper_length(p, 2048), &e);
    if (rc) return rc;
    for (size_t i = 0; i < WF_LEN(tokens) && !rc; i = next_of(p, i, WF_LEN(tokens))) rc = add_prefill_rate(p, &e, tokens[i]);
    weft_engine_close(e.e);
    for (size_t i = 0; i < WF_LEN(seqs) && !rc; i = p->o->paper.quick ? i + 4 : i + 1) rc = add_decode_rate(p, seqs[i]);
    wf_paper_divide(p, fastest(p, "prefill"));
    return rc ? rc : wf_paper_note(p, "the paper times one layer, this is the whole model; %s", AS_LOADS);
}

/* ---- table 2: what a piggybacked decode costs ---------------------------------------------- */

static int table2(wf_paper *p)
{
    cost base, mixed;
    int rc = wf_paper_fit(p, 1024);
    if (rc) return rc;
    uint32_t all = wf_paper_length(p, 1024);
    lengths l = {all - 4, 4}; /* three steps of decodes for the prompts of the three others */
    rc = cost_with(p, "request", 4, all, 0, 16, l, &base);
    if (!rc) rc = cost_with(p, "sarathi", 4, all, all, 16, l, &mixed);
    if (!rc) rc = add_all(p, "prefill", 0, 0, &base.prefill, 1e3);
    if (!rc) rc = add_all(p, "prefill", 1, 1, &mixed.prefill, 1e3);
    if (!rc) rc = add_all(p, "decode", 0, 0, &base.decode, 1e3);
    if (!rc) rc = add_all(p, "decode", 1, 1, &mixed.decode, 1e3);
    return rc ? rc : wf_paper_note(p, AS_LOADS);
}

/* ---- figure 7: tiles ----------------------------------------------------------------------- */

static int fig7(wf_paper *p)
{
    static const uint32_t tokens[] = {64, 128, 129, 192, 256, 257, 320, 384, 385, 448, 512, 513};
    const uint32_t longest = tokens[WF_LEN(tokens) - 1], context = p->o->engine.context;
    wf_paper_engine e;
    if (context && context < longest) return wf_usage(p->o->command, "%s needs -c %u or more, for tiles do not scale with the context", p->figure->id, longest);
    int rc = p->o->paper.quick ? wf_paper_note(p, "only the first and the last length") : 0;
    p->scale = 1; /* tiles do not scale */
    if (!rc) rc = wf_paper_open(p, "request", 1, longest, longest, &e);
    if (rc) return rc;
    for (size_t i = 0; i < WF_LEN(tokens) && !rc; i = i == 1 ? next_of(p, i, WF_LEN(tokens)) : i + 1) {
        wf_paper_times t;
        rc = wf_paper_run(p, &e, 8, tokens[i], 0, &t);
        if (!rc) rc = add_all(p, "one step", tokens[i], tokens[i], &t, 1);
    }
    weft_engine_close(e.e);
    wf_paper_divide(p, wf_paper_find(p, "one step", 128));
    return rc;
}

/* ---- figure 8 and table 4: decodes and throughput by batch and length ------------------------ */

/* Both policies with one load of `all` tokens a request; ratio 0: the one at which chunks carry all decodes. */
static int compare(wf_paper *p, uint32_t n_seqs, uint32_t all, double ratio, cost *base, cost *sarathi)
{
    uint32_t chunk = chunk_of(p, 256, n_seqs);
    lengths l = split(all, ratio > 0 ? ratio : (double)chunk / (n_seqs - 1));
    int rc = cost_with(p, "request", n_seqs, all, 0, requests_of(p, n_seqs), l, base);
    return rc ? rc : cost_with(p, "sarathi", n_seqs, all, chunk, requests_of(p, n_seqs), l, sarathi);
}

static int fig8(wf_paper *p)
{
    static const uint32_t lens[] = {1024, 2048, 3072}, most[] = {18, 10, 6}, seqs[] = {2, 6, 10, 18};
    int rc = wf_paper_fit(p, 3072);
    for (size_t i = 0; i < WF_LEN(lens) && !rc; i = next_of(p, i, WF_LEN(lens)))
        for (size_t k = 0; k < WF_LEN(seqs) && !rc && seqs[k] <= most[i]; k = p->o->paper.quick ? k + 2 : k + 1) {
            cost base, sarathi;
            char name[32];
            snprintf(name, sizeof name, "sequences of %uK", lens[i] / 1024);
            rc = compare(p, seqs[k], wf_paper_length(p, lens[i]), 0, &base, &sarathi);
            if (!rc) rc = add_gain(p, name, seqs[k], seqs[k], &base.decode, &sarathi.decode);
        }
    return rc ? rc : wf_paper_note(p, AS_LOADS);
}

static int table4(wf_paper *p)
{
    static const uint32_t lens[] = {1024, 2048, 3072};
    int rc = wf_paper_fit(p, 3072);
    for (size_t i = 0; i < WF_LEN(lens) && !rc; i = next_of(p, i, WF_LEN(lens))) {
        cost base, sarathi;
        rc = compare(p, 6, wf_paper_length(p, lens[i]), 50, &base, &sarathi);
        if (!rc) rc = add_gain(p, "decode speedup", (double)i, (double)i, &base.decode, &sarathi.decode);
        if (!rc) rc = add_gain(p, "throughput gain", (double)i, (double)i, &base.all, &sarathi.all);
    }
    return rc ? rc : wf_paper_note(p, AS_LOADS);
}

/* ---- figures 9 and 11: throughput by the ratio of prompts to decodes ------------------------- */

typedef struct scheme {
    const char *name, *policy;
    uint32_t chunk; /* 0: as the policy does */
} scheme;

enum { SEQS = 18, MOST_RATIOS = 8 };
static const double ratios[] = {5, 14, 28, 50, 200};

/* Times of each ratio with one policy. */
static int sweep(wf_paper *p, const scheme *s, wf_paper_times *out)
{
    wf_paper_engine e;
    uint32_t all = wf_paper_length(p, 1024);
    int rc = wf_paper_open(p, s->policy, SEQS, all, s->chunk ? chunk_of(p, s->chunk, SEQS) : 0, &e);
    if (rc) return rc;
    for (size_t i = 0; i < WF_LEN(ratios) && !rc; i = next_of(p, i, WF_LEN(ratios))) {
        lengths l = split(all, ratios[i]);
        rc = wf_paper_run(p, &e, requests_of(p, SEQS), l.in, l.out, &out[i]);
    }
    weft_engine_close(e.e);
    return rc;
}

static int sweeps(wf_paper *p, const scheme *schemes, size_t n)
{
    static const scheme request = {"request", "request", 0};
    wf_paper_times base[MOST_RATIOS], times[MOST_RATIOS];
    int rc = wf_paper_fit(p, 1024);
    if (!rc) rc = sweep(p, &request, base);
    for (size_t s = 0; s < n && !rc; s++) {
        rc = sweep(p, &schemes[s], times);
        for (size_t i = 0; i < WF_LEN(ratios) && !rc; i = next_of(p, i, WF_LEN(ratios))) rc = add_gain(p, schemes[s].name, ratios[i], ratios[i], &base[i], &times[i]);
    }
    return rc;
}

static int fig9(wf_paper *p)
{
    static const scheme s[] = {{"chunks of 128", "sarathi", 128}, {"chunks of 256", "sarathi", 256}, {"chunks of 512", "sarathi", 512}};
    return sweeps(p, s, WF_LEN(s));
}

static int fig11b(wf_paper *p)
{
    static const scheme s[] = {{"Orca, best case", "orca", 0}, {"chunks of 256", "sarathi", 256}, {"chunks of 512", "sarathi", 512}};
    int rc = sweeps(p, s, WF_LEN(s));
    return rc ? rc : wf_paper_note(p, "Orca takes whole prompts, about one a step, as they come: its best case");
}

/* All prompts in one step, and all decodes after it. */
static int orca_worst(wf_paper *p, uint32_t n_seqs, uint32_t all, lengths l, wf_paper_times *t)
{
    int rc = times_with(p, "orca", n_seqs, all, WF_MIN(n_seqs * all, 65536u), n_seqs, l, t);
    for (size_t i = 0; i < t->n; i++) t->v[i] *= (double)requests_of(p, n_seqs) / n_seqs;
    return rc;
}

static int fig11a_length(wf_paper *p, double at, uint32_t n_seqs, uint32_t all)
{
    wf_paper_times base, worst, best, sarathi;
    uint32_t chunk = chunk_of(p, 256, n_seqs);
    size_t n = requests_of(p, n_seqs);
    lengths l = split(all, (double)chunk / (n_seqs - 1));
    int rc = times_with(p, "request", n_seqs, all, 0, n, l, &base);
    if (!rc) rc = orca_worst(p, n_seqs, all, l, &worst);
    if (!rc) rc = times_with(p, "orca", n_seqs, all, 0, n, l, &best);
    if (!rc) rc = times_with(p, "sarathi", n_seqs, all, chunk, n, l, &sarathi);
    if (!rc) rc = add_gain(p, "Orca, worst case", at, at, &base, &worst);
    if (!rc) rc = add_gain(p, "Orca, best case", at, at, &base, &best);
    return rc ? rc : add_gain(p, "SARATHI", at, at, &base, &sarathi);
}

static int fig11a(wf_paper *p)
{
    static const uint32_t lens[] = {1024, 2048, 3072}, seqs[] = {18, 10, 6};
    int rc = wf_paper_fit(p, 3072);
    for (size_t i = 0; i < WF_LEN(lens) && !rc; i = next_of(p, i, WF_LEN(lens))) rc = fig11a_length(p, (double)i, seqs[i], wf_paper_length(p, lens[i]));
    return rc ? rc : wf_paper_note(p, "Orca's worst case: all prompts in one step of up to 65536 tokens, then all decodes");
}

/* ---- figure 12b: lengths of Zipf's law ------------------------------------------------------ */

/* Lengths from 1K to 4K, of which the shorter ones are more frequent. */
weft_status wf_paper_zipf(const wf_paper *p, size_t n, wf_request_specs *out)
{
    const double theta = 0.4;
    double low = wf_paper_length(p, 1024), range = wf_paper_length(p, 4096) - low + 1;
    for (size_t i = 0; i < n; i++) {
        double u = wf_random_unit(12, i), rank = pow(1 + u * (pow(range, 1 - theta) - 1), 1 / (1 - theta));
        lengths l = split((uint32_t)(low + rank - 1), 10);
        WF_TRY(wf_request_specs_add(out, (wf_request_spec){.n_in = l.in, .n_out = l.out, .at = -1}));
    }
    return WEFT_OK;
}

/* The first quarter, half, ... of the requests. */
static int run_parts(wf_paper *p, wf_paper_engine *e, const char *series, const wf_request_specs *all)
{
    int rc = 0;
    for (size_t part = p->o->paper.quick ? 4 : 1; part <= 4 && !rc; part++) {
        wf_paper_times t;
        wf_request_specs first = {all->list, all->n * part / 4, 0};
        rc = wf_paper_run_specs(p, e, &first, 1, &t);
        if (!rc) rc = add_all(p, series, (double)part / 4, (double)part / 4, &t, 1);
    }
    return rc;
}

static int fig12b(wf_paper *p)
{
    static const scheme s[] = {{"Orca", "orca", 0}, {"SARATHI", "sarathi", 256}};
    wf_request_specs all = {0};
    int rc = wf_paper_fit(p, 4096);
    weft_status made = rc ? WEFT_OK : wf_paper_zipf(p, p->o->paper.quick ? 8 : 64, &all);
    if (made) rc = wf_say_error(made);
    for (size_t i = 0; i < WF_LEN(s) && !rc; i++) {
        wf_paper_engine e;
        rc = wf_paper_open(p, s[i].policy, SEQS, wf_paper_length(p, 4096), s[i].chunk ? chunk_of(p, s[i].chunk, SEQS) : 0, &e);
        if (rc) break;
        rc = run_parts(p, &e, s[i].name, &all);
        weft_engine_close(e.e);
    }
    if (!rc) rc = wf_paper_note(p, "one device without a pipeline, so that no bubbles are saved; %zu requests instead of 10,000, %u at a time", all.n, SEQS);
    wf_request_specs_free(&all);
    wf_paper_divide(p, wf_paper_find(p, "Orca", 1));
    return rc;
}

/* ---- figure 13b: what chunks cost ----------------------------------------------------------- */

static int fig13b(wf_paper *p)
{
    static const uint32_t chunks[] = {0, 64, 128, 256, 320, 512};
    wf_paper_times whole, t;
    int rc = wf_paper_fit(p, 1024);
    for (size_t i = 0; i < WF_LEN(chunks) && !rc; i = next_of(p, i, WF_LEN(chunks))) {
        wf_paper_engine e;
        uint32_t all = wf_paper_length(p, 1024), chunk = chunks[i] ? wf_paper_length(p, chunks[i]) : all;
        rc = wf_paper_open(p, "sarathi", 1, all, chunk, &e);
        if (rc) break;
        rc = wf_paper_run(p, &e, 4, all, 0, chunks[i] ? &t : &whole);
        for (size_t k = 0; chunks[i] && k < t.n && !rc; k++) rc = wf_paper_add(p, "prefill of 1K", chunk, chunks[i], t.v[k] / whole.v[k]);
        weft_engine_close(e.e);
    }
    return rc;
}

/* ---- the figures ---------------------------------------------------------------------------- */

static const char *const lengths_of[] = {"1K", "2K", "3K"}, *const groups[] = {"preproj", "attention", "postproj", "ffn", "others"}, *const batching[] = {"apart", "decode-maximal"};

static const wf_paper_point points3[] = {{"decode", 1, 200}, {"decode", 2, 100}, {"decode", 18, 16.7}};
static const wf_paper_point points4[] = {{"prefill", 256, 0.875}, {"prefill", 512, 1}};
static const wf_paper_point points_table2[] = {{"prefill", 0, 0.229}, {"decode", 0, 12.49}, {"prefill", 1, 0.229}, {"decode", 1, 1.2}};
static const wf_paper_point points7[] = {{"one step", 128, 1}, {"one step", 256, 69.8 / 55}, {"one step", 257, 92.33 / 55}};
static const wf_paper_point points8[] = {{"sequences of 1K", 6, 5.45}, {"sequences of 2K", 6, 3.26}, {"sequences of 3K", 6, 2.51}};
static const wf_paper_point points_table4[] = {
    {"decode speedup", 0, 5.45}, {"decode speedup", 1, 3.26}, {"decode speedup", 2, 2.51}, {"throughput gain", 0, 1.33}, {"throughput gain", 1, 1.26}, {"throughput gain", 2, 1.22},
};
static const wf_paper_point points9[] = {{"chunks of 256", 14, 1.27}, {"chunks of 512", 28, 1.23}};
static const wf_paper_point points11a[] = {{"Orca, worst case", 0, 1}, {"Orca, best case", 0, 1.11}, {"SARATHI", 0, 1.27}, {"SARATHI", 1, 1.25}, {"SARATHI", 2, 1.23}};
static const wf_paper_point points12a[] = {{"Orca", 50, 1}, {"SARATHI", 50, 1 / 6.29}};
static const wf_paper_point points12b[] = {{"Orca", 1, 1}, {"SARATHI", 1, 1 / 1.91}, {"Orca, 8 devices and replicas", 1, 1 / 1.28}};
static const wf_paper_point points13a[] = {{"attention", 64, 3}, {"all ops", 64, 5}, {"all ops", 256, 1.2}, {"all ops", 512, 1.1}};
static const wf_paper_point points13b[] = {{"prefill of 1K", 64, 5}, {"prefill of 1K", 256, 1.2}, {"prefill of 1K", 512, 1.1}};

#define POINTS(p) .points = p, .n_points = WF_LEN(p)
#define TICKS(t) .ticks = t, .n_ticks = WF_LEN(t)

static const wf_figure rows[] = {
    {.id = "sarathi-fig3", .title = "cost of a token by batch size, sequences of 1K", .needs = "a model", .takes = "about 0.4 million tokens", .of = LLAMA13B,
     .says = "prefill costs almost the same at all batch sizes.", .x = "sequences", .y = "time of a token / of a prompt token of one sequence", .log_x = true,
     .log_y = true, POINTS(points3), .run = fig3},
    {.id = "sarathi-fig4", .title = "throughput by tokens of a step", .needs = "a model", .takes = "about 4 million tokens", .of = LLAMA13B " (one layer)",
     .says = "prefill saturates at 512 tokens with about 180 tokens/ms; a chunk of 256 has 12.5 % less; decodes saturate at 256 sequences.",
     .x = "tokens of a step", .y = "throughput / the most of prefill", .log_x = true, .log_y = true, POINTS(points4), .run = fig4},
    {.id = "sarathi-table2", .title = "cost of decodes that ride on a prompt", .needs = "a model", .takes = "about 0.3 million tokens", .of = LLAMA13B, .x = "batches",
     .y = "time of a token, ms", .log_y = true, TICKS(batching), POINTS(points_table2), .run = table2},
    {.id = "sarathi-fig7", .title = "time of a step by tokens, around multiples of the tile", .needs = "a model", .takes = "about 0.1 million tokens", .of = LLAMA13B,
     .x = "tokens of a step", .y = "time / that of 128 tokens", POINTS(points7), .run = fig7},
    {.id = "sarathi-fig8", .title = "decode speedup by batch and length, chunks of 256", .needs = "a model", .takes = "about 2 million tokens", .runs = 1, .of = LLAMA13B,
     .says = "2.8 to 10 times over all batches; the points are of table 4, at P:D = 50.", .x = "sequences", .y = "decode speedup over request-level batching",
     POINTS(points8), .run = fig8},
    {.id = "sarathi-table4", .title = "gains by sequence length, six sequences, P:D = 50, chunks of 256", .needs = "a model", .takes = "about 2 million tokens",
     .of = LLAMA13B, .x = "tokens of a sequence", .y = "times as fast as request-level batching", TICKS(lengths_of), POINTS(points_table4), .run = table4},
    {.id = "sarathi-fig9", .title = "throughput gain by P:D ratio and chunk, 18 sequences of 1K", .needs = "a model", .takes = "about 2 million tokens", .runs = 1, .of = LLAMA13B,
     .x = "prompt tokens / generated tokens", .y = "throughput / of request-level batching", .log_x = true, POINTS(points9), .run = fig9},
    {.id = "sarathi-fig10", .title = "time by ops, prompts and decodes apart and decodes riding on chunks", .needs = "a model", .takes = "about 120 steps", .of = LLAMA13B,
     .says = "ffn takes 1.3 to 1.6 times less, preproj and postproj 1.05 to 1.38 times.", .x = "ops (sequences of n tokens)", .y = "ms of a sequence", .log_y = true, TICKS(groups),
     .run = wf_paper_breakdown},
    {.id = "sarathi-fig11a", .title = "Orca's worst and best case and SARATHI by sequence length", .needs = "a model", .takes = "about 3 million tokens", .of = LLAMA13B,
     .says = "Orca's best case falls to the baseline for longer sequences.", .x = "tokens of a sequence (18, 10, 6 sequences)",
     .y = "throughput / of request-level batching", TICKS(lengths_of), POINTS(points11a), .run = fig11a},
    {.id = "sarathi-fig11b", .title = "Orca's best case and SARATHI by P:D ratio, 18 sequences of 1K", .needs = "a model", .takes = "about 2 million tokens", .runs = 1,
     .of = LLAMA13B, .says = "Orca gains at most 1.11, at a high ratio.", .x = "prompt tokens / generated tokens", .y = "throughput / of request-level batching",
     .log_x = true, POINTS(points9), .run = fig11b},
    {.id = "sarathi-fig12a", .title = "bubbles in a pipeline of 8 stages that a request meets", .needs = "nothing: it is simulated", .takes = "a few seconds", .of = "GPT-3 on 64 A100 in simulation",
     .says = "the median is 6.29 times less.", .x = "requests with less, %", .y = "bubble time / Orca's median", .log_y = true, POINTS(points12a), .run = wf_paper_bubbles},
    {.id = "sarathi-fig12b", .title = "completion of requests whose lengths follow Zipf's law (0.4), 1K to 4K", .needs = "a model", .takes = "about 3 million tokens",
     .of = "GPT-3 on 64 A100 in simulation, a pipeline of 8 stages", .x = "part of the requests", .y = "time / Orca's for all", POINTS(points12b), .run = fig12b},
    {.id = "sarathi-fig13a", .title = "what chunks cost the attention of a prompt of 1K", .needs = "a model", .takes = "about 200 steps", .of = LLAMA13B, .x = "tokens of a chunk",
     .y = "time / in one piece", POINTS(points13a), .run = wf_paper_chunked_attention},
    {.id = "sarathi-fig13b", .title = "what chunks cost a prompt of 1K", .needs = "a model", .takes = "about 0.1 million tokens", .of = LLAMA13B,
     .says = "chunks of 128 take more than twice as long.", .x = "tokens of a chunk", .y = "time of prefill / in one piece", POINTS(points13b), .run = fig13b},
};
const wf_figures wf_figures_sarathi = {rows, WF_LEN(rows)};
