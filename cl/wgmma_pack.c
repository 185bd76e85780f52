/* wgmma_pack: X as the slots of wgmma.c want it, for large products.
 *
 * Many tiles read the same X, a few bytes of a row at a time, which costs a seventh of the time of large products.
 * So the work-groups first copy it to scratch memory as the slots want it, and then fetch each slot as one piece by the
 * copy engine, which leaves room for larger steps. They draw parts to copy until none is left, and wait for those that
 * others still copy: whoever is waited for runs, and waits for nobody. More local memory than the device says it has for
 * a work-group is given to a program in PTX, up to 227 KiB.
 *
 * Source: PTX ISA 8.0, "cp.async.bulk", "mbarrier", "fence.proxy".
 */
#include "cl/wgmma.h"

#define emit      wf_ptx_emit
#define PART     2 /* slots of neighbouring steps that a work-group packs at once */

void wf_wgmma_declare_pack(wf_ptx *t)
{
    emit(t, " .shared .align 8 .b64 full[%d];\n .shared .align 8 .b32 drawn[2];\n"
           " .reg .b32 bars, turns, ticket, mine;\n .reg .b64 parts;\n .reg .pred lead;\n", WF_WGMMA_STAGES);
}

int wf_wgmma_pack_registers(const wf_wgmma *s)
{
    return s->copies * PART * 4;
}

/* Work-item tid copies chunk tid % chunks of rows tid / chunks + ... of part i, to chunk ^ row % 8 of its slots. */
static void place_part(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " div.u32 m0, i, last; rem.u32 kt, i, last; mul.lo.u32 kt, kt, %d; div.u32 row, tid, %d; and.b32 chunk, tid, %d;\n"
           " mad.lo.u32 tmp, m0, steps, kt; mul.wide.u32 from, tmp, %d; mul.wide.u32 wide, row, %d; add.s64 from, from, wide;\n"
           " and.b32 tmp, row, 7; xor.b32 tmp, tmp, chunk; mul.wide.u32 wide, tmp, 16; add.s64 from, from, wide;\n"
           " add.s64 from, from, parts; add.s64 from, from, %u; mad.lo.u32 m0, m0, %d, row;\n",
        PART, WF_WGMMA_CHUNKS, WF_WGMMA_CHUNKS - 1, s->stage_bytes, WF_WGMMA_ROW_BYTES, WF_CL_ZEROED, s->tile_m);
    emit(t, " mul.wide.u32 off, m0, stride; mul.wide.u32 wide, kt, %d; add.s64 off, off, wide;\n"
           " mul.wide.u32 wide, chunk, 8; add.s64 off, off, wide; shl.b64 off, off, 1; add.s64 off, off, x;\n",
        WF_WGMMA_PRODUCTS * 16);
}

/* Chunk c of slot j of the part. */
static int register_of(int c, int j)
{
    return (c * PART + j) * 4;
}

/* All loads first, since each takes as long as all. Rows past the last are zeros; past the last step there is no slot. */
static void copy_part(wf_ptx *t, const wf_wgmma *s)
{
    int rows = s->threads / WF_WGMMA_CHUNKS;
    for (int c = 0; c < s->copies; c++) {
        for (int j = 0; j < PART; j++) {
            int a = register_of(c, j);
            emit(t, " mov.b32 a%d, 0; mov.b32 a%d, 0; mov.b32 a%d, 0; mov.b32 a%d, 0; add.u32 tmp, kt, %d; setp.lt.u32 q, tmp, steps;\n"
                   " add.u32 tmp, m0, %d; setp.lt.and.u32 p, tmp, m, q; @p ld.global.v4.u32 {a%d,a%d,a%d,a%d}, [off+%d];\n",
                a, a + 1, a + 2, a + 3, j, c * rows, a, a + 1, a + 2, a + 3, j * WF_WGMMA_ROW_BYTES);
        }
        emit(t, " add.s64 off, off, skip;\n");
    }
    for (int c = 0; c < s->copies; c++)
        for (int j = 0; j < PART; j++) {
            int a = register_of(c, j);
            emit(t, " add.u32 tmp, kt, %d; setp.lt.u32 q, tmp, steps; add.u32 tmp, row, %d; setp.lt.and.u32 p, tmp, %d, q;\n"
                   " @p st.global.v4.u32 [from+%d], {a%d,a%d,a%d,a%d};\n",
                j, c * rows, s->tile_m, j * s->stage_bytes + c * rows * WF_WGMMA_ROW_BYTES, a, a + 1, a + 2, a + 3);
        }
}

