/* wgmma_epilogue: from the accumulators of wgmma.c to Y, with bias and residual, with SiLU, or with the rotation (wgmma_rope.c).
 *
 *   accumulators in registers --> shared memory --> whole lines of Y
 *
 * Where `split_k` work-groups share the K of a tile, work-group r of them is the reducer of the rows r, r + split_k, ... of the
 * tile. Each work-group sends every reducer its sums through the exchange buffer, which is zero before; a reducer polls until
 * no word that it waits for is zero any more, adds in the order of K, and writes the zeros back. The sums themselves
 * tell that they have arrived, so a reduction takes one pass through the L2 cache. A sum that is zero travels as -0.
 * The wait ends because work-groups begin in the order of their numbers, and the lowest tile that is not finished never
 * waits for a later one. Where only tiles of the last round share their K, the program has two epilogues, and those before take the one without
 * a reduction.
 */
#include "cl/wgmma.h"
#include "cl/ptx_short.h"

#include <stdio.h>

/* Groups of rows whose residuals are loaded together, or angles, which wait for positions. */
static int together(const wf_wgmma *s)
{
    return s->rope.head ? WF_WGMMA_ANGLES : 4;
}

/* Rows of Y that the work-group finishes at once: a work-item has four columns of Y, which are of four rows of W, or of four
 * of gate and four of up. */
static int at_once(const wf_wgmma *s)
{
    return s->threads * 4 / s->tile_n;
}

/* Rows of one reducer, at most. */
static int share(const wf_wgmma *s)
{
    return (s->tile_m + s->split_k - 1) / s->split_k;
}

static int groups(const wf_wgmma *s)
{
    return (share(s) + at_once(s) - 1) / at_once(s);
}

/* The number in the labels of group i: two epilogues have different ones. */
static int label_of(const wf_wgmma *s, int i)
{
    return i + (s->tail && s->split_k == 1) * s->tile_m;
}

/* A row of a tile in shared memory: the 32 lanes of a store hit 32 banks. */
static int pitch(const wf_wgmma *s)
{
    return (s->w_rows + 4) * 4;
}

int wf_wgmma_epilogue_bytes(const wf_wgmma *s)
{
    return s->tile_m * pitch(s);
}

/* Of a tile: [reducer][sender][row of the share][row of W]. */
uint64_t wf_wgmma_exchange_bytes(const wf_wgmma *s)
{
    return s->split_k > 1 ? (uint64_t)s->split_k * s->split_k * share(s) * s->w_rows * 4 : 0;
}

/* Four neighbouring columns: from `column` of Y on, of which `in_tile` counts within the tile. */
static void place(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Which outputs this work-item finishes, and their bias.",
               "Reads tid, n0, n, rank, has_bias, bias; writes first_row, in_tile, column, at, reduced, b*.", ".b32 row; .b64 from, more; .pred p;");
    emit(t, "div.u32 first_row, tid, %d;"
            "rem.u32 in_tile, tid, %d;"
            "shl.b32 in_tile, in_tile, 2;"
            "add.u32 column, in_tile, n0;"
            "mov.u32 at, smem;"
            "mad.lo.u32 at, first_row, %d, at;"
            "mad.lo.u32 at, in_tile, 4, at;"
            "mad.lo.u32 reduced, first_row, %d, rank;", s->tile_n / 4, s->tile_n / 4, pitch(s), s->split_k);
    for (int v = 0; v < 8; v++) emit(t, "mov.f32 b%d, 0f00000000;", v);
    emit(t, "setp.lt.and.u32 p, column, n, has_bias;"
            "mul.wide.u32 from, column, 4;"
            "add.s64 from, from, bias;"
            "@p ld.global.v4.f32 {b0,b1,b2,b3}, [from];");
    if (s->silu) emit(t, "mul.wide.u32 more, n, 4;"
                         "add.s64 from, from, more;"
                         "@p ld.global.v4.f32 {b4,b5,b6,b7}, [from];");
    close_scope(t);
}

