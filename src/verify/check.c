/* check.c: runs a variant on the operands of a check and has the result judged (judge.c). */
#include "dev/front.h"
#include "verify/gen.h"
#include "verify/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_AFTER 512u
#define SAMPLES     9 /* of a timed run; the median counts */

/* ---- on a device: each operand in a buffer of its own, between guard zones ----------------------- */

typedef struct run {
    wf_dev *dev;
    wf_queue *q;
    wf_buf *buf[WF_MAX_IN + WF_MAX_OUT];
    wf_call call;
    wf_binding bound;
    bool in_flight;
} run;

/* Ends a transfer: waits for the queue, and after an error once more, because other transfers may be in flight and
 * their host memory must outlive them. If that fails too, nothing tells when they end. */
static weft_status settle_transfer(run *r, weft_status s)
{
    if (!s) s = wf_finish(r->q);
    if (s && (r->dev->lost || wf_finish(r->q))) r->in_flight = true;
    return s;
}

/* The same call with longer contexts, if the variant can run it: what is bound for those serves shorter ones. */
static wf_call with_longer_contexts(wf_dev *dev, const wf_call *c, int variant)
{
    wf_call longer = *c;
    longer.p.max_kv *= 3;
    return c->op == WF_OP_ATTENTION && dev->fns->supports(dev, &longer, variant) ? longer : *c;
}

static void run_end(run *r)
{
    for (size_t i = 0; i < WF_LEN(r->buf); i++)
        if (r->in_flight) wf_leak_on_purpose(r->buf[i]);
        else wf_buf_destroy(r->buf[i]);
}

static weft_status make_buffer(run *r, int slot, uint64_t seed, const wf_check_operand *o, wf_view *v)
{
    uint64_t before = WF_UP(256, (uint64_t)r->dev->align) + wf_random(seed, (uint64_t)slot) % 4 * r->dev->align;
    *v = o->view;
    v->offset = before;
    WF_TRY(wf_buf_create(r->dev, WF_UP(before + o->bytes + GUARD_AFTER, 4), &r->buf[slot]));
    v->buf = r->buf[slot];
    return WEFT_OK;
}

/* One write from the start of the buffer: oclgrind 21.10 takes memory that is written in other ways for uninitialised.
 */
static weft_status place_operand(run *r, int slot, int byte, uint64_t seed, const wf_check_operand *o, wf_view *v)
{
    WF_TRY(make_buffer(r, slot, seed, o, v));
    uint8_t *image = wf_calloc(v->buf->size, 1);
    if (!image) return WEFT_ERR_NOMEM;
    memset(image, byte, v->buf->size);
    memcpy(image + v->offset, o->data, o->bytes);
    weft_status s = settle_transfer(r, wf_write(r->q, v->buf, 0, image, v->buf->size, NULL, 0, NULL));
    if (r->in_flight) wf_leak_on_purpose(image);
    else free(image);
    return s;
}

static weft_status place_poison(run *r, int slot, int byte, uint64_t seed, const wf_check_operand *o, wf_view *v)
{
    WF_TRY(make_buffer(r, slot, seed, o, v));
    return settle_transfer(r, wf_fill(r->q, v->buf, 0, v->buf->size, 0x01010101u * (uint32_t)byte));
}

static weft_status place_weight(run *r, int slot, uint8_t layout, uint64_t seed, const wf_check_operand *o, wf_view *v)
{
    if (!layout) return place_operand(r, slot, 0xFF, seed, o, v);
    const wf_view *w = &o->view;
    wf_check_operand packed = {.view = *w};
    uint64_t row = wf_dtype_bytes(w->dtype, w->cols), pitch = wf_dtype_bytes(w->dtype, w->stride);
    uint8_t *rows = wf_calloc(w->rows, row);
    packed.bytes = r->dev->fns->weight_bytes(r->dev, layout, w->dtype, w->rows, w->cols);
    packed.data = wf_calloc(packed.bytes, 1);
    weft_status s = rows && packed.data ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; !s && i < w->rows; i++) memcpy(rows + i * row, o->data + i * pitch, row);
    if (!s) r->dev->fns->weight_pack(r->dev, layout, w->dtype, w->rows, w->cols, rows, packed.data);
    if (!s) s = place_operand(r, slot, 0xFF, seed, &packed, v);
    v->stride = v->cols;
    v->layout = layout;
    free(rows);
    free(packed.data);
    return s;
}

