/* attention_copy: keys and values on their way to shared memory (attention.c): which keys a tile has, the stages, a
 * tile of keys and of values each, and the barriers by which the warps that copy and those that multiply know of each
 * other.
 *
 * By chunks the order of additions is that of attention_split's (attention_chunks.c): tile by tile the steps of a
 * chain, the chains of a chunk, the chunks of a run. A product over D adds 16 elements at once: there those are half
 * of each of four 16-byte chunks of a row, so that halves are sorted here on their way. */
#include "cl/nvidia/attention.h"

/* ---- stages and their barriers ------------------------------------------------------------------------------- */

/* phase: a register. */
void wf_attention_await(wf_ptx *t, wf_attention_shape *s, const char *bar, int offset, const char *phase)
{
    int n = wf_attention_label(s);
    open_scope_for(t, "Waits until the barrier's phase is over.", ".pred over;", "Reads %s, %s; writes nothing.", bar,
                   phase);
    label(t, "AWAIT%d", n);
    emit(t, "mbarrier.try_wait.parity.shared.b64 over, [%s+%d], %s;"
            "@!over bra AWAIT%d;", bar, offset, phase, n);
    close_scope(t);
}

/* x: "k" or "v". */
void wf_attention_advance(wf_ptx *t, const wf_attention_shape *s, const char *x)
{
    open_scope_for(t, "To the next stage; behind the last one the first again, in the other phase.", ".pred wraps;",
                   "Reads %s_stage, %s_phase; writes %s_stage, %s_phase.", x, x, x, x);
    emit(t, "add.u32 %s_stage, %s_stage, 1;"
            "setp.eq.u32 wraps, %s_stage, %d;"
            "@wraps mov.u32 %s_stage, 0;"
            "@wraps xor.b32 %s_phase, %s_phase, 1;", x, x, x, s->stages, x, x, x);
    close_scope(t);
}

/* Its barriers: full of keys at [bar], of values 8 stages on, then empty ones in that order. */
void wf_attention_place_stage(wf_ptx *t, const wf_attention_shape *s, const char *x)
{
    open_scope_for(t, "The barriers and the descriptor of a stage.", ".b32 tmp;",
                   "Reads %s_stage, bar, %s_first; writes %s_bar, %s_desc.", x, x, x, x);
    emit(t, "shl.b32 tmp, %s_stage, 3;"
            "add.u32 %s_bar, bar, tmp;"
            "mul.wide.u32 %s_desc, %s_stage, %d;"
            "add.s64 %s_desc, %s_desc, %s_first;", x, x, x, x, s->stage_bytes >> 4, x, x, x);
    close_scope(t);
}

void wf_attention_release(wf_ptx *t, const char *bar, int offset)
{
    open_scope_for(t, "This warp no longer needs the keys or values of a stage.", ".pred first;",
                   "Reads lane, %s; writes nothing.", bar);
    emit(t, "setp.eq.u32 first, lane, 0;"
            "@first mbarrier.arrive.shared.b64 _, [%s+%d];", bar, offset);
    close_scope(t);
}

/* Both roles walk over the keys. */
void wf_attention_declare_walk(wf_ptx *t)
{
    emit(t, ".reg .b32 chunk0, chain, step, steps, grows_at; // of the tile: first key of its chunk, the chain, the "
            "step of so many\n");
}

/* ---- which keys ---------------------------------------------------------------------------------------------- */

void wf_attention_begin_keys(wf_ptx *t, const wf_attention_shape *s)
{
    emit(t, "mov.u32 key0, 0;");
    if (!s->chunk) return;
    emit(t, "mov.u32 chunk0, 0;"
            "mov.u32 chain, 0;"
            "mov.u32 step, 0;"
            "mov.u32 steps, 1;"
            "mov.u32 grows_at, %d;", s->grows * 16);
}

static void next_of_chunk(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(
        t,
        "The next step of the chain, or the next chain, or the next chunk; from grows_at on chunks are twice as long.",
        "Reads chunk0, chain, step, steps, grows_at; writes chunk0, chain, step, steps, grows_at, key0.",
        ".b32 tmp; .pred y;");
    emit(t, "add.u32 step, step, 1;"
            "setp.lt.u32 y, step, steps;"
            "@y bra PLACED%d;"
            "mov.u32 step, 0;"
            "add.u32 chain, chain, 1;"
            "setp.lt.u32 y, chain, %d;"
            "@y bra PLACED%d;"
            "mov.u32 chain, 0;"
            "shl.b32 tmp, steps, 8;"
            "add.u32 chunk0, chunk0, tmp;"
            "setp.ge.u32 y, chunk0, grows_at;"
            "@y shl.b32 steps, steps, 1;"
            "@y shl.b32 grows_at, grows_at, 4;", n, WF_ATTENTION_CHAINS, n);
    label(t, "PLACED%d", n);
    emit(t, "shl.b32 tmp, step, 8;"
            "add.u32 tmp, tmp, chunk0;"
            "mad.lo.u32 key0, chain, 16, tmp;");
    close_scope(t);
}

