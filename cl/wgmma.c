/* wgmma: the GEMM of NVIDIA's compute capability 9.0 as PTX text. OpenCL C refuses these instructions, but
 * the driver takes PTX as a program binary.
 *
 *   Y[M, N] = X W^T + bias + residual; W in fragments (layout.c), X in F16 rows, sums in F32
 *
 *   W: device memory --> registers, operand A; a warp reads 512 bytes at once, each lane its own part
 *   X: device memory --> local memory, operand B; `slots` parts of a step's K, swizzled as its descriptor says
 *          |  one step: `products` times wgmma m64 x tokens x 16
 *          v
 *   sums in registers --> local memory --> whole lines of Y
 *
 * A work-group has `warpgroups` of four warps; each multiplies 64 rows of W with `tokens` rows of X. Only X passes
 * through local memory, of which 48 KiB are enough. Large products pack it first (wgmma_pack.c).
 * Where tiles are too few for the device, `split` work-groups share the K of a tile: each leaves its sums in scratch
 * memory, waits for the others, and finishes its share of the tokens, adding in the order of K. They wait in a loop, which
 * ends because work-groups begin in the order of their numbers and the lowest tile that is not finished never waits for a
 * later one.
 *
 * Source: PTX ISA 8.0, "wgmma" (fragments of m64nNk16, matrix descriptor, swizzling modes).
 */
#include "cl/wgmma.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define put         wf_ptx_put
#define WARPGROUP   128
#define REGISTERS   65536 /* of a multiprocessor */
#define LOCAL_BYTES (48 << 10)
#define FRAGMENT    512 /* bytes: 16 rows and 16 of K of W */
#define TOGETHER    4 /* loads of sums that are under way together: its square */
#define AHEAD_L2    16 /* products that W is fetched into L2 ahead of its loads */

/* ---- text ----------------------------------------------------------------------------------------------- */

void wf_ptx_put(wf_ptx *t, const char *fmt, ...)
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

/* ---- what is derived from the knobs ------------------------------------------------------------------------ */

static wf_wgmma derive(const int32_t knob[4])
{
    wf_wgmma s = {.warpgroups = knob[0], .pack = knob[1], .tokens = knob[2], .batch = knob[3]};
    s.threads = s.warpgroups * WARPGROUP;
    s.rows = s.warpgroups * 64;
    s.products = s.pack ? 4 : 2;
    s.row_bytes = s.products * 32;
    s.chunks = s.row_bytes / 16;
    s.slot_bytes = s.tokens * s.row_bytes;
    s.unroll = 2 * s.batch;
    s.slots = s.pack ? WF_WGMMA_SLOTS : s.unroll;
    while (!s.pack && s.slots * s.slot_bytes > LOCAL_BYTES) s.slots--;
    while (s.unroll % s.slots) s.slots--;
    s.copies = (s.tokens * s.chunks + s.threads - 1) / s.threads;
    s.sums = s.tokens / 2;
    s.pitch = s.rows + 4; /* the 32 lanes of a store hit 32 banks */
    s.pass = 64;
    while (s.pass > s.tokens || s.pass * s.pitch * 4 > LOCAL_BYTES) s.pass /= 2;
    s.resident = REGISTERS / (s.threads * (s.sums + s.unroll * s.products * 4 + 32));
    s.at_once = s.threads / (s.rows / 4);
    return s;
}

cl_wgmma wf_cl_wgmma_shape(const int32_t knob[4])
{
    wf_wgmma s = derive(knob);
    return (cl_wgmma){(uint32_t)s.threads, (uint32_t)s.rows, (uint32_t)s.tokens, (uint32_t)s.resident, (uint32_t)s.products * 16, s.pack};
}

/* Number of the first of the four registers of W that product i of step u of the text reads. */
static int fragment(const wf_wgmma *s, int u, int i)
{
    return (u % s->unroll * s->products + i) * 4;
}

