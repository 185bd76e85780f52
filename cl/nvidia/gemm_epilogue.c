/* gemm_epilogue: from the accumulators of gemm.c to Y, with bias and residual, with SiLU, or with the rotation of q
 * and k by position and the way of k and v into their slots: what kernels/rope_kv.cl does in a launch of its own, for
 * pairs of neighbours.
 *
 *   accumulators in registers --> shared memory --> whole lines of Y
 *
 * Where `split_k` work-groups share the K of a tile, work-group r of them is the reducer of the rows r, r + split_k,
 * ... of the tile. Each work-group sends every reducer its sums through the exchange buffer, which is zero before; a
 * reducer polls until no word that it waits for is zero any more, adds in the order of K, and writes the zeros back.
 * The sums themselves tell that they have arrived, so a reduction takes one pass through the L2 cache. A sum that is
 * zero travels as -0.
 * The wait ends because work-groups begin in the order of their numbers, and the lowest tile that is not finished
 * never waits for a later one. Where only tiles of the last round share their K, the program has two epilogues, and
 * those before take the one without a reduction. */
#include "cl/nvidia/gemm.h"

#include <stdio.h>

/* Rows whose angles are loaded together: r<4 * j> to r<4 * j + 3> and slot<j> are those of row j of them. */
#define ANGLES 8
/* Its four columns are of one head. Of a tile: does this work-item's part of a head turn, is it of q, its angles in a
 * row of the table, its place in slot 0 of a page. */
#define ROPE_LOCALS " .b32 slot<%d>; .b64 table_at, pool_at; .pred turns, of_q;" /* of ANGLES slots */
#define ROPE_READS  "slot*, turns, of_q, pool_at, "

/* ---- the rotation ------------------------------------------------------------------------------------------- */

void wf_wgmma_rope_parameters(wf_ptx *t)
{
    static const char *const views[] = {"table", "pos", "slot", "kp", "vp"}, *const counts[] = {"Hq", "Hkv", "P",
                                                                                                "table_stride",
                                                                                                "positions"};
    for (size_t i = 0; i < WF_LEN(views); i++)
        emit(t, ",\n    .param .u64 .ptr .global .align 1 %s_base, .param .u64 %s_off", views[i], views[i]);
    for (size_t i = 0; i < WF_LEN(counts); i++) emit(t, "%s.param .u32 %s", i ? ", " : ",\n    ", counts[i]);
    emit(t, ",\n    .param .u64 slots, .param .u64 page_stride");
}

/* at: where the view begins. */
static void begin_of(wf_ptx *t, const char *view, const char *at)
{
    emit(t, "ld.param.u64 %s, [%s_base];"
            "ld.param.u64 off, [%s_off];"
            "add.s64 %s, %s, off;", at, view, view, at, at);
}

static void place_head(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t,
               "Whose head this work-item's columns are of, its angles in a row of the table, and where slot 0 of a "
               "page has them.",
               "Reads column; writes turns, of_q, table_at, pool_at.",
               ".b32 head, in_head, n_q, n_kv, page; .b64 off, more; .pred of_k;");
    emit(t, "div.u32 head, column, %d;"
            "rem.u32 in_head, column, %d;"
            "ld.param.u32 n_q, [Hq];"
            "ld.param.u32 n_kv, [Hkv];"
            "ld.param.u32 page, [P];"
            "setp.lt.u32 of_q, head, n_q;"
            "add.u32 n_kv, n_q, n_kv;"
            "setp.lt.u32 of_k, head, n_kv;"
            "setp.lt.and.u32 turns, in_head, %d, of_k;", s->rope.head, s->rope.head, s->rope.n_rot);
    begin_of(t, "table", "table_at");
    emit(t, "mul.wide.u32 more, in_head, 4; // a cosine and a sine for each pair\n"
            "add.s64 table_at, table_at, more;");
    begin_of(t, "kp", "pool_at");
    begin_of(t, "vp", "more");
    emit(t, "selp.b64 pool_at, pool_at, more, of_k;"
            "selp.b32 n_kv, n_q, n_kv, of_k; // the first head of this pool\n"
            "sub.u32 head, head, n_kv;"
            "mul.lo.u32 head, head, page;"
            "mad.lo.u32 head, head, %d, in_head;"
            "mul.wide.u32 more, head, 2;"
            "add.s64 pool_at, pool_at, more;", s->rope.head);
    close_scope(t);
}