static void store_accumulators(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Accumulators to shared memory: [row of X][row of W] in F32.", "Reads lane, warpgroup, warp, acc*; writes nothing.", ".b32 to, row, quad;");
    emit(t, "shr.u32 row, lane, 2;"
            "and.b32 quad, lane, 3;"
            "mov.u32 to, smem;"
            "mad.lo.u32 to, quad, %d, to;"
            "mad.lo.u32 row, warpgroup, 64, row;"
            "mad.lo.u32 row, warp, 16, row;"
            "mad.lo.u32 to, row, 4, to;"
            "bar.sync 0;", 2 * pitch(s));
    for (int i = 0; i < s->n_acc; i++)
        emit(t, "st.shared.f32 [to+%d], acc%d;", (i / 4 * 8 + i % 2) * pitch(s) + i % 4 / 2 * 8 * 4, i);
    emit(t, "bar.sync 0;");
    close_scope(t);
}

/* ---- split-K: the exchange buffer -------------------------------------------------------------------------- */

/* Sends row first_row + i of the tile to its reducer. */
static void send_row(wf_ptx *t, const wf_wgmma *s, int i)
{
    unsigned long long one = wf_wgmma_exchange_bytes(s) / s->split_k / s->split_k;
    emit(t, "add.u32 row, first_row, %d;"
            "add.u32 y_row, row, m0;"
            "setp.lt.u32 p, y_row, m;"
            "setp.lt.and.u32 p, column, n, p;"
            "rem.u32 reducer, row, %d;"
            "div.u32 row, row, %d;"
            "mad.lo.u32 reducer, reducer, %d, rank;"
            "mul.wide.u32 to, reducer, %llu;"
            "mul.wide.u32 more, row, %d;"
            "add.s64 to, to, more;"
            "add.s64 to, to, exchange;", i, s->split_k, s->split_k, s->split_k, one, s->w_rows * 4);
    for (int half = 0; half <= s->silu; half++) {
        emit(t, "ld.shared.v4.u32 {e0,e1,e2,e3}, [at+%d];", i * pitch(s) + half * s->tile_n * 4);
        for (int v = 0; v < 4; v++)
            emit(t, "setp.eq.u32 q, e%d, 0;"
                    "selp.b32 e%d, 0x80000000, e%d, q;", v, v, v);
        emit(t, "@p st.relaxed.gpu.global.v4.u32 [to+%d], {e0,e1,e2,e3};", half * s->tile_n * 4);
    }
}

static void send(wf_ptx *t, const wf_wgmma *s)
{
    unsigned long long one = wf_wgmma_exchange_bytes(s) / s->split_k / s->split_k;
    open_scope_for(t, "Sends the tile's sums to their reducers; then `exchange` is where this work-item receives its own.",
                   ".b32 row, y_row, reducer, e<4>; .b64 to, more; .pred p, q;",
                   "Reads tile, first_row, in_tile, column, m0, m, n, rank, at%s; writes exchange.", s->tail ? ", whole" : "");
    emit(t, "%s.u32 row, tile%s;", s->tail ? "sub" : "mov", s->tail ? ", whole" : "");
    emit(t, "ld.param.u64 exchange, [exchange_base];"
            "mul.wide.u32 to, row, %llu;"
            "add.s64 exchange, exchange, to;"
            "mul.wide.u32 to, in_tile, 4;"
            "add.s64 exchange, exchange, to;", (unsigned long long)wf_wgmma_exchange_bytes(s));
    for (int i = 0; i < s->tile_m; i += at_once(s)) send_row(t, s, i);
    emit(t, "mul.wide.u32 to, rank, %llu;"
            "add.s64 exchange, exchange, to;"
            "mul.wide.u32 to, first_row, %d;"
            "add.s64 exchange, exchange, to;", one * (unsigned)s->split_k, s->w_rows * 4);
    close_scope(t);
}

/* Four sums of all work-groups: f0 to f3, of the second half of the rows of W f4 to f7. */
static void receive(wf_ptx *t, const wf_wgmma *s, int i, int half)
{
    int sender = share(s) * s->w_rows * 4, at = (i * at_once(s) * s->w_rows + half * s->tile_n) * 4, poll = 2 * i + half;
    char locals[64];
    snprintf(locals, sizeof locals, ".b32 least, e<%d>; .f32 sent; .pred p;", s->split_k * 4);
    open_scope(t, "Polls until the sums have arrived, puts the zeros back, and adds in the order of K.", "Reads exchange; writes f*.", locals);
    label(t, "POLL%d", poll);
    emit(t, "mov.u32 least, -1;");
    for (int r = 0; r < s->split_k; r++) {
        emit(t, "ld.relaxed.gpu.global.v4.u32 {");
        wf_ptx_list(t, "e", r * 4, 4);
        emit(t, "}, [exchange+%d];", r * sender + at);
    }
    for (int v = 0; v < s->split_k * 4; v++) emit(t, "min.u32 least, least, e%d;", v);
    emit(t, "setp.eq.u32 p, least, 0;"
            "@p bra POLL%d;"
            "mov.u32 least, 0;", poll);
    for (int r = 0; r < s->split_k; r++) emit(t, "st.global.v4.u32 [exchange+%d], {least,least,least,least};", r * sender + at);
    for (int v = 0; v < 4; v++) emit(t, "mov.f32 f%d, 0f00000000;", half * 4 + v);
    for (int v = 0; v < s->split_k * 4; v++)
        emit(t, "mov.b32 sent, e%d;"
                "add.f32 f%d, f%d, sent;", v, half * 4 + v % 4, half * 4 + v % 4);
    close_scope(t);
}

