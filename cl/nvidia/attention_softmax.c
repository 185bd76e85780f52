/* attention_softmax: from the scores of a tile to its weights, in registers (attention.c): the mask, the running
 * maximum of each row, and what accumulators are multiplied with where it is raised. Asynchronous: the range of a
 * given maximum, and the rows that leave it. Weights are 2^(score - base) of a given base; a row leaves where its
 * largest weight, in F16, is not between 2^low and 2^15.
 *
 * Rows that left are kept as marks in shared memory, and when a work-group has done all of its items both roles walk
 * over them once more, those without marks left out: such an item is computed by the running maximum with the bits of
 * the synchronous program, and only rows that left are written; a warpgroup that has none multiplies nothing. So the
 * warps that copy never wait for a verdict. Marks: a word for each warp that multiplies, bits 4 i and 4 i + 1 for its
 * rows i and i + 8.
 *
 * A warpgroup stops when all of its rows have left or are done, and passes over the tiles that it has not multiplied,
 * for their barriers want it.
 * Its warps must stop at the same tile, but do not wait for each other: in every WF_ATTENTION_STOP_CHECK-th tile of a
 * run each writes whether it still has rows, and reads what all four wrote at the check before. The barriers of keys
 * in between order the two: the keys of tile n are there only when all warps are done with those of tile n - stages.
 * Words of two checks take turns, so that a warp at the next check writes none that another may still read. A word is
 * the first key of the tile if the warp has no rows, else NEVER: what other runs left is not less than the first key
 * of a run's first check, and so means nothing there. */
#include "cl/nvidia/attention.h"

/* Of the lane's score i, behind its first key; of a chunk's step, whose 16 keys each are 64 apart. */
static int key_of_score(const wf_attention_shape *s, int i)
{
    return s->chunk ? i / 8 * 64 + i / 4 % 2 * 8 + i % 2 : i / 4 * 8 + i % 2;
}

static void mask_scores(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, "Scores of keys past a row's last key become -inf.", "Reads key0, least, quad, last*, s*; writes s*.",
               ".b32 tmp, seen<2>; .pred y;");
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

static void raise_maxima(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t,
               s->chunk ? "Raises row maxima that a score of the step exceeds by the rescale threshold; alpha: what "
                          "accumulators of a chain that goes on are multiplied with."
                        : "Raises row maxima that a score exceeds by the rescale threshold; alpha: what accumulators "
                          "are then multiplied with.",
               s->chunk
                   ? "Reads s*, c, row_max*, weights*, odd*, step; writes raised, row_max*, alpha*, weights*, odd*."
                   : "Reads s*, c, row_max*, sum*; writes raised, row_max*, alpha*, sum*.",
               ".b32 tmp; .f32 f<4>, seen_max<2>, new; .pred y;");
    emit(t, "setp.ne.u32 raised, 0, 0;");
    for (int i = 0; i < 4; i++) emit(t, "mov.f32 f%d, s%d;", i, i);
    for (int i = 4; i < s->s; i++) emit(t, "max.f32 f%d, f%d, s%d;", i % 4, i % 4, i);
    emit(t, "max.f32 seen_max0, f0, f1;"
            "max.f32 seen_max1, f2, f3;"
            "mul.f32 seen_max0, seen_max0, c;"
            "mul.f32 seen_max1, seen_max1, c;"
            "add.f32 f0, row_max0, " WF_ATTENTION_RESCALE ";"
            "add.f32 f1, row_max1, " WF_ATTENTION_RESCALE ";"
            "setp.gt.f32 y, seen_max0, f0;"
            "setp.gt.or.f32 y, seen_max1, f1, y;"
            "vote.sync.any.pred raised, y, -1;"
            "@!raised bra RAISED%d;", n);
    for (int h = 0; h < 2; h++) raise_row(t, s, h);
    if (s->chunk) emit(t, "setp.ne.u32 raised, step, 0;");
    label(t, "RAISED%d", n);
    close_scope(t);
}

static void weigh_tile(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Scores to weights, 2^(s c - row_max), and their sums.",
               "Reads row_max*, s*, c, sum*; writes s*, sum*.", ".f32 below<2>;");
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
    open_scope(t, "A chain's first step knows nothing of steps before.",
               "Reads step, row_max*, weights*, odd*; writes row_max*, weights*, odd*.", ".pred y;");
    emit(t, "setp.eq.u32 y, step, 0;");
    for (int h = 0; h < 2; h++)
        emit(t, "selp.f32 row_max%d, " WF_ATTENTION_NO_MAX ", row_max%d, y;"
                "selp.f32 weights%d, 0f00000000, weights%d, y;"
                "selp.f32 odd%d, 0f00000000, odd%d, y;", h, h, h, h, h, h);
    close_scope(t);
}

