/* What tests of the choice of kernels share: devices that nobody has to have, calls on operands without numbers, and
 * what a kernel is launched with. */
#ifndef CL_OFFLINE_H
#define CL_OFFLINE_H

#include "unit/cl_test.h"

#include "base/file.h"
#include "dev/front.h"
#include "select/tuned.h"

/* One at a time: the next call makes another one in its place. */
static inline wf_dev *device(bool mma, enum wf_tier tier)
{
    static cl_dev d;
    memset(&d, 0, sizeof d);
    d.ref.caps.nv_mma = mma;
    d.base.params.tier = tier;
    return &d.base;
}

static inline const cl_dev *with_units(uint32_t units, uint32_t local_kib)
{
    cl_dev *d = (cl_dev *)device(false, WF_TIER_MATRIX);
    d->ref.caps = (cl_caps){.gpu = true, .nv_mma = true, .max_group = 1024, .units = units,
                            .nv_local_bytes = local_kib << 10, .tier = WF_TIER_MATRIX};
    return d;
}

static inline cl_dev *with_wgmma(void)
{
    cl_dev *d = (cl_dev *)with_units(132, 227);
    d->ref.caps.nv_wgmma = true;
    d->ref.caps.local_bytes = 48 << 10;
    d->ref.caps.scratch = 128 << 20, d->ref.caps.zeroed = 20 << 20;
    return d;
}

static const wf_dev_fns offline_fns = {.supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants};

/* The defaults of GPUs, which hold the model of wgmma. */
static inline void take_default_costs(cl_dev *d)
{
    char *text;
    size_t size;
    wf_tuned_table t;
    assert_ok(wf_read_file("tuned/default/opencl-gpu.tune", 1 << 20, &text, &size));
    assert_ok(wf_tuned_parse(text, NULL, &t));
    d->base.fns = &offline_fns;
    assert_ok(wf_cl_set_costs(&d->base, t.costs, t.n_costs));
    wf_tuned_free(&t);
    free(text);
}

/* As --deterministic chooses. */
static inline int pick_in_class(wf_dev *d, const wf_call *c, const char *class)
{
    wf_candidate_kernel k;
    return wf_cl_rank(d, c, class, &k, 1) ? k.variant : -1;
}

static inline int variant_named(enum wf_op op, const char *name)
{
    for (int i = 0; i < (int)wf_cl_n_variants(op); i++)
        if (!strcmp(wf_cl_variant_at(op, i)->name, name)) return i;
    fail_msg("no kernel %s", name);
    return -1;
}

static inline int32_t knob(const cl_launch *l, const char *name)
{
    for (uint32_t i = 0; i < l->n_knobs; i++)
        if (!strcmp(l->knob[i].name, name)) return l->knob[i].value;
    fail_msg("no knob %s", name);
    return 0;
}

static inline wf_call product(uint32_t m, uint32_t n, uint32_t k)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    wf_call c = {.op = WF_OP_GEMM};
    c.in[WF_GEMM_X] = (wf_view){&stand_in, 0, m, k, k, WF_F16, 0};
    c.in[WF_GEMM_W] = (wf_view){&stand_in, 0, n, k, k, WF_F16, WF_CL_FRAGMENT_MAJOR};
    c.out[WF_GEMM_Y] = (wf_view){&stand_in, 0, m, n, n, WF_F16, 0};
    return c;
}

/* 32 query heads and 8 of keys, which turn behind the product. */
static inline wf_call qkv(uint32_t m, uint32_t head_dim, uint32_t n_rot, uint32_t neox)
{
    wf_call c = product(m, 48 * head_dim, 4096);
    wf_buf *stand_in = c.in[WF_GEMM_X].buf;
    uint32_t page = 8 * 16 * head_dim;
    c.p = (wf_op_params){
        .rope = 1, .n_head = 32, .n_kv_head = 8, .head_dim = head_dim, .n_rot = n_rot, .neox = neox, .page_tokens = 16};
    c.out[WF_GEMM_GEMM_WS] = c.out[WF_GEMM_Y];
    c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = 32 * head_dim;
    c.in[WF_GEMM_TABLE] = (wf_view){stand_in, 0, 512, n_rot, n_rot, WF_F32, 0};
    c.in[WF_GEMM_POS] = c.in[WF_GEMM_SLOT] = (wf_view){stand_in, 0, 1, m, m, WF_I32, 0};
    c.out[WF_GEMM_K_POOL] = c.out[WF_GEMM_V_POOL] = (wf_view){stand_in, 0, 9, page, page, WF_F16, 0};
    return c;
}

