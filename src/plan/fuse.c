/* fuse: nodes that one kernel of a device may run become one: a product with the norm of its input, and with the SiLU
 * or the rotation and the write to the pools that follow it. See graph.h. */
#include "plan/graph.h"

#include <stdlib.h>

typedef struct fuser {
    wf_graph *g;
    enum wf_dtype act;
    uint32_t *readers; /* by value: nodes that read it, but those of adapters */
    weft_status status;
} fuser;

#define GONE WF_N_NODE_KINDS /* the kind of nodes that others have taken in */

static bool is_op(const wf_node *n, enum wf_op op)
{
    return n && n->kind == WF_NODE_KERNEL && n->op == op;
}

/* The next one, but those of adapters; NULL: there is none. */
static wf_node *next_node(const fuser *f, wf_node *n)
{
    const wf_node *end = f->g->nodes + f->g->n_nodes;
    do n++;
    while (n < end && (n->when == WF_WHEN_ADAPTED || n->kind == GONE));
    return n < end ? n : NULL;
}

static void count_readers(fuser *f)
{
    for (const wf_node *n = f->g->nodes; n < f->g->nodes + f->g->n_nodes; n++)
        for (size_t i = 0; i < WF_MAX_IN && n->when != WF_WHEN_ADAPTED; i++)
            if (n->in[i].value >= 0) f->readers[n->in[i].value]++;
}

/* Steps with adapters run the parts of what is fused for those without. */
static void take_in(const wf_node *fused, wf_node *part)
{
    if (fused->when == WF_WHEN_PLAIN) part->when = WF_WHEN_ADAPTED;
    else part->kind = GONE;
}

/* Is y all of a value, which n alone reads, whole? */
static bool hands_on(const fuser *f, wf_operand y, const wf_node *n)
{
    return n && n->in[0].value == y.value && !n->in[0].cols && !y.cols && f->readers[y.value] == 1;
}

/* SiLU and rotations, into the product before them. */
static void fuse_behind(const fuser *f, wf_node *p)
{
    wf_node *n = next_node(f, p);
    bool experts = is_op(p, WF_OP_GROUPED_GEMM), silu = is_op(n, WF_OP_SILU_MUL),
         rope = is_op(n, WF_OP_ROPE_KV) && !experts;
    if ((!experts && !is_op(p, WF_OP_GEMM)) || p->when == WF_WHEN_ADAPTED) return;
    if ((!silu && !rope) || !hands_on(f, p->out[0], n)) return;
    if (!experts && (p->in[WF_GEMM_RESIDUAL].value >= 0 || (silu && n->p.activation == WF_CLAMPED_SWIGLU))) return;
    p->out[experts ? (int)WF_GROUPED_GEMM_GEMM_WS : (int)WF_GEMM_GEMM_WS] = p->out[0];
    p->out[0] = n->out[0];
    p->p.activation = n->p.activation;
    p->p.silu = silu, p->p.rope = rope;
    for (int i = 0; rope && i < 3; i++) p->in[WF_GEMM_TABLE + i] = n->in[WF_ROPE_KV_TABLE + i];
    for (int i = 0; rope && i < 2; i++) p->out[WF_GEMM_K_POOL + i] = n->out[WF_ROPE_KV_K_POOL + i];
    take_in(p, n);
}

/* A norm of whole rows that gives what products take. */
static bool can_join(const fuser *f, const wf_node *n)
{
    const wf_value *values = f->g->values;
    return is_op(n, WF_OP_RMSNORM) && n->when == WF_ALWAYS && n->in[WF_RMSNORM_RESIDUAL].value < 0 &&
           !n->in[WF_RMSNORM_X].cols && !n->out[WF_RMSNORM_Y].cols &&
           values[n->in[WF_RMSNORM_W].value].cols == values[n->out[WF_RMSNORM_Y].value].cols &&
           values[n->out[WF_RMSNORM_Y].value].dtype == f->act;
}

/* A norm and the product that scores experts, into their router. */
static bool fuse_router(const fuser *f, wf_node *norm)
{
    wf_node *scores = next_node(f, norm), *router = scores ? next_node(f, scores) : NULL;
    if (!is_op(router, WF_OP_ROUTER) || !is_op(scores, WF_OP_GEMM) || scores->in[WF_GEMM_BIAS].value >= 0 ||
        scores->in[WF_GEMM_X].value != norm->out[WF_RMSNORM_Y].value ||
        !hands_on(f, scores->out[WF_GEMM_Y], router))
        return false;
    router->in[WF_ROUTER_X] = norm->in[WF_RMSNORM_X];
    router->in[WF_ROUTER_W] = scores->in[WF_GEMM_W];
    router->in[WF_ROUTER_NORM] = norm->in[WF_RMSNORM_W];
    router->out[WF_ROUTER_Y] = norm->out[WF_RMSNORM_Y];
    router->out[WF_ROUTER_SCORES_WS] = scores->out[WF_GEMM_Y];
    norm->kind = scores->kind = GONE;
    return true;
}

/* A norm into the products of it, each of which computes it then, if they make one value. Not into that with a table of
 * embeddings, which lies as in the file. */
static void fuse_before(fuser *f, wf_node *norm)
{
    wf_operand y = norm->out[WF_RMSNORM_Y];
    wf_node *first = next_node(f, norm), *p = first;
    uint32_t n = 0;
    bool stays = false; /* beside them, for steps with adapters */
    for (; is_op(p, WF_OP_GEMM) && p->in[WF_GEMM_X].value == y.value; p = next_node(f, p), n++) {
        if (p->out[WF_GEMM_Y].value != first->out[WF_GEMM_Y].value || f->readers[p->in[WF_GEMM_W].value] > 1) return;
        stays = stays || p->when == WF_WHEN_PLAIN;
    }
    if (!n || n != f->readers[y.value]) return;
    for (p = first; n--; p = next_node(f, p)) {
        int32_t ws = p == first && !stays ? y.value : wf_graph_value(f->g, f->g->values[y.value]);
        if (ws < 0) f->status = WEFT_ERR_NOMEM;
        p->in[WF_GEMM_X] = norm->in[WF_RMSNORM_X];
        p->in[WF_GEMM_NORM] = norm->in[WF_RMSNORM_W];
        p->out[WF_GEMM_NORM_WS] = WF_ALL(ws);
    }
    /* Nodes of adapters follow one that runs always, or without them (plan.c). */
    wf_node apart = *norm;
    *norm = *first, *first = apart;
    if (stays) first->when = WF_WHEN_ADAPTED;
    else first->kind = GONE;
}

weft_status wf_graph_fuse(wf_graph *g, const wf_dev *dev)
{
    bool gemm = !dev || dev->has_fused_gemm, router = !dev || dev->has_fused_router;
    fuser f = {g, dev ? dev->act : WF_F16, wf_calloc(g->n_values, sizeof *f.readers), WEFT_OK};
    if (!f.readers) return WEFT_ERR_NOMEM;
    count_readers(&f);
    for (wf_node *n = g->nodes + g->n_nodes; n-- > g->nodes;) { /* backwards: a norm comes before what it joins */
        if (gemm) fuse_behind(&f, n);
        if (can_join(&f, n) && !(router && fuse_router(&f, n)) && gemm) fuse_before(&f, n);
    }
    free(f.readers);
    size_t kept = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].kind != GONE) g->nodes[kept++] = g->nodes[i];
    g->n_nodes = kept;
    return f.status;
}