/* Of row y_row, if p. */
static void load_angles(wf_ptx *t, int j)
{
    open_scope(t, "A position outside of the table takes its first or last row.",
               "Reads p, y_row, turns, table_at; writes r*, slot*.",
               ".b32 last, pitch, to; .b64 from, off, more; .pred wanted;");
    emit(t, "mul.wide.u32 more, y_row, 4;"
            "mov.u32 to, 0;"
            "mov.u32 slot%d, -1;", j);
    begin_of(t, "slot", "from");
    emit(t, "add.s64 from, from, more;"
            "@p ld.global.u32 slot%d, [from];", j);
    begin_of(t, "pos", "from");
    emit(t, "add.s64 from, from, more;"
            "@p ld.global.u32 to, [from];"
            "ld.param.u32 last, [positions];"
            "ld.param.u32 pitch, [table_stride];"
            "sub.u32 last, last, 1;"
            "max.s32 to, to, 0;"
            "min.u32 to, to, last;"
            "mul.wide.u32 from, to, pitch;"
            "shl.b64 from, from, 2;"
            "add.s64 from, from, table_at;"
            "and.pred wanted, p, turns;");
    for (int v = 4 * j; v < 4 * j + 4; v++) emit(t, "mov.f32 r%d, 0f00000000;", v);
    emit(t, "@wanted ld.global.v4.f32 {");
    wf_ptx_list(t, "r", 4 * j, 4);
    emit(t, "}, [from];");
    close_scope(t);
}

/* Rounding is spelled out, so that every tile has the same bits. */
static void turn_pairs(wf_ptx *t, int j)
{
    open_scope(t, "Turns both pairs: a cos - b sin, a sin + b cos.", "Reads f*, r*, turns; writes f*.",
               ".f32 less, more;");
    for (int a = 0, r = 4 * j; a < 4; a += 2, r += 2)
        emit(t, "mul.rn.f32 less, f%d, r%d;"
                "neg.f32 less, less;"
                "mul.rn.f32 more, f%d, r%d;"
                "@turns fma.rn.f32 f%d, f%d, r%d, less;"
                "@turns fma.rn.f32 f%d, f%d, r%d, more;", a + 1, r + 1, a, r + 1, a, a, r, a + 1, a + 1, r);
    close_scope(t);
}

static void store_kv(wf_ptx *t, const wf_wgmma *s, int i, int j)
{
    emit(t, "@of_q bra OF_Q%d;", i);
    open_scope(t, "Four elements to their slot.", "Reads f*, slot*, pool_at; writes nothing.",
               ".b32 page, in_page, h<2>; .b64 to, more; .pred there;");
    emit(t, "ld.param.u64 more, [slots];"
            "cvt.u64.u32 to, slot%d;"
            "setp.ge.s32 there, slot%d, 0;"
            "setp.lt.and.u64 there, to, more, there;"
            "@!there bra END%d;", j, j, i);
    emit(t, "ld.param.u32 in_page, [P];"
            "div.u32 page, slot%d, in_page;"
            "rem.u32 in_page, slot%d, in_page;"
            "ld.param.u64 more, [page_stride];"
            "cvt.u64.u32 to, page;"
            "mul.lo.u64 to, to, more;"
            "mul.wide.u32 more, in_page, %d;"
            "add.s64 to, to, more;"
            "shl.b64 to, to, 1;"
            "add.s64 to, to, pool_at;"
            "cvt.rn.f16x2.f32 h0, f1, f0;"
            "cvt.rn.f16x2.f32 h1, f3, f2;"
            "st.global.v2.b32 [to], {h0,h1};"
            "bra END%d;", j, j, s->rope.head, i);
    close_scope(t);
    label(t, "OF_Q%d", i);
}

/* ---- rows of Y ---------------------------------------------------------------------------------------------- */

/* Groups of rows whose residuals are loaded together, or angles, which wait for positions. */
static int rows_together(const wf_wgmma *s)
{
    return s->rope.head ? ANGLES : 4;
}

/* Rows of Y that the work-group finishes at once: a work-item has four columns of Y, which are of four rows of W, or
 * of four of gate and four of up. */
static int rows_at_once(const wf_wgmma *s)
{
    return s->threads * 4 / s->tile_n;
}

