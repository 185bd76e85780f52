/* See cases.h. */
#include "op/cases.h"

#include <string.h>

static const uint32_t sizes[] = {1, 7, 64, 65, 127};
static const uint32_t row_counts[] = {1, 2, 7, 8, 16, 64, 65, 127};
static const uint32_t head_dims[] = {8, 64, 80, 96, 128, 256};
static const uint32_t ratios[] = {1, 2, 4, 7, 8};
static const uint32_t page_sizes[] = {1, 16, 32};
static const uint32_t lengths[] = {1, 7, 33, 64, 65, 127, 300};
static const uint8_t acts[] = {WF_F32, WF_F16};

#define LARGE (4096 + 3)
#define WIDE  (8192 + 3) /* rows of W, from which on flat products have other tiles */
#define ANY(s, list) ((list)[below(s, WF_LEN(list))])

static uint32_t below(op_cases *s, uint32_t n)
{
    return (uint32_t)(wf_random(s->seed, s->draws++) % n);
}

/* Adds a case; pad, groups and seed are drawn. */
static void add(op_cases *s, wf_case c)
{
    static const uint32_t groups[] = {0, 0, 1, 3};
    s->failed |= !wf_grow(&s->list, s->n, &s->cap, sizeof *s->list);
    if (s->failed) return;
    c.pad = below(s, 2) ? 1 + below(s, 9) : 0;
    c.max_groups = ANY(s, groups);
    c.seed = wf_random(s->seed, s->draws++);
    c.file_layout = c.seed >> 8 & 1;
    s->list[s->n++] = c;
}

static uint32_t whole_blocks(uint32_t k, uint8_t dtype)
{
    return WF_UP(k, wf_dtypes[dtype].block);
}

/* ---- rows, row-wise ops ------------------------------------------------------------------------------- */

static void rows(op_cases *s)
{
    for (uint8_t w = 0; w < WF_N_WEIGHT_DTYPES; w++) {
        for (size_t i = 0; i <= WF_LEN(sizes); i++) {
            uint32_t k = i < WF_LEN(sizes) ? sizes[i] : LARGE;
            wf_case c = {.op = WF_OP_GET_ROWS, .weight = w, .m = ANY(s, row_counts),
                         .n = ANY(s, sizes), .k = whole_blocks(k, w)};
            c.residual = i % 3 != 0;
            c.out = acts[(w + i) % 2];
            if (i % 3 == 2) c.p.gain = 0.4f;
            add(s, c);
        }
    }
}

static void activations(op_cases *s)
{
    for (uint32_t i = 0; i < 4 * WF_N_ACTIVATIONS; i++) {
        wf_case c = {.op = WF_OP_ACTIVATE, .in = acts[i % 2], .out = acts[i / 2 % 2], .m = ANY(s, row_counts),
                     .k = i % 3 ? ANY(s, sizes) : LARGE, .p = {.activation = i / 4, .softcap = 3}};
        add(s, c);
    }
}

static void wide(op_cases *s, enum wf_op op, uint8_t in, uint8_t out)
{
    for (size_t i = 0; i <= WF_LEN(sizes); i++) {
        wf_case c = {.op = op, .in = in, .out = out, .m = ANY(s, row_counts),
                     .k = i < WF_LEN(sizes) ? sizes[i] : LARGE};
        add(s, c);
    }
    add(s, (wf_case){.op = op, .in = in, .out = out, .m = 515, .k = 2048});
}

/* A norm of each head. */
static void head_norms(op_cases *s, uint8_t out)
{
    for (size_t i = 0; i < WF_LEN(head_dims) + WF_LEN(sizes); i++) {
        wf_case c = {.op = WF_OP_RMSNORM, .in = acts[i % 2], .out = out, .m = ANY(s, row_counts), .n = 2 + below(s, 7),
                     .k = i < WF_LEN(head_dims) ? head_dims[i] : sizes[i - WF_LEN(head_dims)]};
        add(s, c);
    }
}

/* What a row-wise op may do besides: a norm adds a residual, the gate is GELU, or clamped. */
static void more_vectors(op_cases *s, uint8_t out)
{
    for (size_t i = 0; i < 2 * WF_LEN(sizes); i++) {
        wf_case norm = {.op = WF_OP_RMSNORM, .in = ANY(s, acts), .out = i % 4 == 1 ? WF_F32 : out,
                        .m = ANY(s, row_counts), .k = sizes[i / 2], .residual = true, .in_place = i % 2};
        wf_case gelu = {.op = WF_OP_SILU_MUL, .in = acts[i % 2], .out = out, .m = ANY(s, row_counts), .k = sizes[i / 2],
                        .p = {.activation = WF_GELU_TANH}};
        wf_case clamped = gelu;
        clamped.p.activation = WF_CLAMPED_SWIGLU;
        add(s, norm);
        add(s, gelu);
        add(s, clamped);
    }
}