/* ---- rows of Y ------------------------------------------------------------------------------------------------ */

/* p: group i of the share has a row of Y for this work-item, which is y_row. Destroys row. */
static void find_row(wf_ptx *t, const wf_wgmma *s, int i)
{
    emit(t, "add.u32 row, reduced, %d;"
            "add.u32 y_row, row, m0;"
            "setp.lt.u32 p, y_row, m;"
            "setp.lt.and.u32 p, column, n, p;"
            "setp.lt.and.u32 p, row, %d, p;", i * at_once(s) * s->split_k, s->tile_m);
}

static void load_residual(wf_ptx *t, const wf_wgmma *s, int i)
{
    int r = i % together(s) * 4;
    open_scope(t, "Loads a row's residual, which has the dtype of Y.", "Reads reduced, m0, m, n, column, has_res, res_pitch, res, to_half; writes r*.",
               ".b32 row, y_row; .b64 from, more; .pred p, halves, floats;");
    find_row(t, s, i);
    for (int v = 0; v < 4; v++) emit(t, "mov.f32 r%d, 0f00000000;", r + v);
    emit(t, "and.pred p, p, has_res;"
            "and.pred halves, p, to_half;"
            "xor.pred floats, p, halves;"
            "mul.wide.u32 from, y_row, res_pitch;"
            "cvt.u64.u32 more, column;"
            "add.s64 from, from, more;"
            "selp.b32 row, 1, 2, to_half;"
            "shl.b64 from, from, row;"
            "add.s64 from, from, res;"
            "@halves ld.global.v2.b32 {r%d,r%d}, [from];"
            "@floats ld.global.v4.f32 {", r, r + 1);
    wf_ptx_list(t, "r", r, 4);
    emit(t, "}, [from];");
    close_scope(t);
}

/* From what was loaded: r0 and r1 hold four halves where Y has them. */
static void add_residual(wf_ptx *t, int r)
{
    open_scope(t, "Adds the residual.", "Reads f*, r*, to_half; writes f*, r*.", ".b16 low, high;");
    for (int i = 1; i >= 0; i--)
        emit(t, "@to_half mov.b32 {low,high}, r%d;"
                "@to_half cvt.f32.f16 r%d, low;"
                "@to_half cvt.f32.f16 r%d, high;", r + i, r + 2 * i, r + 2 * i + 1);
    for (int v = 0; v < 4; v++) emit(t, "add.f32 f%d, f%d, r%d;", v, v, r + v);
    close_scope(t);
}

static void load_sums(wf_ptx *t, const wf_wgmma *s, int i)
{
    for (int half = 0; half <= s->silu; half++) {
        int f = half * 4;
        if (s->split_k > 1) {
            receive(t, s, i, half);
        } else {
            emit(t, "ld.shared.v4.f32 {");
            wf_ptx_list(t, "f", f, 4);
            emit(t, "}, [at+%d];", i * at_once(s) * pitch(s) + half * s->tile_n * 4);
        }
        for (int v = f; v < f + 4; v++) emit(t, "add.f32 f%d, f%d, b%d;", v, v, v);
    }
}

/* f0 to f3 are gate, f4 to f7 up. */
static void silu(wf_ptx *t)
{
    open_scope(t, "SiLU: gate / (1 + 2^(-gate log2 e)) * up.", "Reads f*; writes f*.", ".f32 d;");
    for (int v = 0; v < 4; v++)
        emit(t, "mul.f32 d, f%d, 0fBFB8AA3B;"
                "ex2.approx.ftz.f32 d, d;"
                "add.f32 d, d, 0f3F800000;"
                "div.full.f32 f%d, f%d, d;"
                "mul.f32 f%d, f%d, f%d;", v, v, v, v, v, v + 4);
    close_scope(t);
}

