/* wgmma_attention: softmax(q . k * scale) v over paged keys for many rows of a sequence, generated as PTX for NVIDIA's
 * compute capability 9.0. The same job as kernels/attention_prefill.cl, which says how blocks, runs and shares of runs
 * are cut; this file owns how one is computed.
 *
 *   a warpgroup: page table --> cp.async --> keys and values in shared memory, several stages of them in flight
 *   two more, 64 packed rows each:
 *     S = Q K^T               Q and K in shared memory
 *     O += P V (tile before)  P in registers, V in shared memory; meanwhile P = 2^(S - maximum) of this tile
 *
 * A row of D values is D / 64 panels of 128 bytes; a panel has all rows of its tile, chunk c of row r at c ^ (r % 8), which
 * is what a matrix descriptor calls 128-byte swizzling, with K across for Q K^T and down for P V.
 * Barriers: `full` counts the lanes whose copies of a tile are there, `empty` the warps that are done with it; keys and
 * values of a tile have one each, so that products begin when the keys are there.
 * No proxy fence between cp.async and wgmma: the barrier that counts the copies does, as in CUTLASS's loops of that kind
 * (MainloopSm90CpAsyncGmmaWarpSpecialized).
 * Maximum of a row: as in attention_prefill.cl, synchronous. Asynchronous softmax gained nothing here (H200: 0.96 to 0.98 of
 * this at 2,048 and 8,192 rows): the maximum is found while the matrix units work on the values of the tile before.
 *
 * Source: PTX ISA 8.0, "wgmma" (matrix descriptor, swizzling modes), "mbarrier", "cp.async.mbarrier.arrive";
 * FlashAttention-3 (arXiv 2407.08608), section 3, for products of a tile beside the softmax of the next.
 */
#include "cl/wgmma.h"

#include <stdio.h>

#define emit              wf_ptx_emit
#define label             wf_ptx_label
#define open_scope        wf_ptx_open
#define close_scope       wf_ptx_close
#define ROWS              WF_CL_ATTENTION_ROWS
#define WARPS             8   /* that multiply */
#define THREADS           WF_CL_ATTENTION_THREADS
#define COPIERS           (THREADS / 32 - WARPS) /* warps that copy */
#define FEW               40  /* registers of those that copy, and of the others: together three times 168 */
#define MANY              232
#define PANEL             128 /* bytes of a row */
#define RESCALE_THRESHOLD "0f41000000" /* 8: a maximum is raised when a score exceeds it by 2^8 */
#define NO_MAX            "0fF149F2CA" /* -1e30 */

typedef struct shape {
    int d, keys, stages; /* head size; keys of a tile; stages in flight */
    int panels, q_bytes, tile_bytes, stage_bytes; /* a stage: a tile of keys, then one of values */
    int chunks, at_once; /* of 16 bytes in a row; rows that one instruction of a warp copies */
    int s, p, o;         /* registers of scores, of weights, of accumulators */
    int labels;          /* numbers given to labels */
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

static void parameters(wf_ptx *t)
{
    emit(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry attention_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(inputs); i++)
        emit(t, "    .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,\n", inputs[i], inputs[i]);
    emit(t, "    .param .u64 .ptr .global .align 1 o_base, .param .u64 o_off, .param .u32 o_half,\n");
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, "    .param .u32 %s_size,\n", sizes[i]);
    emit(t, "    .param .f32 scale_, .param .u32 share_)\n.reqntid %d, 1, 1\n.minnctapersm 1\n{\n", THREADS);
    t->depth = 1;
}

/* What lives as long as the program; the rest belongs to scopes. */
static void declare(wf_ptx *t, const shape *s)
{
    emit(t, ".shared .align 1024 .b8 smem[%d];"
            ".shared .align 8 .b64 bars[%d];", s->q_bytes + s->stages * s->stage_bytes, 4 * s->stages);
    for (size_t i = 0; i < WF_LEN(inputs); i++) emit(t, ".reg .b64 %s;", inputs[i]);
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, ".reg .b32 %s;", sizes[i]);
    emit(t, ".reg .b64 o_at;"
            ".reg .f32 c; // scale * log2(e)\n"
            ".reg .pred to_half, copies;"
            ".reg .b32 tid, lane, warp, quad, sync_id;"
            ".reg .b32 cta, grid, round, item, items, share, per_kv, hb, br, columns, blocks, row_tiles;"
            ".reg .b32 m0, m_end, kvh, head_from, kv_head, run, run_number, my_number;"
            ".reg .b32 run_end, from, end, scattered; // of a run, as its table\n"
            ".reg .b64 table;"
            ".reg .b32 bar, k_bar, v_bar, k_stage, v_stage, k_phase, v_phase, key0;"
            ".reg .b64 q_desc, k_desc, v_desc, k_first, v_first;"
            ".reg .b32 p<%d>;"
            ".reg .f32 s<%d>;"
            ".reg .f32 o<%d>;", s->p, s->s, s->o);
}

static void load_arguments(wf_ptx *t)
{
    open_scope(t, "The arguments.", "Writes q, kp, vp, seq, pos, indptr, pages, M, Hq, Hkv, P, page_stride, q_stride, o_stride, o_at, to_half, c, share.",
               ".b64 off; .b32 half;");
    for (size_t i = 0; i < WF_LEN(inputs); i++)
        emit(t, "ld.param.u64 %s, [%s_base];"
                "ld.param.u64 off, [%s_off];"
                "add.s64 %s, %s, off;", inputs[i], inputs[i], inputs[i], inputs[i], inputs[i]);
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, "ld.param.u32 %s, [%s_size];", sizes[i], sizes[i]);
    emit(t, "ld.param.u64 o_at, [o_base];"
            "ld.param.u64 off, [o_off];"
            "add.s64 o_at, o_at, off;"
            "ld.param.u32 half, [o_half];"
            "setp.ne.u32 to_half, half, 0;"
            "ld.param.f32 c, [scale_];"
            "mul.f32 c, c, 0f3FB8AA3B;"
            "ld.param.u32 share, [share_];");
    close_scope(t);
}

