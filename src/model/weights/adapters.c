/* adapters: see adapters.h. From top to bottom: how many places; the pass over the graph; an adapter's image. */
#include "model/weights/adapters.h"
#include "base/blake2b.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how many places --------------------------------------------------------------------------------------------- */

enum { MOST_PLACES = 1024, USUAL_RANK = 64, RANK_STEP = WF_LAYOUT_BAND };

weft_status wf_adapter_split(const char *text, char name[128], const char **path)
{
    const char *equals = text ? strchr(text, '=') : NULL;
    size_t n = equals ? (size_t)(equals - text) : 0;
    if (!n || n >= 128 || !equals[1])
        return wf_fail(WEFT_ERR_ARG, "adapter '%s': want NAME=PATH, a name of at most 127 bytes", text ? text : "");
    snprintf(name, 128, "%.*s", (int)n, text);
    *path = equals + 1;
    return WEFT_OK;
}

weft_status wf_adapters_open(wf_adapters *a, const struct weft_model *m, const struct weft_engine_params *p)
{
    char name[128];
    const char *path = NULL;
    uint64_t most = p->most_adapters ? p->most_adapters : p->n_adapters;
    if (!most) return WEFT_OK;
    if (p->n_adapters > most || most >= MOST_PLACES)
        return wf_fail(WEFT_ERR_ARG, "%zu adapters, at most %llu: want no more than that, and at most %d",
                       p->n_adapters, (unsigned long long)most, MOST_PLACES - 1);
    a->any = most > p->n_adapters;
    if (a->any) a->rank = p->adapter_rank ? p->adapter_rank : USUAL_RANK;
    if (!(a->given = wf_calloc(WF_MAX(p->n_adapters, 1), sizeof *a->given))) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < p->n_adapters; i++) {
        WF_TRY(wf_adapter_split(p->adapters[i], name, &path));
        WF_TRY(wf_adapter_open(path, m->arch, &a->given[a->n_given]));
        const wf_adapter *x = a->given[a->n_given++];
        a->rank = WF_MAX(a->rank, x->rank);
    }
    a->rank = WF_UP(a->rank, RANK_STEP);
    a->places = (uint32_t)most + 1;
    return WEFT_OK;
}