/* ---- before the sums ---------------------------------------------------------------------------------------- */

static const char *const operands[] = {"x", "w", "bias", "res", "y"};

static void head(wf_ptx *t, const wf_wgmma *s)
{
    int local = WF_MAX(s->slots * s->slot_bytes, s->pass * s->pitch * 4);
    put(t, ".version 8.0\n.target sm_90a, texmode_independent\n.address_size 64\n.entry gemm_wgmma(\n");
    for (size_t i = 0; i < WF_LEN(operands); i++)
        put(t, " .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off,%s\n", operands[i], operands[i],
            i + 1 < WF_LEN(operands) ? "" : " .param .u32 y_half,");
    put(t, " .param .u32 M, .param .u32 N, .param .u32 K, .param .u32 x_stride, .param .u64 w_row_bytes,\n"
           " .param .u32 res_stride, .param .u32 y_stride,\n"
           " .param .u64 .ptr .global .align 1 scratch, .param .u32 split)\n.reqntid %d, 1, 1\n.minnctapersm %d\n{\n"
           " .shared .align 1024 .b8 part[%d];\n", s->threads, s->resident, local);
    if (s->pack) wf_wgmma_declare_pack(t, s);
    put(t, " .reg .b32 tid, lane, group, in_group, unit, units, grid, tile, rank, ranks, m_tiles, m, n, k, kt, steps, stride;\n"
           " .reg .b32 m0, n0, row, chunk, last, to_x, at, half_out, y_pitch, res_pitch, i, token, tmp, tmp2, bytes<%d>;\n"
           " .reg .b64 x, w, bias, res, y, sums, count, off, from, skip, skip_share, part_desc, desc, wide, from_w;\n"
           " .reg .b32 a<%d>, h<2>;\n .reg .f32 c<%d>, f<4>, b<4>, r<4>;\n"
           " .reg .pred p, q, first, has_bias, has_res, to_half;\n",
        s->copies, WF_MAX(s->unroll * s->products * 4, wf_wgmma_pack_registers(s)), WF_MAX(s->sums, TOGETHER * (TOGETHER + 1) * 4));
}

static void arguments(wf_ptx *t)
{
    for (size_t i = 0; i < WF_LEN(operands); i++)
        put(t, " ld.param.u64 %s, [%s_base]; ld.param.u64 off, [%s_off]; add.s64 %s, %s, off; setp.ne.s64 p, off, -1;\n%s",
            operands[i], operands[i], operands[i], operands[i], operands[i],
            i == 2 ? " mov.pred has_bias, p;\n" : i == 3 ? " mov.pred has_res, p;\n" : "");
    put(t, " ld.param.u32 half_out, [y_half]; setp.ne.u32 to_half, half_out, 0;\n"
           " ld.param.u32 m, [M]; ld.param.u32 n, [N]; ld.param.u32 k, [K]; ld.param.u32 stride, [x_stride];\n"
           " ld.param.u32 y_pitch, [y_stride]; ld.param.u32 res_pitch, [res_stride]; ld.param.u32 ranks, [split];\n");
}

/* What holds for all units of work. A unit is one share of the K of one tile. */
static void begin(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " mov.u32 tid, %%tid.x; mov.u32 unit, %%ctaid.x; mov.u32 grid, %%nctaid.x;\n"
           " and.b32 lane, tid, 31; shr.u32 group, tid, 7; shr.u32 in_group, tid, 5; and.b32 in_group, in_group, 3;\n"
           " add.u32 m_tiles, m, %d; div.u32 m_tiles, m_tiles, %d;\n"
           " add.u32 units, n, %d; div.u32 units, units, %d; mul.lo.u32 units, units, m_tiles; mul.lo.u32 units, units, ranks;\n"
           " mul.wide.u32 skip, stride, %d;\n",
        s->tokens - 1, s->tokens, s->rows - 1, s->rows, s->threads / s->chunks * 2);
    /* Operand B: K is contiguous; rows of 64 bytes have swizzling mode 2, those of 128 have 1. */
    put(t, " mov.u32 tmp, part; shr.u32 tmp, tmp, 4; and.b32 tmp, tmp, 16383; cvt.u64.u32 part_desc, tmp; or.b64 part_desc, part_desc, %llu;\n",
        (s->pack ? 1ULL : 2ULL) << 62 | (8ULL * (unsigned)s->row_bytes >> 4) << 32 | 1ULL << 16);
}

