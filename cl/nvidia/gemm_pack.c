/* gemm_pack: X in the layout of gemm.c's stages, for large products.
 *
 * Many tiles read the same X, a few bytes of a row at a time, which costs a seventh of the time of large products.
 * So the work-groups first copy it to scratch memory in the layout of the stages, and then fetch each stage as one
 * bulk copy, which leaves room for larger steps. They claim blocks to copy from an atomic counter until none is left,
 * and wait for those that others still copy: whoever is waited for runs, and waits for nobody. More shared memory than
 * the device reports for a work-group is given to a program in PTX, up to 227 KiB.
 *
 * Source: PTX ISA 8.0, "cp.async.bulk", "mbarrier", "fence.proxy". */
#include "cl/nvidia/gemm.h"

#define BLOCK_STAGES 2 /* stages of neighbouring steps that a work-group packs at once: a block */

void wf_wgmma_declare_pack(wf_ptx *t)
{
    emit(t, ".shared .align 8 .b64 full[%d]; // a barrier for each stage\n"
            ".shared .align 8 .b32 claimed[2];"
            ".reg .b32 full_bars, phases;"
            ".reg .b64 scratch;"
            ".reg .pred lead;", WF_WGMMA_STAGES);
}

int wf_wgmma_pack_registers(const wf_wgmma *s)
{
    return s->copies * BLOCK_STAGES * 4;
}

/* Work-item tid copies chunk tid % chunks of rows tid / chunks + ... of the block, to chunk ^ row % 8 of its stages. */
static void place_block(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Where this work-item reads and writes the claimed block.",
               "Reads block, per_tile, steps, tid, scratch, stride, x; writes m_row, kt, row, to, from.",
               ".b32 chunk, tmp; .b64 more;");
    emit(t,
         "div.u32 m_row, block, per_tile;"
         "rem.u32 kt, block, per_tile;"
         "mul.lo.u32 kt, kt, %d;"
         "div.u32 row, tid, %d;"
         "and.b32 chunk, tid, %d;"
         "mad.lo.u32 tmp, m_row, steps, kt;"
         "mul.wide.u32 to, tmp, %d;"
         "mul.wide.u32 more, row, %d;"
         "add.s64 to, to, more;"
         "and.b32 tmp, row, 7;"
         "xor.b32 tmp, tmp, chunk;"
         "mul.wide.u32 more, tmp, 16;"
         "add.s64 to, to, more;"
         "add.s64 to, to, scratch;"
         "add.s64 to, to, %u;"
         "mad.lo.u32 m_row, m_row, %d, row;",
         BLOCK_STAGES, WF_WGMMA_CHUNKS, WF_WGMMA_CHUNKS - 1, s->stage_bytes, WF_WGMMA_ROW_BYTES, WF_CL_ZEROED,
         s->tile_m);
    emit(t, "mul.wide.u32 from, m_row, stride;"
            "mul.wide.u32 more, kt, %d;"
            "add.s64 from, from, more;"
            "mul.wide.u32 more, chunk, 8;"
            "add.s64 from, from, more;"
            "shl.b64 from, from, 1;"
            "add.s64 from, from, x;", WF_WGMMA_PRODUCTS * 16);
    close_scope(t);
}

/* The first register of chunk c of stage j of the block. */
static int register_of(int c, int j)
{
    return (c * BLOCK_STAGES + j) * 4;
}

static void load_chunk(wf_ptx *t, const wf_wgmma *s, int c, int j)
{
    int a = register_of(c, j), rows = s->threads / WF_WGMMA_CHUNKS;
    for (int v = 0; v < 4; v++) emit(t, "mov.b32 a%d, 0;", a + v);
    emit(t, "add.u32 tmp, kt, %d;"
            "setp.lt.u32 in_k, tmp, steps;"
            "add.u32 tmp, m_row, %d;"
            "setp.lt.and.u32 there, tmp, m, in_k;"
            "@there ld.global.v4.u32 {", j, c * rows);
    wf_ptx_list(t, "a", a, 4);
    emit(t, "}, [from+%d];", j * WF_WGMMA_ROW_BYTES);
}

static void store_chunk(wf_ptx *t, const wf_wgmma *s, int c, int j)
{
    int rows = s->threads / WF_WGMMA_CHUNKS;
    emit(t,
         "add.u32 tmp, kt, %d;"
         "setp.lt.u32 in_k, tmp, steps;"
         "add.u32 tmp, row, %d;"
         "setp.lt.and.u32 there, tmp, %d, in_k;"
         "@there st.global.v4.u32 [to+%d], {",
         j, c * rows, s->tile_m, j * s->stage_bytes + c * rows * WF_WGMMA_ROW_BYTES);
    wf_ptx_list(t, "a", register_of(c, j), 4);
    emit(t, "};");
}

/* All loads are issued before the first store waits for one of them. */
static void copy_block(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Copies the block. Rows past the last become zeros; past the last step there is no stage.",
               "Reads kt, steps, m_row, m, row, x_skip, to, from; writes a*, from.", ".b32 tmp; .pred in_k, there;");
    for (int c = 0; c < s->copies; c++) {
        for (int j = 0; j < BLOCK_STAGES; j++) load_chunk(t, s, c, j);
        emit(t, "add.s64 from, from, x_skip;");
    }
    for (int c = 0; c < s->copies; c++)
        for (int j = 0; j < BLOCK_STAGES; j++) store_chunk(t, s, c, j);
    close_scope(t);
}

