/* wgmma_rope: the rotation of q and k by position and the way of k and v into their slots, in the epilogue of wgmma.c: what kernels/rope_kv.cl does
 * in a launch of its own, for pairs of neighbours.
 */
#include "cl/wgmma.h"
#include "cl/ptx_short.h"

void wf_wgmma_rope_parameters(wf_ptx *t)
{
    static const char *const views[] = {"table", "pos", "slot", "kp", "vp"}, *const counts[] = {"Hq", "Hkv", "P", "table_stride", "positions"};
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

void wf_wgmma_place_head(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Whose head this work-item's columns are of, its angles in a row of the table, and where slot 0 of a page has them.",
               "Reads column; writes turns, of_q, table_at, pool_at.", ".b32 head, in_head, n_q, n_kv, page; .b64 off, more; .pred of_k;");
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

void wf_wgmma_load_angles(wf_ptx *t, int j)
{
    open_scope(t, "A position outside of the table takes its first or last row.", "Reads p, y_row, turns, table_at; writes r*, slot*.",
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
void wf_wgmma_turn(wf_ptx *t, int j)
{
    open_scope(t, "Turns both pairs: a cos - b sin, a sin + b cos.", "Reads f*, r*, turns; writes f*.", ".f32 less, more;");
    for (int a = 0, r = 4 * j; a < 4; a += 2, r += 2)
        emit(t, "mul.rn.f32 less, f%d, r%d;"
                "neg.f32 less, less;"
                "mul.rn.f32 more, f%d, r%d;"
                "@turns fma.rn.f32 f%d, f%d, r%d, less;"
                "@turns fma.rn.f32 f%d, f%d, r%d, more;", a + 1, r + 1, a, r + 1, a, a, r, a + 1, a + 1, r);
    close_scope(t);
}

void wf_wgmma_store_kv(wf_ptx *t, const wf_wgmma *s, int i, int j)
{
    emit(t, "@of_q bra OF_Q%d;", i);
    open_scope(t, "Four elements to their slot.", "Reads f*, slot*, pool_at; writes nothing.", ".b32 page, in_page, h<2>; .b64 to, more; .pred there;");
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
