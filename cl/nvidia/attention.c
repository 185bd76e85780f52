/* attention: softmax(q . k * scale) v over paged keys for many rows of a sequence, generated as PTX for NVIDIA's
 * compute capability 9.0. The same job as kernels/attention_prefill.cl, which says how blocks, runs and shares of runs
 * are cut; this file owns how one is computed.
 *
 *   a warpgroup: page table --> cp.async --> keys and values in shared memory, several stages of them in flight
 *   two more, 64 packed rows each:
 *     S = Q K^T               Q and K in shared memory
 *     O += P V (tile before)  P in registers, V in shared memory; meanwhile P = 2^(S - maximum) of this tile
 *
 * A row of D values is D / 64 panels of 128 bytes; a panel has all rows of its tile, chunk c of row r at c ^ (r % 8),
 * which is what a matrix descriptor calls 128-byte swizzling, with K across for Q K^T and down for P V.
 * Barriers: `full` counts the lanes whose copies of a tile are there, `empty` the warps that are done with it; keys and
 * values of a tile have one each, so that products begin when the keys are there.
 * No proxy fence between cp.async and wgmma: the barrier that counts the copies does, as in CUTLASS's loops of that
 * kind (MainloopSm90CpAsyncGmmaWarpSpecialized).
 * Maximum of a row: as in attention_prefill.cl, synchronous or asynchronous (attention_run.c, attention_softmax.c).
 *
 * Source: PTX ISA 8.0, "wgmma" (matrix descriptor, swizzling modes), "mbarrier", "cp.async.mbarrier.arrive";
 * FlashAttention-3 (arXiv 2407.08608), section 3, for products of a tile beside the softmax of the next. */
#include "cl/nvidia/attention.h"

#include <stdio.h>

#define FEW         40 /* registers of those that copy, and of the others: together three times 168 */
#define MANY        232

static wf_attention_shape attention_shape_of(const int32_t knob[5], int d)
{
    wf_attention_shape s = {.d = d,
                            .keys = knob[0],
                            .stages = knob[1],
                            .async = knob[2],
                            .chunk = knob[3],
                            .grows = knob[4],
                            .panels = d / 64,
                            .chunks = d / 8};
    s.q_bytes = WF_ATTENTION_ROWS * d * 2;
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

static void write_parameters(wf_ptx *t, const wf_attention_shape *s)
{
    emit(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry attention_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(inputs); i++)
        emit(t, "    .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,\n", inputs[i], inputs[i]);
    emit(t, "    .param .u64 .ptr .global .align 1 o_base, .param .u64 o_off, .param .u32 o_half,\n");
    for (size_t i = 0; i < WF_LEN(sizes); i++) emit(t, "    .param .u32 %s_size,\n", sizes[i]);
    emit(t, "    .param .f32 scale_, .param .u32 share_");
    if (s->async)
        emit(t, ",\n    .param .u64 .ptr .global .align 1 count_base, .param .u64 count_off, .param .f32 base_, .param "
                ".f32 low_");
    emit(t, ")\n.reqntid %d, 1, 1\n.minnctapersm 1\n{\n", WF_CL_ATTENTION_THREADS);
    t->depth = 1;
}

/* What lives as long as the program; the rest belongs to scopes. */
static void declare_registers(wf_ptx *t, const wf_attention_shape *s)
{
    emit(t,
         ".shared .align 1024 .b8 smem[%d];"
         ".shared .align 8 .b64 bars[%d];",
         s->q_bytes + s->stages * s->stage_bytes + wf_attention_total_bytes(s), 4 * s->stages);
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
            ".reg .f32 o<%d>;", s->async ? WF_ATTENTION_BANKS * s->p : s->p, s->s, s->o);
    if (s->async) wf_attention_declare_async(t);
    if (s->chunk) wf_attention_declare_walk(t);
}

static void load_arguments(wf_ptx *t)
{
    open_scope(t, "The arguments.",
               "Writes q, kp, vp, seq, pos, indptr, pages, M, Hq, Hkv, P, page_stride, q_stride, o_stride, o_at, "
               "to_half, c, share.",
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

/* Operand A or B in rows of 128 bytes: 8 of them are 1024 bytes, panels `panel` bytes. Writes the register `name`;
 * destroys tmp. */
static void write_descriptor(wf_ptx *t, const char *name, int offset, int panel)
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
    open_scope(
        t, "Who this work-item is, and how many items of work there are: blocks of rows by heads, times their shares.",
        "Reads Hq, Hkv, M, share; writes tid, item, grid, lane, warp, quad, sync_id, copies, cta, round, per_kv, hb, "
        "br, blocks, columns, row_tiles, items.",
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
            "mov.u32 round, 0;", WF_ATTENTION_WARPS);
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
            "mul.lo.u32 items, items, share;", WF_ATTENTION_ROWS, WF_ATTENTION_ROWS);
    close_scope(t);
}

static void begin_stages(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Descriptors of the first stage and of this warpgroup's rows of Q, and the barriers of all stages.",
               "Reads warp, tid; writes k_first, v_first, q_desc, bar, k_stage, v_stage, k_phase, v_phase.",
               ".b32 tmp; .b64 mine; .pred p;");
    write_descriptor(t, "k_first", s->q_bytes, 16);
    write_descriptor(t, "v_first", s->q_bytes + s->tile_bytes, s->keys * WF_ATTENTION_PANEL);
    write_descriptor(t, "q_desc", 0, 16);
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
            "@p bra READY;", 64 * WF_ATTENTION_PANEL >> 4);
    if (s->async) wf_attention_clear_stops(t);
    for (int i = 0; i < 4 * s->stages; i++)
        emit(t, "mbarrier.init.shared.b64 [bar+%d], %d;", i * 8,
             i < 2 * s->stages ? WF_ATTENTION_COPIERS * 32 : WF_ATTENTION_WARPS);
    label(t, "READY");
    emit(t, "bar.sync 0;");
    close_scope(t);
}

