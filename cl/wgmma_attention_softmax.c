/* wgmma_attention_softmax: from the scores of a tile to its weights, in registers (wgmma_attention.c): the mask, the running maximum
 * of each row, and what accumulators are multiplied with where it is raised. */
#include "cl/wgmma_attention.h"
#include "cl/ptx_short.h"

#define RESCALE_THRESHOLD "0f41000000" /* 8: a maximum is raised when a score exceeds it by 2^8 */

/* Of the lane's score i, behind its first key; of a chunk's step, whose 16 keys each are 64 apart. */
static int key_of_score(const wf_attention_shape *s, int i)
{
    return s->chunk ? i / 8 * 64 + i / 4 % 2 * 8 + i % 2 : i / 4 * 8 + i % 2;
}

static void mask(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, "Scores of keys past a row's last key become -inf.", "Reads key0, least, quad, last*, s*; writes s*.", ".b32 tmp, seen<2>; .pred y;");
    emit(t, "add.s32 tmp, key0, %d;"
            "setp.le.s32 y, tmp, least;"
            "@y bra SEEN%d; // all rows of the warp see all keys\n"
            "shl.b32 tmp, quad, 1;"
            "add.u32 tmp, tmp, key0;"
            "sub.s32 seen0, last0, tmp;"
            "sub.s32 seen1, last1, tmp;", s->chunk ? 207 : s->keys - 1, n);
    for (int i = 0; i < s->s; i++)
        emit(t, "setp.lt.s32 y, seen%d, %d;"
                "selp.f32 s%d, 0fFF800000, s%d, y;", i / 2 % 2, key_of_score(s, i), i, i);
    label(t, "SEEN%d", n);
    close_scope(t);
}

void wf_attention_quad(wf_ptx *t, const char *op, const char *name, int h, const char *other)
{
    for (int distance = 1; distance < 3; distance++)
        emit(t, "mov.b32 tmp, %s%d;"
                "shfl.sync.bfly.b32 tmp, tmp, %d, 31, -1;"
                "mov.b32 %s, tmp;"
                "%s.f32 %s%d, %s%d, %s;", name, h, distance, other, op, name, h, name, h, other);
}

static void raise_row(wf_ptx *t, const wf_attention_shape *s, int h)
{
    const char *sum = s->chunk ? "weights" : "sum";
    wf_attention_quad(t, "max", "seen_max", h, "new");
    emit(t, "setp.gt.f32 y, seen_max%d, f%d;"
            "selp.f32 new, seen_max%d, row_max%d, y;"
            "sub.f32 alpha%d, row_max%d, new;"
            "ex2.approx.ftz.f32 alpha%d, alpha%d;"
            "mov.f32 row_max%d, new;"
            "mul.rn.f32 %s%d, %s%d, alpha%d;", h, h, h, h, h, h, h, h, h, sum, h, sum, h, h);
    if (s->chunk) emit(t, "mul.rn.f32 odd%d, odd%d, alpha%d;", h, h, h);
}

static void raise(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, s->chunk ? "Raises row maxima that a score of the step exceeds by the rescale threshold; alpha: what accumulators of a chain that goes on are multiplied with."
                           : "Raises row maxima that a score exceeds by the rescale threshold; alpha: what accumulators are then multiplied with.",
               s->chunk ? "Reads s*, c, row_max*, weights*, odd*, step; writes raised, row_max*, alpha*, weights*, odd*."
                        : "Reads s*, c, row_max*, sum*; writes raised, row_max*, alpha*, sum*.", ".b32 tmp; .f32 f<4>, seen_max<2>, new; .pred y;");
    emit(t, "setp.ne.u32 raised, 0, 0;");
    for (int i = 0; i < 4; i++) emit(t, "mov.f32 f%d, s%d;", i, i);
    for (int i = 4; i < s->s; i++) emit(t, "max.f32 f%d, f%d, s%d;", i % 4, i % 4, i);
    emit(t, "max.f32 seen_max0, f0, f1;"
            "max.f32 seen_max1, f2, f3;"
            "mul.f32 seen_max0, seen_max0, c;"
            "mul.f32 seen_max1, seen_max1, c;"
            "add.f32 f0, row_max0, " RESCALE_THRESHOLD ";"
            "add.f32 f1, row_max1, " RESCALE_THRESHOLD ";"
            "setp.gt.f32 y, seen_max0, f0;"
            "setp.gt.or.f32 y, seen_max1, f1, y;"
            "vote.sync.any.pred raised, y, -1;"
            "@!raised bra RAISED%d;", n);
    for (int h = 0; h < 2; h++) raise_row(t, s, h);
    if (s->chunk) emit(t, "setp.ne.u32 raised, step, 0;");
    label(t, "RAISED%d", n);
    close_scope(t);
}

