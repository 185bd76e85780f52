/* attention_run: a run as the warps that multiply see it (attention.c): Q to shared memory, the products of all tiles,
 * one after another, with the softmax between them, and the rows of the result.
 *
 * Synchronous: the products of S = Q K^T of a tile and of O += P V of the tile before are begun together, and
 * accumulators are rescaled when the second is over. Asynchronous: nothing but these products touches the
 * accumulators, and weights have two banks of registers, so that those of a tile are ready before the values of the
 * one before are added. */
#include "cl/nvidia/attention.h"

/* ---- the rows of a run ------------------------------------------------------------------------------------ */

/* What a sequence left in the registers does not reach the rows of another, be it NaN. */
static void clear_sums(wf_ptx *t, const wf_attention_shape *s)
{
    if (s->chunk) {
        wf_attention_clear_total(t, s);
        return;
    }
    open_scope(t, "Each run begins with cleared accumulators.",
               s->async ? "Reads again, base; writes mine, sum*, row_max*, o*, largest*."
                        : "Writes mine, sum*, row_max*, o*.",
               "");
    emit(t, "mov.u32 mine, 0;"
            "mov.f32 sum0, 0f00000000;"
            "mov.f32 sum1, 0f00000000;"
            "mov.f32 row_max0, " WF_ATTENTION_NO_MAX ";");
    if (s->async) emit(t, "selp.f32 row_max0, row_max0, base, again;");
    emit(t, "mov.f32 row_max1, row_max0;");
    for (int i = 0; s->async && i < 4; i++) emit(t, "mov.u32 largest%d, 0;", i);
    for (int i = 0; i < s->o; i++) emit(t, "mov.f32 o%d, 0f00000000;", i);
    close_scope(t);
}

/* Token and head (among those of the KV head) of packed row `row` of the block; padding has token -1. Writes the
 * registers token and head; destroys the predicate y. */
void wf_attention_unpack_row(wf_ptx *t, const char *token, const char *head)
{
    emit(t, "div.u32 %s, row, hb;"
            "mul.lo.u32 %s, %s, hb;"
            "sub.u32 %s, row, %s;"
            "add.u32 %s, %s, head_from;", token, head, token, head, head, head, head);
    emit(t, "setp.lt.u32 y, %s, br;"
            "add.u32 %s, %s, m0;"
            "setp.lt.and.u32 y, %s, m_end, y;"
            "setp.lt.and.u32 y, %s, per_kv, y;"
            "selp.b32 %s, %s, -1, y;", token, token, token, token, head, token, token);
}

static void load_q_row(wf_ptx *t, const wf_attention_shape *s, int rows)
{
    wf_attention_unpack_row(t, "token", "head");
    emit(t, "setp.ne.u32 y, token, -1;"
            "mul.wide.u32 from, token, q_stride;"
            "add.u32 head, head, kv_head;"
            "mul.wide.u32 more, head, %d;"
            "add.s64 from, from, more;"
            "mul.wide.u32 more, chunk, 8;"
            "add.s64 from, from, more;"
            "shl.b64 from, from, 1;"
            "add.s64 from, from, q;", s->d);
    for (int v = 0; v < 4; v++) emit(t, "mov.u32 v%d, 0;", v);
    emit(t, "@y ld.global.v4.u32 {v0,v1,v2,v3}, [from];"
            "xor.b32 to, row, %s;"
            "and.b32 to, to, 7;"
            "shl.b32 to, to, 4;"
            "mad.lo.u32 to, row, %d, to;"
            "add.u32 to, to, panel;", s->chunk ? "place" : "chunk", WF_ATTENTION_PANEL);
    if (s->chunk) emit(t, "st.shared.v2.u32 [to], {v0,v1};"
                          "xor.b32 to, to, 32;"
                          "st.shared.v2.u32 [to], {v2,v3};");
    else emit(t, "st.shared.v4.u32 [to], {v0,v1,v2,v3};");
    emit(t, "add.u32 row, row, %d;", rows);
}

