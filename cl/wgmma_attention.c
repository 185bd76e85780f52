/* wgmma_attention: softmax(q . k * scale) v over paged keys for many rows of a sequence, as PTX text for NVIDIA's
 * compute capability 9.0. The same job as kernels/attention_prefill.cl, which says how blocks, runs and shares of runs
 * are cut; this file owns how one is computed there.
 *
 *   a warpgroup: page table --> cp.async --> keys and values in local memory, several tiles of them in flight
 *   two more, 64 packed rows each:
 *     S = Q K^T               Q and K in local memory
 *     O += P V (tile before)  P in registers, V in local memory; meanwhile P = 2^(S - maximum) of this tile
 *
 * A row of D values is D / 64 panels of 128 bytes; a panel has all rows of its tile, chunk c of row r at c ^ (r % 8), which
 * is what a matrix descriptor calls 128-byte swizzling, with K across for Q K^T and down for P V.
 * Barriers: `full` counts the lanes whose copies of a tile are there, `empty` the warps that are done with it; keys and
 * values of a tile have one each, so that products begin when the keys are there.
 * No proxy fence between cp.async and wgmma: the barrier that counts the copies does, as in CUTLASS's loops of that kind
 * (MainloopSm90CpAsyncGmmaWarpSpecialized).
 * Maximum of a row: as in attention_prefill.cl, synchronous. Asynchronous softmax gained nothing here (H200: 0.96 to 0.98 of
 * this at 2,048 and 8,192 rows): the maximum is looked for while the matrix units work on the values of the tile before.
 *
 * Source: PTX ISA 8.0, "wgmma" (matrix descriptor, swizzling modes), "mbarrier", "cp.async.mbarrier.arrive";
 * FlashAttention-3 (arXiv 2407.08608), section 3, for products of a tile beside the softmax of the next.
 */
#include "cl/wgmma.h"

#include <stdio.h>

#define emit     wf_ptx_emit
#define ROWS    WF_CL_ATTENTION_ROWS
#define WARPS   8   /* that multiply */
#define THREADS WF_CL_ATTENTION_THREADS
#define COPIERS (THREADS / 32 - WARPS) /* warps that copy */
#define FEW     40  /* registers of those that copy, and of the others: together three times 168 */
#define MANY    232
#define PANEL   128 /* bytes of a row */
#define RESCALE_THRESHOLD     "0f41000000" /* 8: a maximum is raised when a score exceeds it by 2^8 */
#define NO_MAX  "0fF149F2CA" /* -1e30 */

typedef struct shape {
    int d, keys, stages; /* head size; keys of a tile; tiles in flight */
    int panels, q_bytes, tile_bytes, stage_bytes; /* a stage: a tile of keys, then one of values */
    int chunks, at_once; /* of 16 bytes in a row; rows that one instruction of a warp copies */
    int s, p, o;         /* registers of scores, of weights, of sums */
    int labels;
} shape;

static shape derive(const int32_t knob[4], int d)
{
    shape s = {.d = d, .keys = knob[0], .stages = knob[1], .panels = d / 64, .chunks = d / 8};
    s.q_bytes = ROWS * d * 2;
    s.tile_bytes = s.keys * d * 2;
    s.stage_bytes = 2 * s.tile_bytes;
    s.at_once = 32 / s.chunks;
    s.s = s.keys / 2;
    s.p = s.keys / 4;
    s.o = d / 2;
    return s;
}

/* ---- before the first item -------------------------------------------------------------------------------- */

static const char *const inputs[] = {"q", "kp", "vp", "seq", "pos", "indptr", "pages"};
static const char *const sizes[] = {"M", "Hq", "Hkv", "P", "page_stride", "q_stride", "o_stride"};

