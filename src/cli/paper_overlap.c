/* paper_overlap: NanoFlow's figures of ops beside each other: what they leave to each other (5, table 3), the pipeline that is found from that (6), and what
 * it uses of the device (10). */
#include "cli/paper.h"
#include "cli/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- times of ops ---------------------------------------------------------------------------- */

/* A file with them, and what is to be removed with it. */
typedef struct times {
    char path[600];
    bool mine;
} times;

/* Sizes of a step: half of it decodes, as in the paper, where the device holds as many. */
enum { SEQS = 256, CONTEXT = 1024, QUICK_SEQS = 8, QUICK_TOKENS = 64, MEASURE_S = 90, SEARCH_S = 20 };

static int open_timed(wf_paper *p, uint32_t nano_batches, const char *plan, wf_paper_engine *e)
{
    bool quick = p->o->paper.quick;
    p->timed = true, p->nano_batches = nano_batches, p->plan = plan;
    int rc = wf_paper_fit(p, CONTEXT);
    return rc ? rc : wf_paper_open(p, NULL, quick ? QUICK_SEQS : SEQS, wf_paper_length(p, CONTEXT), quick ? QUICK_TOKENS : 0, e);
}

/* One sequence is left for the prompt. */
static struct weft_timeline_params step_of(const wf_paper_engine *e)
{
    return (struct weft_timeline_params){.tokens = e->batch, .decodes = WF_MIN(e->n_seqs - 1, e->batch / 2), .context = e->context};
}

static FILE *open_nowhere(void)
{
    FILE *f = fopen("/dev/null", "w");
    if (!f) wf_say_error(wf_fail(WEFT_ERR_IO, "cannot open /dev/null"));
    return f;
}

/* In files of its own, so that no other run takes what was measured in haste. */
static int measure(wf_paper *p, const wf_paper_engine *e, const times *t)
{
    char plan[64];
    struct weft_overlap_params q = {.profile = t->path, .plan = plan, .quick = true, .seconds = MEASURE_S, .on_progress = wf_on_progress, .stop = wf_ask_interrupted,
                                    .user = p->o->quiet ? NULL : &p->bar};
    bool stopped;
    int rc = wf_paper_temporary(plan, sizeof plan);
    FILE *f = rc ? NULL : open_nowhere();
    if (!f) return rc ? rc : WF_EXIT_RUNTIME;
    unlink(t->path), unlink(plan);
    weft_status s = weft_tune_overlap(e->e, &q, f, &stopped);
    fclose(f), unlink(plan);
    wf_progress_end(&p->bar);
    if (wf_interrupted()) return wf_interrupted_exit();
    return s ? wf_say_error(s == WEFT_ERR_UNSUPPORTED ? WEFT_ERR_NODEVICE : s) : wf_paper_note(p, "ops were measured in haste, for at most %d s: `weft tune --overlap` takes its time", MEASURE_S);
}

static bool find_kept(const wf_paper_engine *e, times *t)
{
    struct weft_timeline *kept = NULL;
    struct weft_timeline_params q = step_of(e);
    bool found = !weft_timeline(e->e, &q, &kept);
    if (found) wf_copy(t->path, sizeof t->path, kept->profile);
    weft_timeline_free(kept);
    return found;
}

/* As --profile says, as kept, or as measured now. */
static int find_times(wf_paper *p, times *t)
{
    wf_paper_engine e;
    *t = (times){{0}, false};
    if (p->o->print_profile) return wf_copy(t->path, sizeof t->path, p->o->print_profile), 0;
    int rc = open_timed(p, 1, NULL, &e);
    if (rc) return rc;
    if (!find_kept(&e, t)) {
        rc = wf_paper_temporary(t->path, sizeof t->path);
        t->mine = !rc;
        if (!rc) rc = measure(p, &e, t);
    }
    weft_engine_close(e.e);
    return rc;
}

static void forget(const times *t)
{
    if (t->mine) unlink(t->path);
}

/* ---- figure 5 and table 3: what ops leave to each other ---------------------------------------- */

static int by_loss(const void *a, const void *b)
{
    double x = ((const struct weft_profile_rate *)a)->lost, y = ((const struct weft_profile_rate *)b)->lost;
    return (x > y) - (x < y);
}

