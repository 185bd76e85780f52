/* gemm: Y = X W^T + bias + residual. */
#include "cl/ops/gemm.h"
#include "cl/kernels/local_bytes.clh"

#include <math.h>
#include <string.h>

/* Can the variant's kernels do what the call wants besides the product? */
static bool can_fuse(const cl_variant *v, const wf_call *c)
{
    if (c->p.silu && c->p.activation != WF_SILU) return false;
    if (!wf_is_fused(c) || !strcmp(v->family, "gemm_flat") || !strcmp(v->family, "gemv")) return true;
    if (c->in[WF_GEMM_NORM].buf) return false;
    return !strcmp(v->family, "gemm_wgmma") || (!strcmp(v->family, "gemm_frag") && !c->p.rope);
}

/* Columns of the product, or with SiLU pairs of them. */
static uint32_t columns_of(const wf_call *c)
{
    return c->p.rope ? c->in[WF_GEMM_W].rows : c->out[WF_GEMM_Y].cols;
}

/* The arguments that every gemm kernel takes, in this order. */
bool wf_cl_gemm_arguments(const cl_variant *v, const wf_call *c, cl_launch *l)
{
    const wf_view *x = &c->in[WF_GEMM_X], *w = &c->in[WF_GEMM_W], *res = &c->in[WF_GEMM_RESIDUAL],
                  *y = &c->out[WF_GEMM_Y];
    bool reads = w->layout == v->layout || (w->layout == WF_CL_PLANES && v->layout == WF_CL_ROWS);
    if (!reads || !can_fuse(v, c) || !wf_cl_weight_format(l, w)) return false;
    wf_cl_act(l, x);
    for (int i = 0; i < 4; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, columns_of(c));
    wf_cl_arg_u32(l, x->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u64(l, wf_cl_row_bytes(w));
    wf_cl_arg_u32(l, res->stride);
    wf_cl_arg_u32(l, y->stride);
    return true;
}

bool wf_cl_fused_arguments(const cl_variant *v, const wf_call *c, cl_launch *l)
{
    bool fits = wf_cl_gemm_arguments(v, c, l);
    wf_cl_arg_view(l, &c->in[WF_GEMM_NORM]);
    wf_cl_arg_f32(l, c->p.eps);
    if (c->p.rope) wf_cl_arg_rope(l, &c->in[WF_GEMM_TABLE], &c->out[WF_GEMM_K_POOL], &c->p);
    return fits;
}

bool wf_cl_pair_knobs(const wf_call *c, cl_launch *l)
{
    wf_cl_knob(l, "ROPE", 1);
    wf_cl_knob(l, "HEAD", (int32_t)c->p.head_dim);
    wf_cl_knob(l, "N_ROT", (int32_t)c->p.n_rot);
    return !c->p.neox && c->p.head_dim % 2 == 0;
}

/* How W lies (kernels/fragments.clh). False where it is of no format that can lie so. */
bool wf_cl_fragment_knobs(const wf_call *c, cl_launch *l)
{
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    if (!f) return false;
    wf_cl_number_knobs(l, f);
    return true;
}

bool wf_cl_configure_gemm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_knob(l, "FRAG", v->layout == WF_CL_FRAGMENT_MAJOR);
    if (v->layout == WF_CL_FRAGMENT_MAJOR && !wf_cl_fragment_knobs(c, l)) return false;
    wf_cl_items(l, (uint64_t)c->out[WF_GEMM_Y].rows * c->out[WF_GEMM_Y].cols);
    return wf_cl_gemm_arguments(v, c, l);
}

static bool reads_vectors(const wf_call *c)
{
    return wf_cl_vec8_ok(&c->in[WF_GEMM_X]) && wf_cl_vec8_ok(&c->in[WF_GEMM_W]);
}

/* How many rows of X a kernel of gemv is for: few programs. Odd shapes are slow anyway: one for all; and so are
 * processors, which compile for long. */
static uint32_t gemv_rows(const cl_caps *caps, const wf_call *c, bool eights)
{
    uint32_t rows = eights ? 1 : 8;
    while (rows < c->out[WF_GEMM_Y].rows) rows *= caps->gpu ? 2 : 8;
    return rows;
}

/* Of planes a work-item takes four times as much of K in a step. */
static uint32_t gemv_lanes(const cl_variant *v, const wf_call *c)
{
    return (uint32_t)v->tile[c->in[WF_GEMM_W].layout == WF_CL_PLANES];
}

/* Outputs do not depend on MR, only speed does. */
static bool gemv_knobs(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t rows, uint32_t group,
                       cl_launch *l)
{
    uint32_t lanes = gemv_lanes(v, c), n = columns_of(c), pairs = c->p.silu ? n : (n + 1) / 2;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "MR", (int32_t)rows);
    wf_cl_knob(l, "LANES", (int32_t)lanes);
    wf_cl_knob(l, "NORM", c->in[WF_GEMM_NORM].rows != 0);
    wf_cl_knob(l, "SILU", c->p.silu != 0);
    l->groups = (pairs + group / lanes - 1) / (group / lanes);
    return (!c->p.rope || wf_cl_pair_knobs(c, l)) && wf_cl_fused_arguments(v, c, l);
}

