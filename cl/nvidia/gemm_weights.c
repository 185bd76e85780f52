/* gemm_weights: W on its way from device memory to operand A of gemm.c, in registers.
 *
 *   F16        memory --> a*
 *   quantised  memory --> q*, as it lies --> a*, one step ahead of its products, while those of the step before run
 *
 * A work-item reads its own fragments of a tile (kernels/fragment_bytes.clh). Loads come in batches of steps, of which
 * two are in registers:
 * one is used, one is on its way. How quantised weights become F16 is what kernels/fragments.clh does, which says
 * why. */
#include "cl/kernels/fragment_bytes.clh"
#include "cl/nvidia/gemm.h"

#include <stdio.h>

#define AHEAD_L2 4 /* steps that W is fetched into L2 ahead of its loads */

static bool is_f16(const wf_wgmma *s)
{
    return s->w.bits == 16;
}

/* Bytes of 16 rows of W, a step. */
static int step_bytes(const wf_wgmma *s)
{
    return (int)wf_cl_fragment_bytes(&s->w) * (is_f16(s) ? WF_WGMMA_PRODUCTS : 1);
}

static int w_planes(const wf_wgmma *s)
{
    return FRAGMENT_WORDS(s->w.bits);
}

static int w_scales(const wf_wgmma *s)
{
    return FRAGMENT_SCALES(s->w.bits, s->w.group, s->w.min);
}

int wf_wgmma_held_registers(const wf_wgmma *s)
{
    return is_f16(s) ? 0 : 2 * s->batch * (w_planes(s) + w_scales(s));
}

/* Of two steps that are multiplied or expanded; where nothing is expanded, of two batches. */
int wf_wgmma_operand_registers(const wf_wgmma *s)
{
    return 2 * (is_f16(s) ? s->batch : 1) * WF_WGMMA_PRODUCTS * 4;
}

int wf_wgmma_fragment(const wf_wgmma *s, int u, int product)
{
    int sets = is_f16(s) ? 2 * s->batch : 2;
    return (u % sets * WF_WGMMA_PRODUCTS + product) * 4;
}

/* Number of the first register that holds unrolled step u as it lies in memory. */
static int held_register(const wf_wgmma *s, int u)
{
    return u % (2 * s->batch) * (w_planes(s) + w_scales(s));
}

void wf_wgmma_declare_weights(wf_ptx *t, const wf_wgmma *s)
{
    emit(t, ".reg .b64 w_from;"
            ".reg .pred prefetches;");
    if (is_f16(s)) return;
    emit(t, ".reg .b64 high_from, scale_from;"
            ".reg .b32 q<%d>;", wf_wgmma_held_registers(s));
}

/* ---- where ------------------------------------------------------------------------------------------------------ */

/* From a work-item's place in a tile to its extra planes and its scales. */
static void place_parts(wf_ptx *t, const wf_wgmma *s)
{
    open_scope(t, "Where the extra planes and the scales of W are.",
               "Reads w_from, lane; writes high_from, scale_from.", ".b32 tmp; .b64 more;");
    emit(t, "mul.wide.s32 more, lane, %d;"
            "add.s64 high_from, w_from, more;"
            "add.s64 high_from, high_from, 512;"
            "mul.wide.s32 more, lane, -16;"
            "add.s64 scale_from, w_from, more;"
            "shr.u32 tmp, lane, 2;"
            "mul.wide.u32 more, tmp, %d;"
            "add.s64 scale_from, scale_from, more;"
            "add.s64 scale_from, scale_from, %d;", (w_planes(s) - 4) * 4 - 16, w_scales(s) * 4, w_planes(s) * 128);
    close_scope(t);
}

/* Past the last rows: the last block again, whose accumulators are thrown away. With SiLU the first half of the warps
 * has blocks of gate, the other half the same blocks of up. */