void wf_adapters_free(wf_adapters *a)
{
    for (size_t i = 0; i < a->n_given; i++) wf_adapter_close(a->given[i]);
    free(a->given);
    free(a->sites);
    *a = (wf_adapters){0};
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

typedef struct pass {
    wf_adapters *to;
    wf_graph *g;
    wf_weights *w;
    enum wf_dtype act;
    weft_status status;
} pass;

static int32_t pass_failed(pass *p)
{
    if (p->status == WEFT_OK) p->status = WEFT_ERR_NOMEM;
    return -1;
}

static void push_node(pass *p, const wf_node *n)
{
    if (p->status == WEFT_OK && wf_graph_node(p->g, n) < 0) pass_failed(p);
}

static int32_t add_value(pass *p, enum wf_dtype dtype, uint32_t cols)
{
    if (p->status != WEFT_OK) return -1;
    int32_t v = wf_graph_value(p->g, (wf_value){WF_VALUE_ACT, WF_ROWS_BATCH, dtype, cols, 0});
    return v < 0 ? pass_failed(p) : v;
}

/* of: a product, since layers may make products of different tensors, and plans have a line for a name. */
static wf_node blank_node(enum wf_op op, const char *of, const char *end, int32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", of, end);
    wf_node n = wf_graph_blank(WF_NODE_KERNEL, op, name, layer, WF_ROWS_BATCH);
    n.when = WF_WHEN_ADAPTED;
    return n;
}

/* A matrix of all places, which are zeros until an adapter comes. */
static int32_t add_matrix(pass *p, uint32_t rows, uint32_t cols, uint32_t *index)
{
    const wf_weight w = {.dtype = WF_F16, .rows = p->to->places * rows, .cols = cols, .experts = p->to->places,
                         .matrix = true, .zeros = true};
    if (p->status != WEFT_OK) return -1;
    *index = (uint32_t)p->w->n;
    int32_t v = wf_weights_add(p->w, p->g, &w);
    return v < 0 ? pass_failed(p) : v;
}

/* x's product with a matrix of the token's place, into y. */
static void add_grouped(pass *p, const char *of, const char *end, int32_t layer, wf_operand x, int32_t w, wf_operand y)
{
    wf_node n = blank_node(WF_OP_GROUPED_GEMM, of, end, layer);
    n.in[WF_GROUPED_GEMM_X] = x;
    n.in[WF_GROUPED_GEMM_W] = WF_ALL(w);
    n.in[WF_GROUPED_GEMM_IDS] = WF_ALL(p->g->inputs[WF_INPUT_ADAPTER]);
    n.out[WF_GROUPED_GEMM_Y] = y;
    push_node(p, &n);
}

static bool is_changed(const wf_adapters *a, const char *tensor)
{
    bool any = a->any;
    for (size_t i = 0; i < a->n_given && !any; i++) any = wf_adapter_find(a->given[i], tensor) != NULL;
    return any;
}

enum { LONGEST = 14 }; /* name of a product, so that nodes have theirs, and of a tensor in a layer: "ffn_gate_shexp" */

/* As "blk.0.attn_q.weight". */
static bool is_of_layer(const char *tensor)
{
    const char *begin = strncmp(tensor, "blk.", 4) ? NULL : strchr(tensor + 4, '.');
    size_t n = begin ? strlen(begin + 1) : 0, end = strlen(".weight");
    return n > end && n - end <= LONGEST && !strcmp(begin + 1 + n - end, ".weight");
}

/* The site of a part of a product's matrix; false: adapters leave it as it is, as those that score experts. */
static bool site_of(const pass *p, const wf_weight *w, uint32_t part, uint32_t first, wf_adapter_site *out)
{
    const wf_gguf_tensor *t = w->parts[part].t;
    *out = (wf_adapter_site){.rows = (uint32_t)t->dims[1], .cols = w->cols, .first = first, .part = part,
                             .pairs = w->pairs};
    if (t->name.len >= sizeof out->tensor) return false;
    snprintf(out->tensor, sizeof out->tensor, "%.*s", (int)t->name.len, t->name.data);
    return is_of_layer(out->tensor) && !strstr(out->tensor, ".ffn_gate_inp") && is_changed(p->to, out->tensor);
}

static const wf_weight *matrix_of(const pass *p, const wf_node *n)
{
    if (n->kind != WF_NODE_KERNEL || n->op != WF_OP_GEMM || n->layer < 0 || n->rows != WF_ROWS_BATCH) return NULL;
    const wf_value *v = &p->g->values[n->in[WF_GEMM_W].value];
    const wf_weight *w = v->kind == WF_VALUE_WEIGHT ? &p->w->list[v->id] : NULL;
    return w && w->n_parts && !w->experts && !w->turn ? w : NULL;
}

/* How many parts of a product's matrix have one. */
static uint32_t count_sites(const pass *p, const wf_node *node, const wf_weight *w)
{
    wf_adapter_site site;
    uint32_t n = 0;
    for (uint32_t i = 0; w && i < w->n_parts && strlen(node->name) <= LONGEST; i++) n += site_of(p, w, i, 0, &site);
    return n;
}

/* What is added to a product of x, by its n sites: B (A x), of which A is one matrix for all. */
static int32_t add_delta(pass *p, const wf_node *node, uint32_t weight, uint32_t n, int32_t x)
{
    wf_adapters *to = p->to;
    uint32_t rank = to->rank, cols = p->g->values[x].cols, a = 0, first = 0;
    int32_t matrix = add_matrix(p, n * rank, cols, &a), small = add_value(p, p->act, n * rank),
            delta = add_value(p, p->act, p->w->list[weight].rows);
    add_grouped(p, node->name, "lora_a", node->layer, WF_ALL(x), matrix, WF_ALL(small));
    for (uint32_t i = 0, at = 0; i < p->w->list[weight].n_parts && p->status == WEFT_OK; i++) {
        wf_adapter_site s;
        char end[20];
        bool any = site_of(p, &p->w->list[weight], i, first, &s); /* the list moves as it grows */
        first += s.rows;
        if (!any) continue;
        snprintf(end, sizeof end, "lora_b%u", i);
        matrix = add_matrix(p, s.rows, rank, &s.b);
        s.a = a, s.a_first = at++ * rank, s.a_rows = n * rank;
        add_grouped(p, node->name, end, node->layer, n > 1 ? (wf_operand){small, s.a_first, rank} : WF_ALL(small),
                    matrix, (wf_operand){delta, s.first, s.rows});
        if (wf_grow(&to->sites, to->n_sites, &to->cap_sites, sizeof s)) to->sites[to->n_sites++] = s;
        else pass_failed(p);
    }
    return delta;
}

static void add_sum(pass *p, const wf_node *node, const char *end, wf_operand x, wf_operand y)
{
    wf_node n = blank_node(WF_OP_WEIGHTED_SUM, node->name, end, node->layer);
    n.in[WF_WEIGHTED_SUM_X] = x;
    n.in[WF_WEIGHTED_SUM_RESIDUAL] = n.out[WF_WEIGHTED_SUM_Y] = y;
    push_node(p, &n);
}

/* y += delta: of the last n sites alone, or of all columns. */
static void add_sums(pass *p, const wf_node *node, int32_t delta, wf_operand y, uint32_t n, bool whole)
{
    if (whole) add_sum(p, node, "lora_y", WF_ALL(delta), y);
    for (size_t i = p->to->n_sites - n; !whole && i < p->to->n_sites && p->status == WEFT_OK; i++) {
        const wf_adapter_site *s = &p->to->sites[i];
        char end[20];
        snprintf(end, sizeof end, "lora_y%u", s->part);
        add_sum(p, node, end, (wf_operand){delta, s->first, s->rows},
                (wf_operand){y.value, y.col + s->first, s->rows});
    }
}

/* A product that adds nothing yet is two: steps without adapters run it as it is, so that it can be fused; with them
 * the other adds what changes all its columns. */
static void adapt_product(pass *p, const wf_node *n, uint32_t sites)
{
    uint32_t id = p->g->values[n->in[WF_GEMM_W].value].id;
    wf_operand y = n->out[WF_GEMM_Y];
    bool apart = n->in[WF_GEMM_RESIDUAL].value < 0 && p->g->values[y.value].dtype == p->act,
         whole = sites == p->w->list[id].n_parts, inside = apart && whole;
    wf_node plain = *n, with = blank_node(WF_OP_GEMM, n->name, "product", n->layer);
    if (apart) plain.when = WF_WHEN_PLAIN;
    push_node(p, &plain);
    int32_t delta = add_delta(p, n, id, sites, n->in[WF_GEMM_X].value);
    if (p->status != WEFT_OK) return;
    for (int i = 0; i < WF_N_GEMM_IN; i++) with.in[i] = n->in[i];
    with.out[WF_GEMM_Y] = y, with.p = n->p;
    if (inside) with.in[WF_GEMM_RESIDUAL] = WF_ALL(delta);
    if (apart) push_node(p, &with);
    if (!inside) add_sums(p, n, delta, y, sites, whole);
}

/* WEFT_ERR_UNSUPPORTED names what the adapter changes and weft cannot; of each site the shapes must fit. */
static weft_status check_parts(const wf_adapters *a, const wf_adapter *x)
{
    if (x->rank > a->rank)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: its rank is %u, and there is room for %u "
                       "(weft_engine_params.adapter_rank)", x->file->path, x->rank, a->rank);
    for (const wf_adapter_part *p = x->parts; p < x->parts + x->n_parts; p++) {
        size_t i = 0;
        while (i < a->n_sites && strcmp(a->sites[i].tensor, p->tensor)) i++;
        if (i == a->n_sites)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "%s changes '%s', which this model does not have, or which is no "
                           "matrix that adapters may change: those of layers, but of experts and their router",
                           x->file->path, p->tensor);
        const wf_adapter_site *s = &a->sites[i];
        if (p->a->dims[0] != s->cols || p->b->dims[1] != s->rows)
            return wf_fail(WEFT_ERR_FORMAT, "%s: A and B of '%s' are for a matrix [%llu, %llu], here it is [%u, %u]",
                           x->file->path, p->tensor, (unsigned long long)p->a->dims[0],
                           (unsigned long long)p->b->dims[1], s->cols, s->rows);
    }
    return WEFT_OK;
}