static void head(wf_ptx *t, const shape *s)
{
    emit(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry attention_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(inputs); i++)
        emit(t, " .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,\n", inputs[i], inputs[i]);
    emit(t, " .param .u64 .ptr .global .align 1 o_base, .param .u64 o_off, .param .u32 o_half,\n");
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, " .param .u32 %s_size,", sizes[i]);
    emit(t, "\n .param .f32 scale_, .param .u32 share_)\n.reqntid %d, 1, 1\n.minnctapersm 1\n{\n"
           " .shared .align 1024 .b8 part[%d];\n .shared .align 8 .b64 bars[%d];\n", THREADS, s->q_bytes + s->stages * s->stage_bytes, 4 * s->stages);
    for (size_t i = 0; i < WF_LEN(inputs); i++) emit(t, " .reg .b64 %s;", inputs[i]);
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, " .reg .b32 %s;", sizes[i]);
    emit(t, "\n .reg .b32 tid, lane, warp, quad, item, items, grid, share, per_kv, hb, br, columns, blocks, row_tiles, half_out;\n"
           " .reg .b32 m0, m_end, my_turn, kvh, head_from, kv_head, run, run_end, turn, from, end, scattered, id, tiles, mine, loaded;\n"
           " .reg .b32 i, r, row, tmp, tmp2, bytes, key0, least, most, left, sync_id, round, cta, token<2>, in_kv<2>, last<2>;\n"
           " .reg .b32 bar, k_bar, v_bar, k_stage, v_stage, k_turn, v_turn, to<8>, at<4>;\n"
           " .reg .b32 p<%d>;\n .reg .f32 s<%d>, o<%d>, c, f<4>, top<2>, below<2>, sum<2>, seen<2>, keep<2>, over;\n"
           " .reg .b64 off, wide, table, place, ready, q_desc, k_desc, v_desc, k_first, v_first, desc, o_at;\n"
           " .reg .pred y, z, copies, raised, to_half;\n", s->p, s->s, s->o);
}

static void arguments(wf_ptx *t)
{
    for (size_t i = 0; i < WF_LEN(inputs); i++)
        emit(t, " ld.param.u64 %s, [%s_base]; ld.param.u64 off, [%s_off]; add.s64 %s, %s, off;\n", inputs[i], inputs[i], inputs[i], inputs[i], inputs[i]);
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, " ld.param.u32 %s, [%s_size];", sizes[i], sizes[i]);
    emit(t, "\n ld.param.u64 o_at, [o_base]; ld.param.u64 off, [o_off]; add.s64 o_at, o_at, off; ld.param.u32 half_out, [o_half]; setp.ne.u32 to_half, half_out, 0;\n"
           " ld.param.f32 c, [scale_]; mul.f32 c, c, 0f3FB8AA3B; ld.param.u32 share, [share_];\n");
}

/* A descriptor of operand A or B whose rows are 128 bytes: 8 of them 1024 bytes on, panels `panel` bytes. */
static void descriptor(wf_ptx *t, const char *name, int offset, int panel)
{
    emit(t, " mov.u32 tmp, part; add.u32 tmp, tmp, %d; shr.u32 tmp, tmp, 4; and.b32 tmp, tmp, 16383; cvt.u64.u32 %s, tmp; or.b64 %s, %s, %llu;\n",
        offset, name, name, name, 1ULL << 62 | (1024ULL >> 4) << 32 | (unsigned long long)(panel >> 4) << 16);
}

static void begin(wf_ptx *t, const shape *s)
{
    emit(t, " mov.u32 tid, %%tid.x; mov.u32 item, %%ctaid.x; mov.u32 grid, %%nctaid.x; and.b32 lane, tid, 31; shr.u32 warp, tid, 5; and.b32 quad, lane, 3;\n"
           " shr.u32 sync_id, warp, 2; add.u32 sync_id, sync_id, 1; setp.ge.u32 copies, warp, %d;\n"
           " mov.u32 cta, item; mov.u32 round, 0;\n"
           " div.u32 per_kv, Hq, Hkv; min.u32 hb, per_kv, %d; mov.u32 br, %d; div.u32 br, br, hb; add.u32 tmp, per_kv, hb; sub.u32 tmp, tmp, 1;\n"
           " div.u32 blocks, tmp, hb; mul.lo.u32 columns, blocks, Hkv; add.u32 tmp, M, br; sub.u32 tmp, tmp, 1; div.u32 row_tiles, tmp, br;\n"
           " mul.lo.u32 items, row_tiles, columns; mul.lo.u32 items, items, share;\n", WARPS, ROWS, ROWS);
    descriptor(t, "k_first", s->q_bytes, 16);
    descriptor(t, "v_first", s->q_bytes + s->tile_bytes, s->keys * PANEL);
    descriptor(t, "q_desc", 0, 16);
    emit(t, " shr.u32 tmp, warp, 2; mul.lo.u32 tmp, tmp, %d; cvt.u64.u32 wide, tmp; add.s64 q_desc, q_desc, wide;\n", 64 * PANEL >> 4);
    emit(t, " mov.u32 bar, bars; mov.u32 k_stage, 0; mov.u32 v_stage, 0; mov.u32 k_turn, 0; mov.u32 v_turn, 0; setp.ne.u32 y, tid, 0; @y bra READY;\n");
    for (int i = 0; i < 4 * s->stages; i++) emit(t, " mbarrier.init.shared.b64 [bar+%d], %d;", i * 8, i < 2 * s->stages ? COPIERS * 32 : WARPS);
    emit(t, "\nREADY: bar.sync 0;\n");
}

