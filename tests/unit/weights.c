/* weights: what lies in the device's memory is what the files hold, in the device's layout, wherever the pieces are
 * cut, in whatever formats the matrices of a stack are, and with the rows of heads in the order that the device wants;
 * each call of the device may fail in the middle of it. */
#include "support/null_device.h"
#include "engine/engine.h"
#include "model/arch/build.h"
#include "tensor/joint.h"
#include "support/suite.h"

enum { LAYOUT = 1, SMALL = 40, BIG_COLS = 4096, TURN = 700, SMALL_ROWS = 40, SMALL_COLS = 128 };

/* ---- a device with a layout of its own, whose copies happen as late as they may ---------------------------------- */

static struct {
    wf_buf *buf;
    uint64_t off, size;
    const void *src;
    wf_event *done;
} late[64];
static size_t n_late, most_late;
static wf_dev_fns fns;
static const wf_dev_fns *null_fns;

static weft_status write_late(wf_queue *q, wf_buf *b, uint64_t off, const void *src, uint64_t size,
                              wf_event *const *waits, uint32_t n, wf_event *done)
{
    assert_true(n_late < 64);
    late[n_late].buf = b, late[n_late].off = off, late[n_late].src = src, late[n_late].size = size,
    late[n_late].done = done;
    n_late++;
    if (n_late > most_late) most_late = n_late;
    return null_fns->write(q, b, off, src, 0, waits, n, done);
}

/* The copies up to the one that is waited for, or, for another event, all. */
static weft_status wait_late(wf_event *ev, uint32_t ms)
{
    size_t n = 0;
    while (n < n_late && late[n].done != ev) n++;
    n += n < n_late;
    for (size_t i = 0; i < n; i++) memcpy((char *)late[i].buf->host + late[i].off, late[i].src, late[i].size);
    memmove(late, late + n, (n_late - n) * sizeof *late);
    n_late -= n;
    return null_fns->wait(ev, ms);
}

static uint8_t layout_of(wf_dev *d, enum wf_dtype t, uint32_t rows, uint32_t cols)
{
    return LAYOUT;
}

/* The kernel that reads it. */
static size_t variants(wf_dev *d, enum wf_op op, const wf_variant **list)
{
    static const wf_variant only[] = {{.name = "backwards", .layouts = 1u << LAYOUT}};
    *list = only;
    return 1;
}

static uint64_t packed_bytes(wf_dev *d, uint8_t layout, enum wf_dtype t, uint32_t rows, uint32_t cols)
{
    return WF_UP(rows, WF_LAYOUT_BAND) * wf_dtype_bytes(t, cols);
}

/* Each band backwards, byte by byte. Rows must be aligned. */
static void pack(wf_dev *d, uint8_t layout, enum wf_dtype t, uint32_t rows, uint32_t cols, const void *src, void *dst)
{
    uint64_t row = wf_dtype_bytes(t, cols), n = rows * row, band = WF_LAYOUT_BAND * row;
    const uint8_t *from = src;
    uint8_t *to = dst;
    assert_int_equal((uintptr_t)src % 16, 0);
    memset(to, 0, WF_UP(n, band));
    for (uint64_t i = 0; i < n; i++) to[i / band * band + band - 1 - i % band] = from[i];
}

