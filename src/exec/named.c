/* named: kernels that a plan or WEFT_FORCE names must run something. One that was wrong or did not build has been
 * dropped with a warning, and the device's choice takes its place; one that can run no call at all would only seem to
 * be compared. See program.h. */
#include "dev/front.h"
#include "exec/program.h"
#include "select/select.h"

#include <stdio.h>
#include <string.h>

/* ---- what can run ------------------------------------------------------------------------------------------------ */

/* A kernel that is forced gets weights in the layout of the file if it reads that. */
static bool can_run(const wf_bind_to *to, const wf_call *c, enum wf_op op, int variant)
{
    wf_call as = *c;
    int w = wf_op_input(op, WF_OPERAND_WEIGHT);
    if (c->op != op) return false;
    if (w >= 0 && !wf_reads_layout(wf_variant_at(to->dev, op, variant), as.in[w].layout)) as.in[w].layout = 0;
    return wf_can_use(to->dev, &as, variant);
}

static void add_workspace(wf_call *c, int out, uint32_t cols, enum wf_dtype dtype)
{
    if (!c->out[out].buf)
        c->out[out] = (wf_view){
            .buf = c->in[0].buf, .rows = c->in[0].rows, .cols = cols, .stride = cols, .dtype = (uint8_t)dtype};
}

/* With the workspaces that were omitted, for kernels that take them can run if they are requested by name. */
static wf_call with_workspaces(const wf_bind_to *to, const wf_call *c)
{
    wf_call whole = *c;
    if (c->op == WF_OP_GEMM && c->in[WF_GEMM_NORM].buf)
        add_workspace(&whole, WF_GEMM_NORM_WS, c->in[WF_GEMM_X].cols, to->dev->act);
    if (c->op == WF_OP_GEMM && (c->p.silu || c->p.rope))
        add_workspace(&whole, WF_GEMM_GEMM_WS, c->in[WF_GEMM_W].rows, to->dev->act);
    if (c->op == WF_OP_GROUPED_GEMM && c->p.silu)
        add_workspace(&whole, WF_GROUPED_GEMM_GEMM_WS, 2 * c->out[WF_GROUPED_GEMM_Y].cols, to->dev->act);
    if (c->op == WF_OP_ROUTER && wf_is_fused(c))
        add_workspace(&whole, WF_ROUTER_SCORES_WS, c->in[WF_ROUTER_W].rows, WF_F32);
    return whole;
}

static bool can_run_piece(const wf_bind_to *to, const wf_call *call, enum wf_op op, int variant)
{
    const wf_call whole = with_workspaces(to, call), *c = &whole;
    uint32_t fused = wf_fusion_of(c);
    bool norm = fused & WF_FUSES_NORM, router = c->op == WF_OP_ROUTER && norm,
         more = router || fused & (WF_FUSES_SILU | WF_FUSES_ROPE);
    const bool there[] = {[WF_PIECE_WHOLE] = true,
                          [WF_PIECE_NORM] = norm,
                          [WF_PIECE_REST] = norm && !router,
                          [WF_PIECE_PRODUCT] = norm || more,
                          [WF_PIECE_AFTER] = more};
    for (size_t i = 0; i < WF_LEN(there); i++) {
        wf_call piece;
        if (!there[i]) continue;
        piece = wf_piece_of(c, (enum wf_piece)i);
        if (can_run(to, &piece, op, variant)) return true;
    }
    return false;
}

static bool command_can_run(const wf_bind_to *to, const wf_command *c, enum wf_op op, int variant)
{
    uint32_t context = to->limits.seq_pages * WF_MAX(c->call.p.page_tokens, 1u);
    if (c->node->kind != WF_NODE_KERNEL) return false;
    for (uint32_t rows = 1; rows; rows = rows == c->kernels->max_rows ? 0 : WF_MIN(2 * rows, c->kernels->max_rows)) {
        wf_call call;
        wf_command_like(to, c, rows, context, &call);
        if (can_run_piece(to, &call, op, variant)) return true;
    }
    return false;
}

bool wf_programs_can_run(const wf_bind_to *to, const wf_program *list, size_t n, enum wf_op op, int variant)
{
    for (size_t p = 0; p < n; p++)
        for (const wf_command *c = list[p].commands; c < list[p].commands + list[p].n; c++)
            if (command_can_run(to, c, op, variant)) return true;
    return false;
}

