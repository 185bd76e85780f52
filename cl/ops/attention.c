/* attention: rows of queries against paged keys and values. */
#include "cl/cl.h"
#include "cl/kernels/attention/split_costs.clh"
#include "cl/kernels/local_bytes.clh"

#include <sys/types.h> /* uint */
#include "cl/kernels/attention/chunk_count.clh"

/* The arguments that every attention kernel takes, in this order. Windows make another program: calls without pay
 * nothing. */
static void common_arguments(const wf_call *c, cl_launch *l)
{
    const wf_view *q = &c->in[WF_ATTENTION_Q], *o = &c->out[WF_ATTENTION_O];
    const wf_op_params *p = &c->p;
    wf_cl_act(l, q);
    wf_cl_kv(l, &c->in[WF_ATTENTION_K_POOL]);
    wf_cl_knob(l, "D", (int32_t)p->head_dim);
    for (int i = 0; i < 7; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, o);
    wf_cl_arg_u32(l, o->rows);
    wf_cl_arg_u32(l, p->n_head);
    wf_cl_arg_u32(l, p->n_kv_head);
    wf_cl_arg_u32(l, p->page_tokens);
    wf_cl_arg_u32(l, c->in[WF_ATTENTION_K_POOL].stride);
    wf_cl_arg_u32(l, q->stride);
    wf_cl_arg_u32(l, o->stride);
    wf_cl_arg_f32(l, p->scale);
    if (c->in[WF_ATTENTION_WINDOWS].buf) {
        wf_cl_knob(l, "WINDOWS", 1);
        wf_cl_arg_view(l, &c->in[WF_ATTENTION_WINDOWS]);
        wf_cl_arg_u32(l, p->sink);
    }
    if (p->softcap > 0) {
        wf_cl_knob(l, "SOFTCAP", 1);
        wf_cl_arg_f32(l, p->softcap);
    }
    if (c->in[WF_ATTENTION_SINKS].buf) {
        wf_cl_knob(l, "SINKS", 1);
        wf_cl_arg_view(l, &c->in[WF_ATTENTION_SINKS]);
    }
}

/* Do n elements lie where a vector of as many can be read? */
static bool reads_by(const wf_call *c, uint32_t n)
{
    const wf_view *k = &c->in[WF_ATTENTION_K_POOL], *v = &c->in[WF_ATTENTION_V_POOL];
    uint32_t bytes = n * (k->dtype == WF_F16 ? 2 : 1);
    return c->p.head_dim % n == 0 && wf_dtype_bytes(k->dtype, k->stride) % bytes == 0 &&
           (k->offset | v->offset) % bytes == 0;
}

bool wf_cl_configure_attention(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                          cl_launch *l)
{
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, (uint64_t)c->out[WF_ATTENTION_O].rows * c->p.n_head);
    common_arguments(c, l);
    if (c->in[WF_ATTENTION_AROUND].buf) {
        wf_cl_knob(l, "AROUND", 1);
        wf_cl_arg_view(l, &c->in[WF_ATTENTION_AROUND]);
    }
    return true;
}

/* Of 32 bits, as in the kernels; no context is that long. */
static uint64_t chunks_before(uint64_t unit, uint64_t chunk, uint64_t grows)
{
    return chunk_count((uint32_t)WF_MIN(unit, 1u << 29), (uint32_t)chunk, (uint32_t)grows);
}

/* Knobs and arguments of the chunks into which attention_decode and attention_matrix cut a row's keys, for few rows to
 * use the whole device: chunk[0] keys, from key chunk[1] on more; 0: one chunk. Not where nobody knows how many there
 * are, nor more than scratch memory holds. */
