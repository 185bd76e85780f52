/* perplexity: the perplexity of a text, and the logits of given tokens.
 *
 * The definition is llama.cpp's, so that results are comparable. The text is split into chunks of one context. If the
 * model wants a BOS, it replaces the first token of each chunk. Only the second half of each chunk counts, so that
 * every counted token has at least half a context before it. The error is the standard error of the mean, propagated
 * through exp. */
#include "cli/cli.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a prompt, for its logits -------------------------------------------------------------------- */

/* Which of several texts of one length runs, and how many there are. */
typedef struct meter {
    wf_progress *bar; /* NULL: it is not shown */
    uint32_t at, n;
} meter;

/* The last event of a failed request has the reason, which must reach this thread. */
static void note_failure(char reason[512], const struct weft_event *ev)
{
    if (ev->kind == WEFT_EVENT_DONE && ev->status) wf_copy(reason, 512, ev->message ? ev->message : "");
}

static int say_failure(const char *reason, weft_status s)
{
    return wf_say_error(*reason ? wf_fail(s, "%s", reason) : s);
}

static weft_status run_prompt(struct weft_engine *e, const int32_t *ids, size_t n, weft_event_fn fn, void *user,
                              meter m)
{
    enum { LOOK_MS = 100 };
    struct weft_stats before;
    struct weft_request *r = NULL;
    struct weft_request_params p = {
        .tokens = ids, .n_tokens = n, .prefill_only = true, .want_logits = true, .on_event = fn, .user = user};
    weft_status s;
    weft_engine_stats(e, &before);
    WF_TRY(weft_submit(e, &p, &r));
    while ((s = weft_wait(r, LOOK_MS)) == WEFT_ERR_TIMEOUT && wf_goes_on(e))
        wf_on_progress(m.bar, "perplexity", (m.at + (double)wf_prompt_done(e, &before, n) / (double)n) / m.n);
    if (s == WEFT_ERR_TIMEOUT) s = weft_wait(r, 0);
    weft_request_free(r);
    return s;
}

/* ---- perplexity of a text ------------------------------------------------------------------------- */

typedef struct chunk {
    const int32_t *ids; /* from the text; BOS is not yet inserted */
    uint32_t n, n_vocab;
    double sum, sum2; /* sums of -log p over the counted tokens */
    uint64_t count;
    char failure[512]; /* "": none */
} chunk;

static void on_chunk_event(void *user, const struct weft_event *ev)
{
    chunk *c = user;
    note_failure(c->failure, ev);
    if (ev->kind != WEFT_EVENT_LOGITS || ev->position < c->n / 2 || ev->position + 1 >= c->n) return;
    float top = ev->logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < c->n_vocab; i++) top = WF_MAX(top, ev->logits[i]);
    for (uint32_t i = 0; i < c->n_vocab; i++) sum += exp((double)ev->logits[i] - top);
    double v = log(sum) + top - ev->logits[c->ids[ev->position + 1]]; /* -log p of the token that follows */
    c->sum += v;
    c->sum2 += v * v;
    c->count++;
}

static void print_estimate(const char *what, const chunk *c)
{
    double n = (double)c->count, mean = c->sum / n, var = c->sum2 / n - mean * mean;
    printf("%s%.4f +/- %.5f\n", what, exp(mean), c->count > 1 && var > 0 ? exp(mean) * sqrt(var / (n - 1)) : 0);
}

/* Does the model want a BOS? Tokenizes the empty text to find out. */
static int32_t wanted_bos(const struct weft_model *m)
{
    int32_t *ids = NULL, bos = -1;
    size_t n = 0;
    if (!weft_tokenize(m, "", 0, WEFT_TEXT_DEFAULT, &ids, &n) && n) bos = ids[0];
    weft_free(ids);
    return bos;
}