/* Of planes, whose step is 32 elements, one step at a time: more work-groups hide latency better than more loads of
 * each (H200, one row, 28,672 x 4,096, us with one step and two: Q4_0 32 and 52, Q8_0 38 and 73, Q4_K 36 and 50).
 * Without a norm in front: each pair of rows of W would read it again (H200, Llama-3-8B in F16, one row, us with it and
 * without: QKV 24 and 16, gate and up 69 and 57; a launch for the norm takes 5), and for planes neighbours would read it
 * 128 bytes apart. */
bool wf_cl_configure_gemv(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    bool eights = reads_vectors(c), planes = c->in[WF_GEMM_W].layout == WF_CL_PLANES;
    uint32_t rows = gemv_rows(caps, c, eights), group = wf_cl_group(caps, 128, limit);
    if (rows > 8 || group < gemv_lanes(v, c) || c->in[WF_GEMM_NORM].rows) return false;
    /* products of bytes and a launch more are faster */
    if (planes && rows > 2 && wf_is_fused(c) && caps->dot != WF_CL_DOT_PLAIN) return false;
    wf_cl_knob(l, "VEC", eights);
    wf_cl_knob(l, "UNROLL", planes ? 1 : rows > 1 ? 2 : 4);
    return gemv_knobs(caps, v, c, rows, group, l);
}

/* The same with X in fixed point, for weights in planes: as many work-groups as run at once, since each puts X into its
 * local memory; a long row serves more work-items. */
bool wf_cl_configure_gemv_int16(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                cl_launch *l)
{
    enum { LONG_K = 8192, ROOM = 2048, ITEMS_OF_UNIT = 1024 };
    const wf_view *x = &c->in[WF_GEMM_X], *w = &c->in[WF_GEMM_W];
    const uint32_t rows = gemv_rows(caps, c, true), room = (uint32_t)WF_UP(w->cols, ROOM), /* few programs */
        items = rows > 2 ? 128 : w->cols > LONG_K ? 512 : 256, group = wf_cl_group(caps, items, limit);
    if (w->layout != WF_CL_PLANES || rows > 8 || group < gemv_lanes(v, c)) return false;
    if (!wf_cl_vec4_ok(x) || !wf_cl_vec4_ok(&c->in[WF_GEMM_NORM]) ||
        GEMV_INT16_BYTES((uint64_t)rows, room, wf_numbers_of(w->dtype)->group, group) > caps->local_bytes)
        return false;
    wf_cl_knob(l, "INT16", 1);
    wf_cl_knob(l, "XK", (int32_t)room);
    if (!caps->gpu) wf_cl_knob(l, "FLAT", 1);
    wf_cl_knob(l, "DOT", (int32_t)caps->dot);
    l->c3 = caps->dot == WF_CL_DOT_KHRONOS;
    wf_cl_knob(l, "UNROLL", rows > 1 ? 1 : 2);
    bool fits = gemv_knobs(caps, v, c, rows, group, l);
    l->groups = WF_MIN(l->groups, (uint64_t)caps->units * (ITEMS_OF_UNIT / group));
    return fits;
}

bool wf_cl_tile_registers(const cl_variant *v)
{
    return v->tile[2] * v->tile[3] > 64;
}

/* Of flat products; FlashDecoding++Next's figure 7 has the same turn between tiles of 32 and 64. */
enum { FLAT_NARROW = 8192 };

/* The tile of a work-group: bm x bn outputs and bk of K, which `parts` teams share. */
typedef struct tile_shape {
    uint32_t bm, bn, bk, parts;
} tile_shape;

/* Flat products are short of work-groups where W has few rows: there a tile has half of them, and its K twice as many
 * parts. From the shape of W alone, so that a row of X has the same bits beside any others. */
static tile_shape shape_of(const cl_variant *v, const wf_view *w)
{
    enum { BK = 16, PART_K = 4 };
    uint32_t bm = (uint32_t)v->tile[0], bn = (uint32_t)v->tile[1], parts = (uint32_t)v->tile[4];
    if (v->tile[4] <= 0) return (tile_shape){bm, bn, BK, 1};
    if (w->rows < FLAT_NARROW) bn /= 2, parts *= 2;
    return (tile_shape){bm, bn, parts * PART_K, parts};
}

static void tile_knobs(const cl_caps *caps, const cl_variant *v, const tile_shape *s, cl_launch *l)
{
    enum { BASE_LOCAL = 16 << 10 };
    wf_cl_knob(l, "BM", (int32_t)s->bm);
    wf_cl_knob(l, "BN", (int32_t)s->bn);
    wf_cl_knob(l, "BK", (int32_t)s->bk);
    wf_cl_knob(l, "TM", v->tile[2]);
    wf_cl_knob(l, "TN", v->tile[3]);
    wf_cl_knob(l, "PARTS", (int32_t)s->parts);
    /* on an H200 two are slower where they are large */
    wf_cl_knob(l, "BUFS", 2 * TILE_BUFFER_BYTES(s->bm, s->bn, s->bk) <= BASE_LOCAL ? 2 : 1);
    wf_cl_knob(l, "UNROLL", caps->gpu ? (int32_t)s->bk : 4); /* CPUs gain nothing, and compile for long */
    /* as little: PoCL spent most of its time there, and tiles of 8 rows ran half as fast or slower */
    wf_cl_knob(l, "UNROLL_END", caps->gpu ? v->tile[2] : 1);
}