void wf_attention_next_keys(wf_ptx *t, wf_attention_shape *s)
{
    if (s->chunk) next_of_chunk(t, s);
    else emit(t, "add.u32 key0, key0, %d;", s->keys);
}

/* Whole chunks: the last key of the last one decides how long they are. */
void wf_attention_count_tiles(wf_ptx *t, const wf_attention_shape *s, const char *tiles, const char *last)
{
    if (!s->chunk) {
        emit(t, "add.s32 %s, %s, %d;"
                "div.u32 %s, %s, %d;", tiles, last, s->keys, tiles, tiles, s->keys);
        return;
    }
    open_scope_for(t, "Tiles of the chunks up to the one in which a key lies.", ".b32 size; .pred y;",
                   "Reads %s; writes %s.", last, tiles);
    emit(t, "add.s32 %s, %s, 256;"
            "shr.u32 %s, %s, 8;"
            "mov.u32 size, 1;", tiles, last, tiles, tiles);
    for (int i = 0, until = s->grows / 16; i < 3; i++, until *= 16)
        emit(t, "setp.gt.u32 y, %s, %d;"
                "@y shl.b32 size, size, 1;", tiles, until);
    emit(t, "add.u32 %s, %s, size;"
            "sub.u32 %s, %s, 1;"
            "sub.u32 size, 0, size;"
            "and.b32 %s, %s, size;"
            "shl.b32 %s, %s, 2;", tiles, tiles, tiles, tiles, tiles, tiles, tiles, tiles);
    close_scope(t);
}

/* ---- halves of 16-byte chunks ---------------------------------------------------------------------------------- */

/* Register `chunk`: of a row's chunks, to the one where its lower half goes; `half`: bytes into that. The upper half
 * goes 32 bytes on, which is an exclusive or: of each four chunks the lower halves come first. */
void wf_attention_sort_half(wf_ptx *t, const char *chunk, const char *half)
{
    emit(t, "and.b32 %s, %s, 1;"
            "shl.b32 %s, %s, 3;"
            "and.b32 tmp, %s, 3;"
            "shr.u32 tmp, tmp, 1;"
            "and.b32 %s, %s, 4;"
            "or.b32 %s, %s, tmp;", half, chunk, half, half, chunk, chunk, chunk, chunk, chunk);
}

/* A lane copies half h of chunk c: lane % (d / 4) is 2 c + h. */
static void place_halves(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Where this lane copies half a chunk of keys to, and its first key relative to the last key.",
               "Reads lane, my_keys, k_stage, now, end; writes half_key, half_to, half_at.",
               ".b32 chunk, low, tmp, panel;");
    emit(t, "div.u32 half_key, lane, %d;"
            "rem.u32 chunk, lane, %d;"
            "and.b32 low, chunk, 1;"
            "shl.b32 half_to, low, 5; // the upper half\n"
            "shr.u32 chunk, chunk, 1;"
            "shr.u32 panel, chunk, 3;", s->d / 4, s->d / 4);
    wf_attention_sort_half(t, "chunk", "low");
    emit(t,
         "xor.b32 chunk, chunk, half_key;"
         "shl.b32 chunk, chunk, 4;"
         "xor.b32 half_to, half_to, chunk;"
         "mov.u32 half_at, smem;"
         "add.u32 half_at, half_at, low;"
         "mad.lo.u32 half_at, panel, %d, half_at;"
         "mad.lo.u32 half_at, k_stage, %d, half_at;"
         "shr.u32 tmp, my_keys, 2; // rows of the tile before those of this warp\n"
         "add.u32 tmp, tmp, half_key;"
         "mad.lo.u32 half_at, tmp, %d, half_at;"
         "add.u32 half_at, half_at, %d;",
         s->keys * WF_ATTENTION_PANEL, s->stage_bytes, WF_ATTENTION_PANEL, s->q_bytes);
    emit(t, "add.u32 half_key, half_key, my_keys;"
            "add.u32 half_key, half_key, now;"
            "sub.u32 half_key, half_key, end;");
    close_scope(t);
}