static void vectors(op_cases *s)
{
    for (int o = 0; o < 2; o++) {
        head_norms(s, acts[o]);
        more_vectors(s, acts[o]);
        for (int op = 0; op < WF_N_OPS; op++)
            for (int i = 0; wf_op_row_wise((enum wf_op)op) && i < (wf_ops[op].in[0].what & WF_OPERAND_ACT ? 2 : 1); i++)
                wide(s, (enum wf_op)op, acts[i], acts[o]);
    }
}

/* Results where their input was. */
static void in_place(op_cases *s)
{
    for (uint32_t i = 0; i < 4 * WF_LEN(sizes) + 4; i++) {
        wf_case c = {.op = i / 2 % 2 ? WF_OP_ACTIVATE : WF_OP_SILU_MUL, .in = acts[i % 2], .out = acts[i % 2],
                     .m = ANY(s, row_counts), .k = i / 4 < WF_LEN(sizes) ? sizes[i / 4] : LARGE, .in_place = true};
        add(s, c);
    }
}

/* ---- argmax, page_copy, token_subst --------------------------------------------------------------------------- */

static void argmaxes(op_cases *s)
{
    static const uint32_t long_rows[] = {LARGE, 32000, 128256};
    for (size_t i = 0; i < 2 * WF_LEN(sizes) + WF_LEN(long_rows); i++) {
        wf_case c = {
            .op = WF_OP_ARGMAX, .in = WF_F32, .out = WF_I32, .m = ANY(s, row_counts), .k = sizes[i % WF_LEN(sizes)]};
        if (i >= 2 * WF_LEN(sizes)) c.k = long_rows[i - 2 * WF_LEN(sizes)], c.m = 1 + below(s, 3);
        add(s, c);
    }
}

static void samples(op_cases *s)
{
    for (size_t i = 0; i < 2 * WF_LEN(sizes) + 2; i++) {
        wf_case c = {.op = WF_OP_SAMPLE, .in = WF_F32, .out = WF_I32, .m = ANY(s, row_counts),
                     .k = sizes[i / 2 % WF_LEN(sizes)]};
        if (i >= 2 * WF_LEN(sizes)) c.k = i % 2 ? 32000 : LARGE, c.m = 4;
        add(s, c);
    }
}

static void page_copies(op_cases *s)
{
    static const uint32_t page[] = {1, 7, 8, 130, 2048, 16384};
    for (size_t i = 0; i < 2 * WF_LEN(page); i++) {
        wf_case c = {.op = WF_OP_PAGE_COPY, .in = WF_F16, .out = WF_F16, .m = ANY(s, row_counts), .n = ANY(s, sizes),
                     .k = page[i / 2], .in_place = i % 2};
        add(s, c);
    }
}

static void feeds(op_cases *s)
{
    for (size_t i = 0; i < 2 * WF_LEN(sizes); i++) {
        wf_case c = {.op = WF_OP_TOKEN_SUBST, .in = WF_I32, .out = WF_I32, .m = ANY(s, sizes), .k = sizes[i / 2],
                     .in_place = i % 2};
        add(s, c);
    }
}

/* ---- gemm ------------------------------------------------------------------------------------------- */

static void gemm(op_cases *s, uint8_t w, uint8_t in, uint8_t out, uint32_t m, uint32_t n, uint32_t k)
{
    wf_case c = {.op = WF_OP_GEMM, .weight = w, .in = in, .out = out, .m = m, .n = n, .k = whole_blocks(k, w)};
    uint32_t extra = below(s, 4);
    c.bias = below(s, 2);
    c.residual = extra > 1;
    c.in_place = extra == 3;
    add(s, c);
}

static void gemm_small(op_cases *s, uint8_t w, uint8_t in, uint8_t out)
{
    for (size_t i = 0; i < WF_LEN(row_counts); i++) gemm(s, w, in, out, row_counts[i], ANY(s, sizes), ANY(s, sizes));
}