static bool chunk_knobs(const cl_caps *caps, const int32_t *chunk, const wf_call *c, cl_launch *l)
{
    enum { MOST_SCRATCH = 512 << 20 };
    const wf_op_params *p = &c->p;
    bool split = chunk[0];
    uint64_t row_heads = (uint64_t)c->out[WF_ATTENTION_O].rows * p->n_head, n = 1, bytes = 0;
    if (split) {
        n = p->max_kv ? chunks_before(p->max_kv - 1, (uint64_t)chunk[0], (uint64_t)chunk[1]) + 1 : 0;
        bytes = WF_CL_ZEROED + row_heads * n * (p->head_dim + 4) * sizeof(float);
        if (!n || bytes > MOST_SCRATCH || (caps->panels && bytes > caps->panels)) return false;
        l->then_groups = (row_heads * p->head_dim / 4 + l->group - 1) / l->group;
        wf_cl_knob(l, "CHUNK", chunk[0]);
        wf_cl_knob(l, "GROWS", chunk[1]);
    }
    l->groups *= n;
    wf_cl_knob(l, "SPLIT", split);
    wf_cl_arg_scratch(l, bytes);
    wf_cl_arg_u32(l, (uint32_t)n);
    return true;
}

/* Powers of two of weights in F32, those of calibration.h, and in F16: P there holds 2^15, and below 2^-4 would lose
 * precision. */
enum { F32_MOST = 15, F32_LEAST = -80, F16_MOST = 15, F16_LEAST = -4 };

/* What a kernel takes for its asynchronous softmax, whose weights have these powers of two, in its logarithms: `unit`
 * is that of two. */
static bool given_maximum(const wf_call *c, bool async, int32_t most, int32_t least, float unit, cl_launch *l)
{
    float base, low;
    wf_cl_knob(l, "ASYNC", async);
    if (!async) return true;
    if (!wf_attention_base(&c->p, most, least, &base, &low)) return false;
    wf_cl_knob(l, "MOST", most);
    wf_cl_arg_view(l, &c->out[WF_ATTENTION_RECOMPUTED]);
    wf_cl_arg_f32(l, base * unit);
    wf_cl_arg_f32(l, (base + low) * unit);
    return true;
}

static uint64_t sequences_of(const wf_call *c)
{
    return (uint64_t)c->in[WF_ATTENTION_INDPTR].rows * c->in[WF_ATTENTION_INDPTR].cols - 1;
}

/* Blocks of `rows` rows by `heads` heads. Rows of several sequences in one block wait for each other: more groups share
 * them, unless more than `idle` would only find out that there is nothing to share. */
static void share_runs(cl_launch *l, const wf_call *c, uint32_t rows, uint32_t heads, uint32_t idle)
{
    uint32_t g = c->p.n_head / c->p.n_kv_head;
    uint64_t blocks =
        (uint64_t)(c->out[WF_ATTENTION_O].rows + rows - 1) / rows * c->p.n_kv_head * ((g + heads - 1) / heads);
    uint64_t share = WF_MIN(WF_MIN(sequences_of(c), rows), 1 + idle / blocks);
    wf_cl_arg_u32(l, (uint32_t)share);
    l->groups = blocks * share;
}

/* What attention_flash cuts its work into: packed rows, of a work-item; keys of a tile; elements of keys at a time, and
 * values. */
typedef struct flash_tile {
    uint32_t rows, of_item, keys, elements, values;
} flash_tile;

static uint32_t flash_group(const flash_tile *t)
{
    return WF_MAX(t->rows / t->of_item * t->keys / 4, 32u);
}

/* As many packed rows as registers hold sums of (on AMD half of them where they are done twice), and work-groups and
 * local memory allow; 0: none. The length of a tile is always the same, so that all variants add in the same order. */
static flash_tile flash_tile_of(const cl_caps *caps, uint32_t d, uint32_t rows, bool async, uint32_t limit)
{
    flash_tile t = {.rows = async ? 32 : 64, .keys = 64, .elements = 32, .values = d > 128 ? 8 : 16};
    while (t.rows > 4 && (t.rows * d > 8192 || t.rows / 2 >= rows)) t.rows /= 2;
    for (; t.rows >= 4; t.rows /= 2) {
        t.of_item = t.rows == 64 ? 8 : 4;
        for (t.elements = 32; t.elements >= 4; t.elements /= 2) {
            bool fits = FLASH_LOCAL_BYTES(d, t.rows, t.keys, t.elements, t.values) <= caps->local_bytes;
            if (d % t.elements == 0 && fits && wf_cl_group(caps, flash_group(&t), limit) == flash_group(&t)) return t;
        }
    }
    return (flash_tile){0};
}