static void weigh(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Scores to weights, 2^(s c - row_max), and their sums.", "Reads row_max*, s*, c, sum*; writes s*, sum*.", ".f32 below<2>;");
    emit(t, "neg.f32 below0, row_max0;"
            "neg.f32 below1, row_max1;");
    for (int i = 0; i < s->s; i++)
        emit(t, "fma.rn.f32 s%d, s%d, c, below%d;"
                "ex2.approx.ftz.f32 s%d, s%d;"
                "add.f32 sum%d, sum%d, s%d;", i, i, i / 2 % 2, i, i, i / 2 % 2, i / 2 % 2, i);
    close_scope(t);
}

/* ---- of chunks ---------------------------------------------------------------------------------------------- */

static void begin_chain(wf_ptx *t)
{
    open_scope(t, "A chain's first step knows nothing of steps before.", "Reads step, row_max*, weights*, odd*; writes row_max*, weights*, odd*.", ".pred y;");
    emit(t, "setp.eq.u32 y, step, 0;");
    for (int h = 0; h < 2; h++)
        emit(t, "selp.f32 row_max%d, " WF_ATTENTION_NO_MAX ", row_max%d, y;"
                "selp.f32 weights%d, 0f00000000, weights%d, y;"
                "selp.f32 odd%d, 0f00000000, odd%d, y;", h, h, h, h, h, h);
    close_scope(t);
}

/* Scores to weights, 2^(s c - row_max). Sums of lanes there: of keys g and g + 8 of each 16; here a lane has two of these g, an even one and
 * the next. */
static void weigh_step(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Scores to weights, and their sums, of even keys and of odd ones.", "Reads row_max*, s*, c, weights*, odd*; writes s*, weights*, odd*.", ".f32 below<2>, two;");
    for (int h = 0; h < 2; h++) emit(t, "neg.f32 below%d, row_max%d;", h, h);
    for (int i = 0; i < s->s; i++)
        emit(t, "fma.rn.f32 s%d, s%d, c, below%d;"
                "ex2.approx.ftz.f32 s%d, s%d;", i, i, i / 2 % 2, i, i);
    for (int i = 0; i < s->s; i += i % 8 == 3 ? 5 : 1)
        emit(t, "add.rn.f32 two, s%d, s%d;"
                "add.rn.f32 %s%d, %s%d, two;", i, i + 4, i % 2 ? "odd" : "weights", i / 2 % 2, i % 2 ? "odd" : "weights", i / 2 % 2);
    close_scope(t);
}

/* ---- a tile ------------------------------------------------------------------------------------------------- */

/* Relative to a given maximum, in row_max*. */
void wf_attention_softmax_given(wf_ptx *t, wf_attention_shape *s)
{
    mask(t, s);
    weigh(t, s);
}

/* Scores to weights; where `raised`, the accumulators must be rescaled. */
void wf_attention_softmax(wf_ptx *t, wf_attention_shape *s)
{
    mask(t, s);
    if (s->chunk) begin_chain(t);
    raise(t, s);
    if (s->chunk) weigh_step(t, s);
    else weigh(t, s);
}

void wf_attention_round_weights(wf_ptx *t, const wf_attention_shape *s, int bank)
{
    open_scope(t, "Weights to F16: the layout of S as a result is that of P as an operand.", "Reads s*; writes p*.", "");
    for (int i = 0; i < s->p; i++) emit(t, "cvt.rn.f16x2.f32 p%d, s%d, s%d;", bank * s->p + i, 2 * i + 1, 2 * i);
    close_scope(t);
}

void wf_attention_rescale(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, "Rescales the accumulators of raised rows.", "Reads raised, alpha*, o*; writes o*.", "");
    emit(t, "@!raised bra KEPT%d;", n);
    for (int i = 0; i < s->o; i++) emit(t, "mul.f32 o%d, o%d, alpha%d;", i, i, i / 2 % 2);
    label(t, "KEPT%d", n);
    close_scope(t);
}
