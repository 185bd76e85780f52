/* wgmma_attention_tiles: the products of a run's tiles, one tile after another, with the softmax between them (wgmma_attention.c).
 *
 * Synchronous: the products of S = Q K^T of a tile and of O += P V of the tile before are begun together, and accumulators are rescaled when
 * the second is over. Asynchronous: nothing but these products touches the accumulators, and weights have two banks of registers, so that
 * those of a tile are ready before the values of the one before are added.
 */
#include "cl/wgmma_attention.h"
#include "cl/ptx_short.h"

/* ---- products ---------------------------------------------------------------------------------------------- */

static void scores(wf_ptx *t, const wf_attention_shape *s)
{
    open_scope(t, "Begins S = Q K^T.", "Reads q_desc, k_desc, s*; writes s*.", ".b64 a, b;");
    emit(t, "wgmma.fence.sync.aligned;");
    for (int k = 0; k < s->d / 16; k++) {
        emit(t, "add.s64 a, q_desc, %d;"
                "add.s64 b, k_desc, %d;"
                "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {", (k / 4 * WF_ATTENTION_ROWS * WF_ATTENTION_PANEL + k % 4 * 32) >> 4, (k / 4 * s->keys * WF_ATTENTION_PANEL + k % 4 * 32) >> 4, s->keys);
        wf_ptx_list(t, "s", 0, s->s);
        emit(t, "}, a, b, %d, 1, 1, 0, 0;", k > 0);
    }
    emit(t, "wgmma.commit_group.sync.aligned;");
    close_scope(t);
}

static void add_values(wf_ptx *t, const wf_attention_shape *s, int bank)
{
    open_scope(t, s->chunk ? "Begins O += P V, or where a chain begins, O = P V." : "Begins O += P V.",
               s->chunk ? "Reads folds, v_desc, p*, o*; writes o*." : "Reads v_desc, p*, o*; writes o*.", ".b32 tmp; .b64 b; .pred y;");
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
    scores(t, s);
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
    scores(t, s);
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
void wf_attention_skip_tile(wf_ptx *t, wf_attention_shape *s)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    wf_attention_release(t, "k_bar", EMPTY(s));
    wf_attention_await(t, s, "k_bar", VALUE(s), "k_phase");
    wf_attention_release(t, "k_bar", EMPTY(s) + VALUE(s));
    wf_attention_advance(t, s, "k");
    wf_attention_advance(t, s, "v");
}

void wf_attention_online_tiles(wf_ptx *t, wf_attention_shape *s)
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

static void weigh(wf_ptx *t, wf_attention_shape *s, int bank)
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
    scores(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 0;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    weigh(t, s, 0);
}

/* bank: of the weights of the tile before; checks: whether the warpgroup stops, while its products are under way. */
static void given_next_tile(wf_ptx *t, wf_attention_shape *s, int bank, bool checks)
{
    wf_attention_place_stage(t, s, "k");
    wf_attention_place_stage(t, s, "v");
    wf_attention_await(t, s, "k_bar", 0, "k_phase");
    scores(t, s);
    wf_attention_await(t, s, "v_bar", VALUE(s), "v_phase");
    add_values(t, s, bank);
    if (checks) wf_attention_check_stop(t, s);
    emit(t, "wgmma.wait_group.sync.aligned 1;");
    wf_attention_release(t, "k_bar", EMPTY(s));
    weigh(t, s, 1 - bank);
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

/* The tile that checks has a copy of its own, so that the others have no instruction for it. Its place is where the others run out. */
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

void wf_attention_given_tiles(wf_ptx *t, wf_attention_shape *s)
{
    open_scope(t, "Multiplies all tiles that the warpgroup has rows for, relative to the given maximum.",
               "Reads left, rest, lane, warp, quad, least, last*, mine, c, bar, q_desc, k_first, v_first, k_stage, v_stage, k_phase, v_phase, s*, o*, row_max*, sum*, largest*, key0; "
               "writes left, rest, key0, k_bar, v_bar, k_desc, v_desc, k_stage, v_stage, k_phase, v_phase, s*, p*, o*, sum*, largest*.", ".b32 later; .pred over;");
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