static wf_dev *open_device(void)
{
    wf_open_params p = {.tier = WF_TIER_MATRIX, .watchdog_ms = 100};
    wf_dev *dev;
    if (wf_dev_open("null", &p, &dev)) return NULL;
    null_fns = dev->fns;
    fns = *dev->fns;
    fns.variants = variants, fns.weight_layout = layout_of, fns.weight_bytes = packed_bytes, fns.weight_pack = pack;
    dev->fns = &fns;
    n_late = most_late = 0;
    return dev;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef struct model {
    wf_gguf file;
    wf_weights w;
    uint8_t *data;
    wf_gguf_tensor tensors[5 + SMALL];
    size_t n_tensors;
} model;

static const wf_gguf_tensor *tensor(model *m, uint64_t rows, uint64_t cols, uint64_t *at)
{
    wf_gguf_tensor *t = &m->tensors[m->n_tensors++];
    *t = (wf_gguf_tensor){.name = {"t", 1}, .n_dims = 2, .dims = {cols, rows, 1, 1}, .dtype = WF_F16,
                          .data = m->data + *at, .bytes = rows * cols * 2};
    *at += t->bytes + 2 * (m->n_tensors % 2); /* every other one lies as it comes */
    return t;
}

static void add(model *m, uint32_t rows, uint32_t cols, uint32_t n_parts, bool matrix)
{
    wf_weight w = {.parts = calloc(n_parts, sizeof *w.parts), .n_parts = n_parts, .dtype = WF_F16, .rows = rows,
                   .cols = cols, .matrix = matrix};
    assert_true(wf_grow(&m->w.list, m->w.n, &m->w.cap, sizeof w));
    m->w.list[m->w.n++] = w;
}

static wf_part part(model *m, uint64_t rows, uint64_t cols, uint64_t *at)
{
    return (wf_part){tensor(m, rows, cols, at), 0, rows};
}

/* big: also three stacked matrices of more than a piece, cut at no band, and two of which each of two experts has rows.
 */
static void make(model *m, bool big)
{
    uint64_t at = 0,
             bytes = (big ? (1617u + 4 * TURN) * BIG_COLS : 0) * 2 + 8 + SMALL * (SMALL_ROWS * SMALL_COLS * 2 + 4) + 16;
    memset(m, 0, sizeof *m);
    m->file.path = "t.gguf";
    m->data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) m->data[i] = (uint8_t)wf_random(5, i);
    if (big) {
        static const uint32_t rows[] = {1000, 600, 17};
        add(m, 1617, BIG_COLS, 3, true);
        for (int i = 0; i < 3; i++) m->w.list[0].parts[i] = part(m, rows[i], BIG_COLS, &at);
        add(m, 4 * TURN, BIG_COLS, 2, true);
        m->w.list[1].turn = m->w.list[1].step = TURN;
        for (int i = 0; i < 2; i++) m->w.list[1].parts[i] = part(m, 2 * TURN, BIG_COLS, &at);
    }
    for (int i = 0; i < SMALL; i++) {
        add(m, SMALL_ROWS, SMALL_COLS, 1, i % 2);
        m->w.list[m->w.n - 1].parts[0] = part(m, SMALL_ROWS, SMALL_COLS, &at);
    }
    float *made = calloc(8, sizeof *made);
    for (int i = 0; i < 8; i++) made[i] = (float)i;
    add(m, 1, 8, 0, false);
    m->w.list[m->w.n - 1].made = made, m->w.list[m->w.n - 1].dtype = WF_F32;
}

static void end(model *m)
{
    wf_weights_free(&m->w);
    free(m->data);
}

static void check_weight(wf_dev *dev, const wf_weight *w)
{
    uint64_t bytes = w->rows * wf_dtype_bytes(w->dtype, w->cols), at = 0;
    uint64_t want_bytes = w->view.layout ? packed_bytes(dev, LAYOUT, w->dtype, w->rows, w->cols) : bytes;
    uint8_t *rows = malloc(bytes), *want = malloc(want_bytes);
    for (uint32_t i = 0; i < w->n_parts && !w->turn; at += w->parts[i++].t->bytes)
        memcpy(rows + at, w->parts[i].t->data, w->parts[i].t->bytes);
    for (uint64_t i = 0, n = w->turn * wf_dtype_bytes(w->dtype, w->cols); w->turn && at < bytes; i++, at += n)
        memcpy(rows + at, w->parts[i % 2].t->data + i / 2 * n, n);
    for (int i = 0; !w->n_parts && i < 8; i++) ((float *)(void *)rows)[i] = (float)i;
    if (w->view.layout) pack(dev, LAYOUT, w->dtype, w->rows, w->cols, rows, want);
    else memcpy(want, rows, bytes);
    assert_int_equal(w->view.layout, w->matrix ? LAYOUT : 0);
    assert_memory_equal((const uint8_t *)w->view.buf->host + w->view.offset, want, want_bytes);
    free(rows);
    free(want);
}

static void upload(wf_weights *w, const wf_gguf *file, wf_dev *dev, weft_progress_fn on_progress, void *user)
{
    wf_queue *q;
    assert_ok(wf_queue_create(dev, &q));
    assert_ok(wf_weights_upload(w, file, dev, q, on_progress, user));
    wf_queue_destroy(q);
}