bool wf_cl_configure_flash(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                      cl_launch *l)
{
    enum { IDLE_GROUPS = 1024 };
    const wf_op_params *p = &c->p;
    const wf_view *q = &c->in[WF_ATTENTION_Q];
    uint32_t d = p->head_dim, g = p->n_head / p->n_kv_head;
    if (d > 512 || !reads_by(c, 4)) return false;
    flash_tile t = flash_tile_of(caps, d, v->tile[0] ? (uint32_t)v->tile[0] * g : UINT32_MAX, v->tile[1], limit);
    if (!t.rows) return false;
    uint32_t heads = WF_MIN(g, t.rows), rows = t.rows / heads;
    if (v->tile[0]) rows = WF_MIN(rows, (uint32_t)v->tile[0]);
    common_arguments(c, l);
    wf_cl_group_knobs(l, caps, flash_group(&t));
    wf_cl_knob(l, "R", (int32_t)t.rows);
    wf_cl_knob(l, "RT", (int32_t)t.of_item);
    wf_cl_knob(l, "TK", (int32_t)t.keys);
    wf_cl_knob(l, "DK", (int32_t)t.elements);
    wf_cl_knob(l, "VK", (int32_t)t.values);
    wf_cl_knob(l, "Q_ALIGNED", q->stride % 4 == 0 && q->offset % 16 == 0);
    wf_cl_knob(l, "UNROLL", caps->gpu ? 4 : 1); /* PoCL would compile for minutes */
    wf_cl_arg_u32(l, rows);
    wf_cl_arg_u32(l, heads);
    share_runs(l, c, rows, heads, IDLE_GROUPS);
    return given_maximum(c, v->tile[1], F32_MOST, F32_LEAST, 1, l);
}

/* Elements of a key that a work-item of attention_decode reads at once: as many as the variant wants, or as it takes for
 * a work-group to read a key; 0: keys do not lie so. */
static uint32_t decode_elements(const wf_call *c, uint32_t wanted, uint32_t group)
{
    if (!reads_by(c, 8)) return reads_by(c, 4) ? 4 : 0;
    return c->p.head_dim / wanted > group ? 8 : wanted;
}

/* As many keys of a tile as `ahead` reads of a work-item bring, and local memory holds products of. A work-group is a
 * wave where there are enough rows for the device, since all of it meets three times a tile, and large where there are
 * not, for a chunk to be one tile (H200, 64 x 4,096 keys, TB/s with 128, 64, 32 work-items: 2.6, 3.2, 3.4, and with
 * elements by four 2.4, 3.0, 3.7). */