static void place_unit(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " div.u32 tile, unit, ranks; rem.u32 rank, unit, ranks;\n"
           " rem.u32 m0, tile, m_tiles; mul.lo.u32 m0, m0, %d; div.u32 n0, tile, m_tiles; mul.lo.u32 n0, n0, %d;\n",
        s->tokens, s->rows);
    /* Steps [rank * all / ranks, (rank + 1) * all / ranks) of K; kt counts from 0. */
    put(t, " shr.u32 steps, k, %d; mul.lo.u32 tmp, rank, steps; div.u32 at, tmp, ranks; add.u32 tmp, tmp, steps; div.u32 tmp, tmp, ranks;\n"
           " sub.u32 steps, tmp, at; mov.u32 kt, 0;\n", wf_wgmma_log2_step(s));
}

/* Where this work-item reads W. Past the last rows: the last block again, whose sums are thrown away. */
static void place_w(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " add.u32 last, n, 15; shr.u32 last, last, 4; sub.u32 last, last, 1; setp.eq.u32 first, lane, 0; setp.eq.and.u32 first, m0, 0, first;\n"
           " shr.u32 tmp, n0, 4; mad.lo.u32 tmp, group, 4, tmp; add.u32 tmp, tmp, in_group; min.u32 tmp, tmp, last;\n"
           " mul.wide.u32 off, tmp, k; shl.b64 off, off, 5; mul.wide.u32 wide, lane, 16; add.s64 off, off, wide;\n"
           " mul.wide.u32 wide, at, %d; add.s64 off, off, wide; add.s64 from_w, off, w;\n", s->products * FRAGMENT);
}

/* Where it reads X and writes it to local memory: chunk c of row r lies at chunk c ^ (r / 2 % 4). Of rows past the
 * last no bytes are asked for, and their address is the matrix itself. */
static void place_x(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " div.u32 row, tid, %d; and.b32 chunk, tid, %d; shr.u32 tmp, row, 1; and.b32 tmp, tmp, 3; xor.b32 tmp, tmp, chunk; shl.b32 tmp, tmp, 4;\n"
           " mov.u32 to_x, part; add.u32 to_x, to_x, tmp; mad.lo.u32 to_x, row, %d, to_x;\n"
           " add.u32 tmp, m0, row; mul.wide.u32 from, tmp, stride; mul.wide.u32 wide, chunk, 8; add.s64 from, from, wide; shl.b64 from, from, 1;\n"
           " mul.wide.u32 wide, at, %d; add.s64 from, from, wide; add.s64 from, from, x;\n",
        s->chunks, s->chunks - 1, s->row_bytes, s->row_bytes);
    for (int c = 0; c < s->copies; c++)
        put(t, " add.u32 tmp2, tmp, %d; setp.lt.u32 p, tmp2, m; selp.u32 bytes%d, 16, 0, p;\n", c * s->threads / s->chunks, c);
}

/* ---- the sums ------------------------------------------------------------------------------------------------ */

