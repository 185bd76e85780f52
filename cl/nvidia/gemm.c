/* gemm: the GEMM of NVIDIA's compute capability 9.0, generated as PTX. OpenCL C refuses these instructions, but
 * the driver takes PTX as a program binary.
 *
 *   Y[M, N] = X W^T + bias + residual, or q turned by position with k and v in their slots; W MMA-fragment-major
 *     (layout.c), F16 or quantised, X in rows of F16, accumulators in F32
 *
 *   W: device memory --> registers, operand A (gemm_weights.c); each lane its own fragments
 *   X: device memory --> shared memory, operand B; stages of 64 of K, swizzled as their descriptor says
 *          |  one step: four times wgmma m64 x tile_m x 16
 *          v
 *   accumulators in registers --> gemm_epilogue.c
 *
 * A work-group has `warpgroups` of four warps; each multiplies 64 rows of W with `tile_m` rows of X. Only X passes
 * through shared memory. Large products pack it first (gemm_pack.c). With SiLU half of a work-group's rows of W are
 * gate, and the other half the same rows of up; the epilogue brings them together. Where tiles are too few for the
 * device, `split_k` work-groups share the K of a tile, and the epilogue reduces their accumulators. Where they are
 * enough, one work-group can add the same parts in the same order, so that the bits do not depend on the number of
 * rows. Where the last round of tiles would leave most work-groups idle, only its tiles share their K (stream-K of one
 * round; Osama et al., 2023).
 *
 * Source: PTX ISA 8.0, "wgmma" (fragments of m64nNk16, matrix descriptor, swizzling modes). */
#include "cl/nvidia/gemm.h"

#define WARPGROUP   128
#define REGISTERS   65536 /* of a multiprocessor */
#define SHARED_BYTES (227 << 10)
#define KEPT_AT_ONCE 4 /* accumulators of a load from the sums of parts */

/* ---- what is derived from the knobs ------------------------------------------------------------------------ */

/* Two batches of quantised weights wait in registers besides the operands. Large tiles have none to spare, and time
 * enough for one step;
 * else what is on its way decides (H200, 28,672 x 4,096, Q8_0, M = 64: one step 66 us, two 55, four 53). */
static int batch_of(const wf_wgmma *s, int knob)
{
    enum { FEW = 640 }; /* bytes of a tile: up to 4.5 bits a weight */
    if (s->w.bits == 16) return knob;
    if (s->pack || s->warpgroups > 2) return 1;
    return s->tile_m <= 64 && wf_cl_fragment_bytes(&s->w) >= FEW ? 4 : 2;
}

/* For the sums of parts before. */
static int parts_bytes(const wf_wgmma *s)
{
    return s->parts > 1 ? s->threads * s->n_acc * 4 : 0;
}

static int shared_bytes(const wf_wgmma *s)
{
    return WF_MAX(WF_WGMMA_STAGES * s->stage_bytes + parts_bytes(s), wf_wgmma_epilogue_bytes(s));
}

static wf_wgmma gemm_shape_of(const int32_t knob[5], bool silu, const cl_fragments *w)
{
    wf_wgmma s = {
        .warpgroups = knob[0], .pack = knob[1] & 1, .tail = knob[1] >> 1, .tile_m = knob[2], .silu = silu, .w = *w};
    s.split_k = WF_MAX(knob[4], 1), s.parts = WF_MAX(-knob[4], 1);
    s.batch = batch_of(&s, knob[3]);
    s.unroll = WF_MAX(WF_WGMMA_STAGES, 2 * s.batch);
    s.threads = s.warpgroups * WARPGROUP;
    s.w_rows = s.warpgroups * 64;
    s.tile_n = s.w_rows / (1 + s.silu);
    s.stage_bytes = s.tile_m * WF_WGMMA_ROW_BYTES;
    s.copies = (s.tile_m * WF_WGMMA_CHUNKS + s.threads - 1) / s.threads;
    s.n_acc = s.tile_m / 2;
    s.w_registers = wf_wgmma_operand_registers(&s) + wf_wgmma_held_registers(&s);
    int others = s.w.bits == 16 ? 32 : 56;
    int resident = WF_MIN(REGISTERS / (s.threads * (s.n_acc + s.w_registers + others)), 4);
    s.resident = WF_MAX(s.parts > 1 ? WF_MIN(resident, SHARED_BYTES / shared_bytes(&s)) : resident, 1);
    return s;
}