/* Decodes with 8 KV heads. */
static inline wf_call attention(uint32_t seqs, uint32_t keys, uint32_t head_dim, uint32_t heads)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    enum { KV_HEADS = 8, PAGE = 16 };
    wf_call c = {.op = WF_OP_ATTENTION, .variant = -1};
    uint32_t row = heads * head_dim, page = KV_HEADS * PAGE * head_dim, pages = (keys + PAGE - 1) / PAGE * seqs;
    c.p = (wf_op_params){.n_head = heads, .n_kv_head = KV_HEADS, .head_dim = head_dim, .page_tokens = PAGE,
                         .max_kv = keys, .max_q = 1, .scale = 1};
    c.in[WF_ATTENTION_Q] = c.out[WF_ATTENTION_O] = (wf_view){&stand_in, 0, seqs, row, row, WF_F16, 0};
    c.in[WF_ATTENTION_K_POOL] = c.in[WF_ATTENTION_V_POOL] = (wf_view){&stand_in, 0, pages, page, page, WF_F16, 0};
    c.in[WF_ATTENTION_SEQ] = c.in[WF_ATTENTION_POS] = (wf_view){&stand_in, 0, 1, seqs, seqs, WF_I32, 0};
    c.in[WF_ATTENTION_INDPTR] = (wf_view){&stand_in, 0, 1, seqs + 1, seqs + 1, WF_I32, 0};
    c.in[WF_ATTENTION_PAGES] = (wf_view){&stand_in, 0, 1, pages, pages, WF_I32, 0};
    return c;
}

static inline wf_call with_experts(uint32_t tokens, uint32_t n, uint32_t k, uint8_t layout)
{
    wf_call c = product(tokens, n, k);
    c.op = WF_OP_GROUPED_GEMM;
    c.in[WF_GROUPED_GEMM_W].dtype = WF_Q4_K, c.in[WF_GROUPED_GEMM_W].rows = 8 * n,
    c.in[WF_GROUPED_GEMM_W].layout = layout;
    c.in[WF_GROUPED_GEMM_IDS] = (wf_view){.buf = c.in[0].buf, .rows = tokens, .cols = 2, .stride = 2, .dtype = WF_I32};
    c.out[WF_GROUPED_GEMM_Y].cols = c.out[WF_GROUPED_GEMM_Y].stride = 2 * n;
    return c;
}

static inline wf_call with_gates(uint32_t tokens, uint32_t n, uint8_t layout)
{
    wf_call c = with_experts(tokens, 2 * n, 4096, layout);
    c.p.silu = 1;
    c.out[WF_GROUPED_GEMM_GEMM_WS] = c.out[WF_GROUPED_GEMM_Y];
    c.out[WF_GROUPED_GEMM_Y].cols = c.out[WF_GROUPED_GEMM_Y].stride = 2 * n;
    return c;
}

static inline wf_call with_router(uint32_t tokens, uint32_t experts, uint32_t k)
{
    wf_call c = {.op = WF_OP_ROUTER, .p = {.scale = 1, .eps = 1e-5f}};
    wf_buf *buf = product(1, 16, 64).in[0].buf;
    c.in[WF_ROUTER_X] = (wf_view){buf, 0, tokens, k, k, WF_F32, 0},
    c.in[WF_ROUTER_W] = (wf_view){buf, 0, experts, k, k, WF_F32, 0};
    c.in[WF_ROUTER_NORM] = (wf_view){buf, 0, 1, k, k, WF_F32, 0};
    c.out[WF_ROUTER_IDS] = (wf_view){buf, 0, tokens, 2, 2, WF_I32, 0},
    c.out[WF_ROUTER_WEIGHTS] = (wf_view){buf, 0, tokens, 2, 2, WF_F32, 0};
    c.out[WF_ROUTER_Y] = (wf_view){buf, 0, tokens, k, k, WF_F16, 0},
    c.out[WF_ROUTER_SCORES_WS] = (wf_view){buf, 0, tokens, experts, experts, WF_F32, 0};
    return c;
}

#endif