/* ---- items and runs --------------------------------------------------------------------------------------- */

static void place_item(wf_ptx *t)
{
    emit(t, " div.u32 tmp, item, columns; rem.u32 tmp2, item, columns; rem.u32 my_turn, tmp, share; div.u32 tmp, tmp, share;\n"
           " sub.u32 m0, row_tiles, tmp; sub.u32 m0, m0, 1; mul.lo.u32 m0, m0, br; add.u32 m_end, m0, br; min.u32 m_end, m_end, M;\n"
           " div.u32 kvh, tmp2, blocks; rem.u32 head_from, tmp2, blocks; mul.lo.u32 head_from, head_from, hb; mul.lo.u32 kv_head, kvh, per_kv;\n");
}

/* Token and head (among those of the KV head) of packed row `row` of the block; padding has token -1. */
static void unpack_row(wf_ptx *t, const char *token, const char *head)
{
    emit(t, " div.u32 %s, row, hb; mul.lo.u32 %s, %s, hb; sub.u32 %s, row, %s; add.u32 %s, %s, head_from; setp.lt.u32 y, %s, br; add.u32 %s, %s, m0;\n"
           " setp.lt.and.u32 y, %s, m_end, y; setp.lt.and.u32 y, %s, per_kv, y; selp.b32 %s, %s, -1, y;\n",
        token, head, token, head, head, head, head, token, token, token, token, head, token, token);
}

static void place_rows(wf_ptx *t)
{
    for (int h = 0; h < 2; h++) {
        char token[8], in_kv[8];
        snprintf(token, sizeof token, "token%d", h);
        snprintf(in_kv, sizeof in_kv, "in_kv%d", h);
        emit(t, " shl.b32 row, warp, 4; shr.u32 tmp, lane, 2; add.u32 row, row, tmp; add.u32 row, row, %d;\n", h * 8);
        unpack_row(t, token, in_kv);
    }
    emit(t, " mov.u32 loaded, 0;\n");
}

/* Each run begins anew: what a sequence left in the registers does not reach the rows of another, be it NaN. */
static void clear_sums(wf_ptx *t, const shape *s)
{
    emit(t, " mov.u32 mine, 0; mov.f32 sum0, 0f00000000; mov.f32 sum1, 0f00000000; mov.f32 top0, " NO_MAX "; mov.f32 top1, top0;\n");
    for (int i = 0; i < s->o; i++) emit(t, " mov.f32 o%d, 0f00000000;%s", i, i % 8 == 7 ? "\n" : "");
}

/* Rows run to run_end - 1 are of one sequence, id; contiguous: position = from + row; end: the last position. */
static void find_run(wf_ptx *t, const char *role)
{
    emit(t, " mul.wide.u32 off, run, 4; add.s64 wide, seq, off; ld.global.u32 id, [wide]; add.s64 wide, pos, off; ld.global.u32 from, [wide]; sub.u32 from, from, run;\n"
           " mov.u32 run_end, m_end; mov.u32 end, -1; mov.u32 scattered, 0; add.u32 row, run, lane; mov.u32 i, run;\n"
           "LOOK_%s: mul.wide.u32 off, row, 4; setp.lt.u32 y, row, m_end; mov.u32 tmp, id; add.s64 wide, seq, off; @y ld.global.u32 tmp, [wide];\n"
           " mov.u32 r, -1; add.s64 wide, pos, off; @y ld.global.u32 r, [wide]; setp.ne.u32 z, tmp, id; vote.sync.ballot.b32 tmp, z, -1;\n"
           " brev.b32 tmp2, tmp; clz.b32 tmp2, tmp2; add.u32 tmp2, tmp2, i; setp.ne.u32 z, tmp, 0; @z mov.u32 run_end, tmp2;\n"
           " setp.lt.u32 y, row, run_end; @y max.s32 end, end, r; sub.u32 r, r, row; setp.ne.and.u32 y, r, from, y; @y mov.u32 scattered, 1;\n"
           " add.u32 row, row, 32; add.u32 i, i, 32; setp.lt.u32 y, i, m_end; @z bra FOUND_%s; @y bra LOOK_%s;\n"
           "FOUND_%s: redux.sync.max.s32 end, end, -1; redux.sync.max.s32 scattered, scattered, -1;\n"
           " mul.wide.s32 off, id, 4; add.s64 wide, indptr, off; ld.global.u32 tmp, [wide]; mul.wide.s32 table, tmp, 4; add.s64 table, table, pages;\n", role, role, role, role);
}