cl_wgmma wf_cl_wgmma_shape(const int32_t knob[5], bool silu, const cl_fragments *w)
{
    wf_wgmma s = gemm_shape_of(knob, silu, w);
    return (cl_wgmma){.threads = (uint32_t)s.threads,
                      .w_rows = (uint32_t)s.w_rows,
                      .tile_n = (uint32_t)s.tile_n,
                      .tile_m = (uint32_t)s.tile_m,
                      .split_k = (uint32_t)s.split_k,
                      .parts = (uint32_t)s.parts,
                      .resident = (uint32_t)s.resident,
                      .tile_k = WF_WGMMA_PRODUCTS * 16,
                      .pack = s.pack,
                      .tail = s.tail,
                      .exchange_bytes = wf_wgmma_exchange_bytes(&s)};
}

/* ---- parts of K that one work-group adds ------------------------------------------------------------------------ */

/* Accumulators at a part's end + sums of the parts before, in shared memory --> the latter; the next part begins from
 * zero. The work-group adds what `split_k` work-groups would, in their order, so that a program with so many parts
 * gives the same bits as one with so many work-groups a tile, whatever the tile. Each work-item keeps its own sums: no
 * barrier. Parts end at step r * all / parts, as units of split_k work-groups do. */
static void declare_parts(wf_ptx *t, const wf_wgmma *s)
{
    (void)s;
    emit(t, ".reg .b32 kept, part, border; // where this work-item keeps sums; the part that is added; its end\n");
}

/* From where a work-item keeps its first sums to accumulator i. */
static int kept_place(const wf_wgmma *s, int i)
{
    return i / KEPT_AT_ONCE * s->threads * KEPT_AT_ONCE * 4;
}

static void find_border(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "The end of the next part.", "Reads k, part; writes part, border.", ".b32 tmp;");
    emit(t, "add.u32 part, part, 1;"
            "shr.u32 tmp, k, %d;"
            "mul.lo.u32 tmp, tmp, part;"
            "div.u32 border, tmp, %d;", WF_WGMMA_LOG2_STEP, s->parts);
    close_scope(t);
}

static void begin_parts(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "No sums are kept yet.", "Reads tid, k; writes kept, part, border.", ".b32 zero;");
    emit(t, "mov.u32 kept, smem;"
            "add.u32 kept, kept, %d;"
            "mad.lo.u32 kept, tid, %d, kept;"
            "mov.u32 part, 0;"
            "mov.u32 zero, 0;", WF_WGMMA_STAGES * s->stage_bytes, KEPT_AT_ONCE * 4);
    for (int i = 0; i < s->n_acc; i += KEPT_AT_ONCE)
        emit(t, "st.shared.v4.u32 [kept+%d], {zero,zero,zero,zero};", kept_place(s, i));
    find_border(t, s);
    close_scope(t);
}

/* Accumulators i and on, in the place of which the sum of all parts so far is. */
static void add_kept(wf_ptx *t, const wf_wgmma *s, int i)
{
    emit(t, "ld.shared.v4.f32 {sum0,sum1,sum2,sum3}, [kept+%d];", kept_place(s, i));
    for (int v = 0; v < KEPT_AT_ONCE; v++) emit(t, "add.f32 acc%d, sum%d, acc%d;", i + v, v, i + v);
}

/* Once all products that were begun are done. */
static void end_part(wf_ptx *t, const wf_wgmma *s, int u)
{
    open_scope(t, "At the end of a part its sums join those before.",
               "Reads kt, border, kept, k, part, acc*; writes acc*, part, border.", ".f32 sum<4>; .pred inside;");
    emit(t, "setp.ne.u32 inside, kt, border;"
            "@inside bra INSIDE%d;"
            "wgmma.wait_group.sync.aligned 0;", u);
    for (int i = 0; i < s->n_acc; i += KEPT_AT_ONCE) {
        add_kept(t, s, i);
        emit(t, "st.shared.v4.f32 [kept+%d], {", kept_place(s, i));
        wf_ptx_list(t, "acc", i, KEPT_AT_ONCE);
        emit(t, "};");
        for (int v = 0; v < KEPT_AT_ONCE; v++) emit(t, "mov.f32 acc%d, 0f00000000;", i + v);
    }
    find_border(t, s);
    label(t, "INSIDE%d", u);
    close_scope(t);
}