static void on_progress(void *user, const char *what, double fraction)
{
    double *last = user;
    assert_string_equal(what, "load");
    assert_true(fraction > *last && fraction <= 1);
    *last = fraction;
}

static void load_and_check(wf_dev *dev, bool big)
{
    model m;
    double last = 0;
    make(&m, big);
    upload(&m.w, &m.file, dev, on_progress, &last);
    assert_true(last == 1);
    for (size_t i = 0; i < m.w.n; i++) check_weight(dev, &m.w.list[i]);
    end(&m);
}

static void all_is_where_it_belongs(void **state)
{
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    fns.write = write_late, fns.wait = wait_late;
    load_and_check(dev, true);
    assert_int_equal(n_late, 0);
    assert_true(most_late > 1); /* copies are in flight together */
    wf_dev_close(dev);
}

/* ---- matrices of different formats in one ------------------------------------------------------------------------ */

static const wf_linear qkv[] = {{"q", "attn_q", 48, 48}, {"k", "attn_k", 16, 16}, {"v", "attn_v", 17}};
enum { MIXED_COLS = 1 << 16, MIXED_ROWS = 48 + 16 + 17 }; /* so wide that v is a piece of its own */

typedef struct mixed {
    wf_gguf *file;
    wf_gguf_tensor *tensors; /* of the file: three matrices, then the vector, and the biases of q and v */
    uint8_t *data, used[6];
    float vector[48]; /* 0, 1, 2, ... */
    char names[6][32];
    wf_graph graph;
    wf_weights weights;
    wf_builder b;
} mixed;

static void add_vector(mixed *m, int i, const char *name, uint32_t n)
{
    snprintf(m->names[i], sizeof m->names[i], "blk.0.%s", name);
    m->tensors[i] = (wf_gguf_tensor){.name = {m->names[i], strlen(m->names[i])}, .n_dims = 1, .dims = {n, 1, 1, 1},
                                     .ggml_type = wf_dtypes[WF_F32].ggml, .dtype = WF_F32,
                                     .data = (const uint8_t *)m->vector, .bytes = n * sizeof *m->vector};
}

static void mix(mixed *m, const enum wf_dtype dtypes[3], enum wf_stacking stacking)
{
    uint64_t at = 0;
    memset(m, 0, sizeof *m);
    assert_ok(wf_gguf_new("t.gguf", &m->file));
    m->file->tensors = m->tensors = calloc(6, sizeof *m->tensors);
    m->file->n_tensors = 6;
    for (int i = 0; i < 48; i++) m->vector[i] = (float)i;
    add_vector(m, 3, "attn_q_norm.weight", 48);
    add_vector(m, 4, "attn_q.bias", 48);
    add_vector(m, 5, "attn_v.bias", 17);
    m->data = calloc(MIXED_ROWS, MIXED_COLS * 2);
    for (uint64_t i = 0; i < MIXED_ROWS * MIXED_COLS / 4; i++) ((uint64_t *)(void *)m->data)[i] = wf_random(8, i);
    for (int i = 0; i < 3; i++) {
        uint64_t n = (uint64_t)qkv[i].rows * MIXED_COLS, bytes = wf_dtype_bytes(dtypes[i], n);
        snprintf(m->names[i], sizeof m->names[i], "blk.0.%s.weight", qkv[i].tensor);
        m->tensors[i] = (wf_gguf_tensor){.name = {m->names[i], strlen(m->names[i])}, .n_dims = 2,
                                         .dims = {MIXED_COLS, qkv[i].rows, 1, 1},
                                         .ggml_type = wf_dtypes[dtypes[i]].ggml, .dtype = dtypes[i],
                                         .data = m->data + at, .bytes = bytes};
        at += bytes;
    }
    assert_ok(wf_gguf_index(m->file));
    m->b = (wf_builder){
        .file = m->file, .graph = &m->graph, .weights = &m->weights, .stack_weights = stacking, .used = m->used};
}

static void unmix(mixed *m)
{
    wf_weights_free(&m->weights);
    wf_graph_free(&m->graph);
    wf_gguf_close(m->file);
    free(m->data);
}