/* Every shard has matrices that are cut along their columns. */
static bool is_shard(const wf_weights *w)
{
    size_t i = 0;
    while (i < w->n && !w->list[i].part_cols) i++;
    return i < w->n;
}

weft_status wf_adapters_add(wf_adapters *a, enum wf_dtype act, wf_graph *g, wf_weights *w)
{
    if (!a->places) return WEFT_OK;
    if (is_shard(w))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "adapters change whole matrices, of which each of several devices has a "
                       "part: a model with adapters runs on one device");
    pass p = {.to = a, .g = g, .w = w, .act = act};
    wf_node *nodes = g->nodes;
    size_t n = g->n_nodes;
    g->nodes = NULL, g->n_nodes = g->cap_nodes = 0;
    g->adapted = true;
    a->n_sites = 0;
    for (size_t i = 0; i < n && p.status == WEFT_OK; i++) {
        uint32_t sites = count_sites(&p, &nodes[i], matrix_of(&p, &nodes[i]));
        if (sites) adapt_product(&p, &nodes[i], sites);
        else push_node(&p, &nodes[i]);
    }
    free(nodes);
    for (size_t i = 0; i < a->n_given && p.status == WEFT_OK; i++) p.status = check_parts(a, a->given[i]);
    return p.status;
}

/* ---- an adapter's image ------------------------------------------------------------------------------------------ */