static int run_chunks(const wf_opts *o, struct weft_engine *e, chunk *c, const int32_t *ids, uint32_t n_chunks,
                      int32_t bos)
{
    wf_progress bar = {0};
    char what[32];
    int rc = 0;
    int32_t *copy = wf_calloc(c->n, sizeof *copy);
    if (!copy) return wf_say_error(WEFT_ERR_NOMEM);
    for (uint32_t i = 0; i < n_chunks && !rc; i++) {
        c->ids = ids + (size_t)i * c->n;
        memcpy(copy, c->ids, c->n * sizeof *copy);
        if (bos >= 0) copy[0] = bos;
        weft_status s = run_prompt(e, copy, c->n, on_chunk_event, c, (meter){o->quiet ? NULL : &bar, i, n_chunks});
        wf_progress_hide(&bar); /* intermediate values scroll above the bar */
        snprintf(what, sizeof what, "[%u] ", i + 1);
        if (s) rc = say_failure(c->failure, s);
        else print_estimate(what, c);
        if (fflush(stdout)) break; /* it is closed */
    }
    free(copy);
    wf_progress_end(&bar);
    if (rc || ferror(stdout)) return rc;
    print_estimate("Final estimate: PPL = ", c);
    wf_note(o, "%u chunks of %u tokens, %llu tokens counted", n_chunks, c->n, (unsigned long long)c->count);
    return 0;
}

/* Opens an engine and evaluates the text in chunks of one context. */
static int run_text(const wf_opts *o, const struct weft_model *m, const int32_t *ids, size_t n)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    uint32_t context = wf_context_of(o, m);
    if (!context) context = WF_MIN(512u, weft_model_info(m)->context);
    if (context < 4) return wf_usage(o->command, "-c %u is too small: a chunk needs 4 tokens", context);
    uint32_t n_chunks = (uint32_t)WF_MIN(n / context, 1000000u);
    if (!n_chunks)
        return wf_usage(o->command,
                        "the text has %zu tokens, less than one chunk of %u; use a longer text or a smaller -c", n,
                        context);
    if (o->chunks) n_chunks = WF_MIN(n_chunks, o->chunks);
    chunk c = {.n = context, .n_vocab = weft_model_info(m)->n_vocab};
    ep.context = context;
    wf_only_calibrated(m, &ep);
    int rc = wf_open_engine(o, m, ep, &e);
    if (!rc) rc = run_chunks(o, e, &c, ids, n_chunks, wanted_bos(m));
    weft_engine_close(e);
    return rc;
}

static int measure_text(const wf_opts *o, const struct weft_model *m)
{
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    int rc = wf_read_text(o, &text, &len);
    weft_status s = rc ? WEFT_OK : weft_tokenize(m, text, len, WEFT_TEXT_DEFAULT, &ids, &n);
    if (s) rc = wf_say_error(s);
    if (!rc) rc = run_text(o, m, ids, n);
    weft_free(ids);
    free(text);
    return rc;
}

/* ---- logits of given tokens ------------------------------------------------------------------ */

typedef struct logit_rows {
    FILE *out;
    uint32_t n_vocab;
    size_t n;  /* rows written */
    int error; /* errno of the first failed write, which the engine's thread sees */
    char failure[512]; /* "": none */
} logit_rows;

static wf_output out;

/* Removes the partial output; an existing file is kept. */
static void on_end(int sig)
{
    if (*out.tmp_path) unlink(out.tmp_path);
    _exit(128 + sig); /* as shells report it */
}

/* NumPy format 1.0; the header is padded so that the data is aligned to 64 bytes. */
static bool write_npy_header(FILE *f, size_t n_rows, uint32_t n_columns)
{
    char head[128];
    int n = snprintf(head, sizeof head,
                     "\x93NUMPY\x01%c%c%c{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %u), }", 0,
                     (int)sizeof head - 10, 0, n_rows, n_columns);
    memset(head + n, ' ', sizeof head - (size_t)n);
    head[sizeof head - 1] = '\n';
    return fwrite(head, 1, sizeof head, f) == sizeof head;
}