/* Work-groups that share the K of tiles, -v->tile[4] on a unit, at most one for a step of K, and behind them those that
 * add their sums (kernels/shares.clh), which lie `at` bytes in scratch memory. The last arguments. */
static bool share_tiles(const cl_caps *caps, const cl_variant *v, const wf_call *c, const tile_shape *s, uint64_t at,
                        cl_launch *l)
{
    enum { SHARE_PARTS = 4, MANY_ROWS = 128, FEW = 16 }; /* parts of a tile, at the end */
    uint64_t m_tiles = (c->out[WF_GEMM_Y].rows + s->bm - 1) / s->bm,
             n_tiles = (c->out[WF_GEMM_Y].cols + s->bn - 1) / s->bn,
             steps = n_tiles * ((c->in[WF_GEMM_X].cols + s->bk - 1) / s->bk),
             among = s->bm < MANY_ROWS ? 1 : WF_MAX(m_tiles, 1), /* rows of tiles that share what runs at once */
             n = WF_MAX(WF_MIN((uint64_t)caps->units * (uint32_t)-v->tile[4] / among, steps), 1),
             bytes;
    if (n > n_tiles && n % n_tiles * FEW <= n) n -= n % n_tiles; /* fewer then have sums of two tiles */
    bytes = at + m_tiles * n * 2 * s->bm * s->bn * sizeof(float);
    l->groups = m_tiles * n;
    l->after = true;
    l->after_groups = m_tiles * (n - 1) * SHARE_PARTS;
    wf_cl_knob(l, "SHARES", 1);
    wf_cl_arg_scratch(l, bytes);
    wf_cl_arg_u32(l, (uint32_t)n);
    return bytes <= caps->panels;
}

bool wf_cl_configure_tile(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    tile_shape s = shape_of(v, &c->in[WF_GEMM_W]);
    uint32_t group = s.bm / (uint32_t)v->tile[2] * (s.bn / (uint32_t)v->tile[3]) * s.parts;
    if (wf_cl_tile_registers(v) && !caps->registers) return false;
    /* So short a sum is no work for tiles, and PoCL 5.0 miscompiles the part of eight before their loop. */
    if (c->in[WF_GEMM_X].cols < 8 || wf_cl_group(caps, group, limit) < group) return false;
    if (s.bm * s.bn > 64 * 64 && !reads_vectors(c)) return false; /* odd shapes: tile64 is enough */
    wf_cl_group_knobs(l, caps, group);
    tile_knobs(caps, v, &s, l);
    wf_cl_knob(l, "VEC", reads_vectors(c));
    l->groups = (uint64_t)((c->out[WF_GEMM_Y].rows + s.bm - 1) / s.bm) * ((c->out[WF_GEMM_Y].cols + s.bn - 1) / s.bn);
    if (!wf_cl_gemm_arguments(v, c, l)) return false;
    return v->tile[4] >= 0 || share_tiles(caps, v, c, &s, SCRATCH_AT, l);
}

/* For processors: one row of X, or any number. */
bool wf_cl_configure_host(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *y = &c->out[WF_GEMM_Y];
    const uint32_t bm = (uint32_t)v->tile[0], bn = (uint32_t)v->tile[1];
    (void)limit;
    if (caps->gpu || !reads_vectors(c)) return false;
    wf_cl_group_knobs(l, caps, 1);
    wf_cl_knob(l, "BM", (int32_t)bm);
    wf_cl_knob(l, "BN", (int32_t)bn);
    wf_cl_knob(l, "MR", y->rows == 1);
    l->groups = (uint64_t)((y->rows + bm - 1) / bm) * ((y->cols + bn - 1) / bn);
    return wf_cl_gemm_arguments(v, c, l);
}

/* For processors, few rows of X; codes that stand for bytes without a sign are too large for its sums. */
bool wf_cl_configure_gemv_host(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                               cl_launch *l)
{
    enum { MOST_ROWS = 4, LEAST_W = 32, LEAST_K = 2048, X_BYTES = 3 };
    const wf_view *y = &c->out[WF_GEMM_Y], *w = &c->in[WF_GEMM_W];
    const wf_numbers *f = wf_numbers_of(w->dtype);
    uint32_t rows = y->rows == 1 ? 1 : MOST_ROWS, k = LEAST_K, turns = (uint32_t)v->tile[0];
    uint32_t bn = WF_MAX(y->cols / (turns * caps->units), (uint32_t)LEAST_W);
    (void)limit;
    while (k < w->cols) k *= 2; /* few programs */
    if (caps->gpu || w->layout != WF_CL_PLANES || f->codes || !wf_cl_vec8_ok(&c->in[WF_GEMM_X])) return false;
    if (y->rows > MOST_ROWS || (uint64_t)rows * k * X_BYTES > caps->local_bytes) return false;
    wf_cl_group_knobs(l, caps, 1);
    wf_cl_knob(l, "MR", (int32_t)rows);
    wf_cl_knob(l, "KC", (int32_t)k);
    l->groups = (y->cols + bn - 1) / bn;
    bool fits = wf_cl_gemm_arguments(v, c, l);
    wf_cl_arg_u32(l, bn);
    return fits;
}

