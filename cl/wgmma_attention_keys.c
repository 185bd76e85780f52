/* wgmma_attention_keys: which keys a tile has, and how they come to shared memory where the order of additions is that of attention_split's chunks
 * (wgmma_attention_chunks.c): tile by tile the steps of a chain, the chains of a chunk, the chunks of a run. A product over D adds 16 elements at
 * once: there those are half of each of four 16-byte chunks of a row, so that halves are sorted here on their way.
 */
#include "cl/wgmma_attention.h"
#include "cl/ptx_short.h"

/* Both roles walk over the keys. */
void wf_attention_declare_walk(wf_ptx *t)
{
    emit(t, ".reg .b32 chunk0, chain, step, steps, grows_at; // of the tile: first key of its chunk, the chain, the step of so many\n");
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
    open_scope(t, "The next step of the chain, or the next chain, or the next chunk; from grows_at on chunks are twice as long.",
               "Reads chunk0, chain, step, steps, grows_at; writes chunk0, chain, step, steps, grows_at, key0.", ".b32 tmp; .pred y;");
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
    open_scope_for(t, "Tiles of the chunks up to the one in which a key lies.", ".b32 size; .pred y;", "Reads %s; writes %s.", last, tiles);
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

/* Register `chunk`: of a row's chunks, to the one where its lower half goes; `half`: bytes into that. The upper half goes 32 bytes on, which is
 * an exclusive or: of each four chunks the lower halves come first. */
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
void wf_attention_place_halves(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Where this lane copies half a chunk of keys to, and its first key relative to the last key.",
               "Reads lane, my_keys, k_stage, now, end; writes half_key, half_to, half_at.", ".b32 chunk, low, tmp, panel;");
    emit(t, "div.u32 half_key, lane, %d;"
            "rem.u32 chunk, lane, %d;"
            "and.b32 low, chunk, 1;"
            "shl.b32 half_to, low, 5; // the upper half\n"
            "shr.u32 chunk, chunk, 1;"
            "shr.u32 panel, chunk, 3;", s->d / 4, s->d / 4);
    wf_attention_sort_half(t, "chunk", "low");
    emit(t, "xor.b32 chunk, chunk, half_key;"
            "shl.b32 chunk, chunk, 4;"
            "xor.b32 half_to, half_to, chunk;"
            "mov.u32 half_at, smem;"
            "add.u32 half_at, half_at, low;"
            "mad.lo.u32 half_at, panel, %d, half_at;"
            "mad.lo.u32 half_at, k_stage, %d, half_at;"
            "shr.u32 tmp, my_keys, 2; // rows of the tile before those of this warp\n"
            "add.u32 tmp, tmp, half_key;"
            "mad.lo.u32 half_at, tmp, %d, half_at;"
            "add.u32 half_at, half_at, %d;", s->keys * WF_ATTENTION_PANEL, s->stage_bytes, WF_ATTENTION_PANEL, s->q_bytes);
    emit(t, "add.u32 half_key, half_key, my_keys;"
            "add.u32 half_key, half_key, now;"
            "sub.u32 half_key, half_key, end;");
    close_scope(t);
}

void wf_attention_copy_halves(wf_ptx *t, const wf_attention_shape *s, bool whole)
{
    int at_once = 32 / (s->d / 4);
    open_scope_for(t, whole ? "Copies a tile of keys in halves of chunks, all of them there." : "Copies a tile of keys in halves of chunks; keys past the end become zeros.",
                   ".b32 low, high, bytes; .b64 from, more; .pred y;", "Reads place, kp, lane, %shalf_to, half_at; writes nothing.", whole ? "" : "half_key, ");
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
        emit(t, "cp.async.ca.shared.global [low+%d], [from+%d], 8%s;", row * WF_ATTENTION_PANEL, row * s->d * 2, whole ? "" : ", bytes");
    }
    close_scope(t);
}
