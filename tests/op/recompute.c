/* recompute: rows that leave the range of the asynchronous softmax, provoked on a device (leaving.h): none, one, some,
 * all; in decodes and prompts.
 *
 *   recompute DEVICE      exit code 0: all right, 1: not, 77: no such device
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "op/leaving.h"
#include "support/build_once.h"
#include "support/skip.h"

enum {
    HEADS = 8,
    KV_HEADS = 2,
    D = 64,
    PAGE = 16,
    SEQS = 3,
    MOST_ROWS = 90,
    MOST_PAGES = 300,
    COLS = HEADS * D,
    PAGE_COLS = KV_HEADS * PAGE * D
};

typedef struct problem {
    const char *name;
    uint32_t lengths[SEQS], rows[SEQS]; /* rows: the last ones of each sequence */
    bool windows, sinks;
} problem;

static const problem problems[] = {
    {"decode", {40, 700, 1300}, {1, 1, 1}, false, false},
    {"decode, one row", {2100, 0, 0}, {1, 0, 0}, false, false},
    {"decode, windows, sinks", {40, 700, 1300}, {1, 1, 1}, true, true},
    {"prompts", {53, 600, 20}, {53, 17, 20}, false, false},
    {"prompts, windows, sinks", {53, 600, 20}, {53, 17, 20}, true, true},
    {"prompts, many keys",
     {1700, 1500, 0},
     {30, 10, 0},
     false,
     false}, /* a warpgroup that looks now and then stops, too */
};

typedef struct session {
    wf_dev *dev;
    wf_queue *q;
    wf_call call;
    uint8_t act; /* format of the queries */
    int32_t seq[MOST_ROWS], pos[MOST_ROWS];
    leaving_rows rows;
    uint8_t left[MOST_ROWS * HEADS]; /* enum leaves */
    float queries[MOST_ROWS * COLS], none[MOST_ROWS * COLS], sync[MOST_ROWS * COLS], async[MOST_ROWS * COLS];
    unsigned runs, failed;
} session;

static void check(weft_status s)
{
    if (!s) return;
    fprintf(stderr, "recompute: %s\n", weft_last_error());
    exit(1);
}

static float draw(void)
{
    static uint32_t state = 1;
    return (float)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
}

