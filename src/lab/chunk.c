/* chunk: `weft tune --dataset-path`: which chunk suits a load (SARATHI, section 4.4). Prompts last as long as decodes
 * where P:D = C / decodes, and longer steps take less time a token: so steps of several sizes are timed, each with
 * the decodes that P:D gives work for, and what a load gives with them follows. The ratio is kept in the device's
 * file (select/tuned.h).
 */
#include "base/file.h"
#include "exec/exec.h"
#include "lab/measure.h"
#include "lab/overlap.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_STEP = 64, REPEAT = 3, MOST_REPEAT = 64, MOST_ROWS = 64 };
#define NEAR_BEST 0.97 /* of the highest rate: longer steps only add latency */
#define LONG_NS   1e9  /* steps that have taken so long are not run again */

static const char *const policies[] = {"sarathi", "nanoflow"};

typedef struct chunk_tuner {
    struct weft_engine *e;
    const struct weft_chunk_params *p;
    wf_tuned_load mean;
    double ratio;
    uint32_t context, seqs; /* keys of a sequence on average, and how many sequences run at a time */
    double decode_us;       /* of a step without a chunk */
    uint64_t end_ns;        /* 0: never */
    wf_batch batch;
    struct weft_chunk_row rows[MOST_ROWS];
    size_t n_rows;
} chunk_tuner;

static bool is_over(const chunk_tuner *t)
{
    return (t->p->stop && t->p->stop(t->p->user)) || (t->end_ns && wf_now_ns() > t->end_ns);
}

/* ---- the load ------------------------------------------------------------------------------------------------ */