static void store_row(wf_ptx *t, int name)
{
    emit(t, "mul.wide.u32 to, y_row, y_pitch;"
            "cvt.u64.u32 more, column;"
            "add.s64 to, to, more;"
            "@to_half bra HALF%d;"
            "shl.b64 to, to, 2;"
            "add.s64 to, to, y;"
            "st.global.v4.f32 [to], {f0,f1,f2,f3};"
            "bra END%d;", name, name);
    label(t, "HALF%d", name);
    emit(t, "cvt.rn.f16x2.f32 h0, f1, f0;"
            "cvt.rn.f16x2.f32 h1, f3, f2;"
            "shl.b64 to, to, 1;"
            "add.s64 to, to, y;"
            "st.global.v2.b32 [to], {h0,h1};");
}

static void finish_row(wf_ptx *t, const wf_wgmma *s, int i)
{
    int r = i % together(s), name = label_of(s, i);
    open_scope_for(t, "Finishes four outputs of a row: sums, bias, then residual, SiLU or the rotation, one store.",
                   ".b32 row, y_row, h<2>; .f32 f<8>; .b64 to, more; .pred p;",
                   "Reads reduced, m0, m, n, column, %s, b*, %s%sto_half, y_pitch, y; writes %s.", s->split_k > 1 ? "exchange" : "at",
                   s->silu ? "" : "r*, ", s->rope.head ? WF_WGMMA_ROPE_READS : "", s->silu || s->rope.head ? "nothing" : "r*");
    find_row(t, s, i);
    emit(t, "@!p bra END%d;", name);
    load_sums(t, s, i);
    if (s->silu)
        silu(t);
    else if (s->rope.head)
        wf_wgmma_turn(t, r), wf_wgmma_store_kv(t, s, name, r);
    else
        add_residual(t, 4 * r);
    store_row(t, name);
    label(t, "END%d", name);
    close_scope(t);
}

/* What group i wants besides its sums. */
static void load_more(wf_ptx *t, const wf_wgmma *s, int i)
{
    if (s->silu) return;
    if (!s->rope.head) {
        load_residual(t, s, i);
        return;
    }
    open_scope(t, "Loads a row's angles and slot.", "Reads reduced, m0, m, n, column, turns, table_at; writes r*, slot*.", ".b32 row, y_row; .pred p;");
    find_row(t, s, i);
    wf_wgmma_load_angles(t, i % together(s));
    close_scope(t);
}

static void finish_tile(wf_ptx *t, const wf_wgmma *s)
{
    char locals[240], rope[80] = "";
    if (s->rope.head) snprintf(rope, sizeof rope, WF_WGMMA_ROPE_LOCALS, WF_WGMMA_ANGLES);
    snprintf(locals, sizeof locals, ".b32 first_row, in_tile, column, at, reduced; .b64 exchange; .f32 b<8>, r<%d>;%s", together(s) * 4, rope);
    open_scope_for(t, "The epilogue: from accumulators to Y.", locals,
                   "Reads tid, lane, warpgroup, warp, acc*, %srank, m0, n0, m, n, has_bias, bias, has_res, res, res_pitch, to_half, y, y_pitch; "
                   "writes nothing.", !s->tail ? "tile, " : s->split_k > 1 ? "tile, whole, " : "");
    place(t, s);
    if (s->rope.head) wf_wgmma_place_head(t, s);
    store_accumulators(t, s);
    if (s->split_k > 1) send(t, s);
    for (int i = 0; i < groups(s); i++) {
        if (i % together(s) == 0)
            for (int j = i; j < groups(s) && j < i + together(s); j++) load_more(t, s, j);
        finish_row(t, s, i);
    }
    close_scope(t);
}

void wf_wgmma_epilogue(wf_ptx *t, const wf_wgmma *s)
{
    wf_wgmma whole = *s;
    whole.split_k = 1;
    if (s->tail) {
        emit(t, "@!is_whole bra SHARED;");
        finish_tile(t, &whole);
        emit(t, "bra FINISHED;");
        label(t, "SHARED");
    }
    finish_tile(t, s);
    if (s->tail) label(t, "FINISHED");
}