/* Operand A or B in rows of 128 bytes: 8 of them are 1024 bytes, panels `panel` bytes. Writes the register `name`; destroys tmp. */
static void descriptor(wf_ptx *t, const char *name, int offset, int panel)
{
    emit(t, "mov.u32 tmp, smem;"
            "add.u32 tmp, tmp, %d;"
            "shr.u32 tmp, tmp, 4;"
            "and.b32 tmp, tmp, 16383;"
            "cvt.u64.u32 %s, tmp;"
            "or.b64 %s, %s, %llu;",
         offset, name, name, name, 1ULL << 62 | (1024ULL >> 4) << 32 | (unsigned long long)(panel >> 4) << 16);
}

static void begin_work_item(wf_ptx *t)
{
    open_scope(t, "Who this work-item is, and how many items of work there are: blocks of rows by heads, times their shares.",
               "Reads Hq, Hkv, M, share; writes tid, item, grid, lane, warp, quad, sync_id, copies, cta, round, per_kv, hb, br, blocks, columns, row_tiles, items.",
               ".b32 tmp;");
    emit(t, "mov.u32 tid, %%tid.x;"
            "mov.u32 item, %%ctaid.x;"
            "mov.u32 grid, %%nctaid.x;"
            "and.b32 lane, tid, 31;"
            "shr.u32 warp, tid, 5;"
            "and.b32 quad, lane, 3;"
            "shr.u32 sync_id, warp, 2; // the barrier of a warpgroup\n"
            "add.u32 sync_id, sync_id, 1;"
            "setp.ge.u32 copies, warp, %d;"
            "mov.u32 cta, item;"
            "mov.u32 round, 0;", WARPS);
    emit(t, "div.u32 per_kv, Hq, Hkv; // query heads of a KV head\n"
            "min.u32 hb, per_kv, %d; // heads of a block\n"
            "mov.u32 br, %d;"
            "div.u32 br, br, hb; // rows of a block\n"
            "add.u32 tmp, per_kv, hb;"
            "sub.u32 tmp, tmp, 1;"
            "div.u32 blocks, tmp, hb;"
            "mul.lo.u32 columns, blocks, Hkv;"
            "add.u32 tmp, M, br;"
            "sub.u32 tmp, tmp, 1;"
            "div.u32 row_tiles, tmp, br;"
            "mul.lo.u32 items, row_tiles, columns;"
            "mul.lo.u32 items, items, share;", ROWS, ROWS);
    close_scope(t);
}

static void begin_stages(wf_ptx *t, const shape *s)
{
    open_scope(t, "Descriptors of the first stage and of this warpgroup's rows of Q, and the barriers of all stages.",
               "Reads warp, tid; writes k_first, v_first, q_desc, bar, k_stage, v_stage, k_phase, v_phase.", ".b32 tmp; .b64 mine; .pred p;");
    descriptor(t, "k_first", s->q_bytes, 16);
    descriptor(t, "v_first", s->q_bytes + s->tile_bytes, s->keys * PANEL);
    descriptor(t, "q_desc", 0, 16);
    emit(t, "shr.u32 tmp, warp, 2;"
            "mul.lo.u32 tmp, tmp, %d;"
            "cvt.u64.u32 mine, tmp;"
            "add.s64 q_desc, q_desc, mine;"
            "mov.u32 bar, bars;"
            "mov.u32 k_stage, 0;"
            "mov.u32 v_stage, 0;"
            "mov.u32 k_phase, 0;"
            "mov.u32 v_phase, 0;"
            "setp.ne.u32 p, tid, 0;"
            "@p bra READY;", 64 * PANEL >> 4);
    for (int i = 0; i < 4 * s->stages; i++) emit(t, "mbarrier.init.shared.b64 [bar+%d], %d;", i * 8, i < 2 * s->stages ? COPIERS * 32 : WARPS);
    label(t, "READY");
    emit(t, "bar.sync 0;");
    close_scope(t);
}

/* ---- items and runs --------------------------------------------------------------------------------------- */

static void place_item(wf_ptx *t)
{
    open_scope(t, "The rows and heads of this item, and which of their runs are its share.",
               "Reads item, columns, share, row_tiles, br, M, blocks, hb, per_kv; writes my_number, m0, m_end, kvh, head_from, kv_head.", ".b32 row, column;");
    emit(t, "div.u32 row, item, columns;"
            "rem.u32 column, item, columns;"
            "rem.u32 my_number, row, share;"
            "div.u32 row, row, share;"
            "sub.u32 m0, row_tiles, row; // the last rows, which see most, come first\n"
            "sub.u32 m0, m0, 1;"
            "mul.lo.u32 m0, m0, br;"
            "add.u32 m_end, m0, br;"
            "min.u32 m_end, m_end, M;"
            "div.u32 kvh, column, blocks;"
            "rem.u32 head_from, column, blocks;"
            "mul.lo.u32 head_from, head_from, hb;"
            "mul.lo.u32 kv_head, kvh, per_kv;");
    close_scope(t);
}

/* Token and head (among those of the KV head) of packed row `row` of the block; padding has token -1. Writes the registers
 * token and head; destroys the predicate y. */
static void unpack_row(wf_ptx *t, const char *token, const char *head)
{
    emit(t, "div.u32 %s, row, hb;"
            "mul.lo.u32 %s, %s, hb;"
            "sub.u32 %s, row, %s;"
            "add.u32 %s, %s, head_from;", token, head, token, head, head, head, head);
    emit(t, "setp.lt.u32 y, %s, br;"
            "add.u32 %s, %s, m0;"
            "setp.lt.and.u32 y, %s, m_end, y;"
            "setp.lt.and.u32 y, %s, per_kv, y;"
            "selp.b32 %s, %s, -1, y;", token, token, token, token, head, token, token);
}

