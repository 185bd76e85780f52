/* wgmma_attention_stages: keys and values on their way to shared memory, a tile each a stage, and the barriers by which the warps that
 * copy and those that multiply know of each other (wgmma_attention.c). */
#include "cl/wgmma_attention.h"
#include "cl/ptx_short.h"

/* ---- stages and their barriers ------------------------------------------------------------------------------- */

/* phase: a register. */
void wf_attention_await(wf_ptx *t, wf_attention_shape *s, const char *bar, int offset, const char *phase)
{
    int n = wf_attention_label(s);
    open_scope_for(t, "Waits until the barrier's phase is over.", ".pred over;", "Reads %s, %s; writes nothing.", bar, phase);
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
    open_scope_for(t, "The barriers and the descriptor of a stage.", ".b32 tmp;", "Reads %s_stage, bar, %s_first; writes %s_bar, %s_desc.", x, x, x, x);
    emit(t, "shl.b32 tmp, %s_stage, 3;"
            "add.u32 %s_bar, bar, tmp;"
            "mul.wide.u32 %s_desc, %s_stage, %d;"
            "add.s64 %s_desc, %s_desc, %s_first;", x, x, x, x, s->stage_bytes >> 4, x, x, x);
    close_scope(t);
}

void wf_attention_release(wf_ptx *t, const char *bar, int offset)
{
    open_scope_for(t, "This warp no longer needs the keys or values of a stage.", ".pred first;", "Reads lane, %s; writes nothing.", bar);
    emit(t, "setp.eq.u32 first, lane, 0;"
            "@first mbarrier.arrive.shared.b64 _, [%s+%d];", bar, offset);
    close_scope(t);
}

/* ---- keys and values to shared memory ------------------------------------------------------------------------ */

/* Lane l asks for the page of the l-th 16 keys that its warp copies. */
static void look_up_pages(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Where the pages of a tile lie in a pool, in bytes.", "Reads lane, key0, my_keys, end, P, table, kvh, page_stride; writes ready.",
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
    open_scope_for(t, whole ? "Copies a tile of which all keys are there." : "Copies a tile; keys past the end become zeros.",
                   ".b32 low, high, bytes; .b64 from, more; .pred y;", "Reads place, %s, lane, %sto*; writes nothing.", pool, whole ? "" : "row, ");
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
            emit(t, "cp.async.cg.shared.global [to%d+%d], [from+%d], 16%s;", i % period, offset + (g * 16 / 8 + i / period) * 8 * WF_ATTENTION_PANEL,
                 i * s->at_once * s->d * 2, whole ? "" : ", bytes");
        }
    }
    close_scope(t);
}

/* Row lane / chunks + i at_once, chunk lane % chunks. */
static void place_copies(wf_ptx *t, const wf_attention_shape *s)
{
    int period = 8 / s->at_once;
    open_scope(t, "Where this lane copies to; `row`: its first row relative to the last key; `whole`: all keys of the tile are there.",
               "Reads lane, my_keys, k_stage, now, end, k_phase; writes row, to*, phase, whole.", ".b32 chunk, r, tmp, tmp2, mine;");
    emit(t, "div.u32 row, lane, %d;"
            "rem.u32 chunk, lane, %d;"
            "shr.u32 mine, my_keys, %d; // rows of the tile before those of this warp\n"
            "add.u32 row, row, mine;"
            "sub.u32 mine, my_keys, mine;"
            "shr.u32 tmp2, chunk, 3; // the panel\n"
            "and.b32 chunk, chunk, 7;"
            "mov.u32 r, smem;"
            "mad.lo.u32 r, tmp2, %d, r;"
            "mad.lo.u32 r, k_stage, %d, r;", s->chunks, s->chunks, s->chunk ? 2 : 0, s->keys * WF_ATTENTION_PANEL, s->stage_bytes);
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
        if (s->chunk) wf_attention_copy_halves(t, s, whole);
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
    open_scope(t, s->chunk ? "Copies all chunks of a run, each tile when its stage is empty." : "Copies all tiles of a run, each when its stage is empty.",
               s->chunk ? "Reads warp, lane, end, P, table, kvh, page_stride, kp, vp, bar, k_first, k_stage, k_phase; "
                          "writes key0, chunk0, chain, step, steps, grows_at, k_bar, k_desc, k_stage, k_phase."
                        : "Reads warp, lane, end, P, table, kvh, page_stride, kp, vp, bar, k_first, k_stage, k_phase; writes key0, k_bar, k_desc, k_stage, k_phase.",
               ".b32 my_keys, now, left, row, to<8>, half_key, half_to, half_at, phase; .b64 ready, place; .pred whole, more;");
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
    if (s->chunk) wf_attention_place_halves(t, s);
    wf_attention_await(t, s, "k_bar", 16 * s->stages, "phase");
    copy_stage(t, s, n);
    wf_attention_advance(t, s, "k");
    if (s->chunk) emit(t, "sub.u32 left, left, 1;"
                          "setp.ne.u32 more, left, 0;");
    else emit(t, "setp.le.s32 more, key0, end;");
    emit(t, "@more bra COPY;");
    close_scope(t);
}