bool wf_cl_configure_decode(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { MOST_HEADS = 8, AHEAD = 8, NUMBERS = 64, GROUPS = 32, FEW_ROWS = 32 }; /* of a sequence: a work-group has one */
    const wf_op_params *p = &c->p;
    uint32_t d = p->head_dim, g = p->n_head / p->n_kv_head, heads = WF_MIN(g, (uint32_t)MOST_HEADS), padded = 1;
    uint32_t items = WF_MAX((uint32_t)v->tile[2], caps->lanes);
    while (items < d / 8) items *= 2;
    uint32_t group = wf_cl_group(caps, items, limit), each = decode_elements(c, (uint32_t)v->tile[3], group), keys = (uint32_t)v->tile[0],
             padded_keys;
    while (padded < heads) padded *= 2;
    if (p->max_q > FEW_ROWS || !each || d / each > group || group < 4 * MOST_HEADS) return false;
    uint32_t at_once = group / (d / each), ahead = padded * each < NUMBERS ? AHEAD : AHEAD / 2; /* as registers allow */
    while (keys > 1 && keys / 2 >= at_once * ahead) keys /= 2;
    for (;; keys /= 2) {
        padded_keys = (keys + at_once - 1) / at_once * at_once;
        if (DECODE_LOCAL_BYTES(d, each, padded, keys, padded_keys, group) <= WF_MIN(caps->local_bytes, 24u << 10)) break;
        if (keys == 1) return false;
    }
    common_arguments(c, l);
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "E", (int32_t)each);
    wf_cl_knob(l, "R", (int32_t)padded);
    wf_cl_knob(l, "TK", (int32_t)keys);
    wf_cl_knob(l, "UNROLL", caps->gpu); /* PoCL would compile for minutes */
    wf_cl_arg_u32(l, heads);
    l->groups = (uint64_t)c->out[WF_ATTENTION_O].rows * p->n_kv_head * ((g + heads - 1) / heads);
    if (!chunk_knobs(caps, v->tile, c, l)) return false;
    if (caps->gpu) l->groups = WF_MIN(l->groups, (uint64_t)GROUPS * caps->units); /* chunks that are not cost little */
    wf_cl_arg_u32(l, 0); /* the pass */
    return true;
}

/* For processors: a work-group is one work-item. As many packed rows as share what was made of keys and values, of
 * which one row's heads are part. */
bool wf_cl_configure_attention_host(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                    cl_launch *l)
{
    enum { MOST_HEAD = 256, MOST_ROWS = 32, KEYS = 32 };
    const wf_op_params *p = &c->p;
    uint32_t d = p->head_dim, heads = p->n_head / p->n_kv_head, packed = MOST_ROWS;
    (void)v, (void)limit;
    if (caps->gpu || d > MOST_HEAD || !reads_by(c, 8)) return false;
    uint32_t each = WF_MIN(heads, packed), rows = p->max_q == 1 ? 1 : packed / each;
    if ((2 * packed * d + 2 * KEYS * d + packed * (KEYS + 6)) * 4 > caps->local_bytes) return false;
    common_arguments(c, l);
    wf_cl_group_knobs(l, caps, 1);
    wf_cl_knob(l, "R", (int32_t)packed);
    wf_cl_arg_u32(l, rows);
    wf_cl_arg_u32(l, each);
    l->groups = (uint64_t)(c->out[WF_ATTENTION_O].rows + rows - 1) / rows * p->n_kv_head * ((heads + each - 1) / each);
    return true;
}

/* ---- any vendor's matrix units ----------------------------------------------------------------------------------- */

/* The matrix unit of kernels/matrix.clh that a number of work-items share: rows and columns of a product; keys of a
 * tile; columns of sums that fit a wave's registers, and the largest head whose queries fit beside them (RDNA3 holds
 * those twice). */
typedef struct matrix_unit {
    uint32_t lanes, rows, cols, keys, sums, head;
} matrix_unit;

static matrix_unit matrix_unit_of(const cl_caps *caps)
{
    static const matrix_unit nvidia = {32, 16, 16, 64, 128, 128};
    static const matrix_unit units[] = {
        {64, 16, 16, 32, 256, 256}, {32, 16, 16, 32, 64, 128}, {16, 8, 16, 32, 64, 128}, {8, 8, 8, 32, 32, 128}};
    if (caps->copies) return nvidia;
    for (size_t i = 0; i < WF_LEN(units); i++)
        if (units[i].lanes == caps->lanes) return units[i];
    return (matrix_unit){0};
}

/* Waves that share rows: until their columns fit registers, as far as the unit's columns divide the head. */
static uint32_t waves_of_rows(const matrix_unit *u, uint32_t head)
{
    uint32_t n = 1;
    while (head / n > u->sums && head % (2 * n * u->cols) == 0) n *= 2;
    return n;
}

/* Rows of the unit that hold one row's query heads of a KV head, in powers of two. */
static uint32_t rows_of_heads(const matrix_unit *u, uint32_t heads)
{
    enum { MOST = 64 };
    uint32_t n = u->rows;
    while (n < heads && n < MOST) n *= 2;
    return n;
}