static int weight_slot(enum wf_op op)
{
    return wf_op_input(op, WF_OPERAND_WEIGHT);
}

int wf_case_shared(const wf_case *c)
{
    return c->in_place ? wf_op_input(c->op, WF_OPERAND_SHARED) : -1;
}

static weft_status place_all(run *r, const wf_check *k, uint8_t layout)
{
    wf_call *c = &r->call;
    uint64_t seed = k->c.seed ^ 0x5eed;
    int shared = wf_case_shared(&k->c);
    for (int i = 0; i < WF_MAX_IN; i++) {
        if (!k->in[i].data || i == shared) continue;
        weft_status s = i == weight_slot(k->c.op) ? place_weight(r, i, layout, seed, &k->in[i], &c->in[i])
                                                  : place_operand(r, i, 0xFF, seed, &k->in[i], &c->in[i]);
        WF_TRY(s);
    }
    for (int i = 0; i < WF_MAX_OUT; i++) {
        if (!k->out[i].data) continue;
        weft_status s = shared >= 0 && !i
                            ? place_operand(r, WF_MAX_IN + i, wf_judge_poison(k), seed, &k->in[shared], &c->out[i])
                            : place_poison(r, WF_MAX_IN + i, wf_judge_poison(k), seed, &k->out[i], &c->out[i]);
        WF_TRY(s);
    }
    if (shared < 0) return WEFT_OK;
    c->in[shared] = c->out[0];
    c->out[0].cols = k->out[0].view.cols;
    return WEFT_OK;
}

/* What is bound for long contexts is also launched for short ones. */
static weft_status bind_attention(run *r, int variant)
{
    wf_call c = with_longer_contexts(r->dev, &r->call, variant);
    if (c.op != WF_OP_ATTENTION) return WEFT_OK;
    r->bound = (wf_binding){.n = 1,
                            .part = {{.piece = WF_PIECE_WHOLE, .op = (uint8_t)c.op, .b = {.variant = variant}}}};
    WF_TRY(wf_call_check(r->dev, &c));
    return r->dev->fns->bind ? r->dev->fns->bind(r->dev, &c, variant, &r->bound.part[0].b) : WEFT_OK;
}

static weft_status submit_run(run *r)
{
    return r->bound.n ? wf_launch(r->q, &r->call, &r->bound) : wf_submit(r->q, &r->call);
}

static weft_status run_once(run *r)
{
    WF_TRY(submit_run(r));
    return wf_finish(r->q);
}

/* Reads a whole output buffer back, guard zones included. */
static weft_status read_back(run *r, int i, uint8_t **image)
{
    wf_buf *b = r->call.out[i].buf;
    *image = wf_calloc(b->size, 1);
    if (!*image) return WEFT_ERR_NOMEM;
    return settle_transfer(r, wf_read(r->q, b, 0, *image, b->size, NULL, 0, NULL));
}

/* ---- judging ------------------------------------------------------------------------------------------ */

static weft_status judge_all(run *r, const wf_check *k, const wf_variant *variant, wf_check_result *out)
{
    out->hash = WF_JUDGE_HASH;
    for (int o = 0; o < WF_MAX_OUT; o++) {
        if (!k->out[o].data || wf_is_workspace(k->c.op, o)) continue; /* whose contents mean nothing */
        uint8_t *image = NULL;
        weft_status s = read_back(r, o, &image);
        const wf_view *v = &r->call.out[o];
        if (!s) wf_judge_output(k, variant, o, image, v, out);
        if (r->in_flight) wf_leak_on_purpose(image);
        else free(image);
        WF_TRY(s);
    }
    out->ok = out->error <= 1;
    if (out->ok) out->message[0] = 0;
    return WEFT_OK;
}

/* ---- timing: enough runs between two finishes that one lasts over 2 ms -------------------------------- */