static double mean_of(const uint32_t *lengths, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += lengths[i];
    return n ? sum / (double)n : 0;
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* Median microseconds of such a step. */
static weft_status time_step(chunk_tuner *t, wf_step_load x, double *us)
{
    double all[MOST_REPEAT];
    uint32_t n = 0, wanted = t->p->repeat ? WF_MIN(t->p->repeat, (uint32_t)MOST_REPEAT) : REPEAT;
    uint64_t began = wf_now_ns();
    WF_TRY(wf_load_batch(t->e, x, t->context, &t->batch));
    WF_TRY(wf_load_step(t->e, &t->batch, NULL));
    do {
        uint64_t at = wf_now_ns();
        WF_TRY(wf_load_step(t->e, &t->batch, NULL));
        all[n++] = (double)(wf_now_ns() - at) / 1e3;
    } while (n < wanted && (double)(wf_now_ns() - began) < LONG_NS && !is_over(t));
    *us = wf_probe_summary(all, n).us;
    return WEFT_OK;
}

/* As many decodes as prompts give work to: where there are more, some steps have no chunk. A chunk of one prompt is
 * as long as chunks are on average, since the last one of a prompt is shorter. */
static wf_step_load step_of(const chunk_tuner *t, uint32_t tokens, bool one_prompt)
{
    uint32_t most = WF_MIN(t->seqs, tokens) - 1, decodes = (uint32_t)WF_MIN(tokens / (1 + t->ratio) + 0.5,
                                                                            (double)most), chunk = tokens - decodes;
    if (one_prompt) {
        double all = 0, chunks = 0;
        for (size_t i = 0; i < t->p->n; i++)
            all += t->p->prompts[i], chunks += ((uint64_t)t->p->prompts[i] + chunk - 1) / chunk;
        chunk = WF_MIN(chunk, WF_MAX((uint32_t)(all / chunks + 0.5), 1u));
    }
    decodes = (uint32_t)WF_MIN(chunk / t->ratio + 0.5, (double)WF_MIN(most, tokens - chunk));
    /* each of several prompts is a sequence */
    while (decodes && !wf_load_fits(t->e, (wf_step_load){decodes, chunk}, t->context)) decodes--;
    return (wf_step_load){decodes, chunk};
}

/* Tokens per second: a request takes so many steps with a chunk, and what is left of its answer then decodes in
 * steps without one, all sequences at a time. */
static weft_status add_row(chunk_tuner *t, uint32_t tokens, size_t policy)
{
    wf_step_load x = step_of(t, tokens, !policy);
    struct weft_chunk_row *r = &t->rows[t->n_rows];
    if (t->n_rows == MOST_ROWS || !wf_load_fits(t->e, x, t->context)) return WEFT_OK;
    *r = (struct weft_chunk_row){.policy = policies[policy], .tokens = tokens, .chunk = x.prefill,
                                 .decodes = x.decodes};
    for (const struct weft_chunk_row *known = t->rows; known < r; known++)
        /* of larger steps, which the load does not fill */
        if (known->chunk == x.prefill && known->decodes == x.decodes) return WEFT_OK;
    if (is_over(t)) return WEFT_OK;
    WF_TRY(time_step(t, x, &r->us));
    double chunks = t->mean.prompt / x.prefill, left = WF_MAX(t->mean.generated - chunks * x.decodes, 0.0);
    r->rate = (t->mean.prompt + t->mean.generated) / (chunks * r->us + left / t->seqs * t->decode_us) * 1e6;
    t->n_rows++;
    return WEFT_OK;
}

/* Sizes double, so that those before took about as long as this one, and this and those before half as long as all. */
static weft_status add_size(chunk_tuner *t, uint32_t tokens)
{
    if (t->p->on_progress) t->p->on_progress(t->p->user, "tune", (double)tokens / 2 / t->e->layout.limits.step_tokens);
    for (size_t i = 0; i < WF_LEN(policies); i++) WF_TRY(add_row(t, tokens, i));
    return WEFT_OK;
}

/* ---- the choice ---------------------------------------------------------------------------------------------- */

/* Keys of a sequence that has computed its prompt and half of its answer. */
static weft_status measure_sizes(chunk_tuner *t)
{
    uint64_t begin = wf_now_ns();
    double keys = t->mean.prompt + t->mean.generated / 2;
    t->end_ns = t->p->seconds ? begin + t->p->seconds * 1000000000ull : 0;
    t->context = (uint32_t)WF_MIN(WF_MAX(keys, 1.0), (double)t->e->layout.context);
    t->seqs = wf_load_fit(t->e,
                          (wf_step_load){.decodes = WF_MIN(t->e->layout.limits.seqs, t->e->layout.limits.step_tokens)},
                          t->context).decodes;
    WF_TRY(wf_exec_fill_kv(t->e->exec));
    /* Doublings of the least step in whole tiles, and the step at which all sequences but one decode beside a chunk
     * that lasts as long. */
    uint32_t most = t->e->layout.limits.step_tokens, tile = WF_MAX(t->e->sched.p.tile, 1u),
             first = WF_UP(LEAST_STEP, tile);
    uint32_t balanced = WF_UP((uint32_t)WF_MIN((1 + t->ratio) * (t->seqs - 1), (double)most), tile);
    WF_TRY(time_step(t, (wf_step_load){.decodes = t->seqs}, &t->decode_us));
    for (uint32_t tokens = WF_MIN(first, most); tokens <= most && !is_over(t); tokens *= 2) {
        WF_TRY(add_size(t, tokens));
        if (balanced > tokens && balanced < 2 * tokens && balanced <= most) WF_TRY(add_size(t, balanced));
    }
    return WEFT_OK;
}

static weft_status tune_chunk(chunk_tuner *t, char *path, size_t cap)
{
    const struct weft_chunk_params *p = t->p;
    t->mean = (wf_tuned_load){mean_of(p->prompts, p->n), mean_of(p->generated, p->n)};
    if (t->mean.prompt < WF_TUNED_LEAST_COST || t->mean.generated < WF_TUNED_LEAST_COST)
        return wf_fail(WEFT_ERR_ARG, "a load with prompts of %.4g tokens and answers of %.4g has no ratio of these",
                       t->mean.prompt, t->mean.generated);
    if (t->mean.prompt > WF_TUNED_MOST_LENGTH || t->mean.generated > WF_TUNED_MOST_LENGTH)
        return wf_fail(WEFT_ERR_ARG, "a load with prompts of %.4g tokens and answers of %.4g is none of a model",
                       t->mean.prompt, t->mean.generated);
    t->ratio = t->mean.prompt / t->mean.generated;
    if (p->ratio) *p->ratio = t->ratio;
    WF_TRY(wf_keep_path(t->e->dev, t->p->path, path, cap));
    WF_TRY(wf_tuned_may_write(path)); /* fail before measuring, not after */
    WF_TRY(wf_batch_init(&t->batch, &t->e->layout.limits));
    wf_engine_lend(t->e);
    weft_status s = measure_sizes(t);
    wf_engine_return(t->e);
    wf_batch_free(&t->batch);
    WF_TRY(s);
    double best = 0;
    size_t i = 0;
    for (const struct weft_chunk_row *r = t->rows; r < t->rows + t->n_rows; r++) best = WF_MAX(best, r->rate);
    while (i < t->n_rows && t->rows[i].rate < NEAR_BEST * best) i++;
    if (i < t->n_rows) t->rows[i].chosen = true;
    for (i = 0; i < t->n_rows && t->p->on_row; i++) t->p->on_row(t->p->user, &t->rows[i]);
    wf_tuned_table all = {0};
    wf_kept_choices(t->e->dev, path, &all);
    all.load = t->mean;
    s = wf_tuned_write(path, &t->e->dev->info, &all);
    wf_tuned_free(&all);
    return s;
}

weft_status weft_tune_chunk(struct weft_engine *e, const struct weft_chunk_params *p, char *path, size_t cap)
{
    char own[1100] = "";
    WF_NOT_NULL_LIST(p->prompts, p->n);
    WF_NOT_NULL_LIST(p->generated, p->n);
    chunk_tuner *t = wf_calloc(1, sizeof *t);
    if (!t) return WEFT_ERR_NOMEM;
    t->e = e, t->p = p;
    weft_status s = tune_chunk(t, own, sizeof own);
    if (path && cap) wf_copy(path, cap, own);
    free(t);
    return s;
}