/* Rows of one reducer, at most. */
static int share_rows(const wf_wgmma *s)
{
    return (s->tile_m + s->split_k - 1) / s->split_k;
}

static int row_groups(const wf_wgmma *s)
{
    return (share_rows(s) + rows_at_once(s) - 1) / rows_at_once(s);
}

/* The number in the labels of group i: two epilogues have different ones. */
static int label_of(const wf_wgmma *s, int i)
{
    return i + (s->tail && s->split_k == 1) * s->tile_m;
}

/* A row of a tile in shared memory: the 32 lanes of a store hit 32 banks. */
static int tile_pitch(const wf_wgmma *s)
{
    return (s->w_rows + 4) * 4;
}

int wf_wgmma_epilogue_bytes(const wf_wgmma *s)
{
    return s->tile_m * tile_pitch(s);
}

/* Of a tile: [reducer][sender][row of the share][row of W]. */
uint64_t wf_wgmma_exchange_bytes(const wf_wgmma *s)
{
    return s->split_k > 1 ? (uint64_t)s->split_k * s->split_k * share_rows(s) * s->w_rows * 4 : 0;
}

/* Four neighbouring columns: from `column` of Y on, of which `in_tile` counts within the tile. */
static void place_items(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Which outputs this work-item finishes, and their bias.",
               "Reads tid, n0, n, rank, has_bias, bias; writes first_row, in_tile, column, at, reduced, b*.",
               ".b32 row; .b64 from, more; .pred p;");
    emit(t, "div.u32 first_row, tid, %d;"
            "rem.u32 in_tile, tid, %d;"
            "shl.b32 in_tile, in_tile, 2;"
            "add.u32 column, in_tile, n0;"
            "mov.u32 at, smem;"
            "mad.lo.u32 at, first_row, %d, at;"
            "mad.lo.u32 at, in_tile, 4, at;"
            "mad.lo.u32 reduced, first_row, %d, rank;", s->tile_n / 4, s->tile_n / 4, tile_pitch(s), s->split_k);
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
    open_scope(t, "Accumulators to shared memory: [row of X][row of W] in F32.",
               "Reads lane, warpgroup, warp, acc*; writes nothing.", ".b32 to, row, quad;");
    emit(t, "shr.u32 row, lane, 2;"
            "and.b32 quad, lane, 3;"
            "mov.u32 to, smem;"
            "mad.lo.u32 to, quad, %d, to;"
            "mad.lo.u32 row, warpgroup, 64, row;"
            "mad.lo.u32 row, warp, 16, row;"
            "mad.lo.u32 to, row, 4, to;"
            "bar.sync 0;", 2 * tile_pitch(s));
    for (int i = 0; i < s->n_acc; i++)
        emit(t, "st.shared.f32 [to+%d], acc%d;", (i / 4 * 8 + i % 2) * tile_pitch(s) + i % 4 / 2 * 8 * 4, i);
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
        emit(t, "ld.shared.v4.u32 {e0,e1,e2,e3}, [at+%d];", i * tile_pitch(s) + half * s->tile_n * 4);
        for (int v = 0; v < 4; v++)
            emit(t, "setp.eq.u32 q, e%d, 0;"
                    "selp.b32 e%d, 0x80000000, e%d, q;", v, v, v);
        emit(t, "@p st.relaxed.gpu.global.v4.u32 [to+%d], {e0,e1,e2,e3};", half * s->tile_n * 4);
    }
}

static void send_sums(wf_ptx *t, const wf_wgmma *s)
{
    unsigned long long one = wf_wgmma_exchange_bytes(s) / s->split_k / s->split_k;
    open_scope_for(
        t, "Sends the tile's sums to their reducers; then `exchange` is where this work-item receives its own.",
        ".b32 row, y_row, reducer, e<4>; .b64 to, more; .pred p, q;",
        "Reads tile, first_row, in_tile, column, m0, m, n, rank, at%s; writes exchange.", s->tail ? ", whole" : "");
    emit(t, "%s.u32 row, tile%s;", s->tail ? "sub" : "mov", s->tail ? ", whole" : "");
    emit(t, "ld.param.u64 exchange, [exchange_base];"
            "mul.wide.u32 to, row, %llu;"
            "add.s64 exchange, exchange, to;"
            "mul.wide.u32 to, in_tile, 4;"
            "add.s64 exchange, exchange, to;", (unsigned long long)wf_wgmma_exchange_bytes(s));
    for (int i = 0; i < s->tile_m; i += rows_at_once(s)) send_row(t, s, i);
    emit(t, "mul.wide.u32 to, rank, %llu;"
            "add.s64 exchange, exchange, to;"
            "mul.wide.u32 to, first_row, %d;"
            "add.s64 exchange, exchange, to;", one * (unsigned)s->split_k, s->w_rows * 4);
    close_scope(t);
}