/* Compute and memory, by what compute keeps. */
static int add_pairs(wf_paper *p, struct weft_profile *f)
{
    double at = 0;
    int rc = 0;
    qsort(f->rates, f->n_rates, sizeof *f->rates, by_loss);
    for (const struct weft_profile_rate *r = f->rates; r < f->rates + f->n_rates && !rc; r++) {
        if (r->op_class != WEFT_CLASS_MEMORY) continue;
        at++;
        rc = wf_paper_add(p, "compute", at, at, 1 - r->lost);
        if (!rc) rc = wf_paper_add(p, "memory", at, at, r->rate);
    }
    return rc ? rc : wf_paper_note(p, "pairs differ in the share of the device that the op of memory gets, not in their kernels");
}

static int add_exchange(wf_paper *p, struct weft_profile *f)
{
    int rc = 0;
    for (const struct weft_profile_rate *r = f->rates; r < f->rates + f->n_rates && !rc; r++) rc = wf_paper_add(p, weft_class_name(r->op_class), r->lost, r->lost, r->rate);
    return rc;
}

/* They may be of another device and model than are open. */
static int name_source(wf_paper *p, const struct weft_profile *f)
{
    wf_copy(p->device, sizeof p->device, f->device);
    if (p->o->print_profile) wf_copy(p->model, sizeof p->model, f->model), *p->driver = 0;
    return wf_paper_note(p, "measured with %s, contexts of %u", *f->model ? f->model : "a model without a name", f->context);
}

static int with_rates(wf_paper *p, int (*use)(wf_paper *p, struct weft_profile *f))
{
    times t;
    struct weft_profile *f = NULL;
    int rc = find_times(p, &t);
    weft_status s = rc ? WEFT_OK : weft_profile_read(t.path, &f);
    if (!rc && !s && !f->n_rates) s = wf_fail(WEFT_ERR_NODEVICE, "no ops were measured beside each other: the kernels of this device leave no share to others, or have one thread to share");
    if (!rc && !s) rc = use(p, f);
    if (!rc && !s) rc = name_source(p, f);
    weft_profile_free(f);
    forget(&t);
    return s ? wf_say_error(s) : rc;
}

int wf_paper_pairs(wf_paper *p)
{
    return with_rates(p, add_pairs);
}

int wf_paper_exchange(wf_paper *p)
{
    return with_rates(p, add_exchange);
}

/* ---- figure 6: the pipeline -------------------------------------------------------------------- */

/* By an engine whose steps run one op after another. */
static int search(wf_paper *p, const wf_paper_engine *e, const times *t, const char *plan)
{
    struct weft_timeline_params step = step_of(e);
    struct weft_search_params q = {.profile = t->path, .plan = plan, .tokens = step.tokens, .decodes = step.decodes, .seconds = p->o->paper.quick ? 1 : SEARCH_S,
                                   .on_progress = wf_on_progress, .stop = wf_ask_interrupted, .user = p->o->quiet ? NULL : &p->bar};
    bool stopped;
    FILE *f = open_nowhere();
    if (!f) return WF_EXIT_RUNTIME;
    weft_status s = weft_search(e->e, &q, f, &stopped);
    fclose(f);
    wf_progress_end(&p->bar);
    if (wf_interrupted()) return wf_interrupted_exit();
    return s ? wf_say_error(s) : 0;
}

/* Times of the ops of the layer in the middle, and from its first to its last. */
static int add_layer(wf_paper *p, const char *series, const struct weft_timeline *t)
{
    double us[WF_PAPER_OPS + 1] = {0}, begin = t->predicted.us, end = 0;
    int rc = 0;
    for (const struct weft_timeline_op *op = t->predicted.ops; op < t->predicted.ops + t->predicted.n_ops; op++) {
        if (op->layer != (int32_t)t->n_layers / 2) continue;
        us[wf_paper_op(op->name)] += op->end_us - op->begin_us;
        begin = WF_MIN(begin, op->begin_us), end = WF_MAX(end, op->end_us);
    }
    us[WF_PAPER_OPS] = end - begin;
    for (size_t i = 0; i <= WF_PAPER_OPS && !rc; i++)
        if (us[i] > 0) rc = wf_paper_add(p, series, (double)i, (double)i, us[i]);
    return rc;
}

