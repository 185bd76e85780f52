/* wgmma_epilogue: from the sums of wgmma.c to Y, with bias and residual, or with SiLU.
 *
 *   sums in registers --> local memory --> whole lines of Y
 *
 * Where `split` work-groups share the K of a tile, work-group r of them finishes the tokens r, r + split, ... Each sends
 * every owner its sums, and an owner waits until nothing that it waits for is zero any more, adds in the order of K, and
 * puts the zeros back: the sums themselves say that they have come, so that a meeting takes one way through the cache that
 * all share. A sum that is zero travels as -0. The wait ends because work-groups begin in the order of their numbers, and
 * the lowest tile that is not finished never waits for a later one.
 */
#include "cl/wgmma.h"

#include <stdio.h>

#define emit      wf_ptx_emit
#define TOGETHER 4 /* such groups whose residuals are asked for together */

/* Tokens that the work-group finishes at once: a work-item has four features of Y, which are of four rows of W, or of four
 * of gate and four of up. */
static int at_once(const wf_wgmma *s)
{
    return s->threads * 4 / s->tile_n;
}

/* Tokens of one owner, at most. */
static int share(const wf_wgmma *s)
{
    return (s->tile_m + s->split_k - 1) / s->split_k;
}

static int groups(const wf_wgmma *s)
{
    return (share(s) + at_once(s) - 1) / at_once(s);
}

/* A token of a tile in local memory: the 32 lanes of a store hit 32 banks. */
static int pitch(const wf_wgmma *s)
{
    return (s->w_rows + 4) * 4;
}

int wf_wgmma_epilogue_bytes(const wf_wgmma *s)
{
    return s->tile_m * pitch(s);
}

/* Of a tile: [owner][from][token of the share][row]. */
uint64_t wf_wgmma_exchange_bytes(const wf_wgmma *s)
{
    return s->split_k > 1 ? (uint64_t)s->split_k * s->split_k * share(s) * s->w_rows * 4 : 0;
}

void wf_wgmma_declare_epilogue(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " .reg .b32 own, column, token, e<%d>, h<2>;\n .reg .b64 box;\n .reg .f32 f<8>, b<8>, r<%d>, got;\n", s->split_k * 4, TOGETHER * 4);
}

/* Registers of sums to local memory, [token][row] in F32. */
static void stage(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " shr.u32 tmp, lane, 2; and.b32 tmp2, lane, 3; mov.u32 to_x, part; mad.lo.u32 to_x, tmp2, %d, to_x; mad.lo.u32 tmp, group, 64, tmp;\n"
           " mad.lo.u32 tmp, in_group, 16, tmp; mad.lo.u32 to_x, tmp, 4, to_x; bar.sync 0;\n", 2 * pitch(s));
    for (int i = 0; i < s->n_acc; i++)
        emit(t, " st.shared.f32 [to_x+%d], c%d;\n", (i / 4 * 8 + i % 2) * pitch(s) + i % 4 / 2 * 8 * 4, i);
    emit(t, " bar.sync 0;\n");
}

/* Each work-item has four neighbouring features: from `column` on, of which `chunk` counts in the tile. */
static void place(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " div.u32 row, tid, %d; rem.u32 chunk, tid, %d; shl.b32 chunk, chunk, 2; add.u32 column, chunk, n0;\n"
           " mov.u32 at, part; mad.lo.u32 at, row, %d, at; mad.lo.u32 at, chunk, 4, at; mad.lo.u32 own, row, %d, rank;\n",
        s->tile_n / 4, s->tile_n / 4, pitch(s), s->split_k);
    for (int v = 0; v < 8; v++) emit(t, " mov.f32 b%d, 0f00000000;", v);
    emit(t, "\n setp.lt.and.u32 p, column, n, has_bias; mul.wide.u32 off, column, 4; add.s64 off, off, bias;\n"
           " @p ld.global.v4.f32 {b0,b1,b2,b3}, [off];\n");
    if (s->silu) emit(t, " mul.wide.u32 wide, n, 4; add.s64 off, off, wide; @p ld.global.v4.f32 {b4,b5,b6,b7}, [off];\n");
}

/* Sends token `row` + of the tile to its owner, for each group of tokens. */
static void send(wf_ptx *t, const wf_wgmma *s)
{
    uint64_t one = wf_wgmma_exchange_bytes(s) / s->split_k / s->split_k;
    emit(t, " ld.param.u64 box, [boxes]; mul.wide.u32 off, tile, %llu; add.s64 box, box, off; mul.wide.u32 off, chunk, 4; add.s64 box, box, off;\n",
        (unsigned long long)wf_wgmma_exchange_bytes(s));
    for (int i = 0; i < s->tile_m; i += at_once(s)) {
        emit(t, " add.u32 tmp, row, %d; add.u32 token, tmp, m0; setp.lt.u32 p, token, m; setp.lt.and.u32 p, column, n, p;\n"
               " rem.u32 tmp2, tmp, %d; div.u32 tmp, tmp, %d; mad.lo.u32 tmp2, tmp2, %d, rank; mul.wide.u32 off, tmp2, %llu;\n"
               " mul.wide.u32 wide, tmp, %d; add.s64 off, off, wide; add.s64 off, off, box;\n",
            i, s->split_k, s->split_k, s->split_k, (unsigned long long)one, s->w_rows * 4);
        for (int half = 0; half <= s->silu; half++) {
            emit(t, " ld.shared.v4.u32 {e0,e1,e2,e3}, [at+%d];\n", i * pitch(s) + half * s->tile_n * 4);
            for (int v = 0; v < 4; v++) emit(t, " setp.eq.u32 q, e%d, 0; selp.b32 e%d, 0x80000000, e%d, q;", v, v, v);
            emit(t, "\n @p st.relaxed.gpu.global.v4.u32 [off+%d], {e0,e1,e2,e3};\n", half * s->tile_n * 4);
        }
    }
    emit(t, " mul.wide.u32 off, rank, %llu; add.s64 box, box, off; mul.wide.u32 off, row, %d; add.s64 box, box, off;\n",
        (unsigned long long)one * (unsigned)s->split_k, s->w_rows * 4);
}