static weft_status timed_runs(run *r, uint32_t n, double *ns)
{
    uint64_t start = wf_now_ns();
    for (uint32_t i = 0; i < n; i++) WF_TRY(submit_run(r));
    WF_TRY(wf_finish(r->q));
    *ns = (double)(wf_now_ns() - start) / n;
    return WEFT_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_status measure_run(run *r, double *median)
{
    double samples[SAMPLES], once;
    WF_TRY(timed_runs(r, 1, &once));
    uint32_t n = once > 2e6 ? 1 : (uint32_t)WF_MIN(2e6 / once + 1, 1000.0);
    for (int i = 0; i < SAMPLES; i++) WF_TRY(timed_runs(r, n, &samples[i]));
    qsort(samples, SAMPLES, sizeof *samples, by_size);
    *median = samples[SAMPLES / 2];
    return WEFT_OK;
}

/* ---- a check ------------------------------------------------------------------------------------------- */

/* How the weights of a check lie for a variant: as the device wants them or, where the case says so, as in the file.
 * False: it reads neither, and they lie as it would read them. */
static bool layout_for(const wf_check *k, wf_dev *dev, const wf_variant *v, uint8_t *layout)
{
    const wf_view *w = &k->in[weight_slot(k->c.op)].view;
    *layout = dev->fns->weight_layout ? dev->fns->weight_layout(dev, w->dtype, w->rows, w->cols) : 0;
    if (k->c.file_layout || !wf_reads_layout(v, *layout)) {
        if (wf_reads_layout(v, 0)) *layout = 0;
        else if (!wf_reads_layout(v, *layout)) {
            for (*layout = 0; !wf_reads_layout(v, *layout);) ++*layout;
            return false;
        }
    }
    return true;
}

void wf_check_call(const wf_check *k, wf_dev *dev, const wf_variant *v, wf_call *out)
{
    int w = weight_slot(k->c.op);
    *out = (wf_call){.op = k->c.op, .variant = -1, .max_groups = k->c.max_groups, .p = k->c.p};
    for (int i = 0; i < WF_MAX_IN; i++) out->in[i] = k->in[i].view;
    for (int i = 0; i < WF_MAX_OUT; i++) out->out[i] = k->out[i].view;
    if (w < 0 || !v) return;
    layout_for(k, dev, v, &out->in[w].layout);
    if (out->in[w].layout) out->in[w].stride = out->in[w].cols;
}

/* An operand without buf is absent, so present ones get a stand-in, which is never read. */
void wf_check_stand_in(const wf_check *k, wf_dev *dev, const wf_variant *v, wf_buf *stand_in, wf_call *c)
{
    wf_check_call(k, dev, v, c);
    for (int i = 0; i < WF_MAX_IN; i++) c->in[i].buf = c->in[i].rows ? stand_in : NULL;
    for (int i = 0; i < WF_MAX_OUT; i++) c->out[i].buf = c->out[i].rows ? stand_in : NULL;
}

bool wf_check_supported_call(const wf_check *k, wf_dev *dev, int variant, wf_buf *stand_in, wf_call *out)
{
    const wf_variant *v = wf_variant_at(dev, k->c.op, variant);
    uint8_t layout;
    wf_call c;
    wf_check_stand_in(k, dev, v, stand_in, &c);
    if (weight_slot(k->c.op) >= 0 && !layout_for(k, dev, v, &layout)) return false;
    *out = with_longer_contexts(dev, &c, variant);
    out->variant = variant;
    return dev->fns->supports(dev, out, variant);
}

bool wf_check_supported(const wf_check *k, wf_dev *dev, int variant)
{
    wf_buf stand_in = {dev, UINT64_MAX, NULL};
    wf_call c;
    return wf_check_supported_call(k, dev, variant, &stand_in, &c);
}

/* Keeps row `row` of an operand. */
static void keep_row(wf_check_operand *o, uint32_t row)
{
    if (!o->data) return;
    bool vector = o->view.rows == 1; /* [1, rows]: its elements are what counts */
    uint64_t pitch = wf_dtype_bytes(o->view.dtype, vector ? 1 : o->view.stride);
    o->data += row * pitch;
    o->bytes = wf_dtype_bytes(o->view.dtype, vector ? 1 : o->view.cols);
    *(vector ? &o->view.cols : &o->view.rows) = 1;
    if (vector) o->view.stride = 1;
}

bool wf_check_one_row(const wf_check *k, uint32_t row, wf_check *out)
{
    const wf_op_info *op = &wf_ops[k->c.op];
    *out = *k;
    if (wf_op_input(k->c.op, WF_OPERAND_BY_ROW) < 0 || k->out[0].view.rows < 2) return false;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].what & WF_OPERAND_BY_ROW) keep_row(&out->in[i], row);
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].what & WF_OPERAND_BY_ROW) keep_row(&out->out[i], row), keep_row(&out->expect[i], row);
    out->c.m = 1;
    if (k->c.op == WF_OP_ATTENTION) out->c.p.max_q = out->c.max_q = 1, out->redo_least = 0;
    return true;
}