static wf_view view(session *s, uint8_t dtype, uint32_t rows, uint32_t cols, const void *data)
{
    wf_view v = {.rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
    uint64_t bytes = rows * wf_dtype_bytes(dtype, cols);
    check(wf_buf_create(s->dev, bytes, &v.buf));
    check(data ? wf_write(s->q, v.buf, 0, data, bytes, NULL, 0, NULL) : wf_fill(s->q, v.buf, 0, bytes, 0));
    check(wf_finish(s->q));
    return v;
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

static void draw_keys(const leaving_rows *rows, const problem *p, const int32_t *indptr, uint16_t *k, uint16_t *v)
{
    float columns[LEAVING_COLUMNS];
    for (uint32_t i = 0; i < MOST_PAGES * PAGE_COLS; i++)
        k[i] = wf_float_to_half(draw()), v[i] = wf_float_to_half(draw());
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t j = 0; j < p->lengths[s]; j++)
            for (uint32_t h = 0; h < KV_HEADS; h++) {
                uint16_t *key = k + (size_t)((uint32_t)indptr[s] + j / PAGE) * PAGE_COLS + (h * PAGE + j % PAGE) * D;
                leaving_key(rows, (int32_t)s, (int32_t)j, columns);
                for (int i = 0; i < LEAVING_COLUMNS; i++) key[i] = wf_float_to_half(columns[i]);
            }
}

static void make_keys(session *s, const problem *p)
{
    static uint16_t k[MOST_PAGES * PAGE_COLS], v[MOST_PAGES * PAGE_COLS];
    int32_t indptr[SEQS + 1] = {0}, pages[MOST_PAGES];
    for (uint32_t i = 0; i < SEQS; i++) indptr[i + 1] = indptr[i] + (int32_t)((p->lengths[i] + PAGE - 1) / PAGE);
    for (int32_t i = 0; i < MOST_PAGES; i++) pages[i] = i;
    draw_keys(&s->rows, p, indptr, k, v);
    s->call.in[WF_ATTENTION_K_POOL] = view(s, WF_F16, MOST_PAGES, PAGE_COLS, k);
    s->call.in[WF_ATTENTION_V_POOL] = view(s, WF_F16, MOST_PAGES, PAGE_COLS, v);
    s->call.in[WF_ATTENTION_INDPTR] = view(s, WF_I32, 1, SEQS + 1, indptr);
    s->call.in[WF_ATTENTION_PAGES] = view(s, WF_I32, 1, MOST_PAGES, pages);
}

static void make_rows(session *s, const problem *p)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < SEQS; i++)
        for (uint32_t r = 0; r < p->rows[i]; r++, m++) {
            s->seq[m] = (int32_t)i, s->pos[m] = (int32_t)(p->lengths[i] - p->rows[i] + r);
            s->call.p.max_q = WF_MAX(s->call.p.max_q, p->rows[i]),
            s->call.p.max_kv = WF_MAX(s->call.p.max_kv, p->lengths[i]);
        }
    s->rows = (leaving_rows){m, HEADS, s->seq, s->pos, p->windows};
    for (uint32_t i = 0; i < m * COLS; i++) s->queries[i] = draw();
    s->call.in[WF_ATTENTION_SEQ] = view(s, WF_I32, 1, m, s->seq);
    s->call.in[WF_ATTENTION_POS] = view(s, WF_I32, 1, m, s->pos);
    s->call.in[WF_ATTENTION_Q] = view(s, s->act, m, COLS, NULL);
    s->call.out[WF_ATTENTION_O] = view(s, WF_F32, m, COLS, NULL);
    s->call.out[WF_ATTENTION_RECOMPUTED] = view(s, WF_I32, 1, 1, NULL);
}

static void make(session *s, const problem *p)
{
    static const int32_t windows[HEADS] = {0, 70, 20, 300, 70, 3, 700, 150};
    static const float sinks[HEADS] = {-1, 0, 1, 2, 3, 4, 5, 6};
    memset(&s->call, 0, sizeof s->call);
    s->call.op = WF_OP_ATTENTION;
    s->call.p = (wf_op_params){.n_head = HEADS, .n_kv_head = KV_HEADS, .head_dim = D, .page_tokens = PAGE,
                               .scale = 0.125f, .phi = 0.5f, .phi_lo = -6, .phi_hi = 7, .sink = 4};
    make_rows(s, p);
    make_keys(s, p);
    if (p->windows) s->call.in[WF_ATTENTION_WINDOWS] = view(s, WF_I32, 1, HEADS, windows);
    if (p->sinks) s->call.in[WF_ATTENTION_SINKS] = view(s, WF_F32, 1, HEADS, sinks);
}