/* ---- what was bound ---------------------------------------------------------------------------------------------- */

static bool has_part(const wf_binding *b, enum wf_op op, int variant)
{
    for (uint8_t i = 0; i < b->n; i++)
        if (b->part[i].op == op && b->part[i].b.variant == variant) return true;
    return false;
}

static bool is_bound(const wf_kernels *k, enum wf_op op, int variant)
{
    for (size_t i = 0; i < k->n; i++)
        if (has_part(&k->list[i], op, variant)) return true;
    return false;
}

static bool is_bound_anywhere(const wf_bind_to *to, enum wf_op op, int variant)
{
    for (size_t i = 0; i < to->n_kernels; i++)
        if (is_bound(to->kernels[i], op, variant)) return true;
    return false;
}

bool wf_binding_is_async(wf_dev *dev, const wf_binding *b)
{
    for (uint8_t i = 0; i < b->n; i++)
        if (b->part[i].op == WF_OP_ATTENTION &&
            (wf_variant_at(dev, WF_OP_ATTENTION, (int)b->part[i].b.variant)->flags & WF_ASYNC_SOFTMAX))
            return true;
    return false;
}

static bool binds_async(wf_dev *dev, const wf_kernels *k)
{
    for (size_t i = 0; i < k->n; i++)
        if (wf_binding_is_async(dev, &k->list[i])) return true;
    return false;
}

bool wf_programs_use_async(const wf_bind_to *to, const wf_program *list, size_t n, int32_t layer)
{
    for (size_t p = 0; p < n; p++)
        for (const wf_command *c = list[p].commands; c < list[p].commands + list[p].n; c++) {
            bool attends = c->node->op == WF_OP_ATTENTION && c->node->layer == layer;
            if (attends && binds_async(to->dev, c->kernels)) return true;
        }
    return false;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

/* Those of the op that could run in its place: "a, b, c". */
static void list_others(const wf_bind_to *to, const wf_program *list, size_t n, enum wf_op op, char *text, size_t cap)
{
    const wf_variant *v;
    *text = 0;
    for (int i = 0; (v = wf_variant_at(to->dev, op, i)); i++) {
        size_t len = strlen(text);
        if (!wf_depends_on_batch(to->dev, op, i) && wf_programs_can_run(to, list, n, op, i))
            snprintf(text + len, cap - len, "%s%s", len ? ", " : "", v->name);
    }
}

static weft_status cannot_run(const wf_bind_to *to, const wf_program *list, size_t n, const char *who, enum wf_op op,
                              int variant, const char *what)
{
    char text[512], others[512];
    if (to->dev->selector && to->dev->selector->dropped(to->dev, &(wf_call){.op = op}, variant)) return WEFT_OK;
    wf_cannot_run_text(to->dev, op, variant, what, text, sizeof text);
    list_others(to, list, n, op, others, sizeof others);
    if (!*others)
        return wf_fail(WEFT_ERR_ARG, "%s: %s: no step of this model has the op %s", who, text, wf_ops[op].name);
    return wf_fail(WEFT_ERR_ARG, "%s: %s; these can run %s here: %s", who, text, wf_ops[op].name, others);
}

weft_status wf_check_named(const wf_bind_to *to, const wf_program *list, size_t n)
{
    for (int op = 0; to->dev->selector && op < WF_N_OPS; op++) {
        int v = to->dev->selector->required(to->dev, (enum wf_op)op);
        if (v >= 0 && !is_bound_anywhere(to, (enum wf_op)op, v))
            WF_TRY(cannot_run(to, list, n, "force", (enum wf_op)op, v, wf_ops[op].name));
    }
    for (size_t p = 0; p < n; p++)
        for (const wf_command *c = list[p].commands; c < list[p].commands + list[p].n; c++)
            if (c->node->kind == WF_NODE_KERNEL && c->call.variant >= 0 &&
                !is_bound(c->kernels, c->node->op, c->call.variant))
                WF_TRY(cannot_run(to, &list[p], 1,
                                  wf_line_place_of(list[p].plan, &list[p].plan->lines[c->nano->line]).text, c->node->op,
                                  c->call.variant, c->node->name));
    return WEFT_OK;
}