/* ---- keys and values to local memory -------------------------------------------------------------------- */

static int label(shape *s)
{
    return s->labels++;
}

/* Waits until a barrier's turn is over. */
static void await(wf_ptx *t, shape *s, const char *bar, int offset, const char *turn)
{
    int n = label(s);
    emit(t, "AWAIT%d: mbarrier.try_wait.parity.shared.b64 y, [%s+%d], %s; @!y bra AWAIT%d;\n", n, bar, offset, turn, n);
}

/* To the next stage, and its barriers: full of keys at [bar], of values 8 stages on, then empty ones in that order. */
static void advance(wf_ptx *t, const shape *s, const char *x)
{
    emit(t, " add.u32 %s_stage, %s_stage, 1; setp.eq.u32 y, %s_stage, %d; @y mov.u32 %s_stage, 0; @y xor.b32 %s_turn, %s_turn, 1;\n", x, x, x, s->stages, x, x, x);
}

static void place_stage(wf_ptx *t, const shape *s, const char *x)
{
    emit(t, " shl.b32 tmp, %s_stage, 3; add.u32 %s_bar, bar, tmp; mul.wide.u32 %s_desc, %s_stage, %d; add.s64 %s_desc, %s_desc, %s_first;\n",
        x, x, x, x, s->stage_bytes >> 4, x, x, x);
}

/* Lane l asks for the page of the l-th 16 keys that its warp copies; ready: their place in a pool, in bytes. */
static void look_up_pages(wf_ptx *t, const shape *s)
{
    emit(t, " shl.b32 tmp, lane, 4; add.u32 tmp, tmp, key0; add.u32 tmp, tmp, left; min.u32 tmp, tmp, end; and.b32 tmp, tmp, -16; div.u32 tmp2, tmp, P; mul.wide.u32 off, tmp2, 4;\n"
           " add.s64 off, off, table; ld.global.u32 r, [off]; mul.lo.u32 tmp2, tmp2, P; sub.u32 tmp, tmp, tmp2; mad.lo.u32 tmp, kvh, P, tmp;\n"
           " mul.wide.u32 ready, r, page_stride; mul.wide.u32 off, tmp, %d; add.s64 ready, ready, off; shl.b64 ready, ready, 1;\n", s->d);
}

/* One tile of keys or values; whole: none of its keys is past the end. */
static void copy_tile(wf_ptx *t, const shape *s, const char *pool, int offset, bool whole)
{
    int period = 8 / s->at_once;
    for (int g = 0; g < s->keys / 16 / COPIERS; g++) {
        emit(t, " mov.b64 {tmp, tmp2}, place; shfl.sync.idx.b32 tmp, tmp, %d, 31, -1; shfl.sync.idx.b32 tmp2, tmp2, %d, 31, -1;\n"
               " mov.b64 off, {tmp, tmp2}; add.s64 off, off, %s; mul.wide.u32 wide, lane, 16; add.s64 off, off, wide;\n", g, g, pool);
        for (int i = 0; i < 16 / s->at_once; i++) {
            int row = g * 16 + i * s->at_once;
            if (!whole) emit(t, " setp.le.s32 y, row, %d; selp.b32 bytes, 16, 0, y;", -row);
            emit(t, " cp.async.cg.shared.global [to%d+%d], [off+%d], 16%s;\n", i % period, offset + (g * 16 / 8 + i / period) * 8 * PANEL,
                i * s->at_once * s->d * 2, whole ? "" : ", bytes");
        }
    }
}

