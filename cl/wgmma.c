/* wgmma: the GEMM of NVIDIA's compute capability 9.0 as PTX text. OpenCL C refuses these instructions, but
 * the driver takes PTX as a program binary.
 *
 *   Y[M, N] = X W^T + bias + residual; W in fragments (layout.c), X in F16 rows, sums in F32
 *
 *   W: device memory --> registers, operand A; a warp reads 512 bytes at once, each lane its own part
 *   X: device memory --> local memory, operand B; slots of 64 of K, swizzled as their descriptor says
 *          |  one step: four times wgmma m64 x tokens x 16
 *          v
 *   sums in registers --> wgmma_epilogue.c
 *
 * A work-group has `warpgroups` of four warps; each multiplies 64 rows of W with `tokens` rows of X. Only X passes
 * through local memory. Large products pack it first (wgmma_pack.c). With SiLU half of a work-group's rows of W are gate, and
 * half the same of up; they meet in local memory behind the sums. Where tiles are too few for the device, `split`
 * work-groups share the K of a tile, and meet at the end (wgmma_epilogue.c).
 *
 * Source: PTX ISA 8.0, "wgmma" (fragments of m64nNk16, matrix descriptor, swizzling modes).
 */
#include "cl/wgmma.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define emit         wf_ptx_emit
#define WARPGROUP   128
#define REGISTERS   65536 /* of a multiprocessor */
#define FRAGMENT    512 /* bytes: 16 rows and 16 of K of W */
#define AHEAD_L2    16 /* products that W is fetched into L2 ahead of its loads */

/* ---- text ----------------------------------------------------------------------------------------------- */

void wf_ptx_emit(wf_ptx *t, const char *fmt, ...)
{
    va_list args;
    for (;;) {
        va_start(args, fmt);
        int n = t->s ? vsnprintf(t->s + t->len, t->cap - t->len, fmt, args) : -1;
        va_end(args);
        if (n >= 0 && t->len + (size_t)n < t->cap) {
            t->len += (size_t)n;
            return;
        }
        char *s = t->lost ? NULL : realloc(t->s, t->cap = t->cap ? t->cap * 2 : 1 << 16);
        if (!s) {
            t->lost = true;
            return;
        }
        t->s = s;
    }
}

char *wf_ptx_finish(wf_ptx *t)
{
    if (!t->lost) return t->s;
    free(t->s);
    return NULL;
}

/* ---- what is derived from the knobs ------------------------------------------------------------------------ */

static wf_wgmma derive(const int32_t knob[4], uint32_t split_k, bool silu)
{
    wf_wgmma s = {.warpgroups = knob[0], .pack = knob[1], .tile_m = knob[2], .batch = knob[3], .split_k = (int)split_k, .silu = silu};
    s.threads = s.warpgroups * WARPGROUP;
    s.w_rows = s.warpgroups * 64;
    s.tile_n = s.w_rows / (1 + s.silu);
    s.stage_bytes = s.tile_m * WF_WGMMA_ROW_BYTES;
    s.copies = (s.tile_m * WF_WGMMA_CHUNKS + s.threads - 1) / s.threads;
    s.n_acc = s.tile_m / 2;
    s.w_registers = 2 * s.batch * WF_WGMMA_PRODUCTS * 4;
    s.resident = WF_MIN(REGISTERS / (s.threads * (s.n_acc + s.w_registers + 32)), 4);
    return s;
}

cl_wgmma wf_cl_wgmma_shape(const int32_t knob[4], uint32_t split_k, bool silu)
{
    wf_wgmma s = derive(knob, split_k, silu);
    return (cl_wgmma){.threads = (uint32_t)s.threads, .w_rows = (uint32_t)s.w_rows, .tile_n = (uint32_t)s.tile_n, .tile_m = (uint32_t)s.tile_m, .split_k = split_k,
                      .resident = (uint32_t)s.resident, .tile_k = WF_WGMMA_PRODUCTS * 16, .pack = s.pack, .exchange_bytes = wf_wgmma_exchange_bytes(&s)};
}

/* Number of the first of the four registers of W that product i of step u of the text reads. */
static int fragment(const wf_wgmma *s, int u, int i)
{
    return (u % (2 * s->batch) * WF_WGMMA_PRODUCTS + i) * 4;
}

/* ---- before the sums ---------------------------------------------------------------------------------------- */

static const char *const operands[] = {"x", "w", "bias", "res", "y"};