/* Local memory holds at least two chunks of 32 of K, and one for each team. */
bool wf_cl_configure_dot(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { LEAST_CHUNKS = 2 };
    const wf_view *x = &c->in[WF_GEMM_X], *w = &c->in[WF_GEMM_W], *y = &c->out[WF_GEMM_Y];
    const uint32_t bm = (uint32_t)v->tile[0], bn = (uint32_t)v->tile[1], parts = (uint32_t)v->tile[4],
                   group = bm / (uint32_t)v->tile[2] * (bn / (uint32_t)v->tile[3]) * parts,
                   chunks = WF_MAX(parts, (uint32_t)LEAST_CHUNKS);
    const wf_numbers *f = wf_numbers_of(w->dtype);
    if (w->layout != WF_CL_PLANES || !wf_cl_vec8_ok(x) || wf_cl_group(caps, group, limit) < group) return false;
    uint64_t rows = (y->rows + bm - 1) / bm * bm, scratch = SCRATCH_AT + DOT_X_BYTES(rows, (uint64_t)x->cols);
    if (chunks * 4ull * DOT_CHUNK_WORDS(bm, bn, f->group, f->min) > caps->local_bytes || scratch > caps->panels)
        return false;
    wf_cl_group_knobs(l, caps, group);
    static const char *const names[] = {"BM", "BN", "TM", "TN", "PARTS"};
    for (size_t i = 0; i < WF_LEN(names); i++) wf_cl_knob(l, names[i], v->tile[i]);
    wf_cl_knob(l, "CH", (int32_t)chunks);
    wf_cl_knob(l, "UNROLL", caps->gpu ? 8 : 1); /* CPUs compile for long */
    wf_cl_knob(l, "DOT", (int32_t)caps->dot);
    l->c3 = caps->dot == WF_CL_DOT_KHRONOS;
    wf_cl_items(l, rows * (x->cols / 32));
    l->then_groups = rows / bm * ((y->cols + bn - 1) / bn);
    if (!y->rows) l->groups = 0;
    bool fits = wf_cl_gemm_arguments(v, c, l);
    wf_cl_arg_scratch(l, scratch);
    wf_cl_arg_u32(l, 0);
    return fits;
}

/* The tile of a work-group, that of a warp, and how many parts of K are in flight, for NVIDIA. */
static void warp_knobs(cl_launch *l, const cl_caps *caps, const int32_t tile[4], uint32_t group, uint32_t stages)
{
    static const char *const names[] = {"BM", "BN", "WM", "WN"};
    wf_cl_group_knobs(l, caps, group);
    for (size_t i = 0; i < WF_LEN(names); i++) wf_cl_knob(l, names[i], tile[i]);
    wf_cl_knob(l, "STAGES", (int32_t)stages);
}

bool wf_cl_mma_tiles(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { LOCAL_BYTES = 48 << 10 };
    const wf_view *x = &c->in[WF_GEMM_X], *w = &c->in[WF_GEMM_W];
    const int32_t *t = v->tile;
    uint32_t group = (uint32_t)(t[0] / t[2] * (t[1] / t[3])) * WARP,
             stage = (uint32_t)MMA_STAGE_BYTES(t[0], t[1], MMA_BK);
    if (!caps->nv_mma || x->dtype != WF_F16 || !reads_vectors(c)) return false;
    if (wf_cl_group(caps, group, limit) < group) return false;
    /* F32 and BF16 weights would lose bits or overflow as F16; blocks lose a 4096th, which arith says. */
    bool blocks = wf_dtypes[w->dtype].block > 1;
    if (!blocks && w->dtype != WF_F16) return false;
    warp_knobs(l, caps, t, group, WF_MIN(4u, LOCAL_BYTES / stage));
    wf_cl_knob(l, "W16", !blocks);
    l->groups =
        (uint64_t)((c->out[WF_GEMM_Y].rows + t[0] - 1) / t[0]) * (uint64_t)((c->out[WF_GEMM_Y].cols + t[1] - 1) / t[1]);
    return wf_cl_gemm_arguments(v, c, l);
}

/* ---- MMA-fragment-major weights ------------------------------------------------------------------------- */

/* Rows of X in F16, aligned to that many bytes. */
bool wf_cl_rows_of_halves(const wf_view *x, uint32_t align)
{
    return x->dtype == WF_F16 && x->offset % align == 0 && x->stride * 2 % align == 0;
}