static void gemm_grid(op_cases *s, uint8_t w, uint8_t in, uint8_t out)
{
    for (size_t m = 0; m < WF_LEN(row_counts); m++) {
        for (size_t n = 0; n < WF_LEN(sizes); n++) {
            for (size_t k = 0; k < WF_LEN(sizes); k++) gemm(s, w, in, out, row_counts[m], sizes[n], sizes[k]);
        }
    }
}

/* Rows that can be read by eight, which the largest tiles want, and few of them; random cases may have none of some
 * format. */
static void gemm_aligned(op_cases *s, uint8_t w, uint8_t in, uint8_t out)
{
    static const uint32_t ms[] = {70, 1, 3, 7};
    for (size_t i = 0; i < WF_LEN(ms); i++) {
        gemm(s, w, in, out, ms[i], 132, 256);
        s->list[s->n - 1].pad = 0;
    }
}

static void gemm_large(op_cases *s, uint8_t w, uint8_t in, uint8_t out)
{
    uint32_t k = whole_blocks(4096, w) + (wf_dtypes[w].block == 1 ? 3 : wf_dtypes[w].block);
    gemm(s, w, in, out, 1, LARGE, k);
    gemm(s, w, in, out, 5, LARGE, 256);
    gemm(s, w, in, out, 127, 65, k);
    gemm(s, w, in, out, 131, 515, 512);
    if (w == WF_F16) gemm(s, w, in, out, 7, WIDE, 264);
    if (s->level != OP_LONG) return;
    gemm(s, w, in, out, 7, LARGE, k);
    gemm(s, w, in, out, 65, LARGE, k);
    gemm(s, w, in, out, 515, 2048, 2048);
}

static void gemms_long(op_cases *s, uint8_t w)
{
    for (int i = 0; i < 4; i++) {
        uint8_t in = acts[i & 1], out = acts[i >> 1];
        gemm_grid(s, w, in, out);
        gemm_large(s, w, in, out);
    }
}

/* F16 by F16 in sizes that matrix units like, with rows that only nearly fill their tiles. */
static void gemm_halves(op_cases *s)
{
    static const uint32_t ms[] = {1, 3, 8, 15, 33, 64, 100, 131, 300}, ns[] = {64, 260, 515}, ks[] = {64, 480, 1056};
    for (size_t m = 0; m < WF_LEN(ms); m++)
        for (int i = 0; i < (s->level == OP_LONG ? 9 : 1); i++)
            gemm(s, WF_F16, WF_F16, ANY(s, acts), ms[m], ANY(s, ns), ANY(s, ks));
}

/* The same for kernels that pack X, which want K by 64 and N by 4: odd and even numbers of such steps, several tiles.
 */
static void gemm_packed(op_cases *s)
{
    static const uint32_t ns[] = {196, 260, 388}, ks[] = {192, 448, 576, 832};
    for (size_t i = 0; i < WF_LEN(ks); i++) gemm(s, WF_F16, WF_F16, ANY(s, acts), i % 2 ? 300 : 130, ANY(s, ns), ks[i]);
}

/* Q8_0 in strips of 16 rows and groups of 64 columns: whole ones and not, one panel of 256 columns and several. */
static void gemm_q8_0x16(op_cases *s)
{
    static const uint32_t ms[] = {1, 1, 2, 4, 5, 7, 16, 17, 33, 70}, ns[] = {16, 40, 64, 72, 200},
                          ks[] = {64, 192, 256, 320, 768};
    for (size_t m = 0; m < WF_LEN(ms); m++) gemm(s, WF_Q8_0, ANY(s, acts), ANY(s, acts), ms[m], ANY(s, ns), ANY(s, ks));
}

/* Norm in front, SiLU behind, both. */
static void gemm_fused(op_cases *s)
{
    static const uint32_t ms[] = {1, 2, 7, 8}, ks[] = {64, 480, 1056};
    for (uint32_t i = 0; i < (s->level == OP_LONG ? 48 : 6); i++) {
        wf_case c = {.op = WF_OP_GEMM, .weight = WF_F16, .in = WF_F16, .out = ANY(s, acts), .m = ms[i % 4],
                     .n = 64 * (1 + below(s, 9)), .k = ANY(s, ks), .norm = i % 3 != 0, .bias = below(s, 2),
                     .p = {.eps = 1e-5f, .silu = i % 3 != 1}};
        c.residual = !c.p.silu && below(s, 2);
        if (c.norm) c.in = ANY(s, acts);
        add(s, c);
    }
}