static void load_q(wf_ptx *t, const wf_attention_shape *s)
{
    int rows = 128 / s->chunks;
    open_scope(
        t, "The 64 packed rows of Q of this warpgroup to shared memory, once an item.",
        "Reads loaded, sync_id, tid, warp, hb, head_from, br, m0, m_end, per_kv, q_stride, kv_head, q; writes loaded.",
        ".b32 chunk, place, half, row, panel, tmp, token, head, to, v<4>; .b64 from, more; .pred y;");
    emit(t, "setp.ne.u32 y, loaded, 0;"
            "@y bra HAVE_Q;"
            "mov.u32 loaded, 1;"
            "bar.sync sync_id, 128;"
            "and.b32 chunk, tid, 127;"
            "div.u32 row, chunk, %d;"
            "rem.u32 chunk, chunk, %d;"
            "shr.u32 tmp, warp, 2;"
            "mad.lo.u32 row, tmp, 64, row;"
            "mov.u32 panel, smem;"
            "shr.u32 tmp, chunk, 3;"
            "mad.lo.u32 panel, tmp, %d, panel;", s->chunks, s->chunks, WF_ATTENTION_ROWS * WF_ATTENTION_PANEL);
    if (s->chunk) {
        emit(t, "mov.u32 place, chunk;");
        wf_attention_sort_half(t, "place", "half");
        emit(t, "add.u32 panel, panel, half;");
    }
    for (int j = 0; j < 64 / rows; j++) load_q_row(t, s, rows);
    emit(t, "fence.proxy.async;"
            "bar.sync sync_id, 128;");
    label(t, "HAVE_Q");
    close_scope(t);
}

/* The last key that a row sees: none in other runs; padding masks nothing. */
static void last_keys(wf_ptx *t)
{
    for (int h = 0; h < 2; h++) {
        emit(t, "mul.wide.u32 off, token%d, 4;"
                "add.s64 off, off, pos;"
                "add.u32 last%d, from, token%d;"
                "setp.ge.u32 y, token%d, run;"
                "setp.lt.and.u32 y, token%d, run_end, y;", h, h, h, h, h);
        emit(t, "setp.ne.and.u32 z, scattered, 0, y;"
                "@z ld.global.u32 last%d, [off];"
                "selp.b32 last%d, last%d, -1, y;"
                "@y or.b32 mine, mine, %d;"
                "setp.eq.u32 y, token%d, -1;"
                "selp.b32 last%d, 2147483647, last%d, y;", h, h, h, 1 << h, h, h, h);
    }
    emit(t, "min.s32 least, last0, last1;"
            "redux.sync.min.s32 least, least, -1;");
}

/* least: no row of the warp sees less. left: tiles that the warpgroup has rows for, rest: those of the run beyond. */
static void place_run(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "What this lane's rows see of a run, and how many tiles the warpgroup multiplies.",
               s->async ? "Reads token*, pos, from, run, run_end, scattered, mine, warp, hb, m0, end, idle; writes "
                          "last*, mine, least, left, rest."
                        : "Reads token*, pos, from, run, run_end, scattered, mine, warp, hb, m0, end; writes last*, "
                          "mine, least, left, rest.",
               ".b32 first, last_row, tmp, most; .b64 off; .pred y, z;");
    last_keys(t);
    emit(t, "shr.u32 first, warp, 2; // the first and the last row of the warpgroup\n"
            "shl.b32 first, first, 6;"
            "add.u32 last_row, first, 63;"
            "div.u32 first, first, hb;"
            "div.u32 last_row, last_row, hb;"
            "add.u32 first, first, m0;"
            "add.u32 last_row, last_row, m0;"
            "sub.u32 tmp, run_end, 1;"
            "min.u32 last_row, last_row, tmp;"
            "setp.lt.u32 y, first, run_end;"
            "setp.ge.and.u32 y, last_row, run, y;");
    emit(t, "add.u32 most, last_row, from;"
            "setp.ne.u32 z, scattered, 0;"
            "@z mov.u32 most, end;"
            "selp.b32 most, most, -1, y;"
            "min.s32 most, most, end;"
            "max.s32 most, most, -1;");
    if (s->async) emit(t, "@idle mov.u32 most, -1;");
    wf_attention_count_tiles(t, s, "left", "most");
    wf_attention_count_tiles(t, s, "rest", "end");
    emit(t, "sub.u32 rest, rest, left;");
    close_scope(t);
}

/* ---- products ---------------------------------------------------------------------------------------------- */

static void begin_scores(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Begins S = Q K^T.", "Reads q_desc, k_desc, s*; writes s*.", ".b64 a, b;");
    emit(t, "wgmma.fence.sync.aligned;");
    for (int k = 0; k < s->d / 16; k++) {
        emit(t,
             "add.s64 a, q_desc, %d;"
             "add.s64 b, k_desc, %d;"
             "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {",
             (k / 4 * WF_ATTENTION_ROWS * WF_ATTENTION_PANEL + k % 4 * 32) >> 4,
             (k / 4 * s->keys * WF_ATTENTION_PANEL + k % 4 * 32) >> 4, s->keys);
        wf_ptx_list(t, "s", 0, s->s);
        emit(t, "}, a, b, %d, 1, 1, 0, 0;", k > 0);
    }
    emit(t, "wgmma.commit_group.sync.aligned;");
    close_scope(t);
}