static void head(wf_ptx *t, const wf_wgmma *s)
{
    int local = WF_MAX(WF_WGMMA_STAGES * s->stage_bytes, wf_wgmma_epilogue_bytes(s));
    emit(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry gemm_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(operands); i++)
        emit(t, " .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,%s\n", operands[i], operands[i],
            i + 1 < WF_LEN(operands) ? "" : " .param .u32 y_half,");
    emit(t, " .param .u32 M, .param .u32 N, .param .u32 K, .param .u32 x_stride, .param .u64 w_row_bytes,\n"
           " .param .u32 res_stride, .param .u32 y_stride%s%s)\n.reqntid %d, 1, 1\n.minnctapersm %d\n{\n"
           " .shared .align 1024 .b8 part[%d];\n",
        s->pack ? ",\n .param .u64 .ptr .global .align 1 scratch" : "", s->split_k > 1 ? ",\n .param .u64 .ptr .global .align 1 boxes" : "",
        s->threads, s->resident, local);
    wf_wgmma_declare_epilogue(t, s);
    if (s->pack) wf_wgmma_declare_pack(t);
    emit(t, " .reg .b32 tid, lane, group, in_group, unit, units, grid, tile, rank, m_tiles, m, n, k, kt, steps, stride;\n"
           " .reg .b32 m0, n0, row, chunk, last, to_x, at, half_out, y_pitch, res_pitch, i, tmp, tmp2, bytes<%d>;\n"
           " .reg .b64 x, w, bias, res, y, off, from, skip, part_desc, desc, wide, from_w;\n"
           " .reg .b32 a<%d>;\n .reg .f32 c<%d>;\n"
           " .reg .pred p, q, first, has_bias, has_res, to_half;\n",
        s->copies, WF_MAX(s->w_registers, wf_wgmma_pack_registers(s)), s->n_acc);
}

static void arguments(wf_ptx *t)
{
    for (size_t i = 0; i < WF_LEN(operands); i++)
        emit(t, " ld.param.u64 %s, [%s_base]; ld.param.u64 off, [%s_off]; add.s64 %s, %s, off; setp.ne.s64 p, off, -1;\n%s",
            operands[i], operands[i], operands[i], operands[i], operands[i],
            i == 2 ? " mov.pred has_bias, p;\n" : i == 3 ? " mov.pred has_res, p;\n" : "");
    emit(t, " ld.param.u32 half_out, [y_half]; setp.ne.u32 to_half, half_out, 0;\n"
           " ld.param.u32 m, [M]; ld.param.u32 n, [N]; ld.param.u32 k, [K]; ld.param.u32 stride, [x_stride];\n"
           " ld.param.u32 y_pitch, [y_stride]; ld.param.u32 res_pitch, [res_stride];\n");
}

/* What holds for all units of work. A unit is one share of the K of one tile. */
static void begin(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " mov.u32 tid, %%tid.x; mov.u32 unit, %%ctaid.x; mov.u32 grid, %%nctaid.x;\n"
           " and.b32 lane, tid, 31; shr.u32 group, tid, 7; shr.u32 in_group, tid, 5; and.b32 in_group, in_group, 3;\n"
           " add.u32 m_tiles, m, %d; div.u32 m_tiles, m_tiles, %d;\n"
           " add.u32 units, n, %d; div.u32 units, units, %d; mul.lo.u32 units, units, m_tiles; mul.lo.u32 units, units, %d;\n"
           " mul.wide.u32 skip, stride, %d;\n",
        s->tile_m - 1, s->tile_m, s->tile_n - 1, s->tile_n, s->split_k, s->threads / WF_WGMMA_CHUNKS * 2);
    /* Operand B: K is contiguous; rows of 128 bytes have swizzling mode 1. */
    emit(t, " mov.u32 tmp, part; shr.u32 tmp, tmp, 4; and.b32 tmp, tmp, 16383; cvt.u64.u32 part_desc, tmp; or.b64 part_desc, part_desc, %llu;\n",
        1ULL << 62 | (8ULL * WF_WGMMA_ROW_BYTES >> 4) << 32 | 1ULL << 16);
}

static void place_unit(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " div.u32 tile, unit, %d; rem.u32 rank, unit, %d;\n"
           " rem.u32 m0, tile, m_tiles; mul.lo.u32 m0, m0, %d; div.u32 n0, tile, m_tiles; mul.lo.u32 n0, n0, %d;\n",
        s->split_k, s->split_k, s->tile_m, s->tile_n);
    /* Steps [rank * all / split, (rank + 1) * all / split) of K; kt counts from 0. */
    emit(t, " shr.u32 steps, k, %d; mul.lo.u32 tmp, rank, steps; div.u32 at, tmp, %d; add.u32 tmp, tmp, steps; div.u32 tmp, tmp, %d;\n"
           " sub.u32 steps, tmp, at; mov.u32 kt, 0;\n", WF_WGMMA_LOG2_STEP, s->split_k, s->split_k);
}

/* Where this work-item reads W. Past the last rows: the last block again, whose sums are thrown away. With SiLU the first
 * half of the warps has blocks of gate, the other half the same blocks of up. */