static void place_rows(wf_ptx *t)
{
    open_scope(t, "The two packed rows of this lane.", "Reads warp, lane, hb, head_from, br, m0, m_end, per_kv; writes token*, in_kv*, loaded.", ".b32 row, tmp; .pred y;");
    for (int h = 0; h < 2; h++) {
        char token[8], in_kv[8];
        snprintf(token, sizeof token, "token%d", h);
        snprintf(in_kv, sizeof in_kv, "in_kv%d", h);
        emit(t, "shl.b32 row, warp, 4;"
                "shr.u32 tmp, lane, 2;"
                "add.u32 row, row, tmp;"
                "add.u32 row, row, %d;", h * 8);
        unpack_row(t, token, in_kv);
    }
    emit(t, "mov.u32 loaded, 0;");
    close_scope(t);
}

/* What a sequence left in the registers does not reach the rows of another, be it NaN. */
static void clear_sums(wf_ptx *t, const shape *s)
{
    open_scope(t, "Each run begins with cleared accumulators.", "Writes mine, sum*, row_max*, o*.", "");
    emit(t, "mov.u32 mine, 0;"
            "mov.f32 sum0, 0f00000000;"
            "mov.f32 sum1, 0f00000000;"
            "mov.f32 row_max0, " NO_MAX ";"
            "mov.f32 row_max1, row_max0;");
    for (int i = 0; i < s->o; i++) emit(t, "mov.f32 o%d, 0f00000000;", i);
    close_scope(t);
}

/* 32 rows at a time, a lane each. */
static void look_at_rows(wf_ptx *t, const char *role)
{
    label(t, "LOOK_%s", role);
    emit(t, "mul.wide.u32 off, row, 4;"
            "setp.lt.u32 y, row, m_end;"
            "mov.u32 tmp, id;"
            "add.s64 at, seq, off;"
            "@y ld.global.u32 tmp, [at];"
            "mov.u32 r, -1;"
            "add.s64 at, pos, off;"
            "@y ld.global.u32 r, [at];"
            "setp.ne.u32 z, tmp, id;"
            "vote.sync.ballot.b32 tmp, z, -1;"
            "brev.b32 other, tmp; // the first row of another sequence ends the run\n"
            "clz.b32 other, other;"
            "add.u32 other, other, i;"
            "setp.ne.u32 z, tmp, 0;"
            "@z mov.u32 run_end, other;");
    emit(t, "setp.lt.u32 y, row, run_end;"
            "@y max.s32 end, end, r;"
            "sub.u32 r, r, row;"
            "setp.ne.and.u32 y, r, from, y;"
            "@y mov.u32 scattered, 1;"
            "add.u32 row, row, 32;"
            "add.u32 i, i, 32;"
            "setp.lt.u32 y, i, m_end;"
            "@z bra FOUND_%s;"
            "@y bra LOOK_%s;", role, role);
}

/* Rows run to run_end - 1 are of one sequence; unless their positions are scattered, position = from + row; end: the
 * last position. */
static void find_run(wf_ptx *t, const char *role)
{
    open_scope(t, "The run that begins at row `run`, and its page table.",
               "Reads run, seq, pos, m_end, lane, indptr, pages; writes from, run_end, end, scattered, table.", ".b32 id, row, i, r, tmp, other; .b64 off, at; .pred y, z;");
    emit(t, "mul.wide.u32 off, run, 4;"
            "add.s64 at, seq, off;"
            "ld.global.u32 id, [at];"
            "add.s64 at, pos, off;"
            "ld.global.u32 from, [at];"
            "sub.u32 from, from, run;"
            "mov.u32 run_end, m_end;"
            "mov.u32 end, -1;"
            "mov.u32 scattered, 0;"
            "add.u32 row, run, lane;"
            "mov.u32 i, run;");
    look_at_rows(t, role);
    label(t, "FOUND_%s", role);
    emit(t, "redux.sync.max.s32 end, end, -1;"
            "redux.sync.max.s32 scattered, scattered, -1;"
            "mul.wide.s32 off, id, 4;"
            "add.s64 at, indptr, off;"
            "ld.global.u32 tmp, [at];"
            "mul.wide.s32 table, tmp, 4;"
            "add.s64 table, table, pages;");
    close_scope(t);
}

/* ---- stages and their barriers ------------------------------------------------------------------------------- */

static int next_label(shape *s)
{
    return s->labels++;
}

/* phase: a register. */
static void await(wf_ptx *t, shape *s, const char *bar, int offset, const char *phase)
{
    int n = next_label(s);
    char effects[64];
    snprintf(effects, sizeof effects, "Reads %s, %s; writes nothing.", bar, phase);
    open_scope(t, "Waits until the barrier's phase is over.", effects, ".pred over;");
    label(t, "AWAIT%d", n);
    emit(t, "mbarrier.try_wait.parity.shared.b64 over, [%s+%d], %s;"
            "@!over bra AWAIT%d;", bar, offset, phase, n);
    close_scope(t);
}

/* x: "k" or "v". */
static void advance(wf_ptx *t, const shape *s, const char *x)
{
    char effects[64];
    snprintf(effects, sizeof effects, "Reads %s_stage, %s_phase; writes %s_stage, %s_phase.", x, x, x, x);
    open_scope(t, "To the next stage; behind the last one the first again, in the other phase.", effects, ".pred wraps;");
    emit(t, "add.u32 %s_stage, %s_stage, 1;"
            "setp.eq.u32 wraps, %s_stage, %d;"
            "@wraps mov.u32 %s_stage, 0;"
            "@wraps xor.b32 %s_phase, %s_phase, 1;", x, x, x, s->stages, x, x, x);
    close_scope(t);
}