void wf_wgmma_place_w(wf_ptx *t, const wf_wgmma *s)
{
    int half = s->warpgroups * 2;
    open_scope(t, "Where this work-item reads W.",
               "Reads n, k, lane, m0, n0, warpgroup, warp, first_step, w; writes prefetches, w_from.",
               ".b32 last, row, block, tiles; .b64 off, more; .pred up;");
    emit(t, "add.u32 last, n, 15;"
            "shr.u32 last, last, 4;"
            "sub.u32 last, last, 1;"
            "setp.eq.u32 prefetches, lane, 0;"
            "setp.eq.and.u32 prefetches, m0, 0, prefetches; // tiles that differ in X only share W\n"
            "mad.lo.u32 row, warpgroup, 4, warp;"
            "shr.u32 block, n0, 4;");
    if (s->silu) emit(t, "setp.ge.u32 up, row, %d;"
                         "@up sub.u32 row, row, %d;", half, half);
    emit(t, "add.u32 block, block, row;"
            "min.u32 block, block, last;");
    if (s->silu) emit(t, "@up add.u32 block, block, last;"
                         "@up add.u32 block, block, 1;");
    emit(t, "shr.u32 tiles, k, %d;"
            "mul.wide.u32 off, block, tiles;"
            "cvt.u64.u32 more, first_step;"
            "add.s64 off, off, more;"
            "mul.lo.s64 off, off, %d;"
            "mul.wide.u32 more, lane, 16;"
            "add.s64 off, off, more;"
            "add.s64 w_from, off, w;", WF_WGMMA_LOG2_STEP, step_bytes(s));
    close_scope(t);
    if (!is_f16(s)) place_parts(t, s);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* The tiles that read the same W do so at the same time: without this all of them wait for memory. Where two
 * work-groups are resident they hide each other's latency, and this only costs. */
static void prefetch_w(wf_ptx *t, const wf_wgmma *s, int ahead)
{
    emit(t, "add.u32 step, kt, %d;"
            "setp.lt.and.u32 fetch, step, steps, prefetches;"
            "@fetch cp.async.bulk.prefetch.L2.global [w_from+%d], %d;",
         ahead + AHEAD_L2 + s->batch - 1, (AHEAD_L2 - s->batch) * step_bytes(s), s->batch * step_bytes(s));
}

static void load_words(wf_ptx *t, const char *stem, int first, int words, const char *from, int at)
{
    static const char *const vector[] = {"", "", ".v2", "", ".v4"};
    for (int i = 0; i < words; i += 4, at += 16) {
        int n = WF_MIN(words - i, 4);
        emit(t, "@there ld.global.nc.L1::no_allocate%s.u32 %s", vector[n], n > 1 ? "{" : "");
        wf_ptx_list(t, stem, first + i, n);
        emit(t, "%s, [%s+%d];", n > 1 ? "}" : "", from, at);
    }
}

static void load_step(wf_ptx *t, const wf_wgmma *s, int u, int i)
{
    if (is_f16(s)) {
        for (int product = 0; product < WF_WGMMA_PRODUCTS; product++)
            load_words(t, "a", wf_wgmma_fragment(s, u, product), 4, "w_from",
                       i * step_bytes(s) + product * step_bytes(s) / WF_WGMMA_PRODUCTS);
        return;
    }
    load_words(t, "q", held_register(s, u), 4, "w_from", i * step_bytes(s));
    load_words(t, "q", held_register(s, u) + 4, w_planes(s) - 4, "high_from", i * step_bytes(s));
    load_words(t, "q", held_register(s, u) + w_planes(s), w_scales(s), "scale_from", i * step_bytes(s));
}

/* All at once: the assembler has one scoreboard for them all, so that a wait for one load is a wait for every load
 * issued since (measured: 575 against 645 TFLOP/s). */
void wf_wgmma_load_w(wf_ptx *t, const wf_wgmma *s, int u, int ahead)
{
    open_scope_for(t, "Loads W for the next batch of steps, and prefetches the one after into L2.",
                   ".b32 step; .pred there, fetch;", "Reads kt, steps, w_from%s%s; writes %s, w_from%s.",
                   is_f16(s) ? "" : ", high_from, scale_from", s->resident > 1 ? "" : ", prefetches",
                   is_f16(s) ? "a*" : "q*", is_f16(s) ? "" : ", high_from, scale_from");
    for (int i = 0; i < s->batch; i++) {
        emit(t, "add.u32 step, kt, %d;"
                "setp.lt.u32 there, step, steps;", ahead + i);
        load_step(t, s, u + i, i);
    }
    emit(t, "add.s64 w_from, w_from, %d;", s->batch * step_bytes(s));
    if (!is_f16(s)) emit(t, "add.s64 high_from, high_from, %d;"
                            "add.s64 scale_from, scale_from, %d;", s->batch * step_bytes(s), s->batch * step_bytes(s));
    if (s->resident == 1) prefetch_w(t, s, ahead);
    close_scope(t);
}

/* ---- quantised weights to F16 ------------------------------------------------------------------------------------ */

#define F16_1024 0x6400 /* whose last bit is 1; two of it are a pair */
#define PAIR(x)  ((unsigned)(x) * 0x10001u)

/* pair = 1024 + q, or 1024 + 16 q, of what lies in `word` under `mask`. */
static void take_bits(wf_ptx *t, int word, int right, unsigned mask, const char *with)
{
    if (right > 0) emit(t, "shr.u32 rest, q%d, %d;", word, right);
    if (right < 0) emit(t, "shl.b32 rest, q%d, %d;", word, -right);
    if (right) emit(t, "lop3.b32 pair, rest, 0x%x, %s, 0xEA;", mask, with);
    else emit(t, "lop3.b32 pair, q%d, 0x%x, %s, 0xEA;", word, mask, with);
}

/* The bits above the low four of pair p join them. */
static void join_high_bits(wf_ptx *t, const wf_wgmma *s, int from, int product, int p)
{
    int each = s->w.bits - 4, per_word = 4 / each, at = p / 2 * 8 + (product % per_word * 2 + p % 2) * each;
    take_bits(t, from + 4 + product / per_word, at - 4, PAIR(((1 << each) - 1) << 4), "pair");
}

/* The table of codes, and which byte is of which place where none is of the upper eight. */
static void load_table(wf_ptx *t, const wf_wgmma *s)
{
    for (int i = 0; i < 4; i++) emit(t, "mov.b32 value%d, 0x%x;", i, FRAGMENT_TABLE(s->w.codes, i));
    emit(t, "mov.b32 places, 0x32103210;");
}

/* `to` = what the four codes in the lower half of `at` stand for, of which `upper` says whether they are of the upper
 * eight. */
static void look_up(wf_ptx *t, const char *to)
{
    emit(t, "prmt.b32 %s, value0, value1, at;"
            "prmt.b32 rest, value2, value3, at;"
            "prmt.b32 %s, %s, rest, upper;",
         to, to, to);
}

/* looked0 and looked1 = what the codes of a product stand for: of pairs 0 and 1, and of 2 and 3, the first weights,
 * then the second ones. */
static void look_up_product(wf_ptx *t, int word)
{
    emit(t, "and.b32 at, q%d, 0x77777777;"
            "shr.u32 upper, q%d, 1;"
            "lop3.b32 upper, upper, 0x44444444, places, 0xEA;",
         word, word);
    look_up(t, "first");
    emit(t, "shr.u32 at, at, 16;"
            "shr.u32 upper, upper, 16;");
    look_up(t, "second");
    emit(t, "prmt.b32 looked0, first, second, 0x5140;"
            "prmt.b32 looked1, first, second, 0x7362;");
}

/* pair = q - zero of pair p of a product. */
static void write_quants(wf_ptx *t, const wf_wgmma *s, int from, int product, int p)
{
    int bits = s->w.bits, low = from + product;
    if (bits == 8) {
        emit(t, "prmt.b32 pair, q%d, magic, 0x%x;", from + product * 2 + p % 2, p / 2 ? 0x7371 : 0x7270);
    } else if (s->w.codes) {
        emit(t, "prmt.b32 pair, looked%d, magic, 0x%x;", p / 2, p % 2 ? 0x7372 : 0x7170);
    } else if (bits == 4 && p % 2) { /* 1024 + 16 q: by 1/16, less 64 */
        take_bits(t, low, p / 2 * 8, PAIR(0xf0), "magic");
        emit(t, "fma.rn.f16x2 pair, pair, sixteenth, lessen64;");
        return;
    } else {
        take_bits(t, low, p * 4, PAIR(0xf), "magic");
        if (bits > 4) join_high_bits(t, s, from, product, p);
    }
    emit(t, "sub.rn.f16x2 pair, pair, lessen;");
}

/* Register that has the scale of a pair's row and group twice; its minimum has the one behind. */
static int scale_of(const wf_wgmma *s, int product, int p)
{
    return (p % 2 * (64 / s->w.group) + product * 16 / s->w.group) * (1 + s->w.min);
}

/* Every scale, and every minimum, twice in a register of its own. */
static void spread_scales(wf_ptx *t, const wf_wgmma *s, int from)
{
    for (int i = 0; i < w_scales(s) * 2; i++)
        emit(t, "prmt.b32 s%d, q%d, q%d, 0x%x;", i, from + w_planes(s) + i / 2, from + w_planes(s) + i / 2,
             i % 2 ? 0x3232 : 0x1010);
}

void wf_wgmma_expand(wf_ptx *t, const wf_wgmma *s, int u)
{
    char locals[160];
    if (is_f16(s)) return;
    snprintf(locals, sizeof locals, ".b32 pair, rest, magic, lessen, %s, s<%d>;",
             s->w.codes ? "value<4>, places, at, upper, first, second, looked<2>" : "sixteenth, lessen64",
             w_scales(s) * 2);
    open_scope(t, "Quantised W of the next step becomes F16.", "Reads q*; writes a*.", locals);
    emit(t, "mov.b32 magic, 0x%x;"
            "mov.b32 lessen, 0x%x;", PAIR(F16_1024), PAIR(F16_1024 + s->w.zero));
    if (s->w.codes) load_table(t, s);
    else if (s->w.bits == 4) emit(t, "mov.b32 sixteenth, 0x%x;"
                                "mov.b32 lessen64, 0x%x;", PAIR(0x2c00), PAIR(0xd400 + s->w.zero * 16));
    spread_scales(t, s, held_register(s, u));
    for (int product = 0; product < WF_WGMMA_PRODUCTS; product++) {
        if (s->w.codes) look_up_product(t, held_register(s, u) + product);
        for (int p = 0; p < 4; p++) {
            int a = wf_wgmma_fragment(s, u, product) + p, scale = scale_of(s, product, p);
            write_quants(t, s, held_register(s, u), product, p);
            if (s->w.min) emit(t, "fma.rn.f16x2 a%d, pair, s%d, s%d;", a, scale, scale + 1);
            else emit(t, "mul.rn.f16x2 a%d, pair, s%d;", a, scale);
        }
    }
    close_scope(t);
}