static void destroy(session *s)
{
    for (int i = 0; i < WF_MAX_IN; i++) wf_buf_destroy(s->call.in[i].buf);
    for (int i = 0; i < WF_MAX_OUT; i++) wf_buf_destroy(s->call.out[i].buf);
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static void write_queries(session *s)
{
    static uint16_t halves[MOST_ROWS * COLS];
    uint32_t n = s->rows.n * COLS;
    for (uint32_t i = 0; i < n; i++) halves[i] = wf_float_to_half(s->queries[i]);
    const void *data = s->act == WF_F16 ? (const void *)halves : s->queries;
    check(wf_write(s->q, s->call.in[WF_ATTENTION_Q].buf, 0, data, wf_dtype_bytes(s->act, n), NULL, 0, NULL));
}

/* Runs a variant; returns what it added to the counter. */
static uint32_t run(session *s, int variant, float *out)
{
    const wf_view *count = &s->call.out[WF_ATTENTION_RECOMPUTED];
    uint32_t before = 40, after, bytes = s->rows.n * COLS * (uint32_t)sizeof(float);
    for (uint32_t i = 0; i < s->rows.n * HEADS; i++) leaving_query(s->left[i], s->queries + i * D);
    s->call.variant = variant;
    check(wf_write(s->q, count->buf, 0, &before, sizeof before, NULL, 0, NULL));
    write_queries(s);
    check(wf_fill(s->q, s->call.out[WF_ATTENTION_O].buf, 0, bytes, 0xFFFFFFFF));
    check(wf_submit(s->q, &s->call));
    check(wf_read(s->q, s->call.out[WF_ATTENTION_O].buf, 0, out, bytes, NULL, 0, NULL));
    check(wf_read(s->q, count->buf, 0, &after, sizeof after, NULL, 0, NULL));
    check(wf_finish(s->q));
    s->runs++;
    return after - before;
}

static void complain(session *s, const problem *p, int variant, const char *pattern, const char *what, uint32_t row,
                     uint32_t head)
{
    printf("FAIL %s, %s, %s: %s (row %u, head %u)\n", wf_variant_at(s->dev, WF_OP_ATTENTION, variant)->name, p->name,
           pattern, what, row, head);
    s->failed++;
}

static void compare(session *s, const problem *p, int async, int sync, const char *pattern)
{
    uint32_t n = leaving_choose(&s->rows, pattern, s->left), row, head;
    uint32_t counted = run(s, async, s->async), wrongly = run(s, sync, s->sync);
    const leaving_results got = {s->async, s->sync, s->none, D * sizeof(float), COLS * sizeof(float)};
    const char *wrong = leaving_wrong(&s->rows, s->left, &got, &row, &head);
    if (wrong) complain(s, p, async, pattern, wrong, row, head);
    if (counted != n) complain(s, p, async, pattern, "wrong number of recomputed rows", counted, n);
    if (wrongly) complain(s, p, sync, pattern, "counts rows", wrongly, 0);
}

static void check_variant(session *s, const problem *p, int async, int sync)
{
    if (!s->dev->fns->supports(s->dev, &s->call, async)) return;
    leaving_choose(&s->rows, "none", s->left);
    run(s, async, s->none);
    for (size_t i = 0; i < LEAVING_PATTERNS; i++) compare(s, p, async, sync, leaving_pattern[i]);
}

/* The synchronous variant of the same kernel: its name is the same but for "async". */
static int synchronous(wf_dev *dev, const char *name)
{
    char other[64];
    const char *at = strstr(name, "async");
    bool last = at && !at[5];
    snprintf(other, sizeof other, "%.*s%s", (int)(at - name) - last, name, last ? "" : at + 6);
    int found = wf_variant_find(dev, WF_OP_ATTENTION, other);
    if (found < 0) fprintf(stderr, "recompute: %s has no synchronous variant\n", name), exit(1);
    return found;
}

/* Kernels for matrix units take queries in F16. */
static void check_problem(session *s, const problem *p, enum wf_tier tier)
{
    const wf_variant *v;
    s->act = tier == WF_TIER_MATRIX ? WF_F16 : WF_F32;
    make(s, p);
    for (int i = 0; (v = wf_variant_at(s->dev, WF_OP_ATTENTION, i)); i++)
        if ((v->flags & WF_ASYNC_SOFTMAX) && (v->tier == WF_TIER_MATRIX) == (tier == WF_TIER_MATRIX))
            check_variant(s, p, i, synchronous(s->dev, v->name));
    destroy(s);
}

int main(int argc, char **argv)
{
    static session s;
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = 2};
    if (argc != 2) return 2;
    char id[24];
    if (!device_named(argv[1], id, &p.no_kernel_cache)) return skip_program("no such device");
    check(wf_dev_open(id, &p, &s.dev));
    check(wf_queue_create(s.dev, &s.q));
    for (size_t i = 0; i < WF_LEN(problems); i++)
        check_problem(&s, &problems[i], WF_TIER_BASE), check_problem(&s, &problems[i], WF_TIER_MATRIX);
    wf_queue_destroy(s.q);
    wf_dev_close(s.dev);
    printf("%u runs, %u failed\n", s.runs, s.failed);
    return s.failed || !s.runs;
}