/* SiLU behind products of more rows. */
static void gemm_silu(op_cases *s)
{
    static const uint32_t ms[] = {12, 31, 64, 100, 131, 300}, ks[] = {64, 192, 448, 832};
    for (uint32_t i = 0; i < (s->level == OP_LONG ? 8 : 1) * WF_LEN(ms); i++) {
        wf_case c = {.op = WF_OP_GEMM, .weight = WF_F16, .in = WF_F16, .out = ANY(s, acts), .m = ms[i % WF_LEN(ms)],
                     .n = 32 * (1 + below(s, 20)), .k = ANY(s, ks), .bias = below(s, 2), .p = {.silu = 1}};
        add(s, c);
    }
}

/* turn walks over the ratios and page sizes, so that all are met in each run. */
static wf_op_params heads(op_cases *s, uint32_t head_dim, uint32_t turn)
{
    wf_op_params p = {.head_dim = head_dim, .n_kv_head = 1 + below(s, 3)};
    p.n_head = p.n_kv_head * ratios[turn % WF_LEN(ratios)];
    p.page_tokens = page_sizes[turn % WF_LEN(page_sizes)];
    return p;
}

/* q, k and v that are rotated and go to their slots behind the product: each head size, with both orders of pairs where
 * the device has both. */
static void gemm_rope(op_cases *s)
{
    static const uint32_t ms[] = {1, 2, 7, 8, 13, 16, 60, 270}, ks[] = {64, 480, 512, 1056};
    uint32_t turn = below(s, 30);
    for (uint32_t i = 0; i < (s->level == OP_LONG ? 8 : 1) * 2 * WF_LEN(head_dims); i++, turn++) {
        wf_case c = {.op = WF_OP_GEMM, .weight = WF_F16, .in = WF_F16, .out = ANY(s, acts), .m = ANY(s, ms),
                     .k = ANY(s, ks), .norm = below(s, 3), .bias = below(s, 2),
                     .p = heads(s, head_dims[i / 2 % WF_LEN(head_dims)], turn)};
        if (c.norm) c.in = ANY(s, acts);
        c.p.eps = 1e-5f;
        c.p.rope = 1;
        c.p.neox = i % 2 && !s->adjacent_pairs;
        c.p.n_rot = below(s, 2) ? c.p.head_dim : 2 * (1 + below(s, c.p.head_dim / 2));
        if (c.p.n_rot > 32 && below(s, 2)) c.p.n_rot -= c.p.n_rot % 32;
        c.n = (c.p.n_head + 2 * c.p.n_kv_head) * c.p.head_dim;
        add(s, c);
    }
}

static void gemms(op_cases *s)
{
    gemm_halves(s);
    gemm_packed(s);
    gemm_q8_0x16(s);
    gemm_fused(s);
    gemm_silu(s);
    gemm_rope(s);
    uint32_t turn = below(s, 2);
    for (uint8_t w = 0; w < WF_N_WEIGHT_DTYPES; w++) {
        uint8_t in = acts[(w + turn) & 1], out = ANY(s, acts);
        if (s->level == OP_LONG) {
            gemms_long(s, w);
            continue;
        }
        for (int i = 0; i < 2; i++) gemm_small(s, w, in, out);
        gemm_aligned(s, w, in, out);
        gemm_large(s, w, in, out);
    }
}

/* ---- experts ---------------------------------------------------------------------------------------- */

static void grouped(op_cases *s, uint8_t w, uint8_t in, uint8_t out, uint32_t m, uint32_t n, uint32_t k)
{
    static const uint32_t counts[][2] = {{1, 1}, {4, 2}, {8, 2}, {5, 5}, {33, 4}, {3, 1}};
    const uint32_t *experts = counts[below(s, WF_LEN(counts))];
    add(s, (wf_case){.op = WF_OP_GROUPED_GEMM, .weight = w, .in = in, .out = out, .m = m, .n = n,
                            .k = whole_blocks(k, w), .n_experts = experts[0], .used = experts[1], .one_x = below(s, 2),
                            .bias = below(s, 2)});
}

/* Rows that can be read by eight and rows that cannot, of few experts and of many: random cases may have none of some
 * format. */
static void experts_aligned(op_cases *s, uint8_t w)
{
    for (uint32_t i = 0; i < 3; i++) {
        grouped(s, w, acts[(w + i) % 2], ANY(s, acts), 17, 130, 256);
        wf_case *c = &s->list[s->n - 1];
        c->pad = i == 2, c->n_experts = i ? 8 : 33, c->used = 2;
    }
}