wf_check wf_check_no_windows(const wf_check *k)
{
    wf_check out = *k;
    out.in[WF_ATTENTION_WINDOWS] = out.in[WF_ATTENTION_AROUND] = (wf_check_operand){0};
    return out;
}

bool wf_check_poison_other_sequences(const wf_check *k, wf_check *out)
{
    if (k->c.op != WF_OP_ATTENTION || k->c.n_seqs < 2) return false;
    uint32_t well = ((const uint32_t *)k->in[WF_ATTENTION_SEQ].data)[k->out[WF_ATTENTION_O].view.rows / 2];
    *out = *k;
    out->in[WF_ATTENTION_K_POOL].data = out->in[WF_ATTENTION_V_POOL].data = NULL;
    for (int i = 1; i <= 2; i++) {
        wf_check_operand *o = &out->in[i];
        if (!(o->data = wf_calloc(1, o->bytes))) return wf_check_poison_free(out), false;
        memcpy(o->data, k->in[i].data, o->bytes);
        for (uint32_t s = 0; s < k->c.n_seqs; s++)
            if (s != well) {
                /* NaN for all that pages of sequence s hold in a pool. */
                const int32_t *first = (const int32_t *)k->in[WF_ATTENTION_INDPTR].data + s,
                              *pages = (const int32_t *)k->in[WF_ATTENTION_PAGES].data;
                uint64_t pitch = wf_dtype_bytes(o->view.dtype, o->view.stride),
                         used = wf_dtype_bytes(o->view.dtype, o->view.cols);
                for (int32_t p = first[0]; p < first[1]; p++) memset(o->data + (uint32_t)pages[p] * pitch, 0xFF, used);
            }
    }
    return true;
}

void wf_check_poison_free(wf_check *poisoned)
{
    free(poisoned->in[WF_ATTENTION_K_POOL].data);
    free(poisoned->in[WF_ATTENTION_V_POOL].data);
}

weft_status wf_check_run(wf_check *k, wf_dev *dev, wf_queue *q, int variant, bool timed, wf_check_result *out)
{
    const wf_variant *v = wf_variant_at(dev, k->c.op, variant);
    run r = {.dev = dev, .q = q};
    memset(out, 0, sizeof *out);
    if (!v) return wf_fail(WEFT_ERR_ARG, "%s has no variant %d", wf_ops[k->c.op].name, variant);
    if (!wf_check_supported(k, dev, variant)) return WEFT_OK;
    out->supported = true;
    wf_check_call(k, dev, v, &r.call);
    r.call.variant = variant;
    int w = weight_slot(k->c.op);
    weft_status s = place_all(&r, k, w >= 0 ? r.call.in[w].layout : 0);
    if (!s) s = bind_attention(&r, variant);
    if (!s) s = run_once(&r);
    if (s == WEFT_ERR_UNSUPPORTED && !wf_check_supported(k, dev, variant)) {
        out->supported = false; /* its limits were unknown until it was built */
        s = WEFT_OK;
    } else if (!s) s = judge_all(&r, k, v, out);
    if (!s && timed && out->supported) s = measure_run(&r, &out->median_ns);
    run_end(&r);
    k->in_flight |= r.in_flight;
    return s;
}

/* A fused call in pieces, each by its own reference. */
static weft_status run_pieces(run *r)
{
    enum wf_piece piece[WF_MAX_PIECES];
    size_t n = wf_pieces(r->dev, &r->call, piece);
    for (size_t i = 0; i < n; i++) {
        wf_call part = wf_piece_of(&r->call, piece[i]);
        part.variant = wf_variant_find(r->dev, part.op, "ref");
        WF_TRY(wf_submit(r->q, &part));
    }
    return wf_finish(r->q);
}