/* Sends this work-item's chunks of the next part of X on their way. */
static void copy_x(wf_ptx *t, const wf_wgmma *s, int slot)
{
    put(t, " mov.b64 wide, from;\n");
    for (int c = 0; c < s->copies; c++) {
        int left = s->tokens * s->chunks - c * s->threads;
        if (left < s->threads) put(t, " setp.lt.u32 p, tid, %d;\n", left);
        put(t, " setp.ne.u32 q, bytes%d, 0; selp.b64 off, wide, x, q; add.s64 wide, wide, skip;\n"
               "%s cp.async.cg.shared.global [to_x+%d], [off], 16, bytes%d;\n",
            c, left < s->threads ? " @p" : "", slot * s->slot_bytes + c * s->threads * 16, c);
    }
    put(t, " add.s64 from, from, %d;\n", s->row_bytes);
}

/* Loads W for `batch` steps from kt + ahead on, all at once: the assembler has one scoreboard for them all,
 * so that a wait for one load is a wait for every load asked for since (measured: 575 against 645 TFLOP/s). */
static void load_w(wf_ptx *t, const wf_wgmma *s, int u, int ahead)
{
    for (int i = 0; i < s->batch; i++) {
        put(t, " add.u32 tmp, kt, %d; setp.lt.u32 p, tmp, steps;\n", ahead + i);
        for (int ks = 0; ks < s->products; ks++) {
            int a = fragment(s, u + i, ks);
            put(t, " @p ld.global.nc.L1::no_allocate.v4.u32 {a%d,a%d,a%d,a%d}, [from_w+%d];\n", a, a + 1, a + 2, a + 3, (i * s->products + ks) * FRAGMENT);
        }
    }
    put(t, " add.s64 from_w, from_w, %d;\n", s->batch * s->products * FRAGMENT);
    /* The tiles that read the same W do so at the same time: without this all of them wait for memory. Where two
     * work-groups are resident they cover for each other, and this only costs. */
    if (s->resident > 1) return;
    put(t, " add.u32 tmp, kt, %d; setp.lt.and.u32 q, tmp, steps, first;\n", ahead + AHEAD_L2 / s->products + s->batch - 1);
    put(t, " @q cp.async.bulk.prefetch.L2.global [from_w+%d], %d;\n", (AHEAD_L2 - s->batch * s->products) * FRAGMENT, s->batch * s->products * FRAGMENT);
}