/* The first `many` of them, as that format. */
static void assert_can_stack(const enum wf_dtype dtypes[3], enum wf_stacking stacking, uint32_t many, enum wf_dtype as)
{
    mixed m;
    mix(&m, dtypes, stacking);
    assert_int_equal(wf_build_can_stack(&m.b, qkv, 3), many);
    assert_int_equal(wf_build_stacked_matrix(&m.b, qkv, 3, MIXED_COLS) >= 0, many == 3);
    if (many < 3) {
        assert_int_equal(m.b.status, WEFT_ERR_UNSUPPORTED);
        m.b.status = WEFT_OK;
        assert_true(wf_build_stacked_matrix(&m.b, qkv, many, MIXED_COLS) >= 0);
    }
    assert_int_equal(m.weights.list[m.weights.n - 1].dtype, as);
    unmix(&m);
}

static void formats_stack_where_one_holds_them(void **state)
{
    static const enum wf_dtype q4_k_m[] = {WF_Q4_K, WF_Q4_K, WF_Q6_K}, q5_k_m[] = {WF_Q5_K, WF_Q5_K, WF_Q6_K},
                               experts[] = {WF_Q4_K, WF_Q8_0, WF_Q8_0}, wide[] = {WF_Q4_K, WF_Q6_K, WF_Q8_0},
                               late[] = {WF_Q4_K, WF_Q8_0, WF_Q6_K}, alike[] = {WF_Q8_0, WF_Q8_0, WF_Q8_0};
    assert_can_stack(q4_k_m, WF_STACK_MIXED, 3, WF_K6);
    assert_can_stack(q5_k_m, WF_STACK_MIXED, 3, WF_K6);
    assert_can_stack(experts, WF_STACK_MIXED, 3, WF_K8);
    assert_can_stack(wide, WF_STACK_MIXED, 2, WF_K6);
    assert_can_stack(late, WF_STACK_MIXED, 2, WF_K8);
    assert_can_stack(alike, WF_STACK_MIXED, 3, WF_Q8_0);
    assert_can_stack(q4_k_m, WF_STACK_ALIKE, 2, WF_Q4_K);
    assert_can_stack(alike, WF_STACK_ALIKE, 3, WF_Q8_0);
}

/* Not where one matrix would be so much larger than several that reading it takes longer than the launches that it
 * saves. */
static void wide_stacks_stay_apart(void **state)
{
    static const enum wf_dtype experts[] = {WF_Q4_K, WF_Q8_0, WF_Q8_0};
    mixed m;
    mix(&m, experts, WF_STACK_MIXED);
    uint64_t bytes = m.tensors[0].bytes, rows = m.tensors[0].dims[1];
    m.tensors[0].dims[1] = (48u << 20) / MIXED_COLS,
    m.tensors[0].bytes = wf_dtype_bytes(WF_Q4_K, 48u << 20); /* 27 MB wider */
    assert_int_equal(wf_build_can_stack(&m.b, qkv, 3), 3);
    m.tensors[0].dims[1] = (96u << 20) / MIXED_COLS,
    m.tensors[0].bytes = wf_dtype_bytes(WF_Q4_K, 96u << 20); /* 54 MB */
    assert_int_equal(wf_build_can_stack(&m.b, qkv, 3), 1);
    m.tensors[0].bytes = bytes, m.tensors[0].dims[1] = rows;
    unmix(&m);
}

/* What the device has of a stack is what each of its formats says, with scales in F16. */
static void assert_become(const enum wf_dtype dtypes[3], enum wf_dtype joint)
{
    mixed m;
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    mix(&m, dtypes, WF_STACK_MIXED);
    assert_true(wf_build_stacked_matrix(&m.b, qkv, 3, MIXED_COLS) >= 0);
    assert_int_equal(wf_weights_bytes(&m.weights), wf_dtype_bytes(joint, MIXED_ROWS * MIXED_COLS));
    m.weights.list[0].matrix = false; /* rows, as they come */
    upload(&m.weights, m.file, dev, NULL, NULL);
    const wf_view *v = &m.weights.list[0].view;
    uint64_t at = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t n = (uint64_t)qkv[i].rows * MIXED_COLS, bytes = wf_dtype_bytes(joint, n);
        uint8_t *want = malloc(bytes);
        wf_joint_from(dtypes[i], m.tensors[i].data, joint, want, n);
        assert_memory_equal((const uint8_t *)v->buf->host + v->offset + at, want, bytes);
        at += bytes;
        free(want);
    }
    unmix(&m);
    wf_dev_close(dev);
}

