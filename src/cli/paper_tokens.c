/* paper_tokens: how many prompts get the same greedy tokens with the asynchronous softmax as with the synchronous one (FlashDecoding++Next,
 * section VI.C). A second synchronous run, in the same batches or in others, tells how much of the difference is not its doing. */
#include "cli/paper.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPTS = 1000, QUICK_PROMPTS = 4, SEQS = 64, CALIBRATED = 64 << 10 /* bytes of the text: ten thousand tokens are enough */ };

typedef struct answer {
    int32_t *ids; /* room for `out` of them */
    uint32_t n;
} answer;

/* Greedy answers of an engine to all prompts. */
typedef struct answers {
    int32_t *room;
    answer *of;
} answers;

typedef struct match {
    wf_paper *p;
    int32_t *text; /* its tokens, from which prompts are cut */
    size_t n_text, n; /* n: prompts */
    uint32_t in, out;
} match;

/* ---- answers ------------------------------------------------------------------------------------- */

static void free_answers(answers *a)
{
    free(a->room);
    free(a->of);
    *a = (answers){0};
}

static bool make_answers(const match *x, answers *a)
{
    *a = (answers){wf_calloc(x->n * x->out, sizeof *a->room), wf_calloc(x->n, sizeof *a->of)};
    for (size_t i = 0; a->room && a->of && i < x->n; i++) a->of[i].ids = a->room + i * x->out;
    return a->room && a->of;
}

static void on_event(void *user, const struct weft_event *ev)
{
    answer *a = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) a->ids[a->n++] = ev->id;
}

/* Prompts begin at equal distances in the text. */
static weft_status submit(const match *x, struct weft_engine *e, size_t i, answer *a, struct weft_request **r)
{
    size_t at = x->n > 1 ? i * (x->n_text - x->in) / (x->n - 1) : 0;
    return weft_submit(e, &(struct weft_request_params){.tokens = x->text + at, .n_tokens = x->in, .max_tokens = x->out, .on_event = on_event, .user = a}, r);
}

/* Waits for all, in their order, and frees them. */
static weft_status wait_all(const match *x, struct weft_engine *e, struct weft_request **r, const char *what)
{
    enum { LOOK_MS = 100 };
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < x->n && r[i]; i++) {
        while (!s && (s = weft_wait(r[i], LOOK_MS)) == WEFT_ERR_TIMEOUT && wf_goes_on(e))
            s = WEFT_OK, wf_on_progress(x->p->o->quiet ? NULL : &x->p->bar, what, (double)i / (double)x->n);
        weft_request_free(r[i]);
    }
    wf_progress_end(&x->p->bar);
    return s;
}

static int run(const match *x, struct weft_engine *e, const char *what, answers *a)
{
    struct weft_request **r = wf_calloc(x->n, sizeof *r);
    weft_status s = r && make_answers(x, a) ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; !s && i < x->n; i++) s = submit(x, e, i, &a->of[i], &r[i]);
    weft_status ended = r ? wait_all(x, e, r, what) : WEFT_OK;
    free(r);
    if (wf_interrupted()) return wf_interrupted_exit();
    return s || ended ? wf_say_error(s ? s : ended) : 0;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

static bool same(const answer *a, const answer *b, uint32_t first)
{
    uint32_t na = WF_MIN(a->n, first), nb = WF_MIN(b->n, first);
    return na == nb && !memcmp(a->ids, b->ids, na * sizeof *a->ids);
}

/* After 1, 2, 4, ... tokens, and after all: in how many percent of the prompts are they the same? */
static int add_series(const match *x, const char *series, const answers *a, const answers *b, uint32_t whole)
{
    int rc = 0;
    for (uint32_t first = 1; !rc; first = WF_MIN(2 * first, x->out)) {
        size_t n = 0;
        for (size_t i = 0; i < x->n; i++) n += same(&a->of[i], &b->of[i], first);
        rc = wf_paper_add(x->p, series, first, first == x->out ? whole : first, 100 * (double)n / (double)x->n);
        if (first == x->out) break;
    }
    return rc;
}

/* ---- engines ------------------------------------------------------------------------------------- */

/* Files of ranges: as calibrated, and of no layer. */
typedef struct ranges {
    char calibrated[64], none[64];
} ranges;

static void remove_files(const ranges *r)
{
    if (*r->calibrated) unlink(r->calibrated);
    if (*r->none) unlink(r->none);
}

static int open_engine(const match *x, const char *calibration, uint32_t seqs, wf_paper_engine *out)
{
    x->p->calibration = calibration;
    int rc = wf_paper_open(x->p, NULL, seqs, x->in + x->out, 0, out);
    x->p->calibration = NULL;
    return rc;
}

static weft_status save(const match *x, struct weft_calibration *c, const ranges *r)
{
    weft_status s = weft_calibration_save(c, x->p->m, r->calibrated);
    for (uint32_t i = 0; i < c->n_layers; i++) c->layers[i].a = c->layers[i].b = 0, c->layers[i].fits = false;
    return s ? s : weft_calibration_save(c, x->p->m, r->none);
}