/* Begins the products of a step and waits for those of the step before. */
static void multiply(wf_ptx *t, const wf_wgmma *s, int u)
{
    put(t, " add.s64 desc, part_desc, %d; wgmma.fence.sync.aligned;\n", u % s->slots * s->slot_bytes >> 4);
    for (int ks = 0; ks < s->products; ks++) {
        int a = fragment(s, u, ks);
        put(t, " wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", s->tokens);
        for (int i = 0; i < s->sums; i++) put(t, "%sc%d", i ? "," : "", i);
        put(t, "}, {a%d,a%d,a%d,a%d}, desc, 1, 1, 1, 0;\n", a, a + 1, a + 2, a + 3);
        if (ks + 1 < s->products) put(t, " add.s64 desc, desc, 2;\n"); /* 16 of K are 32 bytes */
    }
    put(t, " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;\n");
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
    int ahead = s->slots - 2;
    const char *sent = s->pack ? "" : "cp.async.commit_group;";
    for (int i = 0; i < s->sums; i++) put(t, " mov.f32 c%d, 0f00000000;%s", i, i % 8 == 7 ? "\n" : "");
    for (int i = 0; i < ahead; i++) {
        put(t, " setp.gt.u32 p, steps, %d; @!p bra BEFORE%d;\n", i, i);
        fetch_x(t, s, i);
        put(t, "BEFORE%d: %s\n", i, sent);
    }
    load_w(t, s, 0, 0);
    put(t, "STEPS:\n");
    for (int u = 0; u < s->unroll; u++) {
        if (s->pack)
            wf_wgmma_await_packed(t, u % s->slots, u);
        else
            put(t, " cp.async.wait_group %d;", ahead - 1);
        put(t, " bar.sync 0;\n");
        multiply(t, s, u);
        if (u % s->batch == 0) load_w(t, s, u + s->batch, s->batch);
        put(t, " add.u32 tmp, kt, %d; setp.lt.u32 p, tmp, steps; @!p bra STEP%d;\n", ahead, u);
        fetch_x(t, s, (u + ahead) % s->slots);
        put(t, "STEP%d: %s add.u32 kt, kt, 1; setp.ge.u32 p, kt, steps; @p bra SUMMED;\n", u, sent);
    }
    put(t, " bra STEPS;\nSUMMED: wgmma.wait_group.sync.aligned 0;%s\n", s->pack ? "" : " cp.async.wait_group 0;");
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

/* Registers of sums to local memory, [token][row] in F32: tokens of one pass. */
static void stage(wf_ptx *t, const wf_wgmma *s, int pass)
{
    put(t, " bar.sync 0;\n");
    for (int j = pass * s->pass / 8; j < (pass + 1) * s->pass / 8; j++)
        for (int v = 0; v < 4; v++)
            put(t, " st.shared.f32 [to_x+%d], c%d;\n", ((j * 8 + v % 2 - pass * s->pass) * s->pitch + v / 2 * 8) * 4, j * 4 + v);
    put(t, " bar.sync 0;\n");
}

/* Each work-item has four neighbouring features: from column `chunk` on, of tokens `row`, row + at_once ... */
static void place_end(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " shr.u32 tmp, lane, 2; and.b32 tmp2, lane, 3; shl.b32 tmp2, tmp2, 1; mad.lo.u32 tmp, tmp2, %d, tmp;\n"
           " mad.lo.u32 tmp, group, 64, tmp; mad.lo.u32 tmp, in_group, 16, tmp; mov.u32 to_x, part; mad.lo.u32 to_x, tmp, 4, to_x;\n",
        s->pitch);
    put(t, " div.u32 row, tid, %d; rem.u32 chunk, tid, %d; shl.b32 chunk, chunk, 2;\n"
           " mad.lo.u32 at, row, %d, chunk; mov.u32 tmp, part; mad.lo.u32 at, at, 4, tmp;\n",
        s->rows / 4, s->rows / 4, s->pitch);
    /* The sums of this tile in scratch memory: [rank][token][row]. */
    put(t, " ld.param.u64 count, [scratch]; mul.lo.u32 tmp, tile, ranks; mul.wide.u32 sums, tmp, %d; mad.lo.u32 tmp2, row, %d, chunk; mul.wide.u32 wide, tmp2, 4;\n"
           " add.s64 sums, sums, wide; add.s64 sums, sums, %u; add.s64 sums, sums, count; mul.wide.u32 wide, tile, 4; add.s64 count, count, wide;\n",
        s->tokens * s->rows * 4, s->rows, WF_CL_ZEROS);
    if (s->pack) wf_wgmma_skip_packed(t, s);
    put(t, " add.u32 chunk, chunk, n0;\n");
    for (int v = 0; v < 4; v++) put(t, " mov.f32 b%d, 0f00000000;", v);
    put(t, "\n setp.lt.and.u32 p, chunk, n, has_bias; mul.wide.u32 off, chunk, 4; add.s64 off, off, bias;\n"
           " @p ld.global.v4.f32 {b0,b1,b2,b3}, [off];\n");
}