static void copy_run(wf_ptx *t, shape *s)
{
    int period = 8 / s->at_once, n = label(s);
    emit(t, " mov.u32 key0, 0; sub.u32 left, warp, %d; mul.lo.u32 left, left, %d;\n", WARPS, s->keys / COPIERS);
    look_up_pages(t, s);
    emit(t, "COPY: mov.b64 place, ready; add.u32 key0, key0, %d;\n", s->keys);
    look_up_pages(t, s); /* of the tile after this, while this one is copied */
    emit(t, " sub.u32 key0, key0, %d;\n", s->keys);
    place_stage(t, s, "k");
    /* Row lane / chunks + i at_once, chunk lane % chunks. */
    emit(t, " div.u32 row, lane, %d; rem.u32 i, lane, %d; add.u32 row, row, left; shr.u32 tmp2, i, 3; and.b32 i, i, 7; mov.u32 r, part; mad.lo.u32 r, tmp2, %d, r; mad.lo.u32 r, k_stage, %d, r;\n",
        s->chunks, s->chunks, s->keys * PANEL, s->stage_bytes);
    for (int k = 0; k < period; k++)
        emit(t, " add.u32 tmp, row, %d; and.b32 tmp2, tmp, 7; xor.b32 tmp2, tmp2, i; shl.b32 tmp2, tmp2, 4; mad.lo.u32 tmp, tmp, %d, tmp2; add.u32 to%d, tmp, r; add.u32 to%d, to%d, %d;\n",
            k * s->at_once, PANEL, k, k, k, s->q_bytes);
    emit(t, " add.u32 row, row, key0; sub.u32 row, row, end; xor.b32 tmp, k_turn, 1; add.u32 tmp2, key0, %d; setp.le.s32 z, tmp2, end;\n", s->keys - 1);
    await(t, s, "k_bar", 16 * s->stages, "tmp");
    emit(t, " xor.b32 tmp, k_turn, 1;");
    /* Two texts, for bytes to be asked for cost. */
    for (int whole = 1; whole >= 0; whole--) {
        if (whole) emit(t, " @!z bra PARTLY%d;\n", n);
        else emit(t, "PARTLY%d:\n", n);
        copy_tile(t, s, "kp", 0, whole);
        emit(t, " cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar]; xor.b32 tmp, k_turn, 1;\n");
        await(t, s, "k_bar", 24 * s->stages, "tmp");
        copy_tile(t, s, "vp", s->tile_bytes, whole);
        emit(t, " cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar+%d];%s\n", 8 * s->stages, whole ? "" : "\n");
        if (whole) emit(t, " bra COPIED%d;\n", n);
    }
    emit(t, "COPIED%d:\n", n);
    advance(t, s, "k");
    emit(t, " add.u32 key0, key0, %d; setp.le.s32 y, key0, end; @y bra COPY;\n", s->keys);
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* The 64 packed rows of Q of this warpgroup. */
static void load_q(wf_ptx *t, const shape *s)
{
    int rows = 128 / s->chunks;
    emit(t, " setp.ne.u32 y, loaded, 0; @y bra HAVE_Q; mov.u32 loaded, 1; bar.sync sync_id, 128;\n"
           " and.b32 i, tid, 127; div.u32 row, i, %d; rem.u32 i, i, %d; shr.u32 tmp, warp, 2; mad.lo.u32 row, tmp, 64, row;\n"
           " mov.u32 k_bar, part; shr.u32 tmp, i, 3; mad.lo.u32 k_bar, tmp, %d, k_bar;\n", s->chunks, s->chunks, ROWS * PANEL);
    for (int j = 0; j < 64 / rows; j++) {
        unpack_row(t, "tmp", "tmp2");
        emit(t, " setp.ne.u32 y, tmp, -1; mul.wide.u32 off, tmp, q_stride; add.u32 tmp2, tmp2, kv_head; mul.wide.u32 wide, tmp2, %d; add.s64 off, off, wide;\n"
               " mul.wide.u32 wide, i, 8; add.s64 off, off, wide; shl.b64 off, off, 1; add.s64 off, off, q;\n", s->d);
        for (int v = 0; v < 4; v++) emit(t, " mov.u32 at%d, 0;", v);
        emit(t, " @y ld.global.v4.u32 {at0,at1,at2,at3}, [off];\n"
               " xor.b32 tmp, row, i; and.b32 tmp, tmp, 7; shl.b32 tmp, tmp, 4; mad.lo.u32 tmp, row, %d, tmp; add.u32 tmp, tmp, k_bar; st.shared.v4.u32 [tmp], {at0,at1,at2,at3};\n"
               " add.u32 row, row, %d;\n", PANEL, rows);
    }
    emit(t, " fence.proxy.async; bar.sync sync_id, 128;\nHAVE_Q:\n");
}

/* The last key that each of the two rows sees: none in other runs; padding is not held back. least: no row of the warp
 * sees less. left: tiles that the warpgroup has rows for, tiles: those of the run. */
static void place_run(wf_ptx *t, const shape *s)
{
    for (int h = 0; h < 2; h++) {
        emit(t, " mul.wide.u32 off, token%d, 4; add.s64 off, off, pos; add.u32 last%d, from, token%d; setp.ge.u32 y, token%d, run; setp.lt.and.u32 y, token%d, run_end, y;\n"
               " setp.ne.and.u32 z, scattered, 0, y; @z ld.global.u32 last%d, [off]; selp.b32 last%d, last%d, -1, y; @y or.b32 mine, mine, %d;\n"
               " setp.eq.u32 y, token%d, -1; selp.b32 last%d, 2147483647, last%d, y;\n", h, h, h, h, h, h, h, h, 1 << h, h, h, h);
    }
    emit(t, " min.s32 least, last0, last1; redux.sync.min.s32 least, least, -1;\n"
           " shr.u32 tmp, warp, 2; shl.b32 tmp, tmp, 6; add.u32 tmp2, tmp, 63; div.u32 tmp, tmp, hb; div.u32 tmp2, tmp2, hb; add.u32 tmp, tmp, m0; add.u32 tmp2, tmp2, m0;\n"
           " sub.u32 i, run_end, 1; min.u32 tmp2, tmp2, i; setp.lt.u32 y, tmp, run_end; setp.ge.and.u32 y, tmp2, run, y; add.u32 most, tmp2, from;\n"
           " setp.ne.u32 z, scattered, 0; @z mov.u32 most, end; selp.b32 most, most, -1, y; min.s32 most, most, end; max.s32 most, most, -1;\n"
           " add.s32 tiles, end, %d; div.u32 tiles, tiles, %d; add.s32 left, most, %d; div.u32 left, left, %d; sub.u32 tiles, tiles, left;\n",
        s->keys, s->keys, s->keys, s->keys);
}

static void scores(wf_ptx *t, const shape *s)
{
    emit(t, " wgmma.fence.sync.aligned;\n");
    for (int k = 0; k < s->d / 16; k++) {
        emit(t, " add.s64 desc, q_desc, %d; add.s64 wide, k_desc, %d;\n wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {",
            (k / 4 * ROWS * PANEL + k % 4 * 32) >> 4, (k / 4 * s->keys * PANEL + k % 4 * 32) >> 4, s->keys);
        for (int i = 0; i < s->s; i++) emit(t, "%ss%d", i ? "," : "", i);
        emit(t, "}, desc, wide, %d, 1, 1, 0, 0;\n", k > 0);
    }
    emit(t, " wgmma.commit_group.sync.aligned;\n");
}

static void add_values(wf_ptx *t, const shape *s)
{
    emit(t, " wgmma.fence.sync.aligned;\n");
    for (int k = 0; k < s->keys / 16; k++) {
        emit(t, " add.s64 desc, v_desc, %d;\n wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", k * 16 * PANEL >> 4, s->d);
        for (int i = 0; i < s->o; i++) emit(t, "%so%d", i ? "," : "", i);
        emit(t, "}, {p%d,p%d,p%d,p%d}, desc, 1, 1, 1, 1;\n", 4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3);
    }
    emit(t, " wgmma.commit_group.sync.aligned;\n");
}

/* Keys or values of this stage are no longer needed by this warp. */
static void release(wf_ptx *t, const char *bar, int offset)
{
    emit(t, " setp.eq.u32 y, lane, 0; @y mbarrier.arrive.shared.b64 _, [%s+%d];\n", bar, offset);
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

static void mask(wf_ptx *t, shape *s)
{
    int n = label(s);
    emit(t, " add.s32 tmp, key0, %d; setp.le.s32 y, tmp, least; @y bra SEEN%d; shl.b32 tmp, quad, 1; add.u32 tmp, tmp, key0; sub.s32 at0, last0, tmp; sub.s32 at1, last1, tmp;\n", s->keys - 1, n);
    for (int i = 0; i < s->s; i++)
        emit(t, " setp.lt.s32 y, at%d, %d; selp.f32 s%d, 0fFF800000, s%d, y;%s", i / 2 % 2, i / 4 * 8 + i % 2, i, i, i % 4 == 3 ? "\n" : "");
    emit(t, "SEEN%d:\n", n);
}

/* Raises the maximum of rows that exceed it by much; keep: what their sums are multiplied with. */
static void raise(wf_ptx *t, shape *s)
{
    int n = label(s);
    emit(t, " setp.ne.u32 raised, 0, 0;\n");
    for (int i = 0; i < 4; i++) emit(t, " mov.f32 f%d, s%d;", i, i);
    for (int i = 4; i < s->s; i++) emit(t, " max.f32 f%d, f%d, s%d;%s", i % 4, i % 4, i, i % 4 == 3 ? "\n" : "");
    emit(t, " max.f32 seen0, f0, f1; max.f32 seen1, f2, f3; mul.f32 seen0, seen0, c; mul.f32 seen1, seen1, c; add.f32 f0, top0, " RESCALE_THRESHOLD "; add.f32 f1, top1, " RESCALE_THRESHOLD ";\n"
           " setp.gt.f32 y, seen0, f0; setp.gt.or.f32 y, seen1, f1, y; vote.sync.any.pred raised, y, -1; @!raised bra RAISED%d;\n", n);
    for (int h = 0; h < 2; h++) {
        for (int x = 1; x < 3; x++)
            emit(t, " mov.b32 tmp, seen%d; shfl.sync.bfly.b32 tmp, tmp, %d, 31, -1; mov.b32 over, tmp; max.f32 seen%d, seen%d, over;\n", h, x, h, h);
        emit(t, " setp.gt.f32 y, seen%d, f%d; selp.f32 over, seen%d, top%d, y; sub.f32 keep%d, top%d, over; ex2.approx.ftz.f32 keep%d, keep%d; mov.f32 top%d, over; mul.f32 sum%d, sum%d, keep%d;\n",
            h, h, h, h, h, h, h, h, h, h, h, h);
    }
    emit(t, "RAISED%d:\n", n);
}

static void weigh(wf_ptx *t, const shape *s)
{
    emit(t, " neg.f32 below0, top0; neg.f32 below1, top1;\n");
    for (int i = 0; i < s->s; i++)
        emit(t, " fma.rn.f32 s%d, s%d, c, below%d; ex2.approx.ftz.f32 s%d, s%d; add.f32 sum%d, sum%d, s%d;\n", i, i, i / 2 % 2, i, i, i / 2 % 2, i / 2 % 2, i);
}

/* Scores to weights; what rows have so far must be rescaled. */
static void softmax(wf_ptx *t, shape *s)
{
    mask(t, s);
    raise(t, s);
    weigh(t, s);
}

/* S's layout as a result is P's as an operand. */
static void round_weights(wf_ptx *t, const shape *s)
{
    for (int i = 0; i < s->p; i++) emit(t, " cvt.rn.f16x2.f32 p%d, s%d, s%d;%s", i, 2 * i + 1, 2 * i, i % 4 == 3 ? "\n" : "");
}

static void rescale(wf_ptx *t, shape *s)
{
    int n = label(s);
    emit(t, " @!raised bra KEPT%d;\n", n);
    for (int i = 0; i < s->o; i++) emit(t, " mul.f32 o%d, o%d, keep%d;%s", i, i, i / 2 % 2, i % 4 == 3 ? "\n" : "");
    emit(t, "KEPT%d:\n", n);
}

/* ---- a run, a block ---------------------------------------------------------------------------------------- */

static void attend_run(wf_ptx *t, shape *s)
{
    int empty = 16 * s->stages, value = 8 * s->stages;
    emit(t, " mov.u32 key0, 0; setp.eq.u32 y, left, 0; @y bra REST;\n");
    place_stage(t, s, "k");
    await(t, s, "k_bar", 0, "k_turn");
    scores(t, s);
    emit(t, " wgmma.wait_group.sync.aligned 0;\n");
    release(t, "k_bar", empty);
    softmax(t, s);
    rescale(t, s);
    round_weights(t, s);
    emit(t, "TILE: ");
    advance(t, s, "k");
    emit(t, " sub.u32 left, left, 1; setp.eq.u32 y, left, 0; @y bra LAST; add.u32 key0, key0, %d;\n", s->keys);
    place_stage(t, s, "k");
    place_stage(t, s, "v");
    await(t, s, "k_bar", 0, "k_turn");
    scores(t, s);
    await(t, s, "v_bar", value, "v_turn");
    add_values(t, s);
    emit(t, " wgmma.wait_group.sync.aligned 1;\n");
    release(t, "k_bar", empty);
    softmax(t, s);
    emit(t, " wgmma.wait_group.sync.aligned 0;\n");
    release(t, "v_bar", empty + value);
    rescale(t, s);
    round_weights(t, s);
    advance(t, s, "v");
    emit(t, " bra TILE;\nLAST:\n");
    place_stage(t, s, "v");
    await(t, s, "v_bar", value, "v_turn");
    add_values(t, s);
    emit(t, " wgmma.wait_group.sync.aligned 0;\n");
    release(t, "v_bar", empty + value);
    advance(t, s, "v");
    /* Tiles of which the other warpgroup alone has rows: their barriers want all warps. */
    emit(t, "REST: setp.eq.u32 y, tiles, 0; @y bra ATTENDED;\n");
    place_stage(t, s, "k");
    await(t, s, "k_bar", 0, "k_turn");
    release(t, "k_bar", empty);
    await(t, s, "k_bar", value, "k_turn");
    release(t, "k_bar", empty + value);
    advance(t, s, "k");
    advance(t, s, "v");
    emit(t, " sub.u32 tiles, tiles, 1; bra REST;\nATTENDED:\n");
}

/* Those of the run. */
static void write_rows(wf_ptx *t, const shape *s)
{
    for (int h = 0; h < 2; h++) {
        for (int x = 1; x < 3; x++) emit(t, " mov.b32 tmp, sum%d; shfl.sync.bfly.b32 tmp, tmp, %d, 31, -1; mov.b32 f0, tmp; add.f32 sum%d, sum%d, f0;\n", h, x, h, h);
        emit(t, " and.b32 tmp, mine, %d; setp.eq.u32 y, tmp, 0; @y bra WRITTEN%d; rcp.rn.f32 over, sum%d; setp.eq.f32 y, sum%d, 0f00000000; selp.f32 over, 0f00000000, over, y;\n"
               " mul.wide.u32 off, token%d, o_stride; add.u32 tmp, kv_head, in_kv%d; mul.wide.u32 wide, tmp, %d; add.s64 off, off, wide; shl.b32 tmp, quad, 1; cvt.u64.u32 wide, tmp; add.s64 off, off, wide;\n"
               " @to_half bra HALF%d; shl.b64 off, off, 2; add.s64 off, off, o_at;\n", 1 << h, h, h, h, h, h, s->d, h);
        for (int i = 2 * h; i < s->o; i += 4)
            emit(t, " mul.f32 f0, o%d, over; mul.f32 f1, o%d, over; st.global.v2.f32 [off+%d], {f0,f1};\n", i, i + 1, i / 4 * 32);
        emit(t, " bra WRITTEN%d;\nHALF%d: shl.b64 off, off, 1; add.s64 off, off, o_at;\n", h, h);
        for (int i = 2 * h; i < s->o; i += 4)
            emit(t, " mul.f32 f0, o%d, over; mul.f32 f1, o%d, over; cvt.rn.f16x2.f32 tmp, f1, f0; st.global.u32 [off+%d], tmp;\n", i, i + 1, i / 4 * 16);
        emit(t, "WRITTEN%d:\n", h);
    }
}

/* All items, as one of the two roles; both walk over the same runs. Items are ordered longest first, and every second
 * round of them is taken backwards, so that work-groups of several get as much. */
static void walk(wf_ptx *t, shape *s, bool copies)
{
    const char *role = copies ? "COPY" : "MULTIPLY";
    emit(t, " bra ANY_%s;\nITEM_%s:\n", role, role);
    place_item(t);
    if (!copies) place_rows(t);
    emit(t, " mov.u32 run, m0; mov.u32 turn, 0;\nRUN_%s:\n", role);
    find_run(t, role);
    emit(t, " rem.u32 tmp, turn, share; setp.ne.u32 y, tmp, my_turn; @y bra NEXT_%s;\n", role);
    if (copies) {
        emit(t, " setp.lt.s32 y, end, 0; @y bra NEXT_%s;\n", role);
        copy_run(t, s);
    } else {
        clear_sums(t, s);
        place_run(t, s);
        load_q(t, s);
        attend_run(t, s);
        write_rows(t, s);
    }
    emit(t, "NEXT_%s: mov.u32 run, run_end; add.u32 turn, turn, 1; setp.lt.u32 y, run, m_end; @y bra RUN_%s;\n", role, role);
    emit(t, " add.u32 round, round, 1; and.b32 tmp, round, 1; setp.ne.u32 y, tmp, 0; sub.u32 tmp, grid, cta; sub.u32 tmp, tmp, 1; selp.b32 tmp, tmp, cta, y; mad.lo.u32 item, round, grid, tmp;\n"
           "ANY_%s: setp.lt.u32 y, item, items; @y bra ITEM_%s;\n", role, role);
}

char *wf_cl_attention_ptx(const int32_t knob[4], int32_t d)
{
    shape s = derive(knob, d);
    wf_ptx t = {0};
    head(&t, &s);
    arguments(&t);
    begin(&t, &s);
    emit(&t, " @copies bra COPIES;\n setmaxnreg.inc.sync.aligned.u32 %d;\n", MANY);
    walk(&t, &s, false);
    emit(&t, " ret;\nCOPIES: setmaxnreg.dec.sync.aligned.u32 %d;\n", FEW);
    walk(&t, &s, true);
    emit(&t, " ret;\n}\n");
    return wf_ptx_finish(&t);
}