/* Its barriers: full of keys at [bar], of values 8 stages on, then empty ones in that order. */
static void place_stage(wf_ptx *t, const shape *s, const char *x)
{
    char effects[96];
    snprintf(effects, sizeof effects, "Reads %s_stage, bar, %s_first; writes %s_bar, %s_desc.", x, x, x, x);
    open_scope(t, "The barriers and the descriptor of a stage.", effects, ".b32 tmp;");
    emit(t, "shl.b32 tmp, %s_stage, 3;"
            "add.u32 %s_bar, bar, tmp;"
            "mul.wide.u32 %s_desc, %s_stage, %d;"
            "add.s64 %s_desc, %s_desc, %s_first;", x, x, x, x, s->stage_bytes >> 4, x, x, x);
    close_scope(t);
}

/* ---- keys and values to shared memory ------------------------------------------------------------------------ */

/* Lane l asks for the page of the l-th 16 keys that its warp copies. */
static void look_up_pages(wf_ptx *t, const shape *s)
{
    open_scope(t, "Where the pages of a tile lie in a pool, in bytes.", "Reads lane, key0, my_keys, end, P, table, kvh, page_stride; writes ready.",
               ".b32 key, page, tmp; .b64 off;");
    emit(t, "shl.b32 key, lane, 4;"
            "add.u32 key, key, key0;"
            "add.u32 key, key, my_keys;"
            "min.u32 key, key, end;"
            "and.b32 key, key, -16;"
            "div.u32 tmp, key, P;"
            "mul.wide.u32 off, tmp, 4;"
            "add.s64 off, off, table;"
            "ld.global.u32 page, [off];"
            "mul.lo.u32 tmp, tmp, P;"
            "sub.u32 key, key, tmp;"
            "mad.lo.u32 key, kvh, P, key;"
            "mul.wide.u32 ready, page, page_stride;"
            "mul.wide.u32 off, key, %d;"
            "add.s64 ready, ready, off;"
            "shl.b64 ready, ready, 1;", s->d);
    close_scope(t);
}

/* One tile of keys or values; whole: none of its keys is past the end. */
static void copy_tile(wf_ptx *t, const shape *s, const char *pool, int offset, bool whole)
{
    int period = 8 / s->at_once;
    char effects[64];
    snprintf(effects, sizeof effects, "Reads place, %s, lane, %sto*; writes nothing.", pool, whole ? "" : "row, ");
    open_scope(t, whole ? "Copies a tile of which all keys are there." : "Copies a tile; keys past the end become zeros.", effects,
               ".b32 low, high, bytes; .b64 from, more; .pred y;");
    for (int g = 0; g < s->keys / 16 / COPIERS; g++) {
        emit(t, "mov.b64 {low, high}, place;"
                "shfl.sync.idx.b32 low, low, %d, 31, -1;"
                "shfl.sync.idx.b32 high, high, %d, 31, -1;"
                "mov.b64 from, {low, high};"
                "add.s64 from, from, %s;"
                "mul.wide.u32 more, lane, 16;"
                "add.s64 from, from, more;", g, g, pool);
        for (int i = 0; i < 16 / s->at_once; i++) {
            if (!whole) emit(t, "setp.le.s32 y, row, %d;"
                                "selp.b32 bytes, 16, 0, y;", -(g * 16 + i * s->at_once));
            emit(t, "cp.async.cg.shared.global [to%d+%d], [from+%d], 16%s;", i % period, offset + (g * 16 / 8 + i / period) * 8 * PANEL,
                 i * s->at_once * s->d * 2, whole ? "" : ", bytes");
        }
    }
    close_scope(t);
}

/* Row lane / chunks + i at_once, chunk lane % chunks. */
static void place_copies(wf_ptx *t, const shape *s)
{
    int period = 8 / s->at_once;
    open_scope(t, "Where this lane copies to; `row`: its first row relative to the last key; `whole`: all keys of the tile are there.",
               "Reads lane, my_keys, k_stage, key0, end, k_phase; writes row, to*, phase, whole.", ".b32 chunk, r, tmp, tmp2;");
    emit(t, "div.u32 row, lane, %d;"
            "rem.u32 chunk, lane, %d;"
            "add.u32 row, row, my_keys;"
            "shr.u32 tmp2, chunk, 3; // the panel\n"
            "and.b32 chunk, chunk, 7;"
            "mov.u32 r, smem;"
            "mad.lo.u32 r, tmp2, %d, r;"
            "mad.lo.u32 r, k_stage, %d, r;", s->chunks, s->chunks, s->keys * PANEL, s->stage_bytes);
    for (int k = 0; k < period; k++)
        emit(t, "add.u32 tmp, row, %d;"
                "and.b32 tmp2, tmp, 7;"
                "xor.b32 tmp2, tmp2, chunk;"
                "shl.b32 tmp2, tmp2, 4;"
                "mad.lo.u32 tmp, tmp, %d, tmp2;"
                "add.u32 to%d, tmp, r;"
                "add.u32 to%d, to%d, %d;", k * s->at_once, PANEL, k, k, k, s->q_bytes);
    emit(t, "add.u32 row, row, key0;"
            "sub.u32 row, row, end;"
            "xor.b32 phase, k_phase, 1;"
            "add.u32 tmp2, key0, %d;"
            "setp.le.s32 whole, tmp2, end;", s->keys - 1);
    close_scope(t);
}