/* ---- items and runs --------------------------------------------------------------------------------------- */

static void place_item(wf_ptx *t)
{
    open_scope(t, "The rows and heads of this item, and which of their runs are its share.",
               "Reads item, columns, share, row_tiles, br, M, blocks, hb, per_kv; writes my_number, m0, m_end, kvh, "
               "head_from, kv_head.",
               ".b32 row, column;");
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

static void place_rows(wf_ptx *t)
{
    open_scope(t, "The two packed rows of this lane.",
               "Reads warp, lane, hb, head_from, br, m0, m_end, per_kv; writes token*, in_kv*, loaded.",
               ".b32 row, tmp; .pred y;");
    for (int h = 0; h < 2; h++) {
        char token[8], in_kv[8];
        snprintf(token, sizeof token, "token%d", h);
        snprintf(in_kv, sizeof in_kv, "in_kv%d", h);
        emit(t, "shl.b32 row, warp, 4;"
                "shr.u32 tmp, lane, 2;"
                "add.u32 row, row, tmp;"
                "add.u32 row, row, %d;", h * 8);
        wf_attention_unpack_row(t, token, in_kv);
    }
    emit(t, "mov.u32 loaded, 0;");
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
               "Reads run, seq, pos, m_end, lane, indptr, pages; writes from, run_end, end, scattered, table.",
               ".b32 id, row, i, r, tmp, other; .b64 off, at; .pred y, z;");
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

/* The runs of an item; those of another share are left out. */
static void walk_runs(wf_ptx *t, wf_attention_shape *s, const char *role, bool copies)
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
        wf_attention_copy_run(t, s);
    } else {
        wf_attention_multiply_run(t, s);
    }
    label(t, "NEXT_%s", role);
    emit(t, "mov.u32 run, run_end;"
            "add.u32 run_number, run_number, 1;"
            "setp.lt.u32 y, run, m_end;"
            "@y bra RUN_%s;", role);
}

/* Asynchronous softmax: all items once more, for the rows that left. Both roles know all marks behind the barrier. */
static void walk_again(wf_ptx *t, const char *role)
{
    emit(t, "@again bra END_%s;"
            "bar.sync 0;"
            "setp.eq.u32 again, 0, 0;"
            "mov.u32 round, 0;"
            "mov.u32 item, cta;"
            "bra ANY_%s;", role, role);
    label(t, "END_%s", role);
}

/* All items, as one of the two roles; both walk over the same runs. Items are ordered longest first, and every second
 * round of them is taken backwards, so that work-groups of several get as much. */
static void walk_items(wf_ptx *t, wf_attention_shape *s, bool copies)
{
    const char *role = copies ? "COPY" : "MULTIPLY";
    open_scope(t,
               copies ? "The warps that copy; they write what only they read."
                      : "The warps that multiply; they write what only they read.",
               "",
               copies ? ".b32 tmp; .pred y;"
                      : ".b32 tmp, token<2>, in_kv<2>, last<2>, loaded, mine, least, left, rest, redo, largest<4>; "
                        ".f32 row_max<2>, sum<2>; .pred y;");
    if (s->chunk && !copies) wf_attention_declare_sums(t, s);
    emit(t, "bra ANY_%s;", role);
    label(t, "ITEM_%s", role);
    if (s->async) wf_attention_find_redo(t, copies, role);
    place_item(t);
    if (!copies) place_rows(t);
    walk_runs(t, s, role, copies);
    if (s->async && !copies) wf_attention_keep_redo(t);
    if (s->async) label(t, "PAST_%s", role);
    emit(t, "add.u32 round, round, 1;"
            "and.b32 tmp, round, 1;"
            "setp.ne.u32 y, tmp, 0;"
            "sub.u32 tmp, grid, cta;"
            "sub.u32 tmp, tmp, 1;"
            "selp.b32 tmp, tmp, cta, y;"
            "mad.lo.u32 item, round, grid, tmp;");
    label(t, "ANY_%s", role);
    emit(t, "setp.lt.u32 y, item, items;"
            "@y bra ITEM_%s;", role);
    if (s->async) walk_again(t, role);
    emit(t, "ret;");
    close_scope(t);
}

char *wf_cl_attention_ptx(const int32_t knob[5], int32_t d)
{
    wf_attention_shape s = attention_shape_of(knob, d);
    wf_ptx t = {0};
    write_parameters(&t, &s);
    declare_registers(&t, &s);
    load_arguments(&t);
    if (s.async) wf_attention_load_range(&t);
    begin_work_item(&t);
    begin_stages(&t, &s);
    emit(&t, "@copies bra COPIES;"
             "setmaxnreg.inc.sync.aligned.u32 %d;", MANY);
    walk_items(&t, &s, false);
    label(&t, "COPIES");
    emit(&t, "setmaxnreg.dec.sync.aligned.u32 %d;", FEW);
    walk_items(&t, &s, true);
    t.depth = 0;
    emit(&t, "}\n");
    return wf_ptx_finish(&t);
}