static weft_status widen_residuals(wf_check *asked, wf_check_operand *wide)
{
    int i = wf_op_input(asked->c.op, WF_OPERAND_SHARED);
    if (i < 0 || !(wf_ops[asked->c.op].in[i].what & WF_OPERAND_OPTIONAL)) return WEFT_OK;
    /* A residual has the dtype of the output, which of the reference is F32: *in becomes *wide, which the caller
     * frees. */
    wf_check_operand *in = &asked->in[i];
    const wf_view *v = &in->view;
    if (!in->data || v->dtype == WF_F32) return WEFT_OK;
    WF_TRY(wf_gen_operand(wide, WF_F32, v->rows, v->cols, v->stride - v->cols));
    for (uint32_t row = 0; row < v->rows; row++)
        wf_dtypes[v->dtype].decode(wf_gen_row(in, row), (float *)wf_gen_row(wide, row), v->cols);
    *in = *wide;
    return WEFT_OK;
}

static weft_status make_expect(wf_check *k)
{
    for (int o = 0; o < WF_MAX_OUT; o++) {
        wf_check_operand *e = &k->expect[o];
        if (!k->out[o].data) continue;
        e->view = k->out[o].view;
        if (wf_ops[k->c.op].out[o].what & WF_OPERAND_ACT) e->view.dtype = WF_F32;
        e->bytes = wf_dtype_bytes(e->view.dtype, (uint64_t)e->view.rows * e->view.stride);
        e->data = wf_calloc(e->bytes, 1);
        if (!e->data) return WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

static weft_status run_reference(wf_check *k, wf_dev *ref)
{
    wf_queue *q;
    int variant = wf_variant_find(ref, k->c.op, "ref");
    if (variant < 0) return wf_fail(WEFT_ERR_INTERNAL, "%s has no reference", wf_ops[k->c.op].name);
    WF_TRY(make_expect(k));
    WF_TRY(wf_queue_create(ref, &q));
    /* The reference writes F32 where the op allows it, so that its own rounding does not count; and never in place, but
     * into copies of pages. */
    run r = {.dev = ref, .q = q};
    wf_check_operand wide = {0};
    wf_check asked = *k; /* shares data */
    for (int o = 0; o < WF_MAX_OUT; o++)
        if (asked.out[o].view.dtype != k->expect[o].view.dtype) asked.out[o] = k->expect[o];
    asked.c.max_groups = 0;
    asked.c.in_place &= k->c.op == WF_OP_PAGE_COPY;
    weft_status s = widen_residuals(&asked, &wide);
    wf_check_call(&asked, NULL, NULL, &r.call);
    r.call.variant = variant;
    if (!s) s = place_all(&r, &asked, 0);
    if (!s) s = run_pieces(&r);
    for (int o = 0; !s && o < WF_MAX_OUT; o++) {
        wf_check_operand *e = &k->expect[o];
        if (!e->data) continue;
        s = settle_transfer(&r, wf_read(q, r.call.out[o].buf, r.call.out[o].offset, e->data, e->bytes, NULL, 0, NULL));
    }
    run_end(&r);
    k->in_flight |= r.in_flight;
    free(wide.data); /* copied to the device */
    wf_queue_destroy(q);
    return s;
}

weft_status wf_check_new(wf_dev *ref, const wf_case *c, wf_check **out)
{
    *out = NULL;
    wf_check *k = wf_calloc(1, sizeof *k);
    if (!k) return WEFT_ERR_NOMEM;
    k->c = *c;
    weft_status s = wf_check_generate(k, !ref);
    if (!s && ref) s = run_reference(k, ref);
    if (s) {
        wf_check_free(k);
        return s;
    }
    *out = k;
    return WEFT_OK;
}

void wf_check_free(wf_check *k)
{
    if (!k) return;
    if (k->in_flight) {
        wf_leak_on_purpose(k);
        return;
    }
    for (int i = 0; i < WF_MAX_IN; i++) free(k->in[i].data);
    for (int i = 0; i < WF_MAX_OUT; i++) free(k->out[i].data), free(k->expect[i].data);
    free(k);
}