static void copy_halves(wf_ptx *t, const wf_attention_shape *s, bool whole)
{
    int at_once = 32 / (s->d / 4);
    open_scope_for(t,
                   whole ? "Copies a tile of keys in halves of chunks, all of them there."
                         : "Copies a tile of keys in halves of chunks; keys past the end become zeros.",
                   ".b32 low, high, bytes; .b64 from, more; .pred y;",
                   "Reads place, kp, lane, %shalf_to, half_at; writes nothing.", whole ? "" : "half_key, ");
    emit(t, "mov.b64 {low, high}, place;"
            "shfl.sync.idx.b32 low, low, 0, 31, -1;"
            "shfl.sync.idx.b32 high, high, 0, 31, -1;"
            "mov.b64 from, {low, high};"
            "add.s64 from, from, kp;"
            "mul.wide.u32 more, lane, 8;"
            "add.s64 from, from, more;");
    for (int row = 0; row < 16; row += at_once) {
        emit(t, "xor.b32 low, half_to, %d;"
                "add.u32 low, low, half_at;", (row & 7) << 4);
        if (!whole) emit(t, "setp.le.s32 y, half_key, %d;"
                            "selp.b32 bytes, 8, 0, y;", -row);
        emit(t, "cp.async.ca.shared.global [low+%d], [from+%d], 8%s;", row * WF_ATTENTION_PANEL, row * s->d * 2,
             whole ? "" : ", bytes");
    }
    close_scope(t);
}

/* ---- keys and values to shared memory ------------------------------------------------------------------------ */

/* Lane l asks for the page of the l-th 16 keys that its warp copies. */
static void look_up_pages(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Where the pages of a tile lie in a pool, in bytes.",
               "Reads lane, key0, my_keys, end, P, table, kvh, page_stride; writes ready.",
               ".b32 key, page, tmp; .b64 off;");
    emit(t, "shl.b32 key, lane, 4;"
            "add.u32 key, key, key0;"
            "add.u32 key, key, my_keys;"
            "min.u32 key, key, end;"
            "and.b32 key, key, -16;"
            "div.u32 tmp, key, P;"
            "mul.wide.u32 off, tmp, 4;"
            "add.s64 off, off, table;"
            "ld.global.u32 page, [off];"
            "mul.lo.u32 tmp, tmp, P;"
            "sub.u32 key, key, tmp;"
            "mad.lo.u32 key, kvh, P, key;"
            "mul.wide.u32 ready, page, page_stride;"
            "mul.wide.u32 off, key, %d;"
            "add.s64 ready, ready, off;"
            "shl.b64 ready, ready, 1;", s->d);
    close_scope(t);
}

/* One tile of keys or values; whole: none of its keys is past the end. */
static void copy_tile(wf_ptx *t, const wf_attention_shape *s, const char *pool, int offset, bool whole)
{
    int period = 8 / s->at_once;
    open_scope_for(
        t, whole ? "Copies a tile of which all keys are there." : "Copies a tile; keys past the end become zeros.",
        ".b32 low, high, bytes; .b64 from, more; .pred y;", "Reads place, %s, lane, %sto*; writes nothing.", pool,
        whole ? "" : "row, ");
    for (int g = 0; g < s->keys / 16 / WF_ATTENTION_COPIERS; g++) {
        emit(t, "mov.b64 {low, high}, place;"
                "shfl.sync.idx.b32 low, low, %d, 31, -1;"
                "shfl.sync.idx.b32 high, high, %d, 31, -1;"
                "mov.b64 from, {low, high};"
                "add.s64 from, from, %s;"
                "mul.wide.u32 more, lane, 16;"
                "add.s64 from, from, more;", g, g, pool);
        for (int i = 0; i < 16 / s->at_once; i++) {
            if (!whole) emit(t, "setp.le.s32 y, row, %d;"
                                "selp.b32 bytes, 16, 0, y;", -(g * 16 + i * s->at_once));
            emit(t, "cp.async.cg.shared.global [to%d+%d], [from+%d], 16%s;", i % period,
                 offset + (g * 16 / 8 + i / period) * 8 * WF_ATTENTION_PANEL, i * s->at_once * s->d * 2,
                 whole ? "" : ", bytes");
        }
    }
    close_scope(t);
}