/* Gate and up in one product: whole tiles of formats that lie as fragments, and what no kernel does at once. */
static void experts_silu(op_cases *s)
{
    static const uint32_t ms[] = {1, 1, 2, 7, 40, 130}, counts[][2] = {{8, 2}, {4, 1}, {12, 4}};
    static const uint8_t blocks[] = {WF_F16, WF_Q4_0, WF_Q8_0, WF_Q4_K, WF_Q6_K};
    static const uint32_t gates[] = {WF_SILU, WF_SILU, WF_GELU_TANH, WF_CLAMPED_SWIGLU};
    for (size_t i = 0; i < WF_LEN(ms) * (s->level == OP_LONG ? 8 : 2); i++) {
        const uint32_t *of = counts[below(s, WF_LEN(counts))];
        wf_case c = {.op = WF_OP_GROUPED_GEMM, .weight = ANY(s, blocks), .in = WF_F16, .out = ANY(s, acts),
                     .m = ms[i % WF_LEN(ms)], .n = 32 * (1 + below(s, 9)), .k = 512, .n_experts = of[0], .used = of[1],
                     .one_x = below(s, 4) > 0, .bias = below(s, 3) == 0, .p = {.silu = 1, .activation = ANY(s, gates)}};
        add(s, c);
    }
}

/* A router with its norm and its product: few rows and experts, in sizes that are whole vectors and that are not, and
 * what is too much for it. */
static void routers(op_cases *s)
{
    static const uint32_t ms[] = {1, 1, 2, 5, 8, 9},
                          counts[][2] = {{8, 2}, {1, 1}, {60, 4}, {128, 8}, {257, 4}, {5, 5}, {33, 7}},
                          ks[] = {7, 64, 512, 515, 1056, 2048};
    for (size_t i = 0; i < (s->level == OP_LONG ? 128 : 16); i++) {
        const uint32_t *of = counts[i % WF_LEN(counts)];
        uint8_t w = i % 2 ? WF_F32 : (uint8_t)below(s, WF_N_WEIGHT_DTYPES);
        add(s, (wf_case){.op = WF_OP_ROUTER, .weight = w, .in = acts[i / 2 % 2], .out = ANY(s, acts),
                              .m = ANY(s, ms), .n = of[0], .used = of[1], .k = whole_blocks(ANY(s, ks), w),
                              .norm = true});
    }
}

/* Every format with one token, with few and with many. */
static void experts(op_cases *s)
{
    static const uint32_t ms[] = {1, 1, 3, 7, 16, 65, 130}, ns[] = {1, 7, 64, 130}, ks[] = {7, 64, 130, 515};
    static const uint8_t blocks[] = {WF_Q4_0, WF_Q8_0, WF_Q4_K, WF_Q6_K};
    experts_silu(s);
    routers(s);
    for (uint8_t w = 0; w < WF_N_WEIGHT_DTYPES; w++) {
        experts_aligned(s, w);
        for (size_t i = 0; i < WF_LEN(ms) * (s->level == OP_LONG ? 4 : 1); i++)
            grouped(s, w, ANY(s, acts), ANY(s, acts), ms[i % WF_LEN(ms)], ANY(s, ns), ANY(s, ks));
    }
    for (uint32_t i = 0; i < 2; i++) /* whole tiles of one token, for kernels that take no others */
        grouped(s, ANY(s, blocks), WF_F16, WF_F32, 1, 64, 512);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t k = ANY(s, sizes), used = 1 + below(s, WF_MIN(k, 8u));
        add(s,
                 (wf_case){
                     .op = WF_OP_ROUTER, .in = WF_F32, .out = WF_I32, .m = ANY(s, row_counts), .k = k, .used = used});
        wf_case sum = {.op = WF_OP_WEIGHTED_SUM, .in = acts[i % 2], .out = acts[i / 2 % 2], .m = ANY(s, row_counts),
                       .k = ANY(s, sizes), .used = 1 + i, .bias = i % 4 < 3, .residual = below(s, 2)};
        sum.in_place = sum.residual && below(s, 2);
        add(s, sum);
    }
}

/* ---- rope_kv and attention ------------------------------------------------------------------------------- */