/* The next number is drawn while a slot is copied; no work-item overtakes another by more than a number. */
static void draw_parts(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " mov.u32 tmp2, drawn; mov.u32 mine, 0; @lead atom.add.relaxed.gpu.global.u32 ticket, [parts], 1;\n"
           "DRAW: @lead st.shared.u32 [tmp2], ticket; bar.sync 0; ld.shared.u32 i, [tmp2]; xor.b32 tmp2, tmp2, 4;\n"
           " setp.ge.u32 p, i, tile; @p bra DRAWN; @lead atom.add.relaxed.gpu.global.u32 ticket, [parts], 1;\n");
    place_part(t, s);
    copy_part(t, s);
    emit(t, " add.u32 mine, mine, 1; bra DRAW;\nDRAWN:\n");
}

/* Until the whole of X lies in scratch memory, as [tile of tokens][step] slots. The first zeros count the parts drawn, the
 * parts packed, and the work-groups gone. What ordinary stores wrote, the copy engine
 * reads only past a proxy fence. */
void wf_wgmma_pack(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " mov.u32 bars, full; mov.u32 turns, 0; setp.eq.u32 lead, tid, 0; @!lead bra READY;\n");
    for (int i = 0; i < WF_WGMMA_STAGES; i++) emit(t, " mbarrier.init.shared.b64 [bars+%d], 1;", i * 8);
    emit(t, " fence.proxy.async.shared::cta;\nREADY: ld.param.u64 parts, [scratch];\n"
           " shr.u32 steps, k, %d;\n"
           " add.u32 last, steps, %d; div.u32 last, last, %d; mul.lo.u32 tile, last, m_tiles;\n",
        WF_WGMMA_LOG2_STEP, PART - 1, PART);
    draw_parts(t, s);
    emit(t, " fence.proxy.async; membar.gl; bar.sync 0; @!lead bra PACKED; red.release.gpu.global.add.u32 [parts+4], mine;\n"
           "WAIT: ld.acquire.gpu.global.u32 tmp, [parts+4]; setp.lt.u32 p, tmp, tile; @p bra WAIT;\n fence.proxy.async;\nPACKED:\n");
}

/* The first slot of the unit. */
void wf_wgmma_place_packed(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, " div.u32 tmp, m0, %d; shr.u32 tmp2, k, %d; mad.lo.u32 tmp, tmp, tmp2, at; mul.wide.u32 from, tmp, %d;\n"
           " add.s64 from, from, parts; add.s64 from, from, %u;\n",
        s->tile_m, WF_WGMMA_LOG2_STEP, s->stage_bytes, WF_CL_ZEROED);
}

void wf_wgmma_fetch_packed(wf_ptx *t, const wf_wgmma *s, int slot)
{
    emit(t, " mov.u32 tmp, part; add.u32 tmp, tmp, %d; @lead mbarrier.arrive.expect_tx.shared.b64 _, [bars+%d], %d;\n"
           " @lead cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tmp], [from], %d, [bars+%d]; add.s64 from, from, %d;\n",
        slot * s->stage_bytes, slot * 8, s->stage_bytes, s->stage_bytes, slot * 8, s->stage_bytes);
}

/* turns: one bit a slot, whether it is filled for an odd time. */
void wf_wgmma_await_packed(wf_ptx *t, int slot, int u)
{
    emit(t, " bfe.u32 tmp, turns, %d, 1;\nFULL%d: mbarrier.try_wait.parity.shared.b64 q, [bars+%d], tmp; @!q bra FULL%d; xor.b32 turns, turns, %d;\n",
        slot, u, slot * 8, u, 1 << slot);
}

/* The last work-group that goes leaves the counters as it found them. */
void wf_wgmma_exit_packed(wf_ptx *t)
{
    emit(t, " @!lead bra GONE; atom.add.acq_rel.gpu.global.u32 tmp, [parts+8], 1; sub.u32 grid, grid, 1; setp.ne.u32 p, tmp, grid; @p bra GONE;\n"
           " mov.u32 tmp, 0; st.relaxed.gpu.global.u32 [parts], tmp; st.relaxed.gpu.global.u32 [parts+4], tmp; st.relaxed.gpu.global.u32 [parts+8], tmp;\nGONE:\n");
}