/* Can a work-item finish four columns at once? */
static bool finishes_fours(const wf_call *c)
{
    return wf_cl_vec4_ok(&c->in[WF_GEMM_BIAS]) && wf_cl_vec4_ok(&c->in[WF_GEMM_RESIDUAL]) &&
           wf_cl_vec4_ok(&c->out[WF_GEMM_Y]);
}

/* Long parts of K need fewer barriers (H200, M = 2048: 419 TFLOP/s with parts of 64, 397 of 32), and a third one hides
 * more of memory's latency. Registers allow eight warps a multiprocessor, which share its local memory. */
static bool part_knobs(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t group, cl_launch *l)
{
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    uint32_t k = c->in[WF_GEMM_X].cols, tile_k = f ? wf_cl_fragment_k(f) : 0;
    enum { MOST = 3, TOGETHER = 256 };
    uint32_t room = caps->nv_local_bytes * group / TOGETHER, bm = (uint32_t)v->tile[0], bn = (uint32_t)v->tile[1];
    if (!wf_cl_fragment_knobs(c, l)) return false;
    for (uint32_t part = k % 64 ? 32 : 64; part >= WF_MAX(tile_k, 32u); part /= 2) {
        uint32_t stages =
            WF_MIN((uint32_t)MOST, room / FRAG_STAGE_BYTES(bm, bn, part, part / tile_k * wf_cl_fragment_bytes(f)));
        if (stages < 2) continue;
        warp_knobs(l, caps, v->tile, group, stages);
        wf_cl_knob(l, "PK", (int32_t)part);
        return true;
    }
    return false;
}

bool wf_cl_configure_frag(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *w = &c->in[WF_GEMM_W];
    const int32_t *t = v->tile;
    uint32_t bm = (uint32_t)t[0], bn = (uint32_t)t[1], group = bm / (uint32_t)t[2] * (bn / (uint32_t)t[3]) * WARP;
    if (!caps->nv_mma || !wf_cl_rows_of_halves(&c->in[WF_GEMM_X], 16) || wf_cl_group(caps, group, limit) < group)
        return false;
    if (!part_knobs(caps, v, c, group, l)) return false;
    /* Offsets from gate to up have 32 bits, and a bias would have to come before SiLU. */
    if (c->p.silu && (w->rows % 32 || (uint64_t)w->rows * w->cols * 2 > UINT32_MAX || c->in[WF_GEMM_BIAS].buf))
        return false;
    wf_cl_knob(l, "SILU", c->p.silu != 0);
    wf_cl_knob(l, "Y_FOURS", finishes_fours(c));
    l->groups = (uint64_t)((c->out[WF_GEMM_Y].rows + bm - 1) / bm) * ((w->rows + bn - 1) / bn);
    return wf_cl_gemm_arguments(v, c, l);
}

/* The program for a call, and its tiles: those with one work-group each, and behind them those whose K split_k
 * work-groups share. */
typedef struct wgmma_work {
    cl_wgmma g;
    uint32_t whole, shared;
} wgmma_work;

static uint64_t wgmma_tiles(const cl_wgmma *g, const wf_call *c)
{
    return (uint64_t)((c->out[WF_GEMM_Y].rows + g->tile_m - 1) / g->tile_m) *
           ((columns_of(c) + g->tile_n - 1) / g->tile_n);
}

/* Work-groups that run together. */
static uint32_t wgmma_at_once(const cl_caps *caps, const cl_wgmma *g, const wf_call *c)
{
    uint32_t at_once = caps->units * g->resident;
    return c->max_groups ? WF_MIN(at_once, c->max_groups) : at_once;
}

/* Where only tiles of the last round share their K, as many work-groups share it as that round has room for: 20 tiles
 * left on 108 work-groups become 100 pieces, which take a fifth of a round. */
static wgmma_work wgmma_work_of(const cl_caps *caps, const cl_variant *v, const wf_call *c)
{
    enum { MOST = 8 };
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    wgmma_work work = {.g = wf_cl_wgmma_shape(v->tile, c->p.silu, f)};
    uint32_t tiles = (uint32_t)wgmma_tiles(&work.g, c), at_once = wgmma_at_once(caps, &work.g, c);
    int32_t knob[WF_LEN(v->tile)];
    work.shared = work.g.tail ? tiles % at_once : tiles;
    work.whole = tiles - work.shared;
    if (!work.g.tail || !work.shared) return work;
    memcpy(knob, v->tile, sizeof knob);
    knob[WF_LEN(knob) - 1] =
        (int32_t)WF_MIN(WF_MIN(at_once / work.shared, (uint32_t)MOST), c->in[WF_GEMM_X].cols / work.g.tile_k);
    work.g = wf_cl_wgmma_shape(knob, c->p.silu, f);
    return work;
}

/* X in whole tiles. */
static uint64_t packed_bytes(const cl_wgmma *g, const wf_call *c)
{
    return g->pack
               ? (c->out[WF_GEMM_Y].rows + g->tile_m - 1) / g->tile_m * g->tile_m * (uint64_t)c->in[WF_GEMM_X].cols * 2
               : 0;
}