static void mixed_formats_become_one(void **state)
{
    assert_become((const enum wf_dtype[]){WF_Q4_K, WF_Q5_0, WF_Q6_K}, WF_K6);
    assert_become((const enum wf_dtype[]){WF_Q4_K, WF_Q8_0, WF_Q8_0}, WF_K8);
}

/* ---- heads whose pairs become neighbours ------------------------------------------------------------------------- */

enum { HEAD = 8, ROTATED = 6 };
static const uint32_t in_head[HEAD] = {0, 3, 1, 4, 2, 5, 6, 7}; /* three pairs, and two elements that do not turn */

static uint32_t from_row(uint32_t r, uint32_t rotated)
{
    return r < rotated ? r / HEAD * HEAD + in_head[r % HEAD] : r;
}

static void mix_heads(mixed *m, const enum wf_dtype dtypes[3])
{
    static const wf_hparams hp = {.head_dim = HEAD, .n_rot = ROTATED, .neox = true};
    mix(m, dtypes, WF_STACK_MIXED);
    m->b.hp = &hp, m->b.interleave = true;
}

/* Row r of what is stacked, in the joint format. */
static void row_of(const mixed *m, const wf_linear *l, uint32_t r, enum wf_dtype joint, uint8_t *out)
{
    size_t i = 0;
    while (r >= l[i].rows) r -= l[i++].rows;
    const wf_gguf_tensor *t = wf_build_find(&m->b, l[i].tensor, "weight");
    const uint8_t *from = t->data + r * wf_dtype_bytes((enum wf_dtype)t->dtype, MIXED_COLS);
    if ((enum wf_dtype)t->dtype == joint) memcpy(out, from, wf_dtype_bytes(joint, MIXED_COLS));
    else wf_joint_from((enum wf_dtype)t->dtype, from, joint, out, MIXED_COLS);
}

/* The rows that the device has of n matrices, of which the first so many are of heads that turn. */
static void assert_rows(const enum wf_dtype dtypes[3], const wf_linear *l, uint32_t n, uint32_t rotated,
                        enum wf_dtype joint)
{
    mixed m;
    uint64_t each = wf_dtype_bytes(joint, MIXED_COLS);
    uint8_t *want = malloc(each);
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    mix_heads(&m, dtypes);
    assert_true(wf_build_stacked_matrix(&m.b, l, n, MIXED_COLS) >= 0);
    m.weights.list[0].matrix = false; /* rows, as they come */
    upload(&m.weights, m.file, dev, NULL, NULL);
    const wf_view *v = &m.weights.list[0].view;
    for (uint32_t r = 0; r < v->rows; r++) {
        row_of(&m, l, from_row(r, rotated), joint, want);
        if (memcmp((const uint8_t *)v->buf->host + v->offset + r * each, want, each))
            fail_msg("row %u of %u matrices", r, n);
    }
    unmix(&m);
    wf_dev_close(dev);
    free(want);
}

static void pairs_become_neighbours(void **state)
{
    static const enum wf_dtype alike[] = {WF_Q8_0, WF_Q8_0, WF_Q8_0}, wider[] = {WF_Q4_K, WF_Q8_0, WF_Q8_0};
    const wf_linear in_one = {"qkv", "attn_q", 48, 32};
    assert_rows(alike, qkv, 3, 48 + 16, WF_Q8_0);
    assert_rows(wider, qkv, 3, 48 + 16, WF_K8);
    assert_rows(alike, qkv, 1, 48, WF_Q8_0);
    assert_rows(alike, qkv + 1, 2, 16, WF_Q8_0);
    assert_rows(alike, &in_one, 1, 32, WF_Q8_0);
}

static const float *made(const mixed *m, int32_t value)
{
    assert_ok(m->b.status);
    assert_true(value >= 0);
    return m->weights.list[m->graph.values[value].id].made;
}

static void vectors_follow_their_rows(void **state)
{
    static const enum wf_dtype alike[] = {WF_Q8_0, WF_Q8_0, WF_Q8_0};
    mixed m;
    mix_heads(&m, alike);
    const float *bias = made(&m, wf_build_stacked_bias(&m.b, qkv, 3, MIXED_ROWS));
    const float *norm = made(&m, wf_build_rotated_vector(&m.b, "attn_q_norm", 48)),
                *other = made(&m, wf_build_vector(&m.b, "attn_q_norm", 48));
    for (uint32_t i = 0; i < MIXED_ROWS; i++)
        assert_true(bias[i] == (i < 48 ? (float)from_row(i, 48) : i < 48 + 16 ? 0 : (float)(i - 48 - 16)));
    for (uint32_t i = 0; i < 48; i++) assert_true(norm[i] == (float)from_row(i, 48) && other[i] == (float)i);
    unmix(&m);
}