static void add_values(wf_ptx *t, const wf_attention_shape *s, int bank)
{
    open_scope(t, s->chunk ? "Begins O += P V, or where a chain begins, O = P V." : "Begins O += P V.",
               s->chunk ? "Reads folds, v_desc, p*, o*; writes o*." : "Reads v_desc, p*, o*; writes o*.",
               ".b32 tmp; .b64 b; .pred y;");
    if (s->chunk) wf_attention_continues(t);
    emit(t, "wgmma.fence.sync.aligned;");
    for (int k = 0; k < s->keys / 16; k++) {
        emit(t, "add.s64 b, v_desc, %d;"
                "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", k * 16 * WF_ATTENTION_PANEL >> 4, s->d);
        wf_ptx_list(t, "o", 0, s->o);
        emit(t, "}, {");
        wf_ptx_list(t, "p", bank * s->p + 4 * k, 4);
        emit(t, "}, b, %s, 1, 1, 1;", s->chunk && k == 0 ? "y" : "1");
    }
    emit(t, "wgmma.commit_group.sync.aligned;");
    close_scope(t);
}

/* ---- all tiles --------------------------------------------------------------------------------------------- */

#define EMPTY(s) (16 * (s)->stages) /* bytes from a stage's barrier "full of keys" to "empty of keys" */
#define VALUE(s) (8 * (s)->stages)  /* from that of keys to that of values */

static void first_tile(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    begin_scores(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    wf_attention_softmax(t, s);
    if (!s->chunk) wf_attention_rescale(t, s);
    wf_attention_round_weights(t, s, 0);
    if (s->chunk) wf_attention_note_step(t, s);
}

/* The products of this tile's scores and of the values of the one before are begun together. */
static void begin_tile(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_place_stage(t, s, "v");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    begin_scores(t, s);
    wf_attention_await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s, 0);
    emit(t, "wgmma.wait_group.sync.aligned 1;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    wf_attention_softmax(t, s);
}

static void end_tile(wf_ptx *t, wf_attention_shape *s)
{
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "v_bar", EMPTY(s) + VALUE(s));
    if (s->chunk) wf_attention_fold(t, s);
    wf_attention_rescale(t, s);
    wf_attention_round_weights(t, s, 0);
    if (s->chunk) wf_attention_note_step(t, s);
    wf_attention_advance(t, s, "v");
}

static void last_values(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "v");
    wf_attention_await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s, 0);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "v_bar", EMPTY(s) + VALUE(s));
    if (s->chunk) wf_attention_fold(t, s);
    wf_attention_advance(t, s, "v");
}

/* Tiles of which the other warpgroup alone has rows: their barriers want all warps. */
static void skip_tile(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    wf_attention_release(t, "k_bar", EMPTY(s));
    wf_attention_await(t, s, "k_bar", VALUE(s), "k_phase");
    wf_attention_release(t, "k_bar", EMPTY(s) + VALUE(s));
    wf_attention_advance(t, s, "k");
    wf_attention_advance(t, s, "v");
}

static void online_tiles(wf_ptx *t, wf_attention_shape *s)
{
    first_tile(t, s);
    label(t, "TILE");
    wf_attention_advance(t, s, "k");
    emit(t, "sub.u32 left, left, 1;"
            "setp.eq.u32 none, left, 0;"
            "@none bra LAST;");
    wf_attention_next_keys(t, s);
    begin_tile(t, s);
    /* With a branch between them the assembler computes the weights before it waits, not behind. */
    if (s->chunk) emit(t, "setp.eq.u32 none, left, 1;"
                          "@none bra ENDS;");
    end_tile(t, s);
    emit(t, "bra TILE;");
    if (s->chunk) {
        label(t, "ENDS");
        end_tile(t, s);
        wf_attention_advance(t, s, "k");
    }
    label(t, "LAST");
    last_values(t, s);
}

/* ---- all tiles, asynchronous -------------------------------------------------------------------------------- */

static void weigh_given(wf_ptx *t, wf_attention_shape *s, int bank)
{
    wf_attention_softmax_given(t, s);
    wf_attention_round_weights(t, s, bank);
    open_scope(t, "The largest weights of the rows, in pairs.", "Reads p*, largest*; writes largest*.", "");
    for (int i = 0; i < s->p; i++) emit(t, "max.f16x2 largest%d, largest%d, p%d;", i % 4, i % 4, bank * s->p + i);
    close_scope(t);
}