static void ropes(op_cases *s)
{
    static const uint32_t ms[] = {1, 7, 65};
    uint32_t turn = below(s, 15);
    for (size_t d = 0; d < WF_LEN(head_dims); d++) {
        for (uint32_t i = 0; i < (s->adjacent_pairs ? 2u : 4u); i++) { /* the last two: what the CPU's vectors take */
            wf_case c = {.op = WF_OP_ROPE_KV, .in = i < 2 ? acts[(i + d) & 1] : WF_F32,
                         .out = i < 2 ? ANY(s, acts) : WF_F32, .m = ms[turn % 3], .n = 1 + below(s, 100)};
            c.p = heads(s, head_dims[d], turn++);
            c.p.neox = i % 2 && !s->adjacent_pairs;
            c.p.n_rot = below(s, 3) ? head_dims[d] : head_dims[d] / 2;
            c.kv = head_dims[d] % 32 || below(s, 2) ? WF_F16 : WF_Q8_0;
            add(s, c);
        }
    }
}

enum mode { DECODE, PREFILL, CHUNK, MIXED, N_MODES };

/* A unified maximum of the softmax: one that suits the scores drawn (they spread by 1.7 about 0), one that some
 * rows leave, and ones that all do, upwards and downwards. */
static void gen_phi(op_cases *s, wf_op_params *p)
{
    static const float phi[][3] = {{0, -6, 7}, {1, -2, 3}, {-500, -6, 7}, {500, -6, 7}, {0, -1, 40}, {0, 0, 0}};
    const float *one = phi[below(s, WF_LEN(phi))];
    p->phi = one[0], p->phi_lo = one[1], p->phi_hi = one[2];
}

static void attention(op_cases *s, enum mode mode, uint8_t in, uint8_t out, const wf_op_params *p, uint8_t windows,
                      bool with_sinks)
{
    static const uint32_t sinks[] = {0, 1, 4, 16, 21, 64};
    wf_case c = {.op = WF_OP_ATTENTION, .in = in, .out = out, .p = *p, .windows = windows, .sinks = with_sinks,
                 .kv = s->kv};
    if (windows) c.p.sink = ANY(s, sinks);
    if (windows == WF_WINDOWS_MIXED && mode % 2 && !(with_sinks && s->few_programs))
        c.p.softcap = 1.5f; /* of scores; the sink joins their sum */
    c.max_kv = ANY(s, lengths);
    gen_phi(s, &c.p);
    c.n_seqs = mode == PREFILL ? 1 + below(s, 2) : 1 + below(s, 5);
    c.max_q = mode == DECODE ? 1 : mode == PREFILL ? c.max_kv : 1 + c.max_kv / (2 + below(s, 3));
    add(s, c);
}

/* One head shape, page size and dtype in every mode, twice: one compiled kernel serves them all. With windows, which
 * make another kernel of it, once more; and with sinks. */
static void attention_shape(op_cases *s, uint32_t head_dim, uint32_t turn, bool windows)
{
    uint8_t in = acts[turn & 1], out = below(s, 3) ? in : ANY(s, acts);
    wf_op_params p = heads(s, head_dim, turn);
    for (int i = 0; i < 2 * N_MODES; i++) attention(s, i % N_MODES, in, out, &p, WF_WINDOWS_NONE, false);
    for (int i = 0; windows && i < N_MODES + 2; i++)
        attention(s, i % N_MODES, in, out, &p, i < 2 ? WF_WINDOWS_WIDE : WF_WINDOWS_MIXED, false);
    for (int i = PREFILL; windows && i <= CHUNK; i++) attention(s, (enum mode)i, in, out, &p, WF_WINDOWS_AROUND, false);
    for (int i = 0; windows && i < 2 * N_MODES; i++)
        attention(s, i % N_MODES, in, out, &p, i < N_MODES ? WF_WINDOWS_NONE : WF_WINDOWS_MIXED, true);
}

/* Where a program takes seconds to compile, a case has types and heads of one that is there already, with the same head
 * size or as much besides. */
static void share_programs(const op_cases *s, wf_case *c)
{
    for (size_t i = 0; i < s->n && s->few_programs; i++) {
        const wf_case *o = &s->list[i];
        if (o->op != WF_OP_ATTENTION || o->kv != c->kv || o->windows != c->windows) continue;
        if (o->sinks != c->sinks || o->p.softcap) continue;
        if (!c->windows && !c->sinks && o->p.head_dim != c->p.head_dim) continue;
        c->in = o->in, c->out = o->out;
        c->p = o->p;
        return;
    }
}