/* Rows of a block: at most `rows`, as many as work-items and local memory allow; 0: not even the unit's. */
static uint32_t packed_rows(const cl_caps *caps, const matrix_unit *u, uint32_t rows, uint32_t head, uint32_t keys,
                            uint32_t waves, uint32_t limit)
{
    for (; rows >= u->rows; rows /= 2) {
        uint32_t group = rows / u->rows * waves * u->lanes;
        bool fits = ATTENTION_MATRIX_LOCAL_BYTES(rows, head, keys, waves, caps->copies) <= caps->local_bytes;
        if (fits && wf_cl_group(caps, group, limit) == group) return rows;
    }
    return 0;
}

/* F16, in vectors of 16 bytes, or keys and values in vectors of 8 bytes, and a scale that keeps the order of scores. */
static bool suits_units(const matrix_unit *u, const wf_call *c)
{
    const wf_view *q = &c->in[WF_ATTENTION_Q];
    return u->lanes && c->p.scale > 0 && q->dtype == WF_F16 && c->p.head_dim % 16 == 0 && c->p.head_dim <= u->head &&
           q->stride % 8 == 0 && q->offset % 16 == 0 && reads_by(c, 8);
}

/* Waves and the tile's length follow from the unit and the head size alone, so that all blocks add in the same
 * order. */
bool wf_cl_configure_attention_matrix(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                      cl_launch *l)
{
    const wf_op_params *p = &c->p;
    const matrix_unit u = matrix_unit_of(caps);
    uint32_t g = p->n_head / p->n_kv_head, keys = WF_MIN(u.keys, (uint32_t)v->tile[1]);
    if (!suits_units(&u, c)) return false;
    uint32_t waves = waves_of_rows(&u, p->head_dim);
    uint32_t most = v->tile[0] ? (uint32_t)v->tile[0] : rows_of_heads(&u, g);
    uint32_t packed = packed_rows(caps, &u, most, p->head_dim, keys, waves, limit);
    if (!packed) return false;
    uint32_t heads = WF_MIN(g, packed), rows = v->tile[0] ? packed / heads : 1;
    common_arguments(c, l);
    wf_cl_group_knobs(l, caps, packed / u.rows * waves * u.lanes);
    wf_cl_knob(l, "LANES", (int32_t)u.lanes);
    wf_cl_knob(l, "R", (int32_t)packed);
    wf_cl_knob(l, "TK", (int32_t)keys);
    wf_cl_knob(l, "WC", (int32_t)waves);
    wf_cl_knob(l, "COPIES", caps->copies);
    wf_cl_arg_u32(l, rows);
    wf_cl_arg_u32(l, heads);
    l->groups = (uint64_t)(c->out[WF_ATTENTION_O].rows + rows - 1) / rows * p->n_kv_head * ((g + heads - 1) / heads);
    if (!chunk_knobs(caps, v->tile + 3, c, l) || !given_maximum(c, v->tile[2], F16_MOST, F16_LEAST, 1, l)) return false;
    wf_cl_arg_u32(l, 0); /* the pass */
    return true;
}

/* ---- NVIDIA's ---------------------------------------------------------------------------------------------------- */

/* What the kernels for NVIDIA's matrix units ask for: q in F16, vectors of 8 elements, tiles of 16 keys, a scale that
 * keeps the order of scores, no soft cap and no sinks; all but attention_split: keys and values in F16. */
static bool suits_mma_of_any(const cl_caps *caps, const wf_call *c)
{
    const wf_op_params *p = &c->p;
    return caps->nv_mma && p->scale > 0 && !(p->softcap > 0) && !c->in[WF_ATTENTION_SINKS].buf &&
           c->in[WF_ATTENTION_Q].dtype == WF_F16 && p->head_dim % 16 == 0 && p->head_dim <= 256 &&
           p->page_tokens % 16 == 0 && reads_by(c, 8);
}