static void add_last_part(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "The last part's sums join those before.", "Reads kept, acc*; writes acc*.", ".f32 sum<4>;");
    for (int i = 0; i < s->n_acc; i += KEPT_AT_ONCE) add_kept(t, s, i);
    close_scope(t);
}

/* ---- before the main loop ----------------------------------------------------------------------------------- */

static const char *const operands[] = {"x", "w", "bias", "res", "y"};

static void write_parameters(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry gemm_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(operands); i++) {
        emit(t, "    .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,\n", operands[i], operands[i]);
        if (i + 1 == WF_LEN(operands)) emit(t, "    .param .u32 y_half,\n");
    }
    emit(t, "    .param .u32 M, .param .u32 N, .param .u32 K, .param .u32 x_stride, .param .u64 w_row_bytes,\n"
            "    .param .u32 res_stride, .param .u32 y_stride");
    if (s->pack) emit(t, ",\n    .param .u64 .ptr .global .align 1 scratch_base");
    if (s->split_k > 1) emit(t, ",\n    .param .u64 .ptr .global .align 1 exchange_base");
    if (s->tail) emit(t, ",\n    .param .u32 whole_tiles");
    if (s->rope.head) wf_wgmma_rope_parameters(t);
    emit(t, ")\n.reqntid %d, 1, 1\n.minnctapersm %d\n{\n", s->threads, s->resident);
    t->depth = 1;
}

/* What lives as long as the program; the rest belongs to scopes. */
static void declare_registers(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, ".shared .align 1024 .b8 smem[%d];", shared_bytes(s));
    if (s->pack) wf_wgmma_declare_pack(t);
    if (s->parts > 1) declare_parts(t, s);
    emit(t, ".reg .b64 x, w, bias, res, y;"
            ".reg .b32 m, n, k, stride, y_pitch, res_pitch;"
            ".reg .pred has_bias, has_res, to_half;"
            ".reg .b32 tid, lane, warpgroup, warp;"
            ".reg .b32 unit, units, grid, m_tiles, tile, rank, m0, n0, first_step, kt, steps;"
            ".reg .b64 smem_desc, x_from, x_skip;"
            ".reg .b32 x_to, bytes<%d>;"
            ".reg .b32 a<%d>;"
            ".reg .f32 acc<%d>;",
         s->copies, WF_MAX(wf_wgmma_operand_registers(s), wf_wgmma_pack_registers(s)), s->n_acc);
    if (s->tail) emit(t, ".reg .b32 whole; .reg .pred is_whole;");
    wf_wgmma_declare_weights(t, s);
}

static void load_arguments(wf_ptx *t)
{
    open_scope(t, "The arguments; an operand whose offset is -1 is absent.",
               "Writes x, w, bias, res, y, has_bias, has_res, to_half, m, n, k, stride, y_pitch, res_pitch.",
               ".b64 off; .b32 half; .pred p;");
    for (size_t i = 0; i < WF_LEN(operands); i++) {
        const char *o = operands[i];
        emit(t, "ld.param.u64 %s, [%s_base];"
                "ld.param.u64 off, [%s_off];"
                "add.s64 %s, %s, off;"
                "setp.ne.s64 p, off, -1;", o, o, o, o, o);
        if (i == 2 || i == 3) emit(t, "mov.pred %s, p;", i == 2 ? "has_bias" : "has_res");
    }
    emit(t, "ld.param.u32 half, [y_half];"
            "setp.ne.u32 to_half, half, 0;"
            "ld.param.u32 m, [M];"
            "ld.param.u32 n, [N];"
            "ld.param.u32 k, [K];"
            "ld.param.u32 stride, [x_stride];"
            "ld.param.u32 y_pitch, [y_stride];"
            "ld.param.u32 res_pitch, [res_stride];");
    close_scope(t);
}

/* From tiles to units: each tile has split_k of them, or one if it is whole. */
static void count_units(wf_ptx *t, const wf_wgmma *s)
{
    if (s->tail) emit(t, "ld.param.u32 whole, [whole_tiles];"
                         "sub.u32 units, units, whole;");
    emit(t, "mul.lo.u32 units, units, %d; // split_k\n", s->split_k);
    if (s->tail) emit(t, "add.u32 units, units, whole;");
}