/* As rows lie in the file, they cannot be used where the pairs are to be neighbours. */
static const void *refused;

static weft_status wrap(wf_dev *dev, const void *host, uint64_t size, uint64_t together, wf_buf **out)
{
    assert_true(together >= size);
    if (host == refused) return WEFT_ERR_UNSUPPORTED;
    WF_TRY(wf_buf_create(dev, size, out));
    memcpy((*out)->host, host, size);
    return WEFT_OK;
}

/* A small model, and a device that uses files in place. */
static wf_dev *make_wrapped(model *m)
{
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    fns.buf_wrap = wrap;
    make(m, false);
    dev->align = 2;
    return dev;
}

static void reordered_rows_are_not_used_in_the_file(void **state)
{
    model m;
    wf_dev *dev = make_wrapped(&m);
    wf_map map = {m.data, SMALL * (SMALL_ROWS * SMALL_COLS * 2 + 4), -1};
    m.file.maps = &map, m.file.n_maps = 1;
    m.w.list[1].pairs = (wf_pairs){HEAD, ROTATED, SMALL_ROWS};
    upload(&m.w, &m.file, dev, NULL, NULL);
    for (size_t i = 0; i < SMALL; i++) assert_int_equal(m.w.list[i].view.buf == m.w.files[0], i != 1);
    end(&m);
    wf_dev_close(dev);
}

/* A device may use one file in place and not the next: what memory is left changes meanwhile. */
static void some_files_are_used_in_place(void **state)
{
    enum { FIRST = SMALL / 2 };
    for (int without = 0; without < 2; without++) {
        model m;
        wf_dev *dev = make_wrapped(&m);
        const uint8_t *second = m.w.list[FIRST].parts[0].t->data, *last = m.w.list[SMALL - 1].parts[0].t->data;
        wf_map maps[] = {{m.data, (size_t)(second - m.data), -1},
                         {second, (size_t)(last - second) + m.w.list[SMALL - 1].parts[0].t->bytes, -1}};
        m.file.maps = maps, m.file.n_maps = 2, refused = maps[without].data;
        upload(&m.w, &m.file, dev, NULL, NULL);
        for (size_t i = 0; i < SMALL; i++) {
            const wf_view *v = &m.w.list[i].view;
            bool copied = (i >= FIRST) == without;
            assert_true(copied ? v->buf != m.w.files[!without] : v->buf == m.w.files[!without]);
            for (size_t k = 0; k < i; k++)
                assert_true(v->buf != m.w.list[k].view.buf || v->offset != m.w.list[k].view.offset);
        }
        refused = NULL;
        end(&m);
        wf_dev_close(dev);
    }
}

/* Where memory is short a layout that takes more bytes than the file is not used. */
static void rows_where_memory_is_short(void **state)
{
    model m;
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    make(&m, false);
    uint64_t file = wf_weights_bytes(&m.w), laid = wf_weights_bytes_on(&m.w, dev);
    assert_int_equal(wf_weights_bytes_on(&m.w, NULL), file);
    assert_true(laid > file);
    dev->info.memory = laid * 2, dev->info.available = 0;
    wf_layout_save_memory(dev, &m.w);
    assert_false(dev->saves_memory);
    dev->info.memory = laid;
    wf_layout_save_memory(dev, &m.w);
    assert_true(dev->saves_memory);
    assert_int_equal(wf_weights_bytes_on(&m.w, dev), file);
    end(&m);
    wf_dev_close(dev);
}

static wf_weights weights_of(const struct weft_model *m, bool adjacent_pairs, wf_graph *g)
{
    wf_weights w = {0};
    assert_ok(wf_model_build(m->arch, m->file, &m->hp,
                             &(wf_build_params){WF_F16, WF_F32, WF_F16, WF_STACK_ALIKE, adjacent_pairs, 16, 16}, g,
                             &w));
    assert_ok(wf_graph_fuse(g, NULL));
    return w;
}