static bool suits_mma(const cl_caps *caps, const wf_call *c)
{
    return suits_mma_of_any(caps, c) && c->in[WF_ATTENTION_K_POOL].dtype == WF_F16;
}

/* How many 16-key tiles a row has at most. */
static uint64_t most_tiles(const wf_call *c)
{
    const wf_op_params *p = &c->p;
    uint64_t keys = p->max_kv
                        ? p->max_kv
                        : (uint64_t)c->in[WF_ATTENTION_PAGES].rows * c->in[WF_ATTENTION_PAGES].cols * p->page_tokens;
    return keys / 16 + 1;
}

/* With windows the length of the work list is counted in 32 bits. */
static bool work_list_fits(const wf_call *c)
{
    return !c->in[WF_ATTENTION_WINDOWS].buf ||
           (most_tiles(c) + 8) * c->out[WF_ATTENTION_O].rows * c->p.n_kv_head < UINT32_MAX;
}

/* How many chunks one work-group of attention_split computes at most of an item that others share: one, where
 * work-groups begin anywhere; else no more than the longest row has, and than its part of the work list holds; some
 * more at the ends of both, and where a window begins. */
static uint64_t most_chunks(const wf_call *c, uint64_t groups, uint64_t chunk, uint64_t grows)
{
    enum { ENDS = 4 };
    if (!chunk) return 1;
    uint64_t tiles = most_tiles(c),
             items = c->out[WF_ATTENTION_O].rows * c->p.n_kv_head * ((c->p.n_head / c->p.n_kv_head + 7) / 8ull);
    uint64_t part = WF_MAX((tiles + START) * items / groups, WHOLE);
    return WF_MIN(chunks_before(tiles, chunk, grows), part / chunk) + ENDS;
}

/* What attention_split takes behind the common arguments, for a number of work-groups and of work-items in each: half
 * of them as often as scratch memory wants it, which changes no bits of a variant with chunks. chunk, grows: in tiles;
 * base, low: of a maximum that is given. */
static void split_launch(const cl_caps *caps, const wf_call *c, uint32_t group, uint32_t groups, const int32_t *chunk,
                         bool async, float base, float low, cl_launch *l)
{
    uint64_t partial = 8ull * (c->p.head_dim + 2) * sizeof(float);
    groups = WF_MIN(groups, WF_CL_ZEROED / 4);
    if (c->max_groups) groups = WF_MIN(groups, c->max_groups); /* fewer compute more each */
    uint64_t slots = most_chunks(c, groups, (uint64_t)chunk[0], (uint64_t)chunk[1]),
             most = caps->scratch ? caps->scratch : caps->panels; /* from the start, or as it is wanted */
    for (; slots > 1 && groups > 1 && WF_CL_ZEROED + (1 + slots) * groups * partial > most; groups /= 2)
        slots = most_chunks(c, groups / 2, (uint64_t)chunk[0], (uint64_t)chunk[1]);
    wf_cl_group_knobs(l, caps, group);
    common_arguments(c, l);
    wf_cl_knob(l, "TP", (int32_t)c->p.page_tokens / 16);
    wf_cl_knob(l, "ASYNC", async);
    wf_cl_knob(l, "CHUNK", chunk[0]);
    wf_cl_knob(l, "GROWS", chunk[1]);
    l->groups = groups;
    wf_cl_arg_scratch(l, WF_CL_ZEROED + (1 + slots) * groups * partial);
    wf_cl_arg_u32(l, (uint32_t)slots);
    wf_cl_arg_view(l, &c->out[WF_ATTENTION_RECOMPUTED]);
    wf_cl_arg_f32(l, base);
    wf_cl_arg_f32(l, low);
}

bool wf_cl_configure_split(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { GROUP = 128 };
    bool async = v->tile[1];
    float base = 0, low = 0;
    if (!suits_mma_of_any(caps, c) || !work_list_fits(c) || wf_cl_group(caps, GROUP, limit) < GROUP) return false;
    if (c->in[WF_ATTENTION_K_POOL].dtype != WF_F16 && c->p.head_dim % 64) return false; /* kernels/kv/q8_0.clh */
    if (async && !wf_attention_base(&c->p, F16_MOST, F16_LEAST, &base, &low)) return false;
    split_launch(caps, c, GROUP, (uint32_t)v->tile[0] * caps->units, v->tile + 2, async, base, low, l);
    return true;
}