static void given_first_tile(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    begin_scores(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    weigh_given(t, s, 0);
}

/* bank: of the weights of the tile before; checks: whether the warpgroup stops, while its products are under way. */
static void given_next_tile(wf_ptx *t, wf_attention_shape *s, int bank, bool checks)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_place_stage(t, s, "v");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    begin_scores(t, s);
    wf_attention_await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s, bank);
    if (checks) wf_attention_check_stop(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 1;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    weigh_given(t, s, 1 - bank);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "v_bar", EMPTY(s) + VALUE(s));
    wf_attention_advance(t, s, "v");
}

static void given_last_values(wf_ptx *t, wf_attention_shape *s, int bank)
{
    wf_attention_place_stage(t, s, "v");
    wf_attention_await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s, bank);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "v_bar", EMPTY(s) + VALUE(s));
    wf_attention_advance(t, s, "v");
}

/* left: tiles up to the next that checks, without it; later: those from there on. */
static void take_tiles(wf_ptx *t)
{
    emit(t, "min.u32 left, later, %d;"
            "sub.u32 later, later, left;", WF_ATTENTION_STOP_CHECK);
}

/* The tile that checks has a copy of its own, so that the others have no instruction for it. Its place is where the
 * others run out. */
static void given_checking_tile(wf_ptx *t, wf_attention_shape *s)
{
    int bank = WF_ATTENTION_BANKS - 1;
    label(t, "GIVEN_OVER%d", bank);
    emit(t, "setp.eq.u32 over, later, 0;"
            "@over bra GIVEN_LAST;"
            "add.u32 key0, key0, %d;", s->keys);
    take_tiles(t);
    given_next_tile(t, s, bank, true);
    emit(t, "bra GIVEN;");
}

static void given_tiles(wf_ptx *t, wf_attention_shape *s)
{
    open_scope(t, "Multiplies all tiles that the warpgroup has rows for, relative to the given maximum.",
               "Reads left, rest, lane, warp, quad, least, last*, mine, c, bar, q_desc, k_first, v_first, k_stage, "
               "v_stage, k_phase, v_phase, s*, o*, row_max*, sum*, largest*, key0; "
               "writes left, rest, key0, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, v_phase, s*, p*, o*, "
               "sum*, largest*.",
               ".b32 later; .pred over;");
    emit(t, "mov.u32 later, left;");
    take_tiles(t);
    wf_attention_leave_padding(t);
    given_first_tile(t, s);
    label(t, "GIVEN");
    for (int bank = 0; bank < WF_ATTENTION_BANKS; bank++) {
        wf_attention_advance(t, s, "k");
        emit(t, "sub.u32 left, left, 1;"
                "setp.eq.u32 over, left, 0;"
                "@over bra GIVEN_OVER%d;"
                "add.u32 key0, key0, %d;", bank, s->keys);
        given_next_tile(t, s, bank, false);
    }
    emit(t, "bra GIVEN;");
    given_checking_tile(t, s);
    label(t, "GIVEN_OVER0");
    given_last_values(t, s, 0);
    emit(t, "bra GIVEN_END;");
    label(t, "GIVEN_LAST");
    given_last_values(t, s, 1);
    label(t, "GIVEN_END");
    close_scope(t);
}

/* ---- a run     --------------------------------------------------------------------------------------------- */