/* What holds for all units of work. */
static void begin_group(wf_ptx *t, const wf_wgmma *s)
{
    open_scope_for(
        t, "Who this work-item is, and how many units of work there are: a unit is one share of the K of one tile.",
        ".b32 tmp;",
        "Reads m, n, stride; writes tid, unit, grid, lane, warpgroup, warp, m_tiles, units, x_skip, smem_desc%s.",
        s->tail ? ", whole" : "");
    emit(t, "mov.u32 tid, %%tid.x;"
            "mov.u32 unit, %%ctaid.x;"
            "mov.u32 grid, %%nctaid.x;"
            "and.b32 lane, tid, 31;"
            "shr.u32 warpgroup, tid, 7;"
            "shr.u32 warp, tid, 5;"
            "and.b32 warp, warp, 3; // of its warpgroup\n"
            "add.u32 m_tiles, m, %d;"
            "div.u32 m_tiles, m_tiles, %d;"
            "add.u32 units, n, %d;"
            "div.u32 units, units, %d;"
            "mul.lo.u32 units, units, m_tiles;"
            "mul.wide.u32 x_skip, stride, %d; // from one of a work-item's rows of X to the next\n",
         s->tile_m - 1, s->tile_m, s->tile_n - 1, s->tile_n, s->threads / WF_WGMMA_CHUNKS * 2);
    count_units(t, s);
    emit(t, "mov.u32 tmp, smem; // descriptor of operand B: K is contiguous, rows of 128 bytes have swizzling mode 1\n"
            "shr.u32 tmp, tmp, 4;"
            "and.b32 tmp, tmp, 16383;"
            "cvt.u64.u32 smem_desc, tmp;"
            "or.b64 smem_desc, smem_desc, %llu;", 1ULL << 62 | (8ULL * WF_WGMMA_ROW_BYTES >> 4) << 32 | 1ULL << 16);
    close_scope(t);
}

/* tile, rank: the first `whole` units are a tile each. */
static void find_tile(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, "%s.u32 tmp, unit%s;", s->tail ? "sub" : "mov", s->tail ? ", whole" : "");
    emit(t, "div.u32 tile, tmp, %d;"
            "rem.u32 rank, tmp, %d;", s->split_k, s->split_k);
    if (s->tail) emit(t, "add.u32 tile, tile, whole;"
                         "setp.lt.u32 is_whole, unit, whole;"
                         "selp.u32 tile, unit, tile, is_whole;"
                         "selp.u32 rank, 0, rank, is_whole;");
}

static void place_unit(wf_ptx *t, const wf_wgmma *s)
{
    open_scope_for(t,
                   "The tile of this unit, and its steps of K: [rank * all / split_k, (rank + 1) * all / split_k); of "
                   "a whole tile all.",
                   ".b32 tmp;", "Reads unit, m_tiles, k%s; writes tile, rank, m0, n0, first_step, steps, kt%s.",
                   s->tail ? ", whole" : "", s->tail ? ", is_whole" : "");
    find_tile(t, s);
    emit(t, "rem.u32 m0, tile, m_tiles;"
            "mul.lo.u32 m0, m0, %d;"
            "div.u32 n0, tile, m_tiles;"
            "mul.lo.u32 n0, n0, %d;", s->tile_m, s->tile_n);
    emit(t, "shr.u32 steps, k, %d;"
            "mul.lo.u32 tmp, rank, steps;"
            "div.u32 first_step, tmp, %d;"
            "add.u32 tmp, tmp, steps;"
            "div.u32 tmp, tmp, %d;", WF_WGMMA_LOG2_STEP, s->split_k, s->split_k);
    if (s->tail) emit(t, "selp.u32 tmp, steps, tmp, is_whole;");
    emit(t, "sub.u32 steps, tmp, first_step;"
            "mov.u32 kt, 0; // counts from the unit's first step\n");
    close_scope(t);
}

/* Chunk c of row r of X lies at chunk c ^ r % 8. Of rows past the last no bytes are loaded, and their address is the
 * matrix itself. */