/* Four sums of all work-groups: f0 to f3, of the second half of the rows of W f4 to f7. */
static void receive_sums(wf_ptx *t, const wf_wgmma *s, int i, int half)
{
    int sender = share_rows(s) * s->w_rows * 4, at = (i * rows_at_once(s) * s->w_rows + half * s->tile_n) * 4,
        poll = 2 * i + half;
    char locals[64];
    snprintf(locals, sizeof locals, ".b32 least, e<%d>; .f32 sent; .pred p;", s->split_k * 4);
    open_scope(t, "Polls until the sums have arrived, puts the zeros back, and adds in the order of K.",
               "Reads exchange; writes f*.", locals);
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
    for (int r = 0; r < s->split_k; r++)
        emit(t, "st.global.v4.u32 [exchange+%d], {least,least,least,least};", r * sender + at);
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
            "setp.lt.and.u32 p, row, %d, p;", i * rows_at_once(s) * s->split_k, s->tile_m);
}

static void load_residual(wf_ptx *t, const wf_wgmma *s, int i)
{
    int r = i % rows_together(s) * 4;
    open_scope(t, "Loads a row's residual, which has the dtype of Y.",
               "Reads reduced, m0, m, n, column, has_res, res_pitch, res, to_half; writes r*.",
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
            receive_sums(t, s, i, half);
        } else {
            emit(t, "ld.shared.v4.f32 {");
            wf_ptx_list(t, "f", f, 4);
            emit(t, "}, [at+%d];", i * rows_at_once(s) * tile_pitch(s) + half * s->tile_n * 4);
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
    int r = i % rows_together(s), name = label_of(s, i);
    open_scope_for(t, "Finishes four outputs of a row: sums, bias, then residual, SiLU or the rotation, one store.",
                   ".b32 row, y_row, h<2>; .f32 f<8>; .b64 to, more; .pred p;",
                   "Reads reduced, m0, m, n, column, %s, b*, %s%sto_half, y_pitch, y; writes %s.",
                   s->split_k > 1 ? "exchange" : "at", s->silu ? "" : "r*, ", s->rope.head ? ROPE_READS : "",
                   s->silu || s->rope.head ? "nothing" : "r*");
    find_row(t, s, i);
    emit(t, "@!p bra END%d;", name);
    load_sums(t, s, i);
    if (s->silu)
        silu(t);
    else if (s->rope.head)
        turn_pairs(t, r), store_kv(t, s, name, r);
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
    open_scope(t, "Loads a row's angles and slot.",
               "Reads reduced, m0, m, n, column, turns, table_at; writes r*, slot*.", ".b32 row, y_row; .pred p;");
    find_row(t, s, i);
    load_angles(t, i % rows_together(s));
    close_scope(t);
}

static void finish_tile(wf_ptx *t, const wf_wgmma *s)
{
    char locals[240], rope[80] = "";
    if (s->rope.head) snprintf(rope, sizeof rope, ROPE_LOCALS, ANGLES);
    snprintf(locals, sizeof locals, ".b32 first_row, in_tile, column, at, reduced; .b64 exchange; .f32 b<8>, r<%d>;%s",
             rows_together(s) * 4, rope);
    open_scope_for(t, "The epilogue: from accumulators to Y.", locals,
                   "Reads tid, lane, warpgroup, warp, acc*, %srank, m0, n0, m, n, has_bias, bias, has_res, res, "
                   "res_pitch, to_half, y, y_pitch; "
                   "writes nothing.",
                   !s->tail         ? "tile, "
                   : s->split_k > 1 ? "tile, whole, "
                                    : "");
    place_items(t, s);
    if (s->rope.head) place_head(t, s);
    store_accumulators(t, s);
    if (s->split_k > 1) send_sums(t, s);
    for (int i = 0; i < row_groups(s); i++) {
        if (i % rows_together(s) == 0)
            for (int j = i; j < row_groups(s) && j < i + rows_together(s); j++) load_more(t, s, j);
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