struct wf_adapter_piece {
    uint32_t weight;
    uint8_t *data; /* as it lies on the device, at the adapter's place */
    uint64_t bytes;
};

typedef struct imager {
    const wf_adapters *a;
    const wf_adapter *x;
    const struct weft_model *m;
    wf_dev *dev;
    const wf_weights *w;
    wf_adapter_image *out;
    wf_blake2b hash;
    wf_pairs pairs; /* of q and k, from the order of the model's file to the adapter's; rows 0: they are alike */
    bool back;      /* the other way round */
    uint8_t *wide;  /* the A of a product, being filled by its sites */
} imager;

/* Rows of q and k stand in the adapter as in the files that it was made for: folders, or GGUF files. */
static weft_status find_order(imager *im)
{
    const wf_hparams *hp = &im->m->hp;
    bool theirs = false;
    WF_TRY(wf_arch_halves(im->m->arch, im->m->file, im->x->halves, &theirs));
    if (theirs != hp->neox) im->pairs = (wf_pairs){hp->head_dim, hp->n_rot, UINT64_MAX};
    im->back = hp->neox;
    return WEFT_OK;
}

/* The pieces take F16 in rows, and free it. */
static weft_status add_piece(imager *im, uint32_t weight, uint32_t rows, uint8_t *f16)
{
    const wf_weight *w = &im->w->list[weight];
    uint64_t bytes = wf_laid_out_bytes(im->dev, w, rows);
    uint8_t *data = f16;
    wf_adapter_image *out = im->out;
    if (!wf_grow(&out->pieces, out->n, &out->cap, sizeof *out->pieces)) return free(f16), WEFT_ERR_NOMEM;
    wf_blake2b_field(&im->hash, f16, (size_t)rows * w->cols * 2);
    if (w->view.layout) {
        data = wf_calloc(bytes, 1);
        if (data) im->dev->fns->weight_pack(im->dev, w->view.layout, w->dtype, rows, w->cols, f16, data);
        free(f16);
    }
    if (!data) return WEFT_ERR_NOMEM;
    out->pieces[out->n++] = (struct wf_adapter_piece){weight, data, bytes};
    return WEFT_OK;
}

/* Rows of `cols` numbers in F16, which begin with those of t's row from[r]; from NULL: r. */
static weft_status fill_matrix(imager *im, const wf_gguf_tensor *t, float factor, const uint64_t *from, uint32_t cols,
                               uint8_t *out)
{
    uint64_t rows = t->dims[1], n = t->dims[0];
    float *x = wf_calloc(rows * n, sizeof *x);
    if (!x) return WEFT_ERR_NOMEM;
    weft_status s = wf_adapter_decode(im->x, t, factor, x);
    for (uint64_t r = 0; r < rows && s == WEFT_OK; r++)
        wf_dtypes[WF_F16].encode(x + (from ? from[r] : r) * n, out + r * cols * 2, n);
    free(x);
    return s;
}