static void attend_run(wf_ptx *t, wf_attention_shape *s)
{
    open_scope(t, s->chunk ? "Multiplies all chunks of a run." : "Multiplies all tiles of a run.",
               s->chunk ? "Reads left, rest, lane, tid, quad, least, last*, c, bar, q_desc, k_first, v_first, k_stage, "
                          "v_stage, k_phase, v_phase, s*, o*, row_max*, weights*, odd*, part*, "
                          "part_max*, part_sum*, total_max*, sum*; writes left, rest, key0, chunk0, chain, step, "
                          "steps, grows_at, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, "
                          "v_phase, s*, p*, o*, row_max*, weights*, odd*, folds, chain_max*, chain_sum*, part*, "
                          "part_max*, part_sum*, total_max*, sum*."
               : s->async ? "Reads left, rest, lane, warp, quad, least, last*, mine, c, bar, q_desc, k_first, v_first, "
                            "k_stage, v_stage, k_phase, v_phase, s*, o*, row_max*, sum*, again, largest*; "
                            "writes left, rest, key0, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, "
                            "v_phase, s*, p*, o*, row_max*, sum*, largest*."
                          : "Reads left, rest, lane, quad, least, last*, c, bar, q_desc, k_first, v_first, k_stage, "
                            "v_stage, k_phase, v_phase, s*, o*, row_max*, sum*; "
                            "writes left, rest, key0, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, "
                            "v_phase, s*, p*, o*, row_max*, sum*.",
               ".pred none, raised; .f32 alpha<2>;");
    wf_attention_begin_keys(t, s);
    emit(t, "setp.eq.u32 none, left, 0;"
            "@none bra REST;");
    if (s->async) {
        emit(t, "@again bra ONLINE;");
        given_tiles(t, s);
        emit(t, "bra REST;");
        label(t, "ONLINE");
    }
    online_tiles(t, s);
    label(t, "REST");
    emit(t, "setp.eq.u32 none, rest, 0;"
            "@none bra ATTENDED;");
    skip_tile(t, s);
    emit(t, "sub.u32 rest, rest, 1;"
            "bra REST;");
    label(t, "ATTENDED");
    close_scope(t);
}

/* ---- results ----------------------------------------------------------------------------------------------- */

static void store_values(wf_ptx *t, const wf_attention_shape *s, int h, bool half)
{
    const char *sums = s->chunk ? "part" : "o";
    for (int i = 2 * h; i < s->o; i += 4) {
        emit(t, "mul.f32 f0, %s%d, over;"
                "mul.f32 f1, %s%d, over;", sums, i, sums, i + 1);
        if (half) emit(t, "cvt.rn.f16x2.f32 tmp, f1, f0;"
                          "st.global.u32 [to+%d], tmp;", i / 4 * 16);
        else emit(t, "st.global.v2.f32 [to+%d], {f0,f1};", i / 4 * 32);
    }
}

static void write_row(wf_ptx *t, const wf_attention_shape *s, int h)
{
    if (!s->chunk) wf_attention_quad(t, "add", "sum", h, "f0");
    if (s->async) wf_attention_largest_weight(t, h);
    emit(t, "and.b32 tmp, mine, %d;"
            "setp.eq.u32 y, tmp, 0;"
            "@y bra WRITTEN%d;", 1 << h, h);
    if (s->async) {
        wf_attention_judge_row(t, h);
        emit(t, "@y bra WRITTEN%d;", h);
    }
    emit(t, "rcp.rn.f32 over, sum%d;"
            "setp.eq.f32 y, sum%d, 0f00000000;"
            "selp.f32 over, 0f00000000, over, y;", h, h);
    emit(t, "mul.wide.u32 to, token%d, o_stride;"
            "add.u32 tmp, kv_head, in_kv%d;"
            "mul.wide.u32 more, tmp, %d;"
            "add.s64 to, to, more;"
            "shl.b32 tmp, quad, 1;"
            "cvt.u64.u32 more, tmp;"
            "add.s64 to, to, more;"
            "@to_half bra HALF%d;"
            "shl.b64 to, to, 2;"
            "add.s64 to, to, o_at;", h, h, s->d, h);
    store_values(t, s, h, false);
    emit(t, "bra WRITTEN%d;", h);
    label(t, "HALF%d", h);
    emit(t, "shl.b64 to, to, 1;"
            "add.s64 to, to, o_at;");
    store_values(t, s, h, true);
    label(t, "WRITTEN%d", h);
}

static void write_rows(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, s->chunk ? "Writes the rows of the run: total / sum." : "Writes the rows of the run: O / sum.",
               s->chunk ? "Reads sum*, mine, token*, o_stride, kv_head, in_kv*, quad, tid, to_half, o_at; writes part*."
               : s->async
                   ? "Reads sum*, mine, token*, o_stride, kv_head, in_kv*, quad, to_half, o_at, o*, largest*, again, "
                     "redo, last*, smallest; writes sum*, largest*, redo."
                   : "Reads sum*, mine, token*, o_stride, kv_head, in_kv*, quad, to_half, o_at, o*; writes sum*.",
               ".b32 tmp, other; .f32 f<2>, over; .b64 to, more; .pred y, z;");
    if (s->chunk) wf_attention_load_total(t, s);
    for (int h = 0; h < 2; h++) write_row(t, s, h);
    close_scope(t);
}

void wf_attention_multiply_run(wf_ptx *t, wf_attention_shape *s)
{
    clear_sums(t, s);
    place_run(t, s);
    load_q(t, s);
    attend_run(t, s);
    write_rows(t, s);
}