/* Bytes of local memory of attention_split with a ring (kernels/attention/split_ring.clh): what its warps' sums take,
 * and a slot. */
static uint32_t ring_sums(uint32_t d, uint32_t warps, uint32_t cols)
{
    enum { OTHERS = 64 };
    return warps * (cols / 2 * (2 * d + 4) + 16) * (uint32_t)sizeof(float) + OTHERS;
}

static uint32_t ring_slot(uint32_t d)
{
    enum { KEYS_APART = 2 * 64, VALUES_APART = 4 * 32, BARRIER = 8 };
    return 2 * 16 * d * 2 + KEYS_APART + VALUES_APART + BARRIER;
}

/* Head sizes whose rows fill the banks of local memory, and q in vectors of 8 bytes. Columns are query heads of a KV
 * head, in pairs. */
bool wf_cl_configure_split_ring(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                cl_launch *l)
{
    const wf_op_params *p = &c->p;
    uint32_t d = p->head_dim, warps = (uint32_t)v->tile[1], group = 32 * warps,
             cols = WF_MIN((p->n_head / p->n_kv_head + 1) / 2 * 2, 8u);
    if (!caps->nv_wgmma || c->in[WF_ATTENTION_WINDOWS].buf || !suits_mma(caps, c) || (d != 64 && d != 128))
        return false;
    if (c->in[WF_ATTENTION_Q].offset % 8 || c->in[WF_ATTENTION_Q].stride % 4) return false;
    if (wf_cl_group(caps, group, limit) < group || caps->nv_local_bytes <= ring_sums(d, warps, cols)) return false;
    uint32_t slots =
        WF_MIN((caps->nv_local_bytes - ring_sums(d, warps, cols)) / (warps * ring_slot(d)), (uint32_t)v->tile[4]);
    if (!slots) return false;
    split_launch(caps, c, group, (uint32_t)v->tile[0] * caps->units, v->tile + 2, false, 0, 0, l);
    wf_cl_knob(l, "SLOTS", (int32_t)slots);
    wf_cl_knob(l, "COLS", (int32_t)cols);
    return true;
}

/* A block of rows and heads a work-group: columns of which tile[1] teams have tile[0] times 8 each. */
bool wf_cl_configure_rows(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { TEAM = 128, MOST_HEAD = 128 };
    uint32_t teams = (uint32_t)v->tile[1], group = TEAM * teams, columns = 8 * teams * (uint32_t)v->tile[0];
    uint32_t g = c->p.n_head / c->p.n_kv_head, heads = WF_MIN(g, columns), rows = columns / heads;
    if (!suits_mma(caps, c) || c->in[WF_ATTENTION_WINDOWS].buf || c->p.head_dim > MOST_HEAD ||
        wf_cl_group(caps, group, limit) < group)
        return false;
    wf_cl_group_knobs(l, caps, group);
    common_arguments(c, l);
    wf_cl_knob(l, "TP", (int32_t)c->p.page_tokens / 16);
    wf_cl_knob(l, "NT", v->tile[0]);
    wf_cl_knob(l, "CHUNK", v->tile[2]);
    wf_cl_knob(l, "GROWS", v->tile[3]);
    l->groups = (uint64_t)(c->out[WF_ATTENTION_O].rows + rows - 1) / rows * c->p.n_kv_head * ((g + heads - 1) / heads);
    return l->groups < UINT32_MAX;
}

/* How many tiles of keys and values local memory holds; more than 3 are no gain. */
static uint32_t prefill_stages(uint32_t d, uint32_t keys)
{
    enum { LOCAL_BYTES = 48 << 10 };
    uint32_t chunks = d / 8, pitch = d % 64 ? (chunks | 1) * 16 : d * 2;
    return WF_MIN(LOCAL_BYTES / (2 * keys * pitch), 3u);
}