/* The files are made when there is something to write, so that who gives up before leaves none. */
static int keep(const match *x, struct weft_calibration *c, ranges *r)
{
    bool fits = false;
    for (uint32_t i = 0; i < c->n_layers; i++) fits = fits || c->layers[i].fits;
    if (!fits) return wf_say_error(wf_fail(WEFT_ERR_UNSUPPORTED, "the logits of this model vary too much for an asynchronous softmax: no layer has a range"));
    int rc = wf_paper_temporary(r->calibrated, sizeof r->calibrated);
    if (!rc) rc = wf_paper_temporary(r->none, sizeof r->none);
    weft_status s = rc ? WEFT_OK : save(x, c, r);
    return s ? wf_say_error(s) : rc;
}

/* Calibration reads back all keys that an engine has room for after each piece of the text. */
static int calibrate(const match *x, const char *text, size_t len, ranges *r)
{
    wf_paper_engine e;
    struct weft_calibration *c = NULL;
    int rc = open_engine(x, NULL, 1, &e);
    if (rc) return rc;
    rc = wf_paper_calibrate(x->p, e.e, text, len, &c);
    weft_engine_close(e.e);
    if (!rc) rc = keep(x, c, r);
    weft_calibration_free(c);
    return rc;
}

static int run_sync(const match *x, const ranges *r, answers *first, answers *again)
{
    wf_paper_engine e;
    int rc = open_engine(x, r->none, (uint32_t)WF_MIN(x->n, SEQS), &e);
    if (rc) return rc;
    rc = run(x, e.e, "synchronous", first);
    if (!rc) rc = run(x, e.e, "again", again);
    weft_engine_close(e.e);
    return rc;
}

static int run_async(const match *x, const ranges *r, answers *a)
{
    wf_paper_engine e;
    struct weft_stats stats;
    int rc = open_engine(x, r->calibrated, (uint32_t)WF_MIN(x->n, SEQS), &e);
    if (rc) return rc;
    uint32_t layers = weft_engine_softmax(e.e, NULL, NULL, NULL, 0);
    if (!layers) rc = wf_say_error(wf_fail(WEFT_ERR_NODEVICE, "%s has no kernel with the asynchronous softmax for this model; `weft kernels` lists what it has, --device takes another", x->p->device));
    else rc = run(x, e.e, "asynchronous", a);
    weft_engine_stats(e.e, &stats);
    weft_engine_close(e.e);
    return rc ? rc : wf_paper_note(x->p, "asynchronous in %u of %u layers, where a step picks such a kernel; %llu rows were computed again", layers, weft_model_info(x->p->m)->n_layer, (unsigned long long)stats.softmax_recomputed);
}

/* ---- the figure ---------------------------------------------------------------------------------- */

static int measure(const match *x, const char *text, size_t len)
{
    ranges r = {{0}, {0}};
    answers sync = {0}, again = {0}, async = {0};
    int rc = calibrate(x, text, len > CALIBRATED ? wf_utf8_valid(text, CALIBRATED) : len, &r);
    if (!rc) rc = run_sync(x, &r, &sync, &again);
    if (!rc) rc = run_async(x, &r, &async);
    remove_files(&r);
    if (!rc) rc = add_series(x, WF_PAPER_ASYNC, &sync, &async, WF_PAPER_ANSWER);
    if (!rc) rc = add_series(x, "synchronous again", &sync, &again, WF_PAPER_ANSWER);
    free_answers(&sync), free_answers(&again), free_answers(&async);
    return rc;
}

int wf_paper_tokens(wf_paper *p, const char *text, size_t len)
{
    enum { PROMPT = 128, LEAST = 8 };
    match x = {.p = p, .n = p->o->paper.quick ? QUICK_PROMPTS : PROMPTS};
    int rc = wf_paper_fit(p, PROMPT + WF_PAPER_ANSWER);
    if (rc) return rc;
    weft_status s = weft_tokenize(p->m, text, len, WEFT_TEXT_DEFAULT, &x.text, &x.n_text);
    x.in = (uint32_t)WF_MIN(wf_paper_length(p, PROMPT), x.n_text / 2), x.out = wf_paper_length(p, WF_PAPER_ANSWER);
    x.n = WF_MIN(x.n, x.n_text - x.in + 1);
    if (!s && x.n_text < LEAST) s = wf_fail(WEFT_ERR_ARG, "the text has %zu tokens: prompts are cut from it, so give it thousands (-f)", x.n_text);
    rc = s ? wf_say_error(s) : measure(&x, text, len);
    weft_free(x.text);
    if (!rc) rc = wf_paper_note(p, "%zu prompts of %u tokens from your text, %u generated; the paper compares with the official Llama implementation, ShareGPT prompts", x.n, x.in, x.out);
    return rc;
}
