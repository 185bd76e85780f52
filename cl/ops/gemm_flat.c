/* gemm_flat: products of few rows with MMA-fragment-major weights (kernels/gemm_flat.cl): which tiles and how many
 * work-groups, one row in fixed point, and, for --deterministic, the order of additions of wgmma (nvidia/gemm.c). */
#include "cl/kernels/fragment_bytes.clh"
#include "cl/kernels/local_bytes.clh"
#include "cl/ops/gemm.h"

bool wf_cl_is_one_row(const cl_variant *v)
{
    return v->tile[4];
}

/* What a work-group of gemm_flat keeps in local memory: its sums and, normalised or in fixed point, the rows of X. */
static uint64_t flat_local_bytes(const cl_variant *v, uint32_t rows, uint64_t k)
{
    uint32_t group = (uint32_t)v->tile[0], blocks = (uint32_t)v->tile[1], tiles = (uint32_t)v->tile[2];
    if (wf_cl_is_one_row(v)) return FLAT_SUMS_BYTES(group, blocks, 1) + FLAT_INT16_BYTES(group, k);
    return FLAT_SUMS_BYTES(group, blocks, 8 * tiles) + FLAT_NORM_BYTES(group, rows, k);
}

/* Rows of X in local memory: for how many there is room, a power of two, so that programs are few. */
static uint32_t x_rows_knobs(const wf_call *c, cl_launch *l)
{
    uint32_t rows = 1;
    while (rows < c->out[WF_GEMM_Y].rows) rows *= 2;
    wf_cl_knob(l, "XK", (int32_t)c->in[WF_GEMM_X].cols);
    wf_cl_knob(l, "XROWS", (int32_t)rows);
    return rows;
}

/* False where they cannot be there. */
static bool local_x_knobs(const cl_caps *caps, const cl_variant *v, const wf_call *c, cl_launch *l)
{
    uint32_t k = c->in[WF_GEMM_X].cols, rows = x_rows_knobs(c, l);
    return wf_cl_vec4_ok(&c->in[WF_GEMM_X]) && wf_cl_vec4_ok(&c->in[WF_GEMM_NORM]) &&
           flat_local_bytes(v, rows, k) <= caps->local_bytes;
}

/* One row of X in fixed point, for quantised weights. */
static bool int16_knobs(const wf_call *c, cl_launch *l)
{
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    wf_cl_knob(l, "INT16", 1);
    return c->out[WF_GEMM_Y].rows == 1 && f && f->bits < 16;
}

/* Tiles whose loads are issued together: a quantised one is four steps of K, and what it takes of registers waits in
 * two sets. */
static int32_t tiles_ahead(const cl_variant *v, const wf_call *c)
{
    enum { FEW_BYTES = 704 }; /* up to five bits a weight */
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    if (f->bits == 16) return v->tile[3];
    return wf_cl_fragment_bytes(f) <= FEW_BYTES ? WF_MAX(v->tile[3] / 2, 1) : 1;
}

/* What every kernel of gemm_flat is told. False where W is of no format that lies so. */
static bool flat_knobs(const wf_call *c, uint32_t blocks, uint32_t tiles, cl_launch *l)
{
    wf_cl_knob(l, "NORM", c->in[WF_GEMM_NORM].rows != 0);
    wf_cl_knob(l, "SILU", c->p.silu != 0);
    wf_cl_knob(l, "A_TILES", (int32_t)blocks);
    wf_cl_knob(l, "B_TILES", (int32_t)tiles);
    return wf_cl_fragment_knobs(c, l);
}

/* One for each tile of W; with a norm before the product as many as run at once, which normalise X once for all of
 * their tiles (H200, one sequence in Q4_K_M 427 to 431 tokens/s in place of 415 to 419, four 1,588 in place of 1,516).
 * Registers decide how many that are, and weights how many those. */
static uint64_t flat_groups(const cl_caps *caps, const wf_call *c, uint32_t blocks)
{
    enum { FEW_BITS = 4, OF_FEW_BITS = 3, OF_MORE = 2 };
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    uint64_t tiles = (c->in[WF_GEMM_W].rows + blocks * 16 - 1) / (blocks * 16);
    if (!c->in[WF_GEMM_NORM].rows || !f) return tiles;
    return WF_MIN(tiles, (uint64_t)caps->units * (f->bits <= FEW_BITS ? OF_FEW_BITS : OF_MORE));
}

bool wf_cl_configure_flat(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    uint32_t group = (uint32_t)v->tile[0], blocks = (uint32_t)v->tile[1], tiles = (uint32_t)v->tile[2];
    bool norm = c->in[WF_GEMM_NORM].rows;
    if (!caps->nv_mma || c->out[WF_GEMM_Y].rows > tiles * 8 || wf_cl_group(caps, group, limit) < group) return false;
    if (!norm && !wf_cl_rows_of_halves(&c->in[WF_GEMM_X], 4)) return false;
    if ((norm || wf_cl_is_one_row(v)) && (tiles != 1 || !local_x_knobs(caps, v, c, l))) return false;
    if (wf_cl_is_one_row(v) && !int16_knobs(c, l)) return false;
    if (c->p.silu && c->in[WF_GEMM_W].rows % 32) return false;
    if (c->p.rope && !wf_cl_pair_knobs(c, l)) return false;
    wf_cl_group_knobs(l, caps, group);
    l->groups = flat_groups(caps, c, blocks);
    if (!flat_knobs(c, blocks, tiles, l)) return false;
    wf_cl_knob(l, "UK", tiles_ahead(v, c));
    return wf_cl_fused_arguments(v, c, l);
}

