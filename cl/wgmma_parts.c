/* wgmma_parts: the parts of K that one work-group of wgmma.c adds by itself.
 *
 *   accumulators at a part's end + sums of the parts before, in shared memory --> the latter; the next part begins from zero
 *
 * It adds what `split_k` work-groups would, in their order, so that a program with so many parts gives the same bits as one with so many
 * work-groups a tile, whatever the tile. Each work-item keeps its own sums: no barrier. Parts end at step r * all / parts, as units of
 * split_k work-groups do.
 */
#include "cl/wgmma.h"
#include "cl/ptx_short.h"

#define AT_ONCE 4 /* accumulators of a load */

int wf_wgmma_parts_bytes(const wf_wgmma *s)
{
    return s->parts > 1 ? s->threads * s->n_acc * 4 : 0;
}

void wf_wgmma_declare_parts(wf_ptx *t, const wf_wgmma *s)
{
    (void)s;
    emit(t, ".reg .b32 kept, part, border; // where this work-item keeps sums; the part that is added; its end\n");
}

/* From where a work-item keeps its first sums to accumulator i. */
static int place(const wf_wgmma *s, int i)
{
    return i / AT_ONCE * s->threads * AT_ONCE * 4;
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

void wf_wgmma_begin_parts(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "No sums are kept yet.", "Reads tid, k; writes kept, part, border.", ".b32 zero;");
    emit(t, "mov.u32 kept, smem;"
            "add.u32 kept, kept, %d;"
            "mad.lo.u32 kept, tid, %d, kept;"
            "mov.u32 part, 0;"
            "mov.u32 zero, 0;", WF_WGMMA_STAGES * s->stage_bytes, AT_ONCE * 4);
    for (int i = 0; i < s->n_acc; i += AT_ONCE) emit(t, "st.shared.v4.u32 [kept+%d], {zero,zero,zero,zero};", place(s, i));
    find_border(t, s);
    close_scope(t);
}

/* Accumulators i and on, in the place of which the sum of all parts so far is. */
static void add_kept(wf_ptx *t, const wf_wgmma *s, int i)
{
    emit(t, "ld.shared.v4.f32 {sum0,sum1,sum2,sum3}, [kept+%d];", place(s, i));
    for (int v = 0; v < AT_ONCE; v++) emit(t, "add.f32 acc%d, sum%d, acc%d;", i + v, v, i + v);
}

/* Once all products that were begun are done. */
void wf_wgmma_end_part(wf_ptx *t, const wf_wgmma *s, int u)
{
    open_scope(t, "At the end of a part its sums join those before.", "Reads kt, border, kept, k, part, acc*; writes acc*, part, border.",
               ".f32 sum<4>; .pred inside;");
    emit(t, "setp.ne.u32 inside, kt, border;"
            "@inside bra INSIDE%d;"
            "wgmma.wait_group.sync.aligned 0;", u);
    for (int i = 0; i < s->n_acc; i += AT_ONCE) {
        add_kept(t, s, i);
        emit(t, "st.shared.v4.f32 [kept+%d], {", place(s, i));
        wf_ptx_list(t, "acc", i, AT_ONCE);
        emit(t, "};");
        for (int v = 0; v < AT_ONCE; v++) emit(t, "mov.f32 acc%d, 0f00000000;", i + v);
    }
    find_border(t, s);
    label(t, "INSIDE%d", u);
    close_scope(t);
}

void wf_wgmma_add_last_part(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "The last part's sums join those before.", "Reads kept, acc*; writes acc*.", ".f32 sum<4>;");
    for (int i = 0; i < s->n_acc; i += AT_ONCE) add_kept(t, s, i);
    close_scope(t);
}