/* The op and its weights go together. */
static void devices_say_what_they_want(void **state)
{
    struct weft_model *m;
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = "llama-1.1b", .layers = 2}, &m));
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        wf_graph g = {0};
        wf_weights w = weights_of(m, adjacent, &g);
        uint32_t n = 0;
        for (const wf_node *node = g.nodes; node < g.nodes + g.n_nodes; node++) {
            if (node->op != WF_OP_GEMM || !node->p.rope) continue;
            const wf_pairs *p = &w.list[g.values[node->in[WF_GEMM_W].value].id].pairs;
            assert_int_equal(node->p.neox, !adjacent);
            assert_int_equal(p->rows, adjacent ? (m->hp.n_head + m->hp.n_kv_head) * m->hp.head_dim : 0);
            n++;
        }
        assert_int_equal(n, 2);
        wf_graph_free(&g);
        wf_weights_free(&w);
    }
    weft_model_close(m);
}

static void host_memory_is_filled_in_place(void **state)
{
    wf_null_configure(NULL);
    wf_dev *dev = open_device();
    fns.host_create = NULL;
    load_and_check(dev, true);
    assert_int_equal(wf_null_calls(WF_NULL_WRITE), 0);
    wf_dev_close(dev);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static weft_status attempt(const wf_null_config *config, bool *lost)
{
    model m;
    wf_queue *q = NULL;
    make(&m, false);
    wf_null_configure(config);
    wf_dev *dev = open_device();
    assert_non_null(dev);
    weft_status s = wf_queue_create(dev, &q);
    if (!s) s = wf_weights_upload(&m.w, &m.file, dev, q, NULL, NULL);
    *lost = dev->lost;
    wf_queue_destroy(q);
    end(&m);
    wf_dev_close(dev);
    assert_int_equal(wf_null_alive(), 0);
    return s;
}

static uint64_t calls_of(enum wf_null_slot slot)
{
    bool lost;
    assert_ok(attempt(NULL, &lost));
    return wf_null_calls(slot);
}

static void every_call_may_fail(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_BUF_CREATE, WF_NULL_QUEUE_CREATE, WF_NULL_EVENT_CREATE,
                                              WF_NULL_WRITE,      WF_NULL_MARK,         WF_NULL_FLUSH,
                                              WF_NULL_WAIT};
    static const weft_status kinds[] = {WEFT_ERR_DEVICE, WEFT_ERR_NOMEM};
    for (size_t s = 0; s < WF_LEN(slots); s++) {
        uint64_t n = calls_of(slots[s]);
        assert_true(n > 0);
        for (uint32_t i = 1; i <= n; i++)
            for (size_t k = 0; k < WF_LEN(kinds); k++) {
                bool lost, pinned = slots[s] == WF_NULL_BUF_CREATE && i == n &&
                                    kinds[k] == WEFT_ERR_NOMEM; /* plain memory serves as well */
                wf_null_config config = {.slot = slots[s], .nth = i, .status = kinds[k]};
                assert_int_equal(attempt(&config, &lost), pinned ? WEFT_OK : kinds[k]);
                assert_int_equal(lost, kinds[k] == WEFT_ERR_DEVICE);
                if (!pinned) assert_says("injected failure");
            }
    }
    wf_null_configure(NULL);
}

static void copies_that_never_end(void **state)
{
    for (uint64_t i = 1, n = calls_of(WF_NULL_WRITE); i <= n; i++) {
        bool lost;
        assert_int_equal(attempt(&(wf_null_config){.slot = WF_NULL_WRITE, .nth = (uint32_t)i}, &lost),
                         WEFT_ERR_TIMEOUT);
        assert_true(lost);
    }
    wf_null_configure(NULL);
}

SUITE(weights, NULL, NULL, CASE(all_is_where_it_belongs), CASE(formats_stack_where_one_holds_them),
      CASE(wide_stacks_stay_apart), CASE(mixed_formats_become_one), CASE(pairs_become_neighbours),
      CASE(vectors_follow_their_rows), CASE(reordered_rows_are_not_used_in_the_file),
      CASE(some_files_are_used_in_place), CASE(rows_where_memory_is_short), CASE(devices_say_what_they_want),
      CASE(host_memory_is_filled_in_place), CASE(every_call_may_fail), CASE(copies_that_never_end))