/* Two versions, for a count of bytes in each copy costs. */
static void copy_stage(wf_ptx *t, shape *s, int n)
{
    emit(t, "xor.b32 phase, k_phase, 1;");
    for (int whole = 1; whole >= 0; whole--) {
        if (whole) emit(t, "@!whole bra PARTLY%d;", n);
        else label(t, "PARTLY%d", n);
        copy_tile(t, s, "kp", 0, whole);
        emit(t, "cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar];"
                "xor.b32 phase, k_phase, 1;");
        await(t, s, "k_bar", 24 * s->stages, "phase");
        copy_tile(t, s, "vp", s->tile_bytes, whole);
        emit(t, "cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar+%d];", 8 * s->stages);
        if (whole) emit(t, "bra COPIED%d;", n);
    }
    label(t, "COPIED%d", n);
}

static void copy_run(wf_ptx *t, shape *s)
{
    int n = next_label(s);
    open_scope(t, "Copies all tiles of a run, each when its stage is empty.",
               "Reads warp, lane, end, P, table, kvh, page_stride, kp, vp, bar, k_first, k_stage, k_phase; writes key0, k_bar, k_desc, k_stage, k_phase.",
               ".b32 my_keys, row, to<8>, phase; .b64 ready, place; .pred whole, more;");
    emit(t, "mov.u32 key0, 0;"
            "sub.u32 my_keys, warp, %d; // of a tile, the first that this warp copies\n"
            "mul.lo.u32 my_keys, my_keys, %d;", WARPS, s->keys / COPIERS);
    look_up_pages(t, s);
    label(t, "COPY");
    emit(t, "mov.b64 place, ready;"
            "add.u32 key0, key0, %d;", s->keys);
    look_up_pages(t, s); /* of the tile after this, while this one is copied */
    emit(t, "sub.u32 key0, key0, %d;", s->keys);
    place_stage(t, s, "k");
    place_copies(t, s);
    await(t, s, "k_bar", 16 * s->stages, "phase");
    copy_stage(t, s, n);
    advance(t, s, "k");
    emit(t, "add.u32 key0, key0, %d;"
            "setp.le.s32 more, key0, end;"
            "@more bra COPY;", s->keys);
    close_scope(t);
}

/* ---- products -------------------------------------------------------------------------------------------- */

static void load_q_row(wf_ptx *t, const shape *s, int rows)
{
    unpack_row(t, "token", "head");
    emit(t, "setp.ne.u32 y, token, -1;"
            "mul.wide.u32 from, token, q_stride;"
            "add.u32 head, head, kv_head;"
            "mul.wide.u32 more, head, %d;"
            "add.s64 from, from, more;"
            "mul.wide.u32 more, chunk, 8;"
            "add.s64 from, from, more;"
            "shl.b64 from, from, 1;"
            "add.s64 from, from, q;", s->d);
    for (int v = 0; v < 4; v++) emit(t, "mov.u32 v%d, 0;", v);
    emit(t, "@y ld.global.v4.u32 {v0,v1,v2,v3}, [from];"
            "xor.b32 to, row, chunk;"
            "and.b32 to, to, 7;"
            "shl.b32 to, to, 4;"
            "mad.lo.u32 to, row, %d, to;"
            "add.u32 to, to, panel;"
            "st.shared.v4.u32 [to], {v0,v1,v2,v3};"
            "add.u32 row, row, %d;", PANEL, rows);
}

static void load_q(wf_ptx *t, const shape *s)
{
    int rows = 128 / s->chunks;
    open_scope(t, "The 64 packed rows of Q of this warpgroup to shared memory, once an item.",
               "Reads loaded, sync_id, tid, warp, hb, head_from, br, m0, m_end, per_kv, q_stride, kv_head, q; writes loaded.",
               ".b32 chunk, row, panel, tmp, token, head, to, v<4>; .b64 from, more; .pred y;");
    emit(t, "setp.ne.u32 y, loaded, 0;"
            "@y bra HAVE_Q;"
            "mov.u32 loaded, 1;"
            "bar.sync sync_id, 128;"
            "and.b32 chunk, tid, 127;"
            "div.u32 row, chunk, %d;"
            "rem.u32 chunk, chunk, %d;"
            "shr.u32 tmp, warp, 2;"
            "mad.lo.u32 row, tmp, 64, row;"
            "mov.u32 panel, smem;"
            "shr.u32 tmp, chunk, 3;"
            "mad.lo.u32 panel, tmp, %d, panel;", s->chunks, s->chunks, ROWS * PANEL);
    for (int j = 0; j < 64 / rows; j++) load_q_row(t, s, rows);
    emit(t, "fence.proxy.async;"
            "bar.sync sync_id, 128;");
    label(t, "HAVE_Q");
    close_scope(t);
}

/* The last key that a row sees: none in other runs; padding masks nothing. */
static void last_keys(wf_ptx *t)
{
    for (int h = 0; h < 2; h++) {
        emit(t, "mul.wide.u32 off, token%d, 4;"
                "add.s64 off, off, pos;"
                "add.u32 last%d, from, token%d;"
                "setp.ge.u32 y, token%d, run;"
                "setp.lt.and.u32 y, token%d, run_end, y;", h, h, h, h, h);
        emit(t, "setp.ne.and.u32 z, scattered, 0, y;"
                "@z ld.global.u32 last%d, [off];"
                "selp.b32 last%d, last%d, -1, y;"
                "@y or.b32 mine, mine, %d;"
                "setp.eq.u32 y, token%d, -1;"
                "selp.b32 last%d, 2147483647, last%d, y;", h, h, h, 1 << h, h, h, h);
    }
    emit(t, "min.s32 least, last0, last1;"
            "redux.sync.min.s32 least, least, -1;");
}