static void place_w(wf_ptx *t, const wf_wgmma *s)
{
    int half = s->warpgroups * 2;
    emit(t, " add.u32 last, n, 15; shr.u32 last, last, 4; sub.u32 last, last, 1; setp.eq.u32 first, lane, 0; setp.eq.and.u32 first, m0, 0, first;\n"
           " mad.lo.u32 row, group, 4, in_group; shr.u32 tmp, n0, 4;\n");
    if (s->silu) emit(t, " setp.ge.u32 q, row, %d; @q sub.u32 row, row, %d;\n", half, half);
    emit(t, " add.u32 tmp, tmp, row; min.u32 tmp, tmp, last;\n");
    if (s->silu) emit(t, " @q add.u32 tmp, tmp, last; @q add.u32 tmp, tmp, 1;\n");
    emit(t, " mul.wide.u32 off, tmp, k; shl.b64 off, off, 5; mul.wide.u32 wide, lane, 16; add.s64 off, off, wide;\n"
           " mul.wide.u32 wide, at, %d; add.s64 off, off, wide; add.s64 from_w, off, w;\n", WF_WGMMA_PRODUCTS * FRAGMENT);
}

/* Where it reads X and writes it to local memory: chunk c of row r lies at chunk c ^ r % 8. Of rows past the
 * last no bytes are asked for, and their address is the matrix itself. */
static void place_x(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " div.u32 row, tid, %d; and.b32 chunk, tid, %d; and.b32 tmp, row, 7; xor.b32 tmp, tmp, chunk; shl.b32 tmp, tmp, 4;\n"
           " mov.u32 to_x, part; add.u32 to_x, to_x, tmp; mad.lo.u32 to_x, row, %d, to_x;\n"
           " add.u32 tmp, m0, row; mul.wide.u32 from, tmp, stride; mul.wide.u32 wide, chunk, 8; add.s64 from, from, wide; shl.b64 from, from, 1;\n"
           " mul.wide.u32 wide, at, %d; add.s64 from, from, wide; add.s64 from, from, x;\n",
        WF_WGMMA_CHUNKS, WF_WGMMA_CHUNKS - 1, WF_WGMMA_ROW_BYTES, WF_WGMMA_ROW_BYTES);
    for (int c = 0; c < s->copies; c++)
        emit(t, " add.u32 tmp2, tmp, %d; setp.lt.u32 p, tmp2, m; selp.u32 bytes%d, 16, 0, p;\n", c * s->threads / WF_WGMMA_CHUNKS, c);
}

/* ---- the sums ------------------------------------------------------------------------------------------------ */

/* Sends this work-item's chunks of the next part of X on their way. */
static void copy_x(wf_ptx *t, const wf_wgmma *s, int slot)
{
    emit(t, " mov.b64 wide, from;\n");
    for (int c = 0; c < s->copies; c++) {
        int left = s->tile_m * WF_WGMMA_CHUNKS - c * s->threads;
        if (left < s->threads) emit(t, " setp.lt.u32 p, tid, %d;\n", left);
        emit(t, " setp.ne.u32 q, bytes%d, 0; selp.b64 off, wide, x, q; add.s64 wide, wide, skip;\n"
               "%s cp.async.cg.shared.global [to_x+%d], [off], 16, bytes%d;\n",
            c, left < s->threads ? " @p" : "", slot * s->stage_bytes + c * s->threads * 16, c);
    }
    emit(t, " add.s64 from, from, %d;\n", WF_WGMMA_ROW_BYTES);
}

/* Loads W for `batch` steps from kt + ahead on, all at once: the assembler has one scoreboard for them all,
 * so that a wait for one load is a wait for every load asked for since (measured: 575 against 645 TFLOP/s). */
static void load_w(wf_ptx *t, const wf_wgmma *s, int u, int ahead)
{
    for (int i = 0; i < s->batch; i++) {
        emit(t, " add.u32 tmp, kt, %d; setp.lt.u32 p, tmp, steps;\n", ahead + i);
        for (int ks = 0; ks < WF_WGMMA_PRODUCTS; ks++) {
            int a = fragment(s, u + i, ks);
            emit(t, " @p ld.global.nc.L1::no_allocate.v4.u32 {a%d,a%d,a%d,a%d}, [from_w+%d];\n", a, a + 1, a + 2, a + 3, (i * WF_WGMMA_PRODUCTS + ks) * FRAGMENT);
        }
    }
    emit(t, " add.s64 from_w, from_w, %d;\n", s->batch * WF_WGMMA_PRODUCTS * FRAGMENT);
    /* The tiles that read the same W do so at the same time: without this all of them wait for memory. Where two
     * work-groups are resident they cover for each other, and this only costs. */
    if (s->resident > 1) return;
    emit(t, " add.u32 tmp, kt, %d; setp.lt.and.u32 q, tmp, steps, first;\n", ahead + AHEAD_L2 / WF_WGMMA_PRODUCTS + s->batch - 1);
    emit(t, " @q cp.async.bulk.prefetch.L2.global [from_w+%d], %d;\n", (AHEAD_L2 - s->batch * WF_WGMMA_PRODUCTS) * FRAGMENT, s->batch * WF_WGMMA_PRODUCTS * FRAGMENT);
}