/* A step with one plan, in the picture and in the rows. */
static int predict(wf_paper *p, const wf_paper_engine *e, const times *t, const char *name, bool *overlaps)
{
    struct weft_timeline *line = NULL;
    struct weft_timeline_params q = step_of(e);
    q.profile = t->path;
    int rc = wf_paper_step(p, e, q, &line);
    if (rc) return rc;
    *overlaps = false;
    for (size_t i = 0; i < line->predicted.n_ops; i++) *overlaps |= line->predicted.ops[i].queue > 0;
    rc = add_layer(p, name, line);
    wf_paper_show_step(p, name, line);
    return rc;
}

static int predict_plan(wf_paper *p, const times *t, uint32_t nano_batches, const char *plan, const char *name, bool *overlaps)
{
    wf_paper_engine e;
    int rc = open_timed(p, nano_batches, plan, &e);
    if (rc) return rc;
    rc = predict(p, &e, t, name, overlaps);
    weft_engine_close(e.e);
    return rc;
}

static int search_and_predict(wf_paper *p, const times *t, const char *plan)
{
    wf_paper_engine e;
    bool overlaps = false;
    int rc = open_timed(p, 1, NULL, &e);
    if (rc) return rc;
    rc = predict(p, &e, t, "one after another", &overlaps);
    if (!rc) rc = search(p, &e, t, plan);
    weft_engine_close(e.e);
    return rc;
}

static int pipeline(wf_paper *p, const times *t, const char *plan)
{
    bool overlaps = false;
    int rc = search_and_predict(p, t, plan);
    if (!rc) rc = predict_plan(p, t, 0, plan, "found", &overlaps);
    if (rc || overlaps) return rc;
    return wf_paper_note(p, "no plan that is faster was found: `found` is the sequential one");
}

static int name_times(wf_paper *p, const times *t)
{
    struct weft_profile *f = NULL;
    weft_status s = weft_profile_read(t->path, &f);
    int rc = s ? wf_say_error(s) : name_source(p, f);
    weft_profile_free(f);
    return rc;
}

int wf_paper_pipeline(wf_paper *p)
{
    times t;
    char plan[64] = "";
    int rc = find_times(p, &t);
    if (!rc) rc = wf_paper_temporary(plan, sizeof plan);
    if (!rc) rc = pipeline(p, &t, plan);
    if (!rc) rc = name_times(p, &t);
    if (*plan) unlink(plan);
    forget(&t);
    p->plan = NULL;
    return rc ? rc : wf_paper_note(p, "as the simulator predicts it from the times of ops; one device has no network, so that only attention and copies are beside products");
}

/* ---- figure 10: use of the device --------------------------------------------------------------- */

static int add_usage(wf_paper *p, const char *series, const struct weft_timeline *t)
{
    static const enum weft_class classes[] = {WEFT_CLASS_COMPUTE, WEFT_CLASS_MEMORY, WEFT_CLASS_NETWORK, WEFT_CLASS_COPY};
    int rc = 0;
    for (size_t i = 0; i < WF_LEN(classes) && !rc; i++) rc = wf_paper_add(p, series, (double)i, (double)i, 100 * wf_timeline_mean(&t->measured, classes[i]));
    return rc ? rc : wf_paper_note(p, "%s: %.3f ms for %u tokens, %u of them decodes, contexts of %u", series, t->measured.us / 1e3, t->tokens, t->decodes, t->context);
}

static int use(wf_paper *p, uint32_t nano_batches, const char *name)
{
    wf_paper_engine e;
    struct weft_timeline *t = NULL;
    int rc = open_timed(p, nano_batches, NULL, &e);
    if (rc) return rc;
    struct weft_timeline_params q = step_of(&e);
    q.measure = true, q.profile = p->o->print_profile;
    rc = wf_paper_step(p, &e, q, &t);
    if (!rc) rc = add_usage(p, name, t);
    if (t) wf_paper_show_step(p, name, t);
    weft_engine_close(e.e);
    return rc;
}

int wf_paper_usage(wf_paper *p)
{
    int rc = use(p, 1, "one after another");
    if (!rc) rc = use(p, 2, "overlapped");
    return rc ? rc : wf_paper_note(p, "overlapped: two nano-batches, the attention of one beside the products of the other; one device has no network");
}