/* Many rows in F16, which matrix units want. */
static void attention_long(op_cases *s, uint32_t head_dim, uint32_t kv, uint32_t q, uint32_t n_seqs, uint8_t windows)
{
    wf_case c = {.op = WF_OP_ATTENTION, .in = q > 1 ? WF_F16 : ANY(s, acts), .n_seqs = n_seqs, .max_kv = kv, .max_q = q,
                 .windows = windows,
                 .p = {.n_head = 8, .n_kv_head = 2, .head_dim = head_dim, .page_tokens = 16, .sink = 21}};
    c.out = c.in;
    share_programs(s, &c);
    gen_phi(s, &c.p);
    add(s, c);
}

/* Sinks where few rows have their keys in many parts. */
static void sinks_long(op_cases *s)
{
    for (int i = 0; i < 4; i++) {
        wf_case c = {.op = WF_OP_ATTENTION, .in = acts[i % 2], .out = acts[i % 2], .n_seqs = 1 + below(s, 2),
                     .max_kv = 700 + below(s, 1800), .max_q = 1, .windows = i < 2 ? WF_WINDOWS_NONE : WF_WINDOWS_MIXED,
                     .sinks = true, .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16}};
        share_programs(s, &c);
        add(s, c);
    }
}

static void attentions(op_cases *s)
{
    uint32_t turn = below(s, 15), repeat = s->level == OP_LONG ? 15 : 1;
    for (uint32_t r = 0; r < repeat; r++) {
        size_t with_windows = below(
            s, 3); /* of small heads, for the reference takes its time, and of those that all variants meet */
        for (size_t d = 0; d < WF_LEN(head_dims); d++)
            attention_shape(s, head_dims[d], turn++, s->level == OP_LONG || d == with_windows);
    }
    s->kv = WF_Q8_0; /* pages of one token leave values where few variants can read them */
    attention_shape(s, 64 << below(s, 2), turn + (turn % WF_LEN(page_sizes) == 0), s->level == OP_LONG);
    s->kv = 0;
    for (size_t d = 0; d < WF_LEN(head_dims); d++) { /* one row, whose keys are worth more than one work-group */
        attention_long(s, head_dims[d], 300, 1, 1, WF_WINDOWS_NONE);
    }
    for (uint32_t i = 1; i <= 16; i++) { /* a row's keys in every number of parts */
        attention_long(s, 64, 256 * i - below(s, 255), 1, 1, WF_WINDOWS_NONE);
    }
    static const struct { uint32_t head_dim, kv, q, n_seqs; uint8_t windows; } some[] = {
        {128, LARGE, 1, 2, WF_WINDOWS_NONE}, {64, LARGE, 1, 1, WF_WINDOWS_NONE}, {64, 600, 1, 2, WF_WINDOWS_MIXED},
        {64, 600, 129, 2, WF_WINDOWS_NONE}, {128, 400, 70, 5, WF_WINDOWS_NONE},
        /* at length: */ {128, LARGE, 515, 3, WF_WINDOWS_NONE}, {128, 30000, 1, 3, WF_WINDOWS_NONE}};
    sinks_long(s);
    for (size_t i = 0; i < (s->level == OP_LONG ? WF_LEN(some) : 5); i++)
        attention_long(s, some[i].head_dim, some[i].kv, some[i].q, some[i].n_seqs, some[i].windows);
}

/* On the CPU path, which an emulator runs for seconds a case, a shape of experts' products meets each format with one
 * pair of types of X and Y, and all pairs by turns; and the longest keys meet one pair. Finding an expert, decoding a
 * format and reading a type know nothing of each other: a format meets all types in products without experts. */
static bool is_quick(const op_cases *s, const wf_case *c, unsigned shape)
{
    unsigned pair = (c->in == WF_F16) + 2u * (c->out == WF_F16);
    if (s->all_types) return true;
    if (c->op == WF_OP_GROUPED_GEMM) return pair == (shape + c->weight + s->seed) % 4;
    return c->op != WF_OP_ATTENTION || c->max_q * c->max_kv < 10000 || pair == s->seed % 4;
}

static void quick(op_cases *s)
{
    wf_case c;
    unsigned shape = 0;
    for (size_t i = 0; wf_case_small(i, s->seed, &c); i++) {
        shape += c.weight == 0 && c.in == WF_F32 && c.out == WF_F32; /* the first choice of types */
        if (!is_quick(s, &c, shape)) continue;
        s->failed |= !wf_grow(&s->list, s->n, &s->cap, sizeof *s->list);
        if (s->failed) return;
        s->list[s->n++] = c;
    }
}