/* Begins the products of a step and waits for those of the step before. */
static void multiply(wf_ptx *t, const wf_wgmma *s, int u)
{
    emit(t, " add.s64 desc, part_desc, %d; wgmma.fence.sync.aligned;\n", u % WF_WGMMA_STAGES * s->stage_bytes >> 4);
    for (int ks = 0; ks < WF_WGMMA_PRODUCTS; ks++) {
        int a = fragment(s, u, ks);
        emit(t, " wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", s->tile_m);
        for (int i = 0; i < s->n_acc; i++) emit(t, "%sc%d", i ? "," : "", i);
        emit(t, "}, {a%d,a%d,a%d,a%d}, desc, 1, 1, 1, 0;\n", a, a + 1, a + 2, a + 3);
        if (ks + 1 < WF_WGMMA_PRODUCTS) emit(t, " add.s64 desc, desc, 2;\n"); /* 16 of K are 32 bytes */
    }
    emit(t, " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;\n");
}

/* No proxy fence between cp.async and wgmma: the wait and the barrier do, as in CUTLASS's loops of that kind, and the
 * fence would wait for all loads of W as well (measured: 5 to 15 % of small tiles).
 * Parts of X are asked for slots - 2 steps ahead: of the two other slots, one is read by the products just begun
 * and one by those before, which a slower warp may still wait for. */
static void fetch_x(wf_ptx *t, const wf_wgmma *s, int slot)
{
    if (s->pack)
        wf_wgmma_fetch_packed(t, s, slot);
    else
        copy_x(t, s, slot);
}

static void sum_over_k(wf_ptx *t, const wf_wgmma *s)
{
    int ahead = WF_WGMMA_STAGES - 2;
    const char *sent = s->pack ? "" : "cp.async.commit_group;";
    for (int i = 0; i < s->n_acc; i++) emit(t, " mov.f32 c%d, 0f00000000;%s", i, i % 8 == 7 ? "\n" : "");
    for (int i = 0; i < ahead; i++) {
        emit(t, " setp.gt.u32 p, steps, %d; @!p bra BEFORE%d;\n", i, i);
        fetch_x(t, s, i);
        emit(t, "BEFORE%d: %s\n", i, sent);
    }
    load_w(t, s, 0, 0);
    emit(t, "STEPS:\n");
    for (int u = 0; u < WF_WGMMA_STAGES; u++) {
        if (s->pack)
            wf_wgmma_await_packed(t, u % WF_WGMMA_STAGES, u);
        else
            emit(t, " cp.async.wait_group %d;", ahead - 1);
        emit(t, " bar.sync 0;\n");
        multiply(t, s, u);
        if (u % s->batch == 0) load_w(t, s, u + s->batch, s->batch);
        emit(t, " add.u32 tmp, kt, %d; setp.lt.u32 p, tmp, steps; @!p bra STEP%d;\n", ahead, u);
        fetch_x(t, s, (u + ahead) % WF_WGMMA_STAGES);
        emit(t, "STEP%d: %s add.u32 kt, kt, 1; setp.ge.u32 p, kt, steps; @p bra SUMMED;\n", u, sent);
    }
    emit(t, " bra STEPS;\nSUMMED: wgmma.wait_group.sync.aligned 0;%s\n", s->pack ? "" : " cp.async.wait_group 0;");
}

char *wf_cl_wgmma_ptx(const int32_t knob[4], uint32_t split_k, bool silu)
{
    wf_wgmma s = derive(knob, split_k, silu);
    wf_ptx t = {0};
    head(&t, &s);
    arguments(&t);
    begin(&t, &s);
    if (s.pack) wf_wgmma_pack(&t, &s);
    emit(&t, "UNIT:\n");
    place_unit(&t, &s);
    place_w(&t, &s);
    if (s.pack)
        wf_wgmma_place_packed(&t, &s);
    else
        place_x(&t, &s);
    sum_over_k(&t, &s);
    wf_wgmma_epilogue(&t, &s);
    emit(&t, " %s add.u32 unit, unit, grid; setp.lt.u32 p, unit, units; bar.sync 0; @p bra UNIT;\n", s.pack ? "fence.proxy.async.shared::cta;" : "");
    if (s.pack) wf_wgmma_exit_packed(&t);
    emit(&t, " ret;\n}\n");
    return wf_ptx_finish(&t);
}