/* For each row of a site the adapter's row. */
static weft_status order_rows(const imager *im, const wf_adapter_site *s, uint64_t **out)
{
    uint64_t *from = *out = wf_calloc(2 * (size_t)s->rows, sizeof *from), *file = from + s->rows;
    wf_pairs pairs = im->pairs;
    if (!from) return WEFT_ERR_NOMEM;
    pairs.rows = wf_is_rotated((wf_str){s->tensor, strlen(s->tensor)}) ? pairs.rows : 0;
    for (uint64_t r = 0; r < s->rows; r++) {
        uint64_t other = wf_pairs_from(&pairs, r);
        if (im->back) file[other] = r;
        else file[r] = other;
    }
    for (uint64_t r = 0; r < s->rows; r++) from[r] = file[wf_pairs_from(&s->pairs, s->first + r) - s->first];
    return WEFT_OK;
}

/* Rows of the product's A; after the last ones it is a piece. */
static weft_status add_a(imager *im, const wf_adapter_site *s, const wf_adapter_part *p)
{
    if (!s->a_first && !(im->wide = wf_calloc((size_t)s->a_rows * s->cols, 2))) return WEFT_ERR_NOMEM;
    if (p) WF_TRY(fill_matrix(im, p->a, 1, NULL, s->cols, im->wide + (size_t)s->a_first * s->cols * 2));
    if (s->a_first + im->a->rank < s->a_rows) return WEFT_OK;
    uint8_t *wide = im->wide;
    im->wide = NULL;
    return add_piece(im, s->a, s->a_rows, wide);
}

static weft_status add_b(imager *im, const wf_adapter_site *s, const wf_adapter_part *p)
{
    uint64_t *order = NULL;
    uint8_t *b = wf_calloc((size_t)s->rows * im->a->rank, 2);
    weft_status st = b ? WEFT_OK : WEFT_ERR_NOMEM;
    if (st == WEFT_OK && p) st = order_rows(im, s, &order);
    if (st == WEFT_OK && p) st = fill_matrix(im, p->b, p->scale, order, im->a->rank, b);
    free(order);
    if (st != WEFT_OK) return free(b), st;
    return add_piece(im, s->b, s->rows, b);
}

weft_status wf_adapter_image_make(const wf_adapters *a, const wf_adapter *x, const struct weft_model *m, wf_dev *dev,
                                  const wf_weights *w, wf_adapter_image *out)
{
    imager im = {.a = a, .x = x, .m = m, .dev = dev, .w = w, .out = out};
    *out = (wf_adapter_image){0};
    wf_blake2b_begin(&im.hash, sizeof out->hash, NULL, 0);
    weft_status s = check_parts(a, x);
    if (s == WEFT_OK) s = find_order(&im);
    for (size_t i = 0; i < a->n_sites && s == WEFT_OK; i++) {
        const wf_adapter_site *site = &a->sites[i];
        const wf_adapter_part *p = wf_adapter_find(x, site->tensor);
        wf_blake2b_field(&im.hash, site->tensor, strlen(site->tensor));
        s = wf_stop_now();
        if (s == WEFT_OK) s = add_a(&im, site, p);
        if (s == WEFT_OK) s = add_b(&im, site, p);
    }
    free(im.wide);
    wf_blake2b_end(&im.hash, out->hash);
    if (s != WEFT_OK) wf_adapter_image_free(out);
    return s;
}

weft_status wf_adapter_image_write(const wf_adapter_image *image, wf_queue *q, const wf_weights *w, uint32_t place)
{
    for (const struct wf_adapter_piece *p = image->pieces; p < image->pieces + image->n; p++) {
        const wf_view *v = &w->list[p->weight].view;
        WF_TRY(wf_write(q, v->buf, v->offset + place * p->bytes, p->data, p->bytes, NULL, 0, NULL));
    }
    return wf_finish(q);
}

void wf_adapter_image_free(wf_adapter_image *image)
{
    for (size_t i = 0; i < image->n; i++) free(image->pieces[i].data);
    free(image->pieces);
    *image = (wf_adapter_image){0};
}