static void tiny(op_cases *s)
{
    wf_op_params heads = {.n_head = 4, .n_kv_head = 2, .head_dim = 8, .n_rot = 8, .page_tokens = 4, .sink = 1},
                 some_leave = heads;
    some_leave.phi = 1, some_leave.phi_lo = -2, some_leave.phi_hi = 3;
    uint8_t in = ANY(s, acts), out = ANY(s, acts);
    for (uint8_t w = 0; w < WF_N_WEIGHT_DTYPES; w++) {
        uint32_t k = whole_blocks(32, w);
        wf_case c = {.op = WF_OP_GET_ROWS, .weight = w, .out = out, .m = 2, .n = 3, .k = k};
        add(s, c);
        gemm(s, w, in, out, w % 2 ? 1 : 3, 5, k);
        grouped(s, w, in, out, w % 2 ? 1 : 3, 5, k);
    }
    for (int op = 0; op < WF_N_OPS; op++) {
        wf_case c = {.op = (enum wf_op)op, .in = wf_ops[op].in[0].what & WF_OPERAND_ACT ? in : WF_F32, .out = out,
                     .m = 2, .k = 33};
        if (wf_op_row_wise(c.op)) add(s, c);
    }
    const wf_case attention = {.op = WF_OP_ATTENTION, .in = in, .out = out, .p = heads, .n_seqs = 2, .max_kv = 9,
                               .max_q = 2, .windows = WF_WINDOWS_MIXED};
    const wf_case more[] = {
        {.op = WF_OP_RMSNORM, .in = in, .out = out, .m = 2, .n = 3, .k = 8},
        {.op = WF_OP_ROUTER, .in = in, .out = out, .m = 2, .n = 9, .k = 40, .used = 3, .norm = true},
        {.op = WF_OP_SILU_MUL, .in = in, .out = in, .m = 2, .k = 33, .in_place = true},
        {.op = WF_OP_ACTIVATE, .in = in, .out = in, .m = 2, .k = 36, .in_place = true},
        {.op = WF_OP_ARGMAX, .in = WF_F32, .out = WF_I32, .m = 3, .k = 300},
        {.op = WF_OP_SAMPLE, .in = WF_F32, .out = WF_I32, .m = 4, .k = 70},
        {.op = WF_OP_PAGE_COPY, .in = WF_F16, .out = WF_F16, .m = 5, .n = 4, .k = 24},
        {.op = WF_OP_PAGE_COPY, .in = WF_F16, .out = WF_F16, .m = 4, .n = 4, .k = 7, .in_place = true},
        {.op = WF_OP_TOKEN_SUBST, .in = WF_I32, .out = WF_I32, .m = 9, .k = 5, .in_place = true},
        {.op = WF_OP_ROPE_KV, .in = in, .out = out, .m = 3, .n = 5, .p = heads}};
    static const struct { uint32_t max_kv, max_q; bool leave; } plain[] = {
        {6, 1, false}, {6, 3, false}, {70, 1, true}, {9, 3, true}};
    for (size_t i = 0; i < WF_LEN(more); i++) add(s, more[i]);
    for (size_t i = 0; i < WF_LEN(plain); i++) {
        wf_case c = attention;
        c.windows = WF_WINDOWS_NONE, c.max_kv = plain[i].max_kv, c.max_q = plain[i].max_q;
        if (plain[i].leave) c.p = some_leave;
        add(s, c);
    }
    for (int sinks = 0; sinks < 2; sinks++) {
        wf_case c = attention;
        c.sinks = sinks;
        add(s, c);
    }
}

bool op_cases_make(enum op_level level, uint64_t seed, const wf_dev *dev, op_cases *out)
{
    bool cpu = !strcmp(dev->info.id, "cpu");
    *out = (op_cases){.seed = seed, .level = level, .adjacent_pairs = dev->adjacent_pairs, .all_types = !cpu,
                      .few_programs = !cpu && dev->info.type == WEFT_DEVICE_CPU};
    if (level == OP_TINY) tiny(out);
    else if (level == OP_QUICK) quick(out);
    else {
        static void (*const all[])(op_cases *) = {rows, activations, vectors, argmaxes, samples, page_copies, feeds,
                                                  gemms, experts, ropes, attentions, in_place};
        for (size_t i = 0; i < WF_LEN(all); i++) all[i](out);
    }
    return !out->failed;
}