/* The next block is claimed while one is copied; no work-item overtakes another by more than a block. */
static void claim_blocks(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Claims and copies blocks until none is left.",
               "Reads lead, scratch, n_blocks, per_tile, steps, tid, stride, x, m, x_skip; writes packed, a*.",
               ".b32 at, claim, block, m_row, kt, row; .b64 to, from; .pred none;");
    emit(t, "mov.u32 at, claimed;"
            "mov.u32 packed, 0;"
            "@lead atom.add.relaxed.gpu.global.u32 claim, [scratch], 1;");
    label(t, "CLAIM");
    emit(t, "@lead st.shared.u32 [at], claim;"
            "bar.sync 0;"
            "ld.shared.u32 block, [at];"
            "xor.b32 at, at, 4; // two slots in turn\n"
            "setp.ge.u32 none, block, n_blocks;"
            "@none bra CLAIMED;"
            "@lead atom.add.relaxed.gpu.global.u32 claim, [scratch], 1;");
    place_block(t, s);
    copy_block(t, s);
    emit(t, "add.u32 packed, packed, 1;"
            "bra CLAIM;");
    label(t, "CLAIMED");
    close_scope(t);
}

static void begin_pack(wf_ptx *t)
{
    emit(t, "mov.u32 full_bars, full;"
            "mov.u32 phases, 0;"
            "setp.eq.u32 lead, tid, 0;"
            "@!lead bra READY;");
    for (int i = 0; i < WF_WGMMA_STAGES; i++) emit(t, "mbarrier.init.shared.b64 [full_bars+%d], 1;", i * 8);
    emit(t, "fence.proxy.async.shared::cta;");
    label(t, "READY");
    emit(t, "ld.param.u64 scratch, [scratch_base];"
            "shr.u32 steps, k, %d;"
            "add.u32 per_tile, steps, %d;"
            "div.u32 per_tile, per_tile, %d;"
            "mul.lo.u32 n_blocks, per_tile, m_tiles;", WF_WGMMA_LOG2_STEP, BLOCK_STAGES - 1, BLOCK_STAGES);
}

/* Until the whole of X lies in scratch memory, as [tile of X][step] stages. The first zeroed words count the blocks
 * claimed, the blocks packed, and the work-groups that have exited. What ordinary stores wrote, the bulk copy reads
 * only past a proxy fence. */
void wf_wgmma_pack(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Packs X into scratch memory, with all other work-groups.",
               "Reads tid, k, m_tiles, stride, x, m, x_skip; writes full_bars, phases, lead, scratch, a*.",
               ".b32 steps, per_tile, n_blocks, packed, done; .pred early;");
    begin_pack(t);
    claim_blocks(t, s);
    emit(t, "fence.proxy.async;"
            "membar.gl;"
            "bar.sync 0;"
            "@!lead bra PACKED;"
            "red.release.gpu.global.add.u32 [scratch+4], packed;");
    label(t, "WAIT");
    emit(t, "ld.acquire.gpu.global.u32 done, [scratch+4];"
            "setp.lt.u32 early, done, n_blocks;"
            "@early bra WAIT;"
            "fence.proxy.async;");
    label(t, "PACKED");
    close_scope(t);
}

void wf_wgmma_place_packed(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "The unit's first stage of packed X.", "Reads m0, k, first_step, scratch; writes x_from.",
               ".b32 stage, steps;");
    emit(t, "div.u32 stage, m0, %d;"
            "shr.u32 steps, k, %d;"
            "mad.lo.u32 stage, stage, steps, first_step;"
            "mul.wide.u32 x_from, stage, %d;"
            "add.s64 x_from, x_from, scratch;"
            "add.s64 x_from, x_from, %u;",
         s->tile_m, WF_WGMMA_LOG2_STEP, s->stage_bytes, WF_CL_ZEROED);
    close_scope(t);
}

void wf_wgmma_fetch_packed(wf_ptx *t, const wf_wgmma *s, int stage)
{
    open_scope(t, "Begins the bulk copy of the next stage of X.", "Reads lead, full_bars, x_from; writes x_from.",
               ".b32 to;");
    emit(t,
         "mov.u32 to, smem;"
         "add.u32 to, to, %d;"
         "@lead mbarrier.arrive.expect_tx.shared.b64 _, [full_bars+%d], %d;"
         "@lead cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [x_from], %d, [full_bars+%d];"
         "add.s64 x_from, x_from, %d;",
         stage * s->stage_bytes, stage * 8, s->stage_bytes, s->stage_bytes, stage * 8, s->stage_bytes);
    close_scope(t);
}

void wf_wgmma_await_packed(wf_ptx *t, int stage, int u)
{
    open_scope(t, "Waits until the stage is filled; a phase bit for each stage.",
               "Reads phases, full_bars; writes phases.", ".b32 phase; .pred filled;");
    emit(t, "bfe.u32 phase, phases, %d, 1;", stage);
    label(t, "FULL%d", u);
    emit(t, "mbarrier.try_wait.parity.shared.b64 filled, [full_bars+%d], phase;"
            "@!filled bra FULL%d;"
            "xor.b32 phases, phases, %d;", stage * 8, u, 1 << stage);
    close_scope(t);
}

void wf_wgmma_exit_packed(wf_ptx *t)
{
    open_scope(t, "The last work-group that exits sets the counters to zero again.",
               "Reads lead, scratch, grid; writes grid.", ".b32 gone; .pred p;");
    emit(t, "@!lead bra GONE;"
            "atom.add.acq_rel.gpu.global.u32 gone, [scratch+8], 1;"
            "sub.u32 grid, grid, 1;"
            "setp.ne.u32 p, gone, grid;"
            "@p bra GONE;"
            "mov.u32 gone, 0;"
            "st.relaxed.gpu.global.u32 [scratch], gone;"
            "st.relaxed.gpu.global.u32 [scratch+4], gone;"
            "st.relaxed.gpu.global.u32 [scratch+8], gone;");
    label(t, "GONE");
    close_scope(t);
}