bool wf_cl_configure_prefill(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { WARPS = 4, GROUP = 32 * WARPS, IDLE_GROUPS = 4096 };
    const wf_op_params *p = &c->p;
    uint32_t d = p->head_dim, g = p->n_head / p->n_kv_head, mt = (uint32_t)v->tile[0] / (16 * WARPS);
    uint32_t heads = WF_MIN(g, (uint32_t)v->tile[0]), rows = (uint32_t)v->tile[0] / heads, keys = d > 128 ? 16 : 32;
    uint32_t async = WF_MIN((uint32_t)v->tile[2], keys);
    float base = 0, low = 0;
    if (!suits_mma(caps, c) || wf_cl_group(caps, GROUP, limit) < GROUP) return false;
    if (d > 128 && mt > 1) return false; /* registers */
    if (async && !wf_attention_base(p, F16_MOST, F16_LEAST, &base, &low)) return false;
    wf_cl_group_knobs(l, caps, GROUP);
    common_arguments(c, l);
    wf_cl_knob(l, "TP", (int32_t)p->page_tokens / 16);
    wf_cl_knob(l, "MT", (int32_t)mt);
    wf_cl_knob(l, "BN", (int32_t)keys);
    wf_cl_knob(l, "SK", WF_MIN(v->tile[1], (int32_t)keys));
    wf_cl_knob(l, "STAGES", (int32_t)prefill_stages(d, keys));
    wf_cl_knob(l, "HB", (int32_t)heads);
    wf_cl_knob(l, "ASYNC", (int32_t)async);
    share_runs(l, c, rows, heads, IDLE_GROUPS);
    wf_cl_arg_view(l, &c->out[WF_ATTENTION_RECOMPUTED]);
    wf_cl_arg_f32(l, base);
    wf_cl_arg_f32(l, low);
    return true;
}

/* Head sizes of whole panels. One sequence's blocks are dealt to as many work-groups as there are multiprocessors,
 * which fetch the first keys of the next block before they have written the last; of several the longest are not
 * known. */
bool wf_cl_configure_attention_wgmma(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                     cl_launch *l)
{
    enum { GROUP = WF_CL_ATTENTION_THREADS, ROWS = WF_CL_ATTENTION_ROWS, IDLE_GROUPS = 1024 };
    const wf_op_params *p = &c->p;
    const wf_view *q = &c->in[WF_ATTENTION_Q], *o = &c->out[WF_ATTENTION_O];
    uint32_t heads = WF_MIN(p->n_head / p->n_kv_head, (uint32_t)ROWS);
    bool async = v->tile[2];
    float base = 0, low = 0;
    if (!caps->nv_wgmma || c->in[WF_ATTENTION_WINDOWS].buf || !suits_mma(caps, c)) return false;
    if (wf_cl_group(caps, GROUP, limit) < GROUP || (async && !wf_attention_base(p, F16_MOST, F16_LEAST, &base, &low)))
        return false;
    if ((p->head_dim != 64 && p->head_dim != 128) || q->offset % 16 || q->stride % 8 || o->offset % 8 || o->stride % 2)
        return false;
    wf_cl_group_knobs(l, caps, GROUP);
    common_arguments(c, l);
    share_runs(l, c, ROWS / heads, heads, IDLE_GROUPS);
    uint64_t items = l->groups;
    if (sequences_of(c) == 1) l->groups = WF_MIN(l->groups, caps->units);
    if (!async) return l->groups < UINT32_MAX;
    wf_cl_arg_view(l, &c->out[WF_ATTENTION_RECOMPUTED]);
    wf_cl_arg_f32(l, base);
    wf_cl_arg_f32(l, low);
    uint64_t groups = c->max_groups ? WF_MIN(l->groups, c->max_groups) : l->groups;
    return l->groups < UINT32_MAX && items <= groups * WF_CL_ATTENTION_ROUNDS;
}
