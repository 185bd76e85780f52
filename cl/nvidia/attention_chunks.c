/* attention_chunks: the order of additions that kernels/attention_split.cl has by chunks, for many rows of a sequence
 * (attention.c): a row has the same bits, whether it is decoded or part of a prompt.
 *
 * There four warps share a chunk of 256 keys (16 tiles of 16): tile i of a chunk is warp i % 4's, and a step of a warp
 * is four tiles of its own, 64 keys, which have one maximum. Here a tile in shared memory is such a step, and the
 * accumulators are a warp's sums, its chain:
 *
 *   o      a chain: steps of one warp of the chunk, one after another (one; more where chunks have grown)
 *   part*  a chunk: its four chains, one after another
 *   shared memory, 16 bytes a work-item: the row's total, of all chunks; each work-item reads what it wrote
 *
 * Which keys a tile has says attention_copy.c. All that may round names its rounding, so that the assembler contracts
 * nothing. */
#include "cl/nvidia/attention.h"

#define MULTIPLIERS       (WF_ATTENTION_WARPS * 32)

enum { CHAINS = WF_ATTENTION_CHAINS, CHAIN_ENDS = 1, CHUNK_BEGINS = 2, CHUNK_ENDS = 4, CONTINUES = 8 }; /* of `folds` */

int wf_attention_total_bytes(const wf_attention_shape *s)
{
    return s->chunk ? s->o * MULTIPLIERS * 4 : 0;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

void wf_attention_declare_sums(wf_ptx *t, const wf_attention_shape *s)
{
    emit(t, ".reg .b32 folds; // what the tile is whose values are added: see enum\n"
            ".reg .f32 weights<2>, odd<2>; // sums of weights of even keys, and of odd ones\n"
            ".reg .f32 chain_max<2>, chain_sum<2>, part_max<2>, part_sum<2>, total_max<2>;"
            ".reg .f32 part<%d>;", s->o);
}

static void clear_part(wf_ptx *t, const wf_attention_shape *s)
{
    for (int h = 0; h < 2; h++)
        emit(t, "mov.f32 part_max%d, " WF_ATTENTION_NO_MAX ";"
                "mov.f32 part_sum%d, 0f00000000;", h, h);
    for (int i = 0; i < s->o; i++) emit(t, "mov.f32 part%d, 0f00000000;", i);
}

/* Address of the lane's totals: four of them, then each MULTIPLIERS * 16 bytes on the next four. */
static void place_total(wf_ptx *t, const wf_attention_shape *s)
{
    emit(t, "mov.u32 at, smem;"
            "mad.lo.u32 at, tid, 16, at;"
            "add.u32 at, at, %d;", s->q_bytes + s->stages * s->stage_bytes);
}

void wf_attention_clear_total(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "No chunk is in the total yet.",
               "Reads tid; writes mine, sum*, total_max*, part*, part_max*, part_sum*.", ".b32 at; .f32 zero;");
    emit(t, "mov.u32 mine, 0;"
            "mov.f32 zero, 0f00000000;"
            "mov.f32 sum0, zero;"
            "mov.f32 sum1, zero;"
            "mov.f32 total_max0, " WF_ATTENTION_NO_MAX ";"
            "mov.f32 total_max1, " WF_ATTENTION_NO_MAX ";");
    place_total(t, s);
    for (int i = 0; i < s->o / 4; i++)
        emit(t, "st.shared.v4.f32 [at+%d], {zero,zero,zero,zero};", i * MULTIPLIERS * 16);
    clear_part(t, s);
    close_scope(t);
}

void wf_attention_load_total(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "The total, for the result.", "Reads tid; writes part*.", ".b32 at;");
    place_total(t, s);
    for (int i = 0; i < s->o / 4; i++)
        emit(t, "ld.shared.v4.f32 {part%d,part%d,part%d,part%d}, [at+%d];", 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3,
             i * MULTIPLIERS * 16);
    close_scope(t);
}

void wf_attention_note_step(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, "What is to be done when this tile's values are added.",
               "Reads chain, step, steps, row_max*, weights*, odd*; writes folds, chain_max*, chain_sum*.",
               ".b32 tmp, last; .f32 other; .pred y, z;");
    emit(t, "setp.ne.u32 y, step, 0;"
            "selp.b32 folds, %d, 0, y;"
            "setp.eq.u32 y, chain, 0;"
            "@y or.b32 folds, folds, %d;"
            "add.u32 last, step, 1;"
            "setp.ne.u32 y, last, steps;"
            "@y bra GOES_ON%d;"
            "or.b32 folds, folds, %d;"
            "setp.eq.u32 z, chain, %d;"
            "@z or.b32 folds, folds, %d;", CONTINUES, CHUNK_BEGINS, n, CHAIN_ENDS, CHAINS - 1, CHUNK_ENDS);
    for (int h = 0; h < 2; h++) {
        emit(t, "mov.f32 chain_max%d, row_max%d;"
                "add.rn.f32 chain_sum%d, weights%d, odd%d;", h, h, h, h, h);
        wf_attention_quad(t, "add", "chain_sum", h, "other");
    }
    label(t, "GOES_ON%d", n);
    close_scope(t);
}