/* least: no row of the warp sees less. left: tiles that the warpgroup has rows for, rest: those of the run beyond. */
static void place_run(wf_ptx *t, const shape *s)
{
    open_scope(t, "What this lane's rows see of a run, and how many tiles the warpgroup multiplies.",
               "Reads token*, pos, from, run, run_end, scattered, mine, warp, hb, m0, end; writes last*, mine, least, left, rest.",
               ".b32 first, last_row, tmp, most; .b64 off; .pred y, z;");
    last_keys(t);
    emit(t, "shr.u32 first, warp, 2; // the first and the last row of the warpgroup\n"
            "shl.b32 first, first, 6;"
            "add.u32 last_row, first, 63;"
            "div.u32 first, first, hb;"
            "div.u32 last_row, last_row, hb;"
            "add.u32 first, first, m0;"
            "add.u32 last_row, last_row, m0;"
            "sub.u32 tmp, run_end, 1;"
            "min.u32 last_row, last_row, tmp;"
            "setp.lt.u32 y, first, run_end;"
            "setp.ge.and.u32 y, last_row, run, y;");
    emit(t, "add.u32 most, last_row, from;"
            "setp.ne.u32 z, scattered, 0;"
            "@z mov.u32 most, end;"
            "selp.b32 most, most, -1, y;"
            "min.s32 most, most, end;"
            "max.s32 most, most, -1;"
            "add.s32 rest, end, %d;"
            "div.u32 rest, rest, %d;"
            "add.s32 left, most, %d;"
            "div.u32 left, left, %d;"
            "sub.u32 rest, rest, left;", s->keys, s->keys, s->keys, s->keys);
    close_scope(t);
}

static void scores(wf_ptx *t, const shape *s)
{
    open_scope(t, "Begins S = Q K^T.", "Reads q_desc, k_desc, s*; writes s*.", ".b64 a, b;");
    emit(t, "wgmma.fence.sync.aligned;");
    for (int k = 0; k < s->d / 16; k++) {
        emit(t, "add.s64 a, q_desc, %d;"
                "add.s64 b, k_desc, %d;"
                "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", (k / 4 * ROWS * PANEL + k % 4 * 32) >> 4, (k / 4 * s->keys * PANEL + k % 4 * 32) >> 4, s->keys);
        wf_ptx_list(t, "s", 0, s->s);
        emit(t, "}, a, b, %d, 1, 1, 0, 0;", k > 0);
    }
    emit(t, "wgmma.commit_group.sync.aligned;");
    close_scope(t);
}

static void add_values(wf_ptx *t, const shape *s)
{
    open_scope(t, "Begins O += P V.", "Reads v_desc, p*, o*; writes o*.", ".b64 b;");
    emit(t, "wgmma.fence.sync.aligned;");
    for (int k = 0; k < s->keys / 16; k++) {
        emit(t, "add.s64 b, v_desc, %d;"
                "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", k * 16 * PANEL >> 4, s->d);
        wf_ptx_list(t, "o", 0, s->o);
        emit(t, "}, {");
        wf_ptx_list(t, "p", 4 * k, 4);
        emit(t, "}, b, 1, 1, 1, 1;");
    }
    emit(t, "wgmma.commit_group.sync.aligned;");
    close_scope(t);
}