/* Row lane / chunks + i at_once, chunk lane % chunks. */
static void place_copies(wf_ptx *t, const wf_attention_shape *s)
{
    int period = 8 / s->at_once;
    open_scope(t,
               "Where this lane copies to; `row`: its first row relative to the last key; `whole`: all keys of the "
               "tile are there.",
               "Reads lane, my_keys, k_stage, now, end, k_phase; writes row, to*, phase, whole.",
               ".b32 chunk, r, tmp, tmp2, mine;");
    emit(t,
         "div.u32 row, lane, %d;"
         "rem.u32 chunk, lane, %d;"
         "shr.u32 mine, my_keys, %d; // rows of the tile before those of this warp\n"
         "add.u32 row, row, mine;"
         "sub.u32 mine, my_keys, mine;"
         "shr.u32 tmp2, chunk, 3; // the panel\n"
         "and.b32 chunk, chunk, 7;"
         "mov.u32 r, smem;"
         "mad.lo.u32 r, tmp2, %d, r;"
         "mad.lo.u32 r, k_stage, %d, r;",
         s->chunks, s->chunks, s->chunk ? 2 : 0, s->keys * WF_ATTENTION_PANEL, s->stage_bytes);
    for (int k = 0; k < period; k++)
        emit(t, "add.u32 tmp, row, %d;"
                "and.b32 tmp2, tmp, 7;"
                "xor.b32 tmp2, tmp2, chunk;"
                "shl.b32 tmp2, tmp2, 4;"
                "mad.lo.u32 tmp, tmp, %d, tmp2;"
                "add.u32 to%d, tmp, r;"
                "add.u32 to%d, to%d, %d;", k * s->at_once, WF_ATTENTION_PANEL, k, k, k, s->q_bytes);
    emit(t, "add.u32 row, row, mine;"
            "add.u32 row, row, now;"
            "sub.u32 row, row, end;"
            "xor.b32 phase, k_phase, 1;"
            "add.u32 tmp2, now, %d;"
            "setp.le.s32 whole, tmp2, end;", s->chunk ? 207 : s->keys - 1);
    close_scope(t);
}

/* Two versions, for a count of bytes in each copy costs. */
static void copy_stage(wf_ptx *t, wf_attention_shape *s, int n)
{
    emit(t, "xor.b32 phase, k_phase, 1;");
    for (int whole = 1; whole >= 0; whole--) {
        if (whole) emit(t, "@!whole bra PARTLY%d;", n);
        else label(t, "PARTLY%d", n);
        if (s->chunk) copy_halves(t, s, whole);
        else copy_tile(t, s, "kp", 0, whole);
        emit(t, "cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar];"
                "xor.b32 phase, k_phase, 1;");
        wf_attention_await(t, s, "k_bar", 24 * s->stages, "phase");
        copy_tile(t, s, "vp", s->tile_bytes, whole);
        emit(t, "cp.async.mbarrier.arrive.noinc.shared.b64 [k_bar+%d];", 8 * s->stages);
        if (whole) emit(t, "bra COPIED%d;", n);
    }
    label(t, "COPIED%d", n);
}

void wf_attention_copy_run(wf_ptx *t, wf_attention_shape *s)
{
    int n = wf_attention_label(s);
    open_scope(t,
               s->chunk ? "Copies all chunks of a run, each tile when its stage is empty."
                        : "Copies all tiles of a run, each when its stage is empty.",
               s->chunk ? "Reads warp, lane, end, P, table, kvh, page_stride, kp, vp, bar, k_first, k_stage, k_phase; "
                          "writes key0, chunk0, chain, step, steps, grows_at, k_bar, k_desc, k_stage, k_phase."
                        : "Reads warp, lane, end, P, table, kvh, page_stride, kp, vp, bar, k_first, k_stage, k_phase; "
                          "writes key0, k_bar, k_desc, k_stage, k_phase.",
               ".b32 my_keys, now, left, row, to<8>, half_key, half_to, half_at, phase; .b64 ready, place; .pred "
               "whole, more;");
    wf_attention_begin_keys(t, s);
    emit(t, "sub.u32 my_keys, warp, %d; // of a tile, the first that this warp copies\n"
            "mul.lo.u32 my_keys, my_keys, %d;", WF_ATTENTION_WARPS, s->chunk ? 64 : s->keys / WF_ATTENTION_COPIERS);
    if (s->chunk) wf_attention_count_tiles(t, s, "left", "end");
    look_up_pages(t, s);
    label(t, "COPY");
    emit(t, "mov.b64 place, ready;"
            "mov.u32 now, key0;");
    wf_attention_next_keys(t, s);
    look_up_pages(t, s); /* of the tile after this, while this one is copied */
    wf_attention_place_stage(t, s, "k");
    place_copies(t, s);
    if (s->chunk) place_halves(t, s);
    wf_attention_await(t, s, "k_bar", 16 * s->stages, "phase");
    copy_stage(t, s, n);
    wf_attention_advance(t, s, "k");
    if (s->chunk) emit(t, "sub.u32 left, left, 1;"
                          "setp.ne.u32 more, left, 0;");
    else emit(t, "setp.le.s32 more, key0, end;");
    emit(t, "@more bra COPY;");
    close_scope(t);
}