/* Sets the predicate y where the tile goes on with the accumulators as they are. Destroys tmp. */
void wf_attention_continues(wf_ptx *t)
{
    emit(t, "and.b32 tmp, folds, %d;"
            "setp.ne.u32 y, tmp, 0;", CONTINUES);
}

/* ---- chains to chunks to the total ------------------------------------------------------------------------------- */

static void fold_maximum(wf_ptx *t, int h)
{
    emit(t, "add.rn.f32 f0, part_max%d, " WF_ATTENTION_RESCALE ";"
            "setp.gt.f32 z%d, chain_max%d, f0;"
            "selp.f32 f0, chain_max%d, part_max%d, z%d;"
            "sub.rn.f32 old%d, part_max%d, f0;"
            "ex2.approx.ftz.f32 old%d, old%d;"
            "sub.rn.f32 new%d, chain_max%d, f0;"
            "ex2.approx.ftz.f32 new%d, new%d;"
            "mov.f32 part_max%d, f0;", h, h, h, h, h, h, h, h, h, h, h, h, h, h, h);
    emit(t, "mul.rn.f32 f0, part_sum%d, old%d;"
            "fma.rn.f32 part_sum%d, chain_sum%d, new%d, f0;", h, h, h, h, h);
}

/* As add_warps() there. */
static void fold_chain(wf_ptx *t, const wf_attention_shape *s, int n)
{
    open_scope(
        t, "The chain joins its chunk.",
        "Reads folds, chain_max*, chain_sum*, part_max*, part_sum*, part*, o*; writes part_max*, part_sum*, part*.",
        ".b32 tmp; .f32 f0, old<2>, new<2>; .pred y, z<2>;");
    for (int h = 0; h < 2; h++) fold_maximum(t, h);
    emit(t, "and.b32 tmp, folds, %d;"
            "setp.eq.u32 y, tmp, 0;"
            "selp.b32 tmp, 1, 0, z0;"
            "@z1 mov.u32 tmp, 1;"
            "setp.ne.and.u32 y, tmp, 0, y;"
            "vote.sync.any.pred y, y, -1;"
            "@!y bra SCALED%d; // by 1, or nothing yet\n", CHUNK_BEGINS, n);
    for (int i = 0; i < s->o; i++) emit(t, "mul.rn.f32 part%d, part%d, old%d;", i, i, i / 2 % 2);
    label(t, "SCALED%d", n);
    for (int i = 0; i < s->o; i++) emit(t, "fma.rn.f32 part%d, o%d, new%d, part%d;", i, i, i / 2 % 2, i);
    close_scope(t);
}

/* As merge() there. */
static void merge_maximum(wf_ptx *t, int h)
{
    emit(t, "sub.rn.f32 above, part_max%d, total_max%d;"
            "abs.f32 less, above;"
            "neg.f32 less, less;"
            "ex2.approx.ftz.f32 less, less;"
            "setp.gt.f32 y, above, 0f00000000;"
            "selp.f32 old%d, less, 0f3F800000, y;"
            "selp.f32 new%d, 0f3F800000, less, y;"
            "max.f32 total_max%d, total_max%d, part_max%d;"
            "mul.rn.f32 less, part_sum%d, new%d;"
            "fma.rn.f32 sum%d, sum%d, old%d, less;", h, h, h, h, h, h, h, h, h, h, h, h);
}

static void merge_chunk(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "The chunk joins the total.",
               "Reads tid, part_max*, part_sum*, part*, total_max*, sum*; writes total_max*, sum*, part_max*, "
               "part_sum*, part*.",
               ".b32 at; .f32 above, less, old<2>, new<2>, f<4>; .pred y;");
    for (int h = 0; h < 2; h++) merge_maximum(t, h);
    place_total(t, s);
    for (int i = 0; i < s->o / 4; i++) {
        emit(t, "ld.shared.v4.f32 {f0,f1,f2,f3}, [at+%d];", i * MULTIPLIERS * 16);
        for (int j = 0; j < 4; j++)
            emit(t, "mul.rn.f32 part%d, part%d, new%d;"
                    "fma.rn.f32 f%d, f%d, old%d, part%d;", 4 * i + j, 4 * i + j, j / 2, j, j, j / 2, 4 * i + j);
        emit(t, "st.shared.v4.f32 [at+%d], {f0,f1,f2,f3};", i * MULTIPLIERS * 16);
    }
    clear_part(t, s);
    close_scope(t);
}

void wf_attention_fold(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t, "What ends with the tile whose values were added.",
               "Reads tid, folds, chain_max*, chain_sum*, part_max*, part_sum*, part*, o*, total_max*, sum*; writes "
               "part_max*, part_sum*, part*, total_max*, sum*.",
               ".b32 tmp; .pred y;");
    emit(t, "and.b32 tmp, folds, %d;"
            "setp.eq.u32 y, tmp, 0;"
            "@y bra FOLDED%d;", CHAIN_ENDS, n);
    fold_chain(t, s, n);
    emit(t, "and.b32 tmp, folds, %d;"
            "setp.eq.u32 y, tmp, 0;"
            "@y bra FOLDED%d;", CHUNK_ENDS, n);
    merge_chunk(t, s);
    label(t, "FOLDED%d", n);
    close_scope(t);
}