static void place_x(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Where this work-item reads X and writes it to shared memory.",
               "Reads tid, m, m0, stride, first_step, x; writes x_to, x_from, bytes*.",
               ".b32 row, chunk, tmp, of_row; .b64 more; .pred there;");
    emit(t, "div.u32 row, tid, %d;"
            "and.b32 chunk, tid, %d;"
            "and.b32 tmp, row, 7;"
            "xor.b32 tmp, tmp, chunk;"
            "shl.b32 tmp, tmp, 4;"
            "mov.u32 x_to, smem;"
            "add.u32 x_to, x_to, tmp;"
            "mad.lo.u32 x_to, row, %d, x_to;", WF_WGMMA_CHUNKS, WF_WGMMA_CHUNKS - 1, WF_WGMMA_ROW_BYTES);
    emit(t, "add.u32 tmp, m0, row;"
            "mul.wide.u32 x_from, tmp, stride;"
            "mul.wide.u32 more, chunk, 8;"
            "add.s64 x_from, x_from, more;"
            "shl.b64 x_from, x_from, 1;"
            "mul.wide.u32 more, first_step, %d;"
            "add.s64 x_from, x_from, more;"
            "add.s64 x_from, x_from, x;", WF_WGMMA_ROW_BYTES);
    for (int c = 0; c < s->copies; c++)
        emit(t, "add.u32 of_row, tmp, %d;"
                "setp.lt.u32 there, of_row, m;"
                "selp.u32 bytes%d, 16, 0, there;", c * s->threads / WF_WGMMA_CHUNKS, c);
    close_scope(t);
}

/* ---- the main loop ------------------------------------------------------------------------------------------- */

static void copy_x(wf_ptx *t, const wf_wgmma *s, int stage)
{
    open_scope(t, "Begins to copy this work-item's chunks of the next stage of X.",
               "Reads tid, x_to, x, x_skip, bytes*, x_from; writes x_from.", ".b64 row, from; .pred mine, there;");
    emit(t, "mov.b64 row, x_from;");
    for (int c = 0; c < s->copies; c++) {
        int left = s->tile_m * WF_WGMMA_CHUNKS - c * s->threads;
        if (left < s->threads) emit(t, "setp.lt.u32 mine, tid, %d;", left);
        emit(t, "setp.ne.u32 there, bytes%d, 0;"
                "selp.b64 from, row, x, there;"
                "add.s64 row, row, x_skip;"
                "%scp.async.cg.shared.global [x_to+%d], [from], 16, bytes%d;",
             c, left < s->threads ? "@mine " : "", stage * s->stage_bytes + c * s->threads * 16, c);
    }
    emit(t, "add.s64 x_from, x_from, %d;", WF_WGMMA_ROW_BYTES);
    close_scope(t);
}