/* Scores to weights, 2^(s c - row_max). Sums of lanes there: of keys g and g + 8 of each 16; here a lane has two of
 * these g, an even one and the next. */
static void weigh_step(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Scores to weights, and their sums, of even keys and of odd ones.",
               "Reads row_max*, s*, c, weights*, odd*; writes s*, weights*, odd*.", ".f32 below<2>, two;");
    for (int h = 0; h < 2; h++) emit(t, "neg.f32 below%d, row_max%d;", h, h);
    for (int i = 0; i < s->s; i++)
        emit(t, "fma.rn.f32 s%d, s%d, c, below%d;"
                "ex2.approx.ftz.f32 s%d, s%d;", i, i, i / 2 % 2, i, i);
    for (int i = 0; i < s->s; i += i % 8 == 3 ? 5 : 1)
        emit(t,
             "add.rn.f32 two, s%d, s%d;"
             "add.rn.f32 %s%d, %s%d, two;",
             i, i + 4, i % 2 ? "odd" : "weights", i / 2 % 2, i % 2 ? "odd" : "weights", i / 2 % 2);
    close_scope(t);
}

/* ---- a tile ------------------------------------------------------------------------------------------------- */

/* Relative to a given maximum, in row_max*. */
void wf_attention_softmax_given(wf_ptx *t, wf_attention_shape *s)
{
    mask_scores(t, s);
    weigh_tile(t, s);
}

/* Scores to weights; where `raised`, the accumulators must be rescaled. */
void wf_attention_softmax(wf_ptx *t, wf_attention_shape *s)
{
    mask_scores(t, s);
    if (s->chunk) begin_chain(t);
    raise_maxima(t, s);
    if (s->chunk) weigh_step(t, s);
    else weigh_tile(t, s);
}