/* Bias, residual and rounding for f0 to f3 of row `token` of Y, which exists; one store. */
static void finish_four(wf_ptx *t, const char *label)
{
    for (int v = 0; v < 4; v++) put(t, " mov.f32 r%d, 0f00000000;", v);
    put(t, "\n mul.wide.u32 off, token, res_pitch; cvt.u64.u32 wide, chunk; add.s64 off, off, wide; shl.b64 off, off, 2; add.s64 off, off, res;\n"
           " @has_res ld.global.v4.f32 {r0,r1,r2,r3}, [off];\n");
    for (int v = 0; v < 4; v++) put(t, " add.f32 f%d, f%d, b%d; add.f32 f%d, f%d, r%d;", v, v, v, v, v, v);
    put(t, "\n mul.wide.u32 off, token, y_pitch; add.s64 off, off, wide; @to_half bra HALF%s;\n"
           " shl.b64 off, off, 2; add.s64 off, off, y; st.global.v4.f32 [off], {f0,f1,f2,f3}; bra END%s;\n"
           "HALF%s: cvt.rn.f16x2.f32 h0, f1, f0; cvt.rn.f16x2.f32 h1, f3, f2;\n"
           " shl.b64 off, off, 1; add.s64 off, off, y; st.global.v2.b32 [off], {h0,h1};\nEND%s:\n",
        label, label, label, label);
}

/* One work-group has the whole sums. */
static void finish_alone(wf_ptx *t, const wf_wgmma *s)
{
    for (int p = 0; p < s->tokens / s->pass; p++) {
        stage(t, s, p);
        for (int i = 0; i < s->pass / s->at_once; i++) {
            char label[32];
            snprintf(label, sizeof label, "%d_%d", p, i);
            put(t, " add.u32 token, row, %d; add.u32 token, token, m0; setp.lt.u32 p, token, m; setp.lt.and.u32 p, chunk, n, p; @!p bra END%s;\n"
                   " ld.shared.v4.f32 {f0,f1,f2,f3}, [at+%d];\n",
                p * s->pass + i * s->at_once, label, i * s->at_once * s->pitch * 4);
            finish_four(t, label);
        }
    }
}

/* Leaves the sums of this share where the others find them. */
static void leave_sums(wf_ptx *t, const wf_wgmma *s)
{
    put(t, " mul.wide.u32 off, rank, %d; add.s64 desc, sums, off;\n", s->tokens * s->rows * 4);
    for (int p = 0; p < s->tokens / s->pass; p++) {
        stage(t, s, p);
        for (int i = 0; i < s->pass / s->at_once; i++) {
            int token = p * s->pass + i * s->at_once;
            put(t, " add.u32 token, row, %d; add.u32 token, token, m0; setp.lt.u32 p, token, m;\n"
                   " @p ld.shared.v4.f32 {f0,f1,f2,f3}, [at+%d]; @p st.global.v4.f32 [desc+%d], {f0,f1,f2,f3};\n",
                token, i * s->at_once * s->pitch * 4, token * s->rows * 4);
        }
    }
}

/* Adds the sums of TOGETHER ranks from tmp on, of TOGETHER groups of tokens from i on, to c0 and what follows; all loads
 * first, since each takes as long as all. */
static void add_sums(wf_ptx *t, const wf_wgmma *s)
{
    int at = TOGETHER * 4;
    put(t, " mul.lo.u32 tmp2, ranks, %d; mul.wide.u32 skip_share, tmp2, %d;\n", s->at_once, s->rows * 4);
    for (int r = 0; r < TOGETHER; r++) {
        put(t, " mov.b64 wide, desc; mov.u32 token, i; add.u32 tmp2, tmp, %d; setp.lt.u32 q, tmp2, ranks;\n", r);
        for (int j = 0; j < TOGETHER; j++) {
            int c = at + (r * TOGETHER + j) * 4;
            for (int v = 0; v < 4; v++) put(t, " mov.f32 c%d, 0f00000000;", c + v);
            put(t, "\n add.u32 tmp2, token, row; setp.lt.and.u32 p, tmp2, %d, q; @p ld.global.cg.v4.f32 {c%d,c%d,c%d,c%d}, [wide];\n"
                   " add.s64 wide, wide, skip_share; mad.lo.u32 token, ranks, %d, token;\n",
                s->tokens, c, c + 1, c + 2, c + 3, s->at_once);
        }
        put(t, " add.s64 desc, desc, %d;\n", s->tokens * s->rows * 4);
    }
    for (int v = 0; v < TOGETHER * TOGETHER * 4; v++)
        put(t, " add.f32 c%d, c%d, c%d;%s", v % at, v % at, at + v, v % 4 == 3 ? "\n" : "");
}