/* Microseconds of a step of 64 of K while so many work-groups run, for X that is not packed: tensor cores are the
 * limit, or latency and memory together. Tiles that differ in X only share what they read of W, but each expands
 * quantised weights by itself. */
static double wgmma_step(const cl_caps *caps, const cl_wgmma_costs *a, const cl_wgmma *g, const wf_call *c,
                         uint32_t groups)
{
    enum { K_BYTES = 128 };
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    double m_tiles = (c->out[WF_GEMM_Y].rows + g->tile_m - 1) / g->tile_m, x = g->tile_m * K_BYTES;
    double w = g->w_rows / 16.0 * g->tile_k / wf_cl_fragment_k(f) * wf_cl_fragment_bytes(f),
           expand = f->bits == 16 ? 0 : a->wgmma.expand * g->w_rows;
    double latency = a->wgmma.latency + a->wgmma.latency_w * g->w_rows + a->wgmma.latency_x * g->tile_m;
    double memory = groups * 1e-6 * (w / m_tiles / a->wgmma.memory + (w - w / m_tiles + x) / a->wgmma.cache);
    uint32_t each = (groups + caps->units - 1) / caps->units;
    double unit = 2e-6 * g->w_rows * g->tile_m * g->tile_k / a->wgmma.unit;
    return WF_MAX(each * WF_MAX(unit, expand), cbrt(pow(latency, 3) + pow(memory, 3)));
}

static double wgmma_step_packed(const cl_wgmma_costs *a, const cl_wgmma *g)
{
    return 2e-6 * g->w_rows * g->tile_m * g->tile_k / (a->wgmma_packed.unit + a->wgmma_packed.unit_x * g->tile_m);
}

/* Microseconds of the split-K reduction. Of packed X two parts were measured on the whole device; more parts of fewer
 * tiles are as many sums. */
static double wgmma_reduce(const cl_wgmma_costs *a, const cl_wgmma *g, uint32_t tiles)
{
    enum { MEASURED = 2 };
    double sums = 1e-6 * tiles * g->split_k * g->tile_m * g->w_rows * sizeof(float);
    if (g->split_k == 1) return 0;
    return g->pack ? a->wgmma_packed.part * MEASURED : a->wgmma.part * g->split_k + a->wgmma.exchange * sums;
}

/* Microseconds of so many work-groups that run together. */
static double wgmma_round(const cl_caps *caps, const cl_wgmma_costs *a, const cl_wgmma *g, const wf_call *c,
                          uint32_t groups)
{
    enum { PART_STEPS = 2 }; /* about as long as a part's sums take to join the others */
    uint32_t steps = (c->in[WF_GEMM_X].cols / g->tile_k + g->split_k - 1) / g->split_k + (g->parts - 1) * PART_STEPS;
    if (g->pack) return steps * wgmma_step_packed(a, g) + a->wgmma_packed.round;
    return steps * wgmma_step(caps, a, g, c, groups) + a->wgmma.round;
}

/* Exact enough to choose by (H200: compared with all products of Llama-3-8B for M from 16 to 256, X packed from 128 to
 * 2048). Each bind asks for many of these: no loop over the rounds. */
double wf_cl_wgmma_time(const cl_caps *caps, const cl_wgmma_costs *a, const cl_variant *v, const wf_call *c)
{
    wgmma_work work = wgmma_work_of(caps, v, c);
    cl_wgmma *g = &work.g, alone = work.g;
    uint32_t groups = work.shared * g->split_k, at_once = wgmma_at_once(caps, g, c);
    double time = wgmma_reduce(a, g, work.shared) +
                  (g->pack ? a->wgmma_packed.pack + a->wgmma_packed.copy * 1e-6 * (double)packed_bytes(g, c) : 0);
    alone.split_k = 1;
    if (work.whole) time += work.whole / at_once * wgmma_round(caps, a, &alone, c, at_once);
    if (groups >= at_once) time += groups / at_once * wgmma_round(caps, a, g, c, at_once);
    if (groups % at_once) time += wgmma_round(caps, a, g, c, groups % at_once);
    return time;
}

/* A part is a step at least. The work-groups of a tile wait for each other, so that all of them must run, and their
 * sums must have room. */
static bool split_fits(const cl_caps *caps, const cl_wgmma *g, const wf_call *c, uint64_t tiles)
{
    if (g->split_k == 1) return !g->tail && g->parts <= c->in[WF_GEMM_X].cols / g->tile_k;
    if (g->split_k > c->in[WF_GEMM_X].cols / g->tile_k || (c->max_groups && g->split_k > c->max_groups)) return false;
    return tiles * g->split_k <= caps->units * g->resident && tiles * g->exchange_bytes <= caps->zeroed;
}

/* A work-item has four neighbouring columns, so two pairs of neighbours. For all tiles alike: a class turns all rows
 * so, or none. */