static void multiply_step(wf_ptx *t, const wf_wgmma *s, int u)
{
    open_scope(t, "Begins the products of a step and waits for those of the step before.",
               "Reads smem_desc, a*, acc*; writes acc*.", ".b64 desc;");
    emit(t, "add.s64 desc, smem_desc, %d;"
            "wgmma.fence.sync.aligned;", u % WF_WGMMA_STAGES * s->stage_bytes >> 4);
    for (int ks = 0; ks < WF_WGMMA_PRODUCTS; ks++) {
        emit(t, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", s->tile_m);
        wf_ptx_list(t, "acc", 0, s->n_acc);
        emit(t, "}, {");
        wf_ptx_list(t, "a", wf_wgmma_fragment(s, u, ks), 4);
        emit(t, "}, desc, 1, 1, 1, 0;");
        if (ks + 1 < WF_WGMMA_PRODUCTS) emit(t, "add.s64 desc, desc, 2; // 16 of K are 32 bytes\n");
    }
    emit(t, "wgmma.commit_group.sync.aligned;"
            "wgmma.wait_group.sync.aligned 1;");
    close_scope(t);
}

static void fetch_x(wf_ptx *t, const wf_wgmma *s, int stage)
{
    if (s->pack)
        wf_wgmma_fetch_packed(t, s, stage);
    else
        copy_x(t, s, stage);
}

static void commit_x(wf_ptx *t, const wf_wgmma *s)
{
    if (!s->pack) emit(t, "cp.async.commit_group;");
}

/* The stages that are on their way before the first step. */
static void fill_stages(wf_ptx *t, const wf_wgmma *s, int ahead)
{
    for (int i = 0; i < ahead; i++) {
        emit(t, "setp.gt.u32 more, steps, %d;"
                "@!more bra BEFORE%d;", i, i);
        fetch_x(t, s, i);
        label(t, "BEFORE%d", i);
        commit_x(t, s);
    }
}

/* No proxy fence between cp.async and wgmma: the wait and the barrier do, as in CUTLASS's loops of that kind, and the
 * fence would wait for all loads of W as well (measured: 5 to 15 % of small tiles).
 * X is fetched STAGES - 2 steps ahead: of the two other stages, one is read by the products just begun
 * and one by those before, which a slower warp may still wait for. */
static void write_step(wf_ptx *t, const wf_wgmma *s, int u, int ahead)
{
    if (s->pack)
        wf_wgmma_await_packed(t, u % WF_WGMMA_STAGES, u);
    else
        emit(t, "cp.async.wait_group %d;", ahead - 1);
    emit(t, "bar.sync 0;");
    multiply_step(t, s, u);
    if (u % s->batch == 0) wf_wgmma_load_w(t, s, u + s->batch, s->batch);
    wf_wgmma_expand(t, s, u + 1);
    emit(t, "add.u32 later, kt, %d;"
            "setp.lt.u32 more, later, steps;"
            "@!more bra STEP%d;", ahead, u);
    fetch_x(t, s, (u + ahead) % WF_WGMMA_STAGES);
    label(t, "STEP%d", u);
    commit_x(t, s);
    emit(t, "add.u32 kt, kt, 1;"
            "setp.ge.u32 more, kt, steps;"
            "@more bra SUMMED;");
    if (s->parts > 1) end_part(t, s, u);
}

static void main_loop(wf_ptx *t, const wf_wgmma *s)
{
    int ahead = WF_WGMMA_STAGES - 2;
    bool f16 = s->w.bits == 16;
    open_scope_for(
        t, "The main loop: accumulates over the unit's steps of K.", ".b32 later; .pred more;",
        "Reads steps, kt, %s, x_from, smem_desc, w_from, prefetches, %s%s; writes acc*, a*, kt, x_from, w_from%s%s%s.",
        s->pack ? "lead, full_bars, phases" : "tid, x_to, x, x_skip, bytes*", f16 ? "a*" : "q*, high_from, scale_from",
        s->parts == 1 ? ""
        : s->pack     ? ", tid, k"
                      : ", k",
        s->pack ? ", phases" : "", f16 ? "" : ", q*, high_from, scale_from",
        s->parts > 1 ? ", kept, part, border" : "");
    for (int i = 0; i < s->n_acc; i++) emit(t, "mov.f32 acc%d, 0f00000000;", i);
    if (s->parts > 1) begin_parts(t, s);
    fill_stages(t, s, ahead);
    wf_wgmma_load_w(t, s, 0, 0);
    wf_wgmma_expand(t, s, 0);
    label(t, "STEPS");
    for (int u = 0; u < s->unroll; u++) write_step(t, s, u, ahead);
    emit(t, "bra STEPS;");
    label(t, "SUMMED");
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    if (!s->pack) emit(t, "cp.async.wait_group 0;");
    if (s->parts > 1) add_last_part(t, s);
    close_scope(t);
}

static void next_unit(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "The next unit of this work-group.", "Reads unit, grid, units; writes unit.", ".pred more;");
    if (s->pack) emit(t, "fence.proxy.async.shared::cta;");
    emit(t, "add.u32 unit, unit, grid;"
            "setp.lt.u32 more, unit, units;"
            "bar.sync 0;"
            "@more bra UNIT;");
    close_scope(t);
}

char *wf_cl_wgmma_ptx(const int32_t knob[5], bool silu, cl_rotation rope, const cl_fragments *w)
{
    wf_wgmma s = gemm_shape_of(knob, silu, w);
    wf_ptx t = {0};
    s.rope = rope;
    write_parameters(&t, &s);
    declare_registers(&t, &s);
    load_arguments(&t);
    begin_group(&t, &s);
    if (s.pack) wf_wgmma_pack(&t, &s);
    label(&t, "UNIT");
    place_unit(&t, &s);
    wf_wgmma_place_w(&t, &s);
    if (s.pack)
        wf_wgmma_place_packed(&t, &s);
    else
        place_x(&t, &s);
    main_loop(&t, &s);
    wf_wgmma_epilogue(&t, &s);
    next_unit(&t, &s);
    if (s.pack) wf_wgmma_exit_packed(&t);
    emit(&t, "ret;");
    t.depth = 0;
    emit(&t, "}\n");
    return wf_ptx_finish(&t);
}
