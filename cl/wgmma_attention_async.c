/* wgmma_attention_async: the range of the asynchronous softmax of wgmma_attention.c, and the rows that leave it. Weights are 2^(score - base) of
 * a given base; a row leaves where its largest weight, in F16, is not between 2^low and 2^15.
 *
 * Rows that left are kept as marks in shared memory, and when a work-group has done all of its items both roles walk over them once more,
 * those without marks left out: such an item is computed by the running maximum with the bits of the synchronous program, and only rows that
 * left are written; a warpgroup that has none multiplies nothing. So the warps that copy never wait for a verdict. Marks: a word for each warp that multiplies, bits 4 i and 4 i + 1 for its
 * rows i and i + 8.
 */
#include "cl/wgmma_attention.h"
#include "cl/ptx_short.h"

#define MARK_BYTES   (WF_ATTENTION_WARPS * 4) /* of an item */
#define F16_TOO_MUCH 0x7800                   /* 2^15 */
#define F16_TO_F32   (112 << 23)              /* exponents; numbers below 2^-14 become others of that kind, all too small */

void wf_attention_declare_async(wf_ptx *t)
{
    emit(t, ".shared .align 16 .b8 marks[%d];"
            ".reg .pred again, idle; // rows that left; none of this warpgroup's\n"
            ".reg .pred counts;"
            ".reg .b64 count;"
            ".reg .f32 base, smallest;", MARK_BYTES * WF_CL_ATTENTION_ROUNDS);
}

void wf_attention_load_range(wf_ptx *t)
{
    open_scope(t, "The range of the asynchronous softmax: weights relative to base; a row's largest must be above `smallest`.",
               "Writes again, counts, count, base, smallest.", ".b64 off;");
    emit(t, "ld.param.u64 count, [count_base];"
            "ld.param.u64 off, [count_off];"
            "setp.ne.u64 counts, off, -1;"
            "add.s64 count, count, off;"
            "ld.param.f32 base, [base_];"
            "ld.param.f32 smallest, [low_];"
            "ex2.approx.ftz.f32 smallest, smallest;"
            "setp.ne.u32 again, 0, 0;");
    close_scope(t);
}

/* ---- rows that left ---------------------------------------------------------------------------------------- */

/* As a number in F16, which as an integer has the same order, into largest<h>. */
void wf_attention_largest_weight(wf_ptx *t, int h)
{
    emit(t, "max.f16x2 largest%d, largest%d, largest%d;"
            "shr.u32 tmp, largest%d, 16;"
            "and.b32 largest%d, largest%d, 65535;"
            "max.u32 largest%d, largest%d, tmp;", h, h, h + 2, h, h, h, h, h);
    for (int distance = 1; distance < 3; distance++)
        emit(t, "shfl.sync.bfly.b32 tmp, largest%d, %d, 31, -1;"
                "max.u32 largest%d, largest%d, tmp;", h, distance, h, h);
}

/* Not written: the first time what leaves, then what has not. A row that sees no key stays. */
void wf_attention_judge_row(wf_ptx *t, int h)
{
    emit(t, "mad.lo.u32 tmp, largest%d, 8192, %d;"
            "mov.b32 f0, tmp;"
            "setp.gt.f32 y, f0, smallest;"
            "setp.lt.and.u32 y, largest%d, %d, y;"
            "setp.lt.or.s32 y, last%d, 0, y;", h, F16_TO_F32, h, F16_TOO_MUCH, h);
    emit(t, "selp.b32 other, 0, %d, y;"
            "@!again or.b32 redo, redo, other;"
            "and.b32 tmp, redo, %d;"
            "setp.ne.u32 y, tmp, 0;"
            "selp.b32 other, 1, 0, y;"
            "selp.b32 tmp, 1, 0, again;"
            "setp.ne.u32 y, other, tmp;", 1 << h, 1 << h);
}

void wf_attention_keep_redo(wf_ptx *t)
{
    open_scope(t, "Marks the rows of the item that left, and counts them.", "Reads again, redo, quad, round, warp, lane, counts, count; writes nothing.",
               ".b32 word, at; .pred y;");
    emit(t, "@again bra KEPT_REDO;"
            "shr.u32 word, redo, quad;"
            "and.b32 word, word, 1;"
            "setp.ne.u32 y, word, 0;"
            "vote.sync.ballot.b32 word, y, -1;"
            "mov.u32 at, marks;"
            "mad.lo.u32 at, round, %d, at;"
            "mad.lo.u32 at, warp, 4, at;"
            "setp.eq.u32 y, lane, 0;"
            "@y st.shared.u32 [at], word;"
            "popc.b32 word, word;"
            "setp.ne.and.u32 y, word, 0, y;", MARK_BYTES);
    emit(t, "@!counts bra KEPT_REDO;"
            "@y red.global.add.u32 [count], word;");
    label(t, "KEPT_REDO");
    close_scope(t);
}

/* Into mark0 those of the first warpgroup, into mark4 of the second. */
static void any_mark(wf_ptx *t, const char *role)
{
    emit(t, "ld.shared.v4.u32 {mark0,mark1,mark2,mark3}, [at];"
            "ld.shared.v4.u32 {mark4,mark5,mark6,mark7}, [at+16];");
    for (int i = 1; i < WF_ATTENTION_WARPS; i++)
        if (i % 4) emit(t, "or.b32 mark%d, mark%d, mark%d;", i / 4 * 4, i / 4 * 4, i);
    emit(t, "or.b32 mark1, mark0, mark4;"
            "setp.eq.u32 y, mark1, 0;"
            "@y bra PAST_%s;", role);
}

void wf_attention_find_redo(wf_ptx *t, bool copies, const char *role)
{
    open_scope(t, copies ? "The second time, an item of which no row left is passed over." : "The second time, an item of which no row left is passed over; which rows of this lane did.",
               copies ? "Reads again, round; writes nothing." : "Reads again, round, warp, lane; writes redo, idle.", ".b32 at, mark<8>; .pred y;");
    if (!copies) emit(t, "mov.u32 redo, 0;"
                         "setp.ne.u32 idle, 0, 0;");
    emit(t, "@!again bra FIRST_%s;"
            "mov.u32 at, marks;"
            "mad.lo.u32 at, round, %d, at;", role, MARK_BYTES);
    any_mark(t, role);
    if (!copies) emit(t, "setp.lt.u32 y, warp, 4;"
                         "selp.b32 mark0, mark0, mark4, y;"
                         "setp.eq.u32 idle, mark0, 0;"
                         "mad.lo.u32 at, warp, 4, at;"
                         "ld.shared.u32 redo, [at];"
                         "and.b32 at, lane, 28;"
                         "shr.u32 redo, redo, at;"
                         "and.b32 redo, redo, 3;");
    label(t, "FIRST_%s", role);
    close_scope(t);
}