void wf_attention_round_weights(wf_ptx *t, const wf_attention_shape *s, int bank)
{
    open_scope(t, "Weights to F16: the layout of S as a result is that of P as an operand.", "Reads s*; writes p*.",
               "");
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

/* ---- asynchronous: the range ----------------------------------------------------------------------------------- */

#define MARK_BYTES   (WF_ATTENTION_WARPS * 4) /* of an item */
#define STOPS                                                                                                          \
    (MARK_BYTES * WF_CL_ATTENTION_ROUNDS) /* behind the marks: a word for each warp that multiplies, of two checks */
#define STOP_BYTES   (2 * MARK_BYTES)
#define NEVER        (-1)
#define F16_TOO_MUCH 0x7800                   /* 2^15 */
#define F16_TO_SIGN  0x08000800               /* added to two numbers in F16 sets the signs of those not below 2^15 */
#define F16_SIGNS    (-0x7FFF8000)
#define QUADS        0x11111111               /* of a ballot, a bit of each quad */
#define F16_TO_F32   (112 << 23) /* exponents; numbers below 2^-14 become others of that kind, all too small */

void wf_attention_declare_async(wf_ptx *t)
{
    emit(t, ".shared .align 16 .b8 marks[%d];"
            ".reg .pred again, idle; // rows that left; none of this warpgroup's\n"
            ".reg .pred counts;"
            ".reg .b64 count;"
            ".reg .f32 base, smallest;", STOPS + STOP_BYTES);
}

void wf_attention_load_range(wf_ptx *t)
{
    open_scope(
        t, "The range of the asynchronous softmax: weights relative to base; a row's largest must be above `smallest`.",
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

/* ---- warpgroups that stop ---------------------------------------------------------------------------------- */

_Static_assert(WF_ATTENTION_STOP_CHECK % WF_ATTENTION_BANKS == 0, "tiles that check have the same bank of weights");

void wf_attention_clear_stops(wf_ptx *t)
{
    open_scope(t, "No warp is without rows yet.", "Writes nothing.", ".b32 at, never;");
    emit(t, "mov.u32 at, marks;"
            "mov.u32 never, %d;", NEVER);
    for (int i = 0; i < STOP_BYTES; i += 16) emit(t, "st.shared.v4.u32 [at+%d], {never,never,never,never};", STOPS + i);
    close_scope(t);
}

void wf_attention_leave_padding(wf_ptx *t)
{
    open_scope(t, "Rows of other runs and padding count as left.", "Reads mine; writes largest*.",
               ".b32 row; .pred y;");
    for (int h = 0; h < 2; h++)
        emit(t, "and.b32 row, mine, %d;"
                "setp.eq.u32 y, row, 0;"
                "@y mov.u32 largest%d, %d;", 1 << h, h, F16_TOO_MUCH);
    close_scope(t);
}

/* Into gone: the first key of the tile if all rows of the warp have left or see no key of the tiles after the next
 * check, else NEVER. */
static void look_at_rows(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Has the warp no rows any more?", "Reads largest*, last*, key0; writes gone.",
               ".b32 row<2>, after, other; .pred y;");
    emit(t, "add.s32 after, key0, %d;", (WF_ATTENTION_STOP_CHECK + 1) * s->keys);
    for (int h = 0; h < 2; h++)
        emit(t, "max.f16x2 row%d, largest%d, largest%d;"
                "add.u32 row%d, row%d, %d;"
                "and.b32 row%d, row%d, %d;"
                "setp.ne.u32 y, row%d, 0;"
                "setp.lt.or.s32 y, last%d, after, y;"
                "vote.sync.ballot.b32 row%d, y, -1;", h, h, h + 2, h, h, F16_TO_SIGN, h, h, F16_SIGNS, h, h, h);
    for (int h = 0; h < 2; h++)
        for (int distance = 1; distance < 3; distance++)
            emit(t, "shr.u32 other, row%d, %d;"
                    "or.b32 row%d, row%d, other;", h, distance, h, h);
    emit(t, "and.b32 row0, row0, row1;"
            "and.b32 row0, row0, %d;"
            "setp.eq.u32 y, row0, %d;"
            "selp.b32 gone, key0, %d, y;", QUADS, QUADS, NEVER);
    close_scope(t);
}

/* words: of the warpgroup at the check before; at: of this warp at this one. */
static void place_words(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Where this warp writes, and where its warpgroup wrote at the check before.",
               "Reads key0, warp; writes at, words.", ".b32 turn;");
    emit(t, "div.u32 turn, key0, %d;"
            "and.b32 turn, turn, 1;"
            "mov.u32 words, marks;"
            "mad.lo.u32 at, turn, %d, words;"
            "mad.lo.u32 at, warp, 4, at;"
            "xor.b32 turn, turn, 1;"
            "mad.lo.u32 words, turn, %d, words;"
            "and.b32 turn, warp, 4; // the first warp of the warpgroup\n"
            "mad.lo.u32 words, turn, 4, words;", WF_ATTENTION_STOP_CHECK * s->keys, MARK_BYTES, MARK_BYTES);
    close_scope(t);
}

void wf_attention_check_stop(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t,
               "Had no warp of the warpgroup rows at the check before? Then this tile is its last. Whether this warp "
               "has rows now.",
               "Reads largest*, last*, key0, warp, lane, left, later, rest; writes left, later, rest.",
               ".b32 gone, of<4>, at, words; .pred y;");
    place_words(t, s);
    emit(t, "ld.volatile.shared.v4.u32 {of0,of1,of2,of3}, [words+%d];", STOPS);
    look_at_rows(t, s);
    emit(t, "setp.eq.u32 y, lane, 0;"
            "@y st.volatile.shared.u32 [at+%d], gone;", STOPS);
    for (int i = 1; i < 4; i++) emit(t, "max.u32 of0, of0, of%d;", i);
    emit(t, "setp.ge.u32 y, of0, key0;"
            "@y bra GOES_ON%d;"
            "add.u32 rest, rest, later;"
            "add.u32 rest, rest, left;"
            "sub.u32 rest, rest, 1;"
            "mov.u32 later, 0;"
            "mov.u32 left, 1;", n);
    label(t, "GOES_ON%d", n);
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
    open_scope(t, "Marks the rows of the item that left, and counts them.",
               "Reads again, redo, quad, round, warp, lane, counts, count; writes nothing.", ".b32 word, at; .pred y;");
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
    open_scope(t,
               copies ? "The second time, an item of which no row left is passed over."
                      : "The second time, an item of which no row left is passed over; which rows of this lane did.",
               copies ? "Reads again, round; writes nothing." : "Reads again, round, warp, lane; writes redo, idle.",
               ".b32 at, mark<8>; .pred y;");
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