static void on_row_event(void *user, const struct weft_event *ev)
{
    logit_rows *r = user;
    note_failure(r->failure, ev);
    if (ev->kind != WEFT_EVENT_LOGITS) return;
    if (!r->error && fwrite(ev->logits, sizeof(float), r->n_vocab, r->out) != r->n_vocab) r->error = errno;
    r->n += ev->position == r->n;
}

static int write_rows(const wf_opts *o, struct weft_engine *e, logit_rows *r)
{
    size_t n = o->tokens.n;
    wf_progress bar = {0};
    weft_status s = WEFT_OK;
    if (!write_npy_header(r->out, n, r->n_vocab) || fflush(r->out)) r->error = errno;
    else s = run_prompt(e, (const int32_t *)o->tokens.v, n, on_row_event, r, (meter){o->quiet ? NULL : &bar, 0, 1});
    wf_progress_end(&bar);
    if (s) return say_failure(r->failure, s);
    if (!r->error && fflush(r->out)) r->error = errno;
    if (r->error)
        s = wf_fail(WEFT_ERR_IO, "cannot write %s: %s; free some space or choose another file", o->logits,
                    strerror(r->error));
    else if (r->n != n) s = wf_fail(WEFT_ERR_INTERNAL, "the engine gave logits of %zu positions, not %zu", r->n, n);
    return s ? wf_say_error(s) : 0;
}

static int write_logits(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    if (ep.context && ep.context < o->tokens.n)
        return wf_usage(o->command, "-c %u is less than the %zu tokens", ep.context, o->tokens.n);
    if (!ep.context) ep.context = (uint32_t)o->tokens.n;
    wf_only_calibrated(m, &ep);
    weft_status s = wf_output_check(o->logits); /* before the weights load */
    int rc = s ? wf_say_error(s) : wf_open_engine(o, m, ep, &e);
    if (rc) return rc;
    s = wf_output_open(o->logits, &out);
    if (s) rc = wf_say_error(s);
    if (!rc) {
        wf_catch_end(on_end);
        rc = write_rows(o, e, &(logit_rows){.out = out.f, .n_vocab = weft_model_info(m)->n_vocab});
        s = wf_output_end(&out, !rc);
        if (s) rc = wf_say_error(s);
    }
    if (!rc) wf_note(o, "wrote %s: float32 [%zu, %u]", o->logits, o->tokens.n, weft_model_info(m)->n_vocab);
    weft_engine_close(e);
    return rc;
}

/* ---- command --------------------------------------------------------------------------------- */

static int cmd_perplexity(const wf_opts *o)
{
    struct weft_model *m = NULL;
    bool has_text = o->prompt || o->file;
    if (!o->logits && !has_text) return wf_usage(o->command, "no text: use -f FILE");
    int rc = wf_open_model(o, false, &m);
    if (!rc) rc = o->logits ? write_logits(o, m) : measure_text(o, m);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {'c', "ctx-size", "CONTEXT", "tokens of a chunk; 0: the model's context (default: the same, at most 512)",
     WF_OPT_U32, AT(engine.context), 0, 1 << 24},
    {0, "chunks", "N", "evaluate only the first N chunks", WF_OPT_U32, AT(chunks), 1, 1000000},
    {0, "tokens", "1,2,3", "token ids for --logits, used as they are: no BOS is added", WF_OPT_LIST, AT(tokens), 0,
     MANY},
    {0, "logits", "OUT.npy", "write the logits of all positions as float32 [tokens, vocabulary]", WF_OPT_TEXT,
     AT(logits)},
};
static const WF_GROUP(group, "Measure", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model, &wf_group_text, &group, &wf_group_threads, &wf_group_device, &wf_group_parallel,
    &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_perplexity = {
    .name = "perplexity",
    .usage =
        "[-m FILE] (-p TEXT | -f FILE) [options]\n       weft perplexity [-m FILE] --tokens 1,2,3 --logits OUT.npy",
    .summary = "Measures the perplexity of a text, or writes logits. The text is split into chunks of one context "
               "(-c), and the second half of each chunk counts, as in llama.cpp.",
    .groups = groups,
    .run = cmd_perplexity,
};