static bool wgmma_rope_knobs(const wf_call *c, cl_launch *l)
{
    const wf_op_params *p = &c->p;
    bool turns = p->rope;
    wf_cl_knob(l, "HEAD", turns ? (int32_t)p->head_dim : 0);
    wf_cl_knob(l, "N_ROT", turns ? (int32_t)p->n_rot : 0);
    if (!turns) return true;
    if (p->neox || p->head_dim % 4 || p->n_rot % 4 || !wf_cl_vec4_ok(&c->in[WF_GEMM_TABLE])) return false;
    return wf_cl_vec4_ok(&c->out[WF_GEMM_K_POOL]) && wf_cl_vec4_ok(&c->out[WF_GEMM_K_POOL + 1]);
}

bool wf_cl_configure_wgmma(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    if (!f || !caps->nv_wgmma) return false;
    wgmma_work work = wgmma_work_of(caps, v, c);
    cl_wgmma g = work.g;
    if (!wf_cl_rows_of_halves(&c->in[WF_GEMM_X], 16)) return false;
    for (int i = 2; i < 4; i++)
        if (!wf_cl_vec4_ok(&c->in[i])) return false;
    if (!wf_cl_vec4_ok(&c->out[WF_GEMM_Y]) || (c->p.silu && c->in[WF_GEMM_W].rows % 32)) return false;
    uint64_t units = work.whole + (uint64_t)work.shared * g.split_k, scratch = WF_CL_ZEROED + packed_bytes(&g, c);
    if (c->in[WF_GEMM_X].cols % g.tile_k || !split_fits(caps, &g, c, work.shared) ||
        wf_cl_group(caps, g.threads, limit) < g.threads)
        return false;
    if (g.pack && scratch > caps->scratch) return false;
    wf_cl_group_knobs(l, caps, g.threads);
    wf_cl_knob(l, "SILU", c->p.silu != 0);
    wf_cl_knob(l, "SPLIT_K", g.tail ? (int32_t)g.split_k : v->tile[4]);
    if (!wf_cl_fragment_knobs(c, l) || !wgmma_rope_knobs(c, l)) return false;
    l->groups = g.pack ? WF_MIN(units, (uint64_t)caps->units * g.resident) : units;
    bool fits = wf_cl_gemm_arguments(v, c, l);
    if (g.pack) wf_cl_arg_scratch(l, scratch);
    if (g.split_k > 1) wf_cl_arg_zeroed(l, work.shared * g.exchange_bytes);
    if (g.tail) wf_cl_arg_u32(l, work.whole);
    if (c->p.rope) wf_cl_arg_rope(l, &c->in[WF_GEMM_TABLE], &c->out[WF_GEMM_K_POOL], &c->p);
    return fits;
}

/* Rows and columns of a wave's share of a tile: as square as a power of two allows. */
static void wave_share(int32_t outputs, int32_t rows, int32_t *wm, int32_t *wn)
{
    *wm = 1;
    while (4 * *wm * *wm <= outputs && *wm < rows) *wm *= 2;
    *wn = outputs / *wm;
}

/* What a work-group of gemm_matrix has: bm x bn outputs, wm x wn a wave, bk of K, shared by `parts`; how many of those
 * are in local memory at once. */
typedef struct matrix_shape {
    int32_t bm, bn, wm, wn, bk, parts, stages;
} matrix_shape;

enum { SHORT_K = 32 };

/* Parts of K that come by way of registers leave fewer of them for sums, and are shorter. */
static matrix_shape matrix_tile(const int32_t *t, const cl_caps *caps)
{
    enum { SUMS = 64 };
    int32_t outputs = t[0] * t[1], items = caps->copies ? t[2] : WF_MAX(t[2], outputs / SUMS);
    matrix_shape s = {.bm = t[0], .bn = t[1], .bk = caps->copies ? t[3] : SHORT_K, .parts = 1};
    wave_share(outputs / (items / (int32_t)caps->lanes), t[0], &s.wm, &s.wn);
    return s;
}

/* As shape_of, with a row of outputs for each of the unit: eight on Intel's, sixteen on AMD's. Waves of 64 are four in
 * a work-group of 256. */
static matrix_shape matrix_flat(const int32_t *t, uint32_t lanes, const wf_view *w)
{
    enum { UNIT_K = 16, SHARE = 32, MOST = 256 };
    int32_t rows = lanes >= 32 ? 16 : t[0], narrow = w->rows < FLAT_NARROW ? 2 : 1;
    matrix_shape s = {
        .bm = rows, .bn = t[1] / narrow, .wm = rows, .parts = WF_MIN(t[4] * narrow, MOST / (int32_t)lanes)};
    s.wn = lanes > 32 ? s.bn : SHARE;
    s.bk = s.parts * UNIT_K;
    return s;
}

static uint32_t matrix_group(const cl_caps *caps, const matrix_shape *s)
{
    return (uint32_t)(s->bm / s->wm * (s->bn / s->wn) * s->parts) * caps->lanes;
}

/* Copies take no registers, so that several parts can be on their way. Where registers leave room for few waves, these
 * have all of a unit's local memory. */