/* p: group i of the share has a token for this work-item, which is `token`. */
static void find_token(wf_ptx *t, const wf_wgmma *s, int i)
{
    emit(t, " add.u32 tmp, own, %d; add.u32 token, tmp, m0; setp.lt.u32 p, token, m; setp.lt.and.u32 p, column, n, p; setp.lt.and.u32 p, tmp, %d, p;\n",
        i * at_once(s) * s->split_k, s->tile_m);
}

static void ask_residual(wf_ptx *t, const wf_wgmma *s, int i)
{
    int r = i % TOGETHER * 4;
    find_token(t, s, i);
    for (int v = 0; v < 4; v++) emit(t, " mov.f32 r%d, 0f00000000;", r + v);
    emit(t, "\n and.pred p, p, has_res; mul.wide.u32 off, token, res_pitch; cvt.u64.u32 wide, column; add.s64 off, off, wide;\n"
           " shl.b64 off, off, 2; add.s64 off, off, res; @p ld.global.v4.f32 {r%d,r%d,r%d,r%d}, [off];\n", r, r + 1, r + 2, r + 3);
}

/* Four sums of all, once they have come: f0 to f3, of the second half of the rows f4 to f7. */
static void receive(wf_ptx *t, const wf_wgmma *s, int i, int half)
{
    int from = share(s) * s->w_rows * 4, at = (i * at_once(s) * s->w_rows + half * s->tile_n) * 4, label = 2 * i + half;
    emit(t, "POLL%d: mov.u32 tmp, -1;\n", label);
    for (int r = 0; r < s->split_k; r++)
        emit(t, " ld.relaxed.gpu.global.v4.u32 {e%d,e%d,e%d,e%d}, [box+%d];\n", r * 4, r * 4 + 1, r * 4 + 2, r * 4 + 3, r * from + at);
    for (int v = 0; v < s->split_k * 4; v++) emit(t, " min.u32 tmp, tmp, e%d;", v);
    emit(t, "\n setp.eq.u32 p, tmp, 0; @p bra POLL%d; mov.u32 tmp, 0;\n", label);
    for (int r = 0; r < s->split_k; r++) emit(t, " st.global.v4.u32 [box+%d], {tmp,tmp,tmp,tmp};\n", r * from + at);
    for (int v = 0; v < 4; v++) emit(t, " mov.f32 f%d, 0f00000000;", half * 4 + v);
    for (int v = 0; v < s->split_k * 4; v++)
        emit(t, "%s mov.b32 got, e%d; add.f32 f%d, f%d, got;", v % 4 ? "" : "\n", v, half * 4 + v % 4, half * 4 + v % 4);
    emit(t, "\n");
}

/* f0 to f3 are gate, f4 to f7 up: gate / (1 + 2^(-gate log2 e)) * up. */
static void silu(wf_ptx *t)
{
    for (int v = 0; v < 4; v++)
        emit(t, " mul.f32 got, f%d, 0fBFB8AA3B; ex2.approx.ftz.f32 got, got; add.f32 got, got, 0f3F800000; div.full.f32 f%d, f%d, got; mul.f32 f%d, f%d, f%d;\n",
            v, v, v, v, v, v + 4);
}

/* Bias, residual or SiLU, rounding; one store. */
static void finish(wf_ptx *t, const wf_wgmma *s, int i)
{
    find_token(t, s, i);
    emit(t, " @!p bra END%d;\n", i);
    for (int half = 0; half <= s->silu; half++) {
        int f = half * 4;
        if (s->split_k > 1)
            receive(t, s, i, half);
        else
            emit(t, " ld.shared.v4.f32 {f%d,f%d,f%d,f%d}, [at+%d];\n", f, f + 1, f + 2, f + 3, i * at_once(s) * pitch(s) + half * s->tile_n * 4);
        for (int v = f; v < f + 4; v++) emit(t, " add.f32 f%d, f%d, b%d;", v, v, v);
        emit(t, "\n");
    }
    if (s->silu)
        silu(t);
    else
        for (int v = 0; v < 4; v++) emit(t, " add.f32 f%d, f%d, r%d;", v, v, i % TOGETHER * 4 + v);
    emit(t, " mul.wide.u32 off, token, y_pitch; cvt.u64.u32 wide, column; add.s64 off, off, wide; @to_half bra HALF%d;\n"
           " shl.b64 off, off, 2; add.s64 off, off, y; st.global.v4.f32 [off], {f0,f1,f2,f3}; bra END%d;\n"
           "HALF%d: cvt.rn.f16x2.f32 h0, f1, f0; cvt.rn.f16x2.f32 h1, f3, f2;\n"
           " shl.b64 off, off, 1; add.s64 off, off, y; st.global.v2.b32 [off], {h0,h1};\nEND%d:\n", i, i, i, i);
}

void wf_wgmma_epilogue(wf_ptx *t, const wf_wgmma *s)
{
    place(t, s);
    stage(t, s);
    if (s->split_k > 1) send(t, s);
    for (int i = 0; i < groups(s); i++) {
        if (!s->silu && i % TOGETHER == 0)
            for (int j = i; j < groups(s) && j < i + TOGETHER; j++) ask_residual(t, s, j);
        finish(t, s, i);
    }
}