/* ---- with the bits of wgmma --------------------------------------------------------------------- */

/* What a work-group of such a product is: warps, of which `parts` share the K of a block of W, or with SiLU of one of
 * gate or of up. */
typedef struct cut_shape {
    /* blocks a work-group; work-groups' shares of W; how many of those each has */
    uint32_t parts, blocks, tiles, rounds;
} cut_shape;

/* Tiles of W that a lane loads together, twice. They take most of the registers that a work-item of the only
 * work-group on a multiprocessor can have, and no more than a 16th of the products of a part are past its end. */
static int32_t tiles_together(const cl_fragments *f, uint32_t k, uint32_t parts, uint32_t group)
{
    enum { REGISTERS = 65536, EACH = 255, BY_FOUR_WARPS = 128, OTHERS = 64, MOST = 56 };
    uint32_t registers = WF_MIN(REGISTERS / WF_UP(group, BY_FOUR_WARPS), EACH),
             room = WF_MIN((registers - OTHERS) / 2, MOST);
    uint32_t step = 64 / wf_cl_fragment_k(f), all = k / 64 / parts,
             words = (uint32_t)(FRAGMENT_WORDS(f->bits) + FRAGMENT_SCALES(f->bits, f->group, f->min));
    uint32_t n = WF_MAX(room / (step * words), 1u);
    while (n > 1 && WF_UP(all, 2 * n) * 16 > all * 17) n--;
    return (int32_t)(n * step);
}

/* Where each keeps X as few rounds of one work-group a multiprocessor as registers allow, each as large as the rest.
 * Else as many work-groups as there are blocks. */
static cut_shape cut_shape_of(const cl_caps *caps, uint32_t parts, const wf_call *c, bool keeps)
{
    enum { MOST = 16 }; /* warps */
    uint32_t each = c->p.silu ? 2 : 1, blocks = (c->in[WF_GEMM_W].rows + 15) / 16, n = blocks / each,
             units = caps->units, most = WF_MAX(MOST / (each * parts), 1u);
    uint32_t rounds = keeps ? (n + units * most - 1) / (units * most) : 1,
             of = keeps ? (n + units * rounds - 1) / (units * rounds) : 1;
    return (cut_shape){parts, of * each, (n + of - 1) / of, rounds};
}

/* Rows of X in local memory, perhaps normalised in the order of rmsnorm_group.cl. False where there is no room for
 * them. */
static bool kept_x_knobs(const cl_caps *caps, const wf_call *c, uint32_t group, cl_launch *l)
{
    bool norm = c->in[WF_GEMM_NORM].rows;
    uint32_t k = c->in[WF_GEMM_X].cols, rows = x_rows_knobs(c, l), items = norm ? wf_cl_norm_items(k, 4) : 0;
    wf_cl_knob(l, norm ? "NORM_ITEMS" : "KEEP", norm ? (int32_t)items : 1);
    if (!wf_cl_vec4_ok(&c->in[WF_GEMM_X]) || !wf_cl_vec4_ok(&c->in[WF_GEMM_NORM]) ||
        (norm && wf_cl_group(caps, items, 0) < items))
        return false;
    return FLAT_SUMS_BYTES(group, 1, 8) + FLAT_CUT_BYTES(items, rows, k) <= caps->local_bytes;
}

/* Few rows in the order of wgmma. Without a norm and a cut X is read as it is multiplied: a warp for 16 rows of W, or
 * two for 16 of gate and 16 of up (H200, one row, Q4_K: 28,672 x 4,096 27.1 us in place of 37.3 by narrow16). */
bool wf_cl_configure_flat_cut(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { MOST_ROUNDS = 2 }; /* between two a work-group waits for memory: for more it is not worth it */
    bool norm = c->in[WF_GEMM_NORM].rows, keeps = norm || v->tile[0] > 1;
    cut_shape s = cut_shape_of(caps, (uint32_t)v->tile[0], c, keeps);
    uint32_t group = s.blocks * s.parts * WARP;
    const cl_fragments *f = wf_cl_fragments(c->in[WF_GEMM_W].dtype);
    if (!f || !caps->nv_wgmma || c->out[WF_GEMM_Y].rows > 8 || wf_cl_group(caps, group, limit) < group) return false;
    if (!norm && (c->p.rope || !wf_cl_rows_of_halves(&c->in[WF_GEMM_X], 4))) return false;
    if (keeps && (s.rounds > MOST_ROUNDS || !kept_x_knobs(caps, c, group, l))) return false;
    /* a work-item for each pair */
    if (c->p.rope && (!wf_cl_pair_knobs(c, l) || group < s.blocks * 8 * c->out[WF_GEMM_Y].rows)) return false;
    if (c->in[WF_GEMM_X].cols % 64 || c->in[WF_GEMM_X].cols / 64 < s.parts ||
        c->in[WF_GEMM_W].rows % (c->p.silu ? 32 : 1))
        return false;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "CUT", (int32_t)s.parts);
    l->groups = keeps ? WF_MIN(s.tiles, caps->units) : s.tiles;
    wf_cl_knob(l, "UK", tiles_together(f, c->in[WF_GEMM_X].cols, s.parts, keeps ? group : 512));
    return flat_knobs(c, 1, 1, l) && wf_cl_fused_arguments(v, c, l);
}