static matrix_shape matrix_shape_of(const cl_caps *caps, const cl_variant *v, const wf_view *w)
{
    enum { STAGES = 3, SUMS = 128, TOGETHER = 256 };
    matrix_shape s = v->tile[4] > 0 ? matrix_flat(v->tile, caps->lanes, w) : matrix_tile(v->tile, caps);
    uint32_t group = matrix_group(caps, &s), room = caps->local_bytes;
    if (caps->copies && (uint32_t)(s.bm * s.bn) >= SUMS * group) room = caps->nv_local_bytes * group / TOGETHER;
    if (s.parts == 1 && (int32_t)room / MATRIX_STAGE_BYTES(s.bm, s.bn, s.bk, caps->copies) < STAGES) s.bk = SHORT_K;
    s.stages = (int32_t)room / MATRIX_STAGE_BYTES(s.bm, s.bn, s.bk, caps->copies);
    s.stages = WF_MIN(s.stages, caps->copies ? STAGES + 1 : 2);
    return s;
}

static void matrix_knobs(const cl_caps *caps, const matrix_shape *s, cl_launch *l)
{
    wf_cl_knob(l, "LANES", (int32_t)caps->lanes);
    wf_cl_knob(l, "BM", s->bm);
    wf_cl_knob(l, "BN", s->bn);
    wf_cl_knob(l, "BK", s->bk);
    wf_cl_knob(l, "WM", s->wm);
    wf_cl_knob(l, "WN", s->wn);
    wf_cl_knob(l, "PARTS", s->parts);
    wf_cl_knob(l, "COPIES", caps->copies);
    wf_cl_knob(l, "STAGES", s->stages);
}

bool wf_cl_suits_matrix(const cl_caps *caps, const wf_call *c)
{
    if (c->op != WF_OP_GEMM || !caps->lanes || c->in[WF_GEMM_X].dtype != WF_F16 || !reads_vectors(c)) return false;
    /* as wf_cl_mma_tiles */
    return wf_dtypes[c->in[WF_GEMM_W].dtype].block > 1 || c->in[WF_GEMM_W].dtype == WF_F16;
}

/* A work-group a tile. */
static bool matrix_tiles(const cl_caps *caps, const matrix_shape *s, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *y = &c->out[WF_GEMM_Y];
    uint32_t group = matrix_group(caps, s), waves = group / caps->lanes, unit_rows = caps->lanes >= 32 ? 16 : 8;
    int32_t room = s->stages * MATRIX_STAGE_BYTES(s->bm, s->bn, s->bk, caps->copies);
    if (wf_cl_group(caps, group, limit) < group || s->stages < 2) return false;
    if (s->parts == 1 && MATRIX_STRIPS_BYTES(waves, unit_rows, (uint32_t)s->wn) > (uint32_t)room) return false;
    wf_cl_group_knobs(l, caps, group);
    matrix_knobs(caps, s, l);
    wf_cl_knob(l, "Y_FOURS", finishes_fours(c));
    l->groups = (uint64_t)((y->rows + s->bm - 1) / s->bm) * (uint64_t)((y->cols + s->bn - 1) / s->bn);
    return true;
}

static bool share_matrix(const cl_caps *caps, const cl_variant *v, const matrix_shape *s, const wf_call *c, uint64_t at,
                         cl_launch *l)
{
    const tile_shape tile = {(uint32_t)s->bm, (uint32_t)s->bn, (uint32_t)s->bk, 1};
    return share_tiles(caps, v, c, &tile, at, l);
}

bool wf_cl_configure_matrix(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    if (!wf_cl_suits_matrix(caps, c)) return false;
    const matrix_shape s = matrix_shape_of(caps, v, &c->in[WF_GEMM_W]);
    if (!matrix_tiles(caps, &s, c, limit, l)) return false;
    wf_cl_knob(l, "W16", wf_dtypes[c->in[WF_GEMM_W].dtype].block == 1);
    return wf_cl_gemm_arguments(v, c, l) && (v->tile[4] >= 0 || share_matrix(caps, v, &s, c, SCRATCH_AT, l));
}

/* The same with all of W decoded to scratch memory first, for many rows of X. */
bool wf_cl_configure_matrix_expand(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                   cl_launch *l)
{
    enum { EACH = 64 }; /* weights of a work-item */
    const wf_view *w = &c->in[WF_GEMM_W];
    const uint64_t bytes = SCRATCH_AT + 2ull * w->rows * w->cols;
    if (!wf_cl_suits_matrix(caps, c) || wf_dtypes[w->dtype].block == 1 || bytes > caps->expanded) return false;
    const matrix_shape s = matrix_shape_of(caps, v, w);
    if (!matrix_tiles(caps, &s, c, limit, l)) return false;
    wf_cl_knob(l, "W16", 1);
    wf_cl_knob(l, "EXPAND", 1);
    if (!wf_cl_gemm_arguments(v, c, l)) return false;
    l->before = true;
    l->before_groups = l->groups ? ((uint64_t)w->rows * w->cols + EACH * l->group - 1) / (EACH * l->group) : 0;
    if (v->tile[4] < 0) return share_matrix(caps, v, &s, c, WF_UP(bytes, 128), l);
    wf_cl_arg_scratch(l, bytes);
    return true;
}