/* Tokens rank * at_once + row, then ranks * at_once further on: a share of the tile. The counter goes up to
 * twice the ranks, then back to zero for the next call. */
static void finish_together(wf_ptx *t, const wf_wgmma *s)
{
    leave_sums(t, s);
    put(t, " membar.gl; bar.sync 0; setp.ne.u32 p, tid, 0; @p bra MET;\n atom.add.acq_rel.gpu.global.u32 tmp, [count], 1;\n"
           "MEET: ld.acquire.gpu.global.u32 tmp, [count]; setp.lt.u32 p, tmp, ranks; @p bra MEET;\n"
           "MET: bar.sync 0; mul.lo.u32 i, rank, %d;\n", s->at_once);
    put(t, "SHARE: mul.wide.u32 desc, i, %d; add.s64 desc, desc, sums; mov.u32 tmp, 0;\n", s->rows * 4);
    for (int v = 0; v < TOGETHER * 4; v++) put(t, " mov.f32 c%d, 0f00000000;%s", v, v % 8 == 7 ? "\n" : "");
    put(t, "ADD:\n");
    add_sums(t, s);
    put(t, " add.u32 tmp, tmp, %d; setp.lt.u32 p, tmp, ranks; @p bra ADD;\n", TOGETHER);
    for (int j = 0; j < TOGETHER; j++) {
        char label[32];
        snprintf(label, sizeof label, "S%d", j);
        put(t, " add.u32 tmp, i, row; add.u32 token, tmp, m0; setp.lt.u32 p, token, m; setp.lt.and.u32 p, chunk, n, p; setp.lt.and.u32 p, tmp, %d, p; @!p bra END%s;\n",
            s->tokens, label);
        for (int v = 0; v < 4; v++) put(t, " mov.f32 f%d, c%d;", v, j * 4 + v);
        finish_four(t, label);
        put(t, " mad.lo.u32 i, ranks, %d, i;\n", s->at_once);
    }
    put(t, " setp.lt.u32 p, i, %d; @p bra SHARE;\n", s->tokens);
    put(t, " setp.ne.u32 p, tid, 0; @p bra FINISHED;\n atom.add.acq_rel.gpu.global.u32 tmp, [count], 1; shl.b32 tmp2, ranks, 1; sub.u32 tmp2, tmp2, 1;\n"
           " setp.eq.u32 p, tmp, tmp2; mov.u32 tmp, 0; @p st.relaxed.gpu.global.u32 [count], tmp;\n");
}

char *wf_cl_wgmma_text(const int32_t knob[4])
{
    wf_wgmma s = derive(knob);
    wf_ptx t = {0};
    head(&t, &s);
    arguments(&t);
    begin(&t, &s);
    if (s.pack) wf_wgmma_pack(&t, &s);
    put(&t, "UNIT:\n");
    place_unit(&t, &s);
    place_w(&t, &s);
    if (s.pack)
        wf_wgmma_place_packed(&t, &s);
    else
        place_x(&t, &s);
    sum_over_k(&t, &s);
    place_end(&t, &s);
    put(&t, " setp.gt.u32 p, ranks, 1; @p bra SHARED;\n");
    finish_alone(&t, &s);
    put(&t, " bra FINISHED;\nSHARED:\n");
    finish_together(&t, &s);
    put(&t, "FINISHED: %s add.u32 unit, unit, grid; setp.lt.u32 p, unit, units; bar.sync 0; @p bra UNIT;\n", s.pack ? "fence.proxy.async.shared::cta;" : "");
    if (s.pack) wf_wgmma_leave_packed(&t);
    put(&t, " ret;\n}\n");
    if (!t.lost) return t.s;
    free(t.s);
    return NULL;
}