static void release(wf_ptx *t, const char *bar, int offset)
{
    char effects[64];
    snprintf(effects, sizeof effects, "Reads lane, %s; writes nothing.", bar);
    open_scope(t, "This warp no longer needs the keys or values of a stage.", effects, ".pred first;");
    emit(t, "setp.eq.u32 first, lane, 0;"
            "@first mbarrier.arrive.shared.b64 _, [%s+%d];", bar, offset);
    close_scope(t);
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

static void mask(wf_ptx *t, shape *s)
{
    int n = next_label(s);
    open_scope(t, "Scores of keys past a row's last key become -inf.", "Reads key0, least, quad, last*, s*; writes s*.", ".b32 tmp, seen<2>; .pred y;");
    emit(t, "add.s32 tmp, key0, %d;"
            "setp.le.s32 y, tmp, least;"
            "@y bra SEEN%d; // all rows of the warp see all keys\n"
            "shl.b32 tmp, quad, 1;"
            "add.u32 tmp, tmp, key0;"
            "sub.s32 seen0, last0, tmp;"
            "sub.s32 seen1, last1, tmp;", s->keys - 1, n);
    for (int i = 0; i < s->s; i++)
        emit(t, "setp.lt.s32 y, seen%d, %d;"
                "selp.f32 s%d, 0fFF800000, s%d, y;", i / 2 % 2, i / 4 * 8 + i % 2, i, i);
    label(t, "SEEN%d", n);
    close_scope(t);
}

/* The quad's lanes have the columns of a row. */
static void raise_row(wf_ptx *t, int h)
{
    for (int distance = 1; distance < 3; distance++)
        emit(t, "mov.b32 tmp, seen_max%d;"
                "shfl.sync.bfly.b32 tmp, tmp, %d, 31, -1;"
                "mov.b32 new, tmp;"
                "max.f32 seen_max%d, seen_max%d, new;", h, distance, h, h);
    emit(t, "setp.gt.f32 y, seen_max%d, f%d;"
            "selp.f32 new, seen_max%d, row_max%d, y;"
            "sub.f32 alpha%d, row_max%d, new;"
            "ex2.approx.ftz.f32 alpha%d, alpha%d;"
            "mov.f32 row_max%d, new;"
            "mul.f32 sum%d, sum%d, alpha%d;", h, h, h, h, h, h, h, h, h, h, h, h);
}

static void raise(wf_ptx *t, shape *s)
{
    int n = next_label(s);
    open_scope(t, "Raises row maxima that a score exceeds by the rescale threshold; alpha: what accumulators are then multiplied with.",
               "Reads s*, c, row_max*, sum*; writes raised, row_max*, alpha*, sum*.", ".b32 tmp; .f32 f<4>, seen_max<2>, new; .pred y;");
    emit(t, "setp.ne.u32 raised, 0, 0;");
    for (int i = 0; i < 4; i++) emit(t, "mov.f32 f%d, s%d;", i, i);
    for (int i = 4; i < s->s; i++) emit(t, "max.f32 f%d, f%d, s%d;", i % 4, i % 4, i);
    emit(t, "max.f32 seen_max0, f0, f1;"
            "max.f32 seen_max1, f2, f3;"
            "mul.f32 seen_max0, seen_max0, c;"
            "mul.f32 seen_max1, seen_max1, c;"
            "add.f32 f0, row_max0, " RESCALE_THRESHOLD ";"
            "add.f32 f1, row_max1, " RESCALE_THRESHOLD ";"
            "setp.gt.f32 y, seen_max0, f0;"
            "setp.gt.or.f32 y, seen_max1, f1, y;"
            "vote.sync.any.pred raised, y, -1;"
            "@!raised bra RAISED%d;", n);
    for (int h = 0; h < 2; h++) raise_row(t, h);
    label(t, "RAISED%d", n);
    close_scope(t);
}

static void weigh(wf_ptx *t, const shape *s)
{
    open_scope(t, "Scores to weights, 2^(s c - row_max), and their sums.", "Reads row_max*, s*, c, sum*; writes s*, sum*.", ".f32 below<2>;");
    emit(t, "neg.f32 below0, row_max0;"
            "neg.f32 below1, row_max1;");
    for (int i = 0; i < s->s; i++)
        emit(t, "fma.rn.f32 s%d, s%d, c, below%d;"
                "ex2.approx.ftz.f32 s%d, s%d;"
                "add.f32 sum%d, sum%d, s%d;", i, i, i / 2 % 2, i, i, i / 2 % 2, i / 2 % 2, i);
    close_scope(t);
}

/* Scores to weights; where `raised`, the accumulators must be rescaled. */
static void softmax(wf_ptx *t, shape *s)
{
    mask(t, s);
    raise(t, s);
    weigh(t, s);
}

static void round_weights(wf_ptx *t, const shape *s)
{
    open_scope(t, "Weights to F16: the layout of S as a result is that of P as an operand.", "Reads s*; writes p*.", "");
    for (int i = 0; i < s->p; i++) emit(t, "cvt.rn.f16x2.f32 p%d, s%d, s%d;", i, 2 * i + 1, 2 * i);
    close_scope(t);
}

static void rescale(wf_ptx *t, shape *s)
{
    int n = next_label(s);
    open_scope(t, "Rescales the accumulators of raised rows.", "Reads raised, alpha*, o*; writes o*.", "");
    emit(t, "@!raised bra KEPT%d;", n);
    for (int i = 0; i < s->o; i++) emit(t, "mul.f32 o%d, o%d, alpha%d;", i, i, i / 2 % 2);
    label(t, "KEPT%d", n);
    close_scope(t);
}

/* ---- a run, a block ---------------------------------------------------------------------------------------- */

#define EMPTY(s) (16 * (s)->stages) /* bytes from a stage's barrier "full of keys" to "empty of keys" */
#define VALUE(s) (8 * (s)->stages)  /* from that of keys to that of values */

static void first_tile(wf_ptx *t, shape *s)
{
    place_stage(t, s, "k");
    await(t, s, "k_bar", 0, "k_phase");
    scores(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    release(t, "k_bar", EMPTY(s));
    softmax(t, s);
    rescale(t, s);
    round_weights(t, s);
}

/* The products of this tile's scores and of the values of the one before are begun together. */
static void next_tile(wf_ptx *t, shape *s)
{
    place_stage(t, s, "k");
    place_stage(t, s, "v");
    await(t, s, "k_bar", 0, "k_phase");
    scores(t, s);
    await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 1;");
    release(t, "k_bar", EMPTY(s));
    softmax(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    release(t, "v_bar", EMPTY(s) + VALUE(s));
    rescale(t, s);
    round_weights(t, s);
    advance(t, s, "v");
}

static void last_values(wf_ptx *t, shape *s)
{
    place_stage(t, s, "v");
    await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    release(t, "v_bar", EMPTY(s) + VALUE(s));
    advance(t, s, "v");
}

/* Tiles of which the other warpgroup alone has rows: their barriers want all warps. */
static void skip_tile(wf_ptx *t, shape *s)
{
    place_stage(t, s, "k");
    await(t, s, "k_bar", 0, "k_phase");
    release(t, "k_bar", EMPTY(s));
    await(t, s, "k_bar", VALUE(s), "k_phase");
    release(t, "k_bar", EMPTY(s) + VALUE(s));
    advance(t, s, "k");
    advance(t, s, "v");
}

static void attend_run(wf_ptx *t, shape *s)
{
    open_scope(t, "Multiplies all tiles of a run.",
               "Reads left, rest, lane, quad, least, last*, c, bar, q_desc, k_first, v_first, k_stage, v_stage, k_phase, v_phase, s*, o*, row_max*, sum*; "
               "writes left, rest, key0, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, v_phase, s*, p*, o*, row_max*, sum*.", ".pred none, raised; .f32 alpha<2>;");
    emit(t, "mov.u32 key0, 0;"
            "setp.eq.u32 none, left, 0;"
            "@none bra REST;");
    first_tile(t, s);
    label(t, "TILE");
    advance(t, s, "k");
    emit(t, "sub.u32 left, left, 1;"
            "setp.eq.u32 none, left, 0;"
            "@none bra LAST;"
            "add.u32 key0, key0, %d;", s->keys);
    next_tile(t, s);
    emit(t, "bra TILE;");
    label(t, "LAST");
    last_values(t, s);
    label(t, "REST");
    emit(t, "setp.eq.u32 none, rest, 0;"
            "@none bra ATTENDED;");
    skip_tile(t, s);
    emit(t, "sub.u32 rest, rest, 1;"
            "bra REST;");
    label(t, "ATTENDED");
    close_scope(t);
}

static void store_values(wf_ptx *t, const shape *s, int h, bool half)
{
    for (int i = 2 * h; i < s->o; i += 4) {
        emit(t, "mul.f32 f0, o%d, over;"
                "mul.f32 f1, o%d, over;", i, i + 1);
        if (half) emit(t, "cvt.rn.f16x2.f32 tmp, f1, f0;"
                          "st.global.u32 [to+%d], tmp;", i / 4 * 16);
        else emit(t, "st.global.v2.f32 [to+%d], {f0,f1};", i / 4 * 32);
    }
}

static void write_row(wf_ptx *t, const shape *s, int h)
{
    for (int distance = 1; distance < 3; distance++)
        emit(t, "mov.b32 tmp, sum%d;"
                "shfl.sync.bfly.b32 tmp, tmp, %d, 31, -1;"
                "mov.b32 f0, tmp;"
                "add.f32 sum%d, sum%d, f0;", h, distance, h, h);
    emit(t, "and.b32 tmp, mine, %d;"
            "setp.eq.u32 y, tmp, 0;"
            "@y bra WRITTEN%d;"
            "rcp.rn.f32 over, sum%d;"
            "setp.eq.f32 y, sum%d, 0f00000000;"
            "selp.f32 over, 0f00000000, over, y;", 1 << h, h, h, h);
    emit(t, "mul.wide.u32 to, token%d, o_stride;"
            "add.u32 tmp, kv_head, in_kv%d;"
            "mul.wide.u32 more, tmp, %d;"
            "add.s64 to, to, more;"
            "shl.b32 tmp, quad, 1;"
            "cvt.u64.u32 more, tmp;"
            "add.s64 to, to, more;"
            "@to_half bra HALF%d;"
            "shl.b64 to, to, 2;"
            "add.s64 to, to, o_at;", h, h, s->d, h);
    store_values(t, s, h, false);
    emit(t, "bra WRITTEN%d;", h);
    label(t, "HALF%d", h);
    emit(t, "shl.b64 to, to, 1;"
            "add.s64 to, to, o_at;");
    store_values(t, s, h, true);
    label(t, "WRITTEN%d", h);
}

static void write_rows(wf_ptx *t, const shape *s)
{
    open_scope(t, "Writes the rows of the run: O / sum.", "Reads sum*, mine, token*, o_stride, kv_head, in_kv*, quad, to_half, o_at, o*; writes sum*.",
               ".b32 tmp; .f32 f<2>, over; .b64 to, more; .pred y;");
    for (int h = 0; h < 2; h++) write_row(t, s, h);
    close_scope(t);
}

static void multiply_run(wf_ptx *t, shape *s)
{
    clear_sums(t, s);
    place_run(t, s);
    load_q(t, s);
    attend_run(t, s);
    write_rows(t, s);
}

/* The runs of an item; those of another share are left out. */
static void walk_runs(wf_ptx *t, shape *s, const char *role, bool copies)
{
    emit(t, "mov.u32 run, m0;"
            "mov.u32 run_number, 0;");
    label(t, "RUN_%s", role);
    find_run(t, role);
    emit(t, "rem.u32 tmp, run_number, share;"
            "setp.ne.u32 y, tmp, my_number;"
            "@y bra NEXT_%s;", role);
    if (copies) {
        emit(t, "setp.lt.s32 y, end, 0;"
                "@y bra NEXT_%s;", role);
        copy_run(t, s);
    } else {
        multiply_run(t, s);
    }
    label(t, "NEXT_%s", role);
    emit(t, "mov.u32 run, run_end;"
            "add.u32 run_number, run_number, 1;"
            "setp.lt.u32 y, run, m_end;"
            "@y bra RUN_%s;", role);
}

/* All items, as one of the two roles; both walk over the same runs. Items are ordered longest first, and every second
 * round of them is taken backwards, so that work-groups of several get as much. */
static void walk(wf_ptx *t, shape *s, bool copies)
{
    const char *role = copies ? "COPY" : "MULTIPLY";
    open_scope(t, copies ? "The warps that copy; they write what only they read." : "The warps that multiply; they write what only they read.", "",
               copies ? ".b32 tmp; .pred y;" : ".b32 tmp, token<2>, in_kv<2>, last<2>, loaded, mine, least, left, rest; .f32 row_max<2>, sum<2>; .pred y;");
    emit(t, "bra ANY_%s;", role);
    label(t, "ITEM_%s", role);
    place_item(t);
    if (!copies) place_rows(t);
    walk_runs(t, s, role, copies);
    emit(t, "add.u32 round, round, 1;"
            "and.b32 tmp, round, 1;"
            "setp.ne.u32 y, tmp, 0;"
            "sub.u32 tmp, grid, cta;"
            "sub.u32 tmp, tmp, 1;"
            "selp.b32 tmp, tmp, cta, y;"
            "mad.lo.u32 item, round, grid, tmp;");
    label(t, "ANY_%s", role);
    emit(t, "setp.lt.u32 y, item, items;"
            "@y bra ITEM_%s;"
            "ret;", role);
    close_scope(t);
}

char *wf_cl_attention_ptx(const int32_t knob[4], int32_t d)
{
    shape s = derive(knob, d);
    wf_ptx t = {0};
    parameters(&t);
    declare(&t, &s);
    load_arguments(&t);
    begin_work_item(&t);
    begin_stages(&t, &s);
    emit(&t, "@copies bra COPIES;"
             "setmaxnreg.inc.sync.aligned.u32 %d;", MANY);
    walk(&t, &s, false);
    label(&t, "COPIES");
    emit(&t, "setmaxnreg.dec.sync.aligned.u32 %d;", FEW);
    walk(&t, &s, true);
    t.depth = 0;
    emit(&t, "}\n");
    return wf_ptx_finish(&t);
}
