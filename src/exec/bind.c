/* bind: plans become programs — operands located, kernels chosen for every number of rows. See program.h. */
#include "exec/program.h"
#include "verify/bind.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static void bind_buffer(const wf_bind_to *to, const wf_plan *plan, wf_operand o, wf_view *view, wf_ref *ref)
{
    const wf_value *v = &to->g->values[o.value];
    uint64_t size = wf_dtype_bytes(v->dtype, 1);
    ref->place = WF_PLACE_BUFFER;
    ref->index = (uint32_t)plan->buffer_of[o.value];
    ref->add = plan->offset_of[o.value] + o.col * size;
    ref->pitch = plan->buffers[ref->index].pitch;
    *view = (wf_view){
        .cols = o.cols ? o.cols : v->cols, .stride = (uint32_t)(ref->pitch / size), .dtype = (uint8_t)v->dtype};
}

static void bind_array(const wf_bind_to *to, wf_operand o, wf_view *view, wf_ref *ref)
{
    const wf_value *v = &to->g->values[o.value];
    bool state = v->kind == WF_VALUE_STATE;
    *view = state ? to->states[v->id] : *to->inputs;
    view->cols = o.cols ? o.cols : v->cols;
    view->stride = v->cols;
    view->dtype = (uint8_t)v->dtype;
    view->offset += wf_dtype_bytes(v->dtype, o.col);
    ref->place = state ? WF_PLACE_STATE : WF_PLACE_INPUT;
    ref->index = v->id;
    ref->table = (uint8_t)v->table;
    ref->pitch = wf_dtype_bytes(v->dtype, v->cols);
}

static void bind_operand(const wf_bind_to *to, const wf_plan *plan, const wf_node *node, wf_operand o, wf_view *view,
                         wf_ref *ref)
{
    if (o.value < 0) return;
    const wf_value *v = &to->g->values[o.value];
    ref->rows = (uint8_t)v->rows;
    ref->sliced = v->rows == node->rows || (wf_rows_are_tokens(v->rows) && wf_rows_are_tokens(node->rows));
    if (v->kind == WF_VALUE_WEIGHT) *view = to->weights[v->id];
    if (v->kind == WF_VALUE_ACT) bind_buffer(to, plan, o, view, ref);
    if (v->kind == WF_VALUE_INPUT || v->kind == WF_VALUE_STATE) bind_array(to, o, view, ref);
    if (v->kind != WF_VALUE_KV) return;
    ref->place = WF_PLACE_POOL;
    *view = wf_memory_pool(to->mem, v, 0, 0);
}

static void bind_command(const wf_bind_to *to, const wf_plan *plan, const wf_nano *nano, wf_command *c)
{
    const wf_node *node = &to->g->nodes[nano->node];
    c->node = node;
    c->nano = nano;
    c->call.op = node->op;
    c->call.variant = -1;
    c->call.max_groups = nano->groups;
    c->call.p = node->p;
    /* A command whose scratch state is smaller than its rows may be takes them a part at a time. */
    uint32_t most = UINT32_MAX;
    for (size_t i = 0; i < WF_MAX_OUT; i++) {
        const wf_operand *o = &node->out[i];
        const wf_value *v = o->value < 0 ? NULL : &to->g->values[o->value];
        if (v && v->kind == WF_VALUE_STATE && v->rows == WF_ROWS_WHOLE && (o->cols ? o->cols : v->cols) > 1)
            most = WF_MIN(most, to->states[v->id].rows);
    }
    c->max_rows = most;
    for (size_t i = 0; i < WF_MAX_IN; i++) bind_operand(to, plan, node, node->in[i], &c->call.in[i], &c->in[i]);
    for (size_t i = 0; i < WF_MAX_OUT; i++) {
        if (wf_node_out(node, i) >= 0) bind_operand(to, plan, node, node->out[i], &c->call.out[i], &c->out[i]);
    }
}

/* ---- a step's calls ---------------------------------------------------------------------------------------------- */

wf_range wf_command_range(const wf_command *c, const wf_step_shape *st)
{
    return wf_nano_range(c->node, c->nano, st->n_decodes, st->n_tokens, st->n_logits);
}

/* Rows of a value that a command takes whole. */
static uint32_t whole_rows(const wf_step_shape *st, const wf_ref *ref, const wf_view *v, uint32_t count)
{
    if (ref->place == WF_PLACE_INPUT)
        return (uint32_t)wf_input_rows(ref->index, st->n_tokens, st->n_seqs, st->n_pages, st->n_logits,
                                       st->n_adjusted, st->n_allowed);
    if (ref->place == WF_PLACE_STATE) return ref->rows == WF_ROWS_WHOLE ? WF_MIN(count, v->rows) : v->rows;
    return ref->rows == WF_ROWS_LOGITS ? st->n_logits : st->n_tokens;
}

void wf_command_view(const wf_bind_to *to, const wf_step_shape *st, wf_range rows, const wf_ref *ref, wf_view *v)
{
    if (ref->place == WF_PLACE_FIXED) return;
    if (ref->place == WF_PLACE_POOL) {
        v->rows = wf_limits_pages(&to->limits, st->n_tokens, st->n_logits);
        return;
    }
    if (ref->place == WF_PLACE_BUFFER) {
        wf_view at = wf_memory_buffer(to->mem, (int32_t)ref->index, st->n_tokens, st->n_logits);
        v->buf = at.buf;
        v->offset = at.offset + ref->add;
    }
    if (ref->place == WF_PLACE_INPUT) v->offset += st->input_at[ref->index] + ref->table * st->table_pitch[ref->index];
    if (ref->sliced) v->offset += rows.first * ref->pitch;
    v->rows = ref->sliced ? rows.count : whole_rows(st, ref, v, rows.count);
}

void wf_command_call(const wf_bind_to *to, const wf_command *c, const wf_step_shape *st, wf_range rows, wf_call *out)
{
    *out = c->call;
    out->p.max_kv = st->max_kv;
    out->p.max_q = c->node->rows == WF_ROWS_DECODE ? 1 : st->max_q;
    const wf_op_info *op = &wf_ops[c->node->op];
    for (size_t i = 0; i < op->n_in; i++) wf_command_view(to, st, rows, &c->in[i], &out->in[i]);
    for (size_t i = 0; i < op->n_out; i++) wf_command_view(to, st, rows, &c->out[i], &out->out[i]);
}

/* ---- kernels by number of rows ----------------------------------------------------------------------------------- */

static uint32_t rows_of_call(const wf_call *c)
{
    return c->op == WF_OP_TOKEN_SUBST ? c->in[WF_TOKEN_SUBST_IDS].rows : c->out[0].rows;
}

uint32_t wf_context_class(enum wf_op op, uint32_t max_kv)
{
    uint32_t class = 0;
    for (uint64_t most = 512; op == WF_OP_ATTENTION && class + 1 < WF_N_CONTEXTS && max_kv > most; most *= 4) class++;
    return class;
}

static uint32_t context_class(const wf_call *c)
{
    return wf_context_class(c->op, c->p.max_kv);
}

static uint32_t context_of_class(const wf_bind_to *to, const wf_call *c, uint32_t class)
{
    uint32_t all = to->limits.seq_pages * c->p.page_tokens;
    return class + 1 == WF_N_CONTEXTS ? all : WF_MIN(512u << 2 * class, all);
}

static bool same_shape(const wf_view *a, const wf_view *b)
{
    return !a->buf == !b->buf && a->cols == b->cols && a->stride == b->stride && a->dtype == b->dtype &&
           a->layout == b->layout;
}

static bool same_view(const wf_view *a, const wf_view *b)
{
    enum { ALIGNED = 256 };
    return same_shape(a, b) && a->offset % ALIGNED == b->offset % ALIGNED;
}

/* A counter, of which each layer has its own, lies anywhere. */
static bool same_output(enum wf_op op, size_t i, const wf_view *a, const wf_view *b)
{
    return op == WF_OP_ATTENTION && i == WF_ATTENTION_RECOMPUTED ? same_shape(a, b) : same_view(a, b);
}

/* Weights and pools also have their rows in common; those of others are what kernels are kept by. */
static bool same_kind(const wf_call *a, const wf_call *b)
{
    wf_op_params p = a->p, q = b->p;
    bool async = p.phi_lo < p.phi_hi, other = q.phi_lo < q.phi_hi;
    p.phi = p.phi_lo = p.phi_hi = q.phi = q.phi_lo = q.phi_hi = 0;
    if (a->op != b->op || a->max_groups != b->max_groups || a->variant != b->variant || async != other ||
        memcmp(&p, &q, sizeof p))
        return false;
    if (a->op == WF_OP_GEMM && a->in[WF_GEMM_W].rows != b->in[WF_GEMM_W].rows) return false;
    if (a->op == WF_OP_GROUPED_GEMM && a->in[WF_GROUPED_GEMM_W].rows != b->in[WF_GROUPED_GEMM_W].rows) return false;
    if (a->op == WF_OP_ROUTER && a->in[WF_ROUTER_W].rows != b->in[WF_ROUTER_W].rows) return false;
    for (size_t i = 0; i < WF_MAX_IN; i++)
        if (!same_view(&a->in[i], &b->in[i])) return false;
    for (size_t i = 0; i < WF_MAX_OUT; i++)
        if (!same_output(a->op, i, &a->out[i], &b->out[i])) return false;
    return true;
}

/* A step of that many tokens: each of a sequence of its own, or all of one prompt. */
static wf_step_shape step_of(const wf_limits *l, uint32_t tokens, bool decodes)
{
    uint32_t seqs = decodes ? WF_MIN(tokens, l->seqs) : 1;
    return (wf_step_shape){.n_tokens = tokens, .n_decodes = decodes ? tokens : 0, .n_seqs = seqs, .n_pages = seqs,
                     .n_logits = WF_MIN(tokens, l->logit_rows), .max_q = decodes ? WF_MAX(1u, tokens / seqs) : tokens};
}

/* The variant that the plan names; a number of rows that it cannot run is left to the device's choice. */
static weft_status named_variant(wf_dev *dev, const wf_plan *plan, const wf_nano *n, enum wf_op op, int *out)
{
    const char *kernel = plan->lines[n->line].kernel;
    *out = -1;
    if (!strcmp(kernel, "auto")) return WEFT_OK;
    *out = wf_variant_find(dev, op, kernel);
    return *out >= 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_ARG, "%s: %s has no kernel '%s' for %s",
                         wf_line_place_of(plan, &plan->lines[n->line]).text, dev->info.name, kernel, wf_ops[op].name);
}

static weft_status new_kernels(wf_bind_to *to, const wf_call *like, bool prefill, uint32_t max_rows, wf_kernels **out)
{
    if (!wf_grow(&to->kernels, to->n_kernels, &to->cap_kernels, sizeof *to->kernels)) return WEFT_ERR_NOMEM;
    wf_kernels *k = wf_calloc(1, sizeof *k);
    if (!k) return WEFT_ERR_NOMEM;
    to->kernels[to->n_kernels++] = k;
    *k = (wf_kernels){.like = *like,
                      .prefill = prefill,
                      .max_rows = max_rows,
                      .of = wf_calloc((size_t)WF_N_CONTEXTS * (max_rows + 1), sizeof *k->of),
                      .us = wf_calloc(WF_N_CONTEXTS, sizeof *k->us)};
    *out = k;
    return k->of && k->us ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status find_kernels(wf_bind_to *to, const wf_plan *plan, wf_command *c)
{
    wf_call like;
    if (c->node->kind != WF_NODE_KERNEL) {
        const char *kernel = plan->lines[c->nano->line].kernel;
        if (!strcmp(kernel, "auto")) return WEFT_OK;
        return wf_fail(WEFT_ERR_ARG, "%s: %s has no kernel '%s': it moves data, write 'auto'",
                       wf_line_place_of(plan, &plan->lines[c->nano->line]).text, c->node->name, kernel);
    }
    WF_TRY(named_variant(to->dev, plan, c->nano, c->node->op, &c->call.variant));
    bool prefill = c->node->rows == WF_ROWS_PREFILL;
    uint32_t most = WF_MIN(c->max_rows,
                           c->node->rows == WF_ROWS_LOGITS ? to->limits.logit_rows : to->limits.step_tokens);
    wf_step_shape st = step_of(&to->limits, 1, !prefill);
    wf_command_call(to, c, &st, (wf_range){0, 1}, &like);
    for (wf_kernels **k = to->kernels; k < to->kernels + to->n_kernels && !c->kernels; k++)
        if (same_kind(&(*k)->like, &like) && (*k)->prefill == prefill && (*k)->max_rows >= most) c->kernels = *k;
    return c->kernels ? WEFT_OK : new_kernels(to, &like, prefill, most, &c->kernels);
}

weft_status wf_program_init(wf_program *p, wf_bind_to *to, const wf_plan *plan)
{
    *p = (wf_program){.plan = plan, .commands = wf_calloc(plan->n_nanos, sizeof *p->commands), .n = plan->n_nanos};
    if (!p->commands) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < p->n; i++) {
        bind_command(to, plan, &plan->nanos[i], &p->commands[i]);
        WF_TRY(find_kernels(to, plan, &p->commands[i]));
    }
    return WEFT_OK;
}

void wf_program_free(wf_program *p)
{
    free(p->commands);
    *p = (wf_program){0};
}

void wf_kernels_free(wf_bind_to *to)
{
    for (size_t i = 0; i < to->n_kernels; i++) {
        free(to->kernels[i]->of);
        free(to->kernels[i]->list);
        free(to->kernels[i]->us);
        free(to->kernels[i]);
    }
    free(to->kernels);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static weft_status keep_binding(wf_kernels *k, const wf_binding *b, uint32_t *of)
{
    size_t i = 0;
    while (i < k->n && memcmp(&k->list[i], b, sizeof *b)) i++;
    if (i == k->n) {
        if (!wf_grow(&k->list, k->n, &k->cap, sizeof *b)) return WEFT_ERR_NOMEM;
        k->list[k->n++] = *b;
    }
    *of = (uint32_t)i + 1;
    return WEFT_OK;
}

/* The call that is bound for such ones. */
static wf_call call_to_bind(const wf_bind_to *to, const wf_call *call)
{
    wf_call c = *call;
    if (c.op == WF_OP_ATTENTION) c.p.max_kv = context_of_class(to, call, context_class(call));
    /* What a plan names may run some numbers of rows only; a call in pieces has none that runs it whole. */
    if (c.variant >= 0 && !wf_is_fused(&c) && !to->dev->fns->supports(to->dev, &c, c.variant)) c.variant = -1;
    return c;
}

static weft_status bind_call(const wf_bind_to *to, wf_kernels *k, const wf_call *call, uint32_t *of)
{
    wf_binding b;
    wf_call c = call_to_bind(to, call);
    memset(&b, 0, sizeof b);
    WF_TRY(wf_bind(to->dev, &c, &b));
    return keep_binding(k, &b, of);
}

static uint32_t *entry_of(const wf_command *c, const wf_call *call)
{
    return &c->kernels->of[context_class(call) * (size_t)(c->kernels->max_rows + 1) + rows_of_call(call)];
}

weft_status wf_command_kernels(const wf_bind_to *to, const wf_command *c, const wf_call *call, const wf_binding **out)
{
    uint32_t *of = entry_of(c, call);
    if (!*of) WF_TRY(bind_call(to, c->kernels, call, of));
    *out = &c->kernels->list[*of - 1];
    return WEFT_OK;
}

void wf_command_unbind(const wf_command *c, const wf_call *call)
{
    *entry_of(c, call) = 0;
}

void wf_command_like(const wf_bind_to *to, const wf_command *c, uint32_t rows, uint32_t max_kv, wf_call *out)
{
    wf_step_shape st = step_of(&to->limits, rows, c->node->rows != WF_ROWS_PREFILL);
    if (c->node->rows == WF_ROWS_LOGITS)
        st.n_logits = rows, st.n_tokens = WF_MIN(WF_MAX(rows, st.n_tokens), to->limits.step_tokens);
    st.max_kv = max_kv;
    wf_command_call(to, c, &st, (wf_range){0, rows}, out);
}

/* Prefill and whole batches may see contexts of any length; what is bound by rows alone needs one. Returns how many
 * there are. */
static uint32_t contexts_of(const wf_bind_to *to, const wf_command *c, uint32_t max_kv[WF_N_CONTEXTS])
{
    uint32_t classes = c->node->op == WF_OP_ATTENTION ? WF_N_CONTEXTS : 1, n = 0;
    for (; n < classes; n++) {
        max_kv[n] = context_of_class(to, &c->call, n);
        if (n && max_kv[n] == max_kv[n - 1]) break;
    }
    return n;
}

static weft_status bind_rows(const wf_bind_to *to, const wf_command *c, uint32_t rows)
{
    uint32_t max_kv[WF_N_CONTEXTS], n = contexts_of(to, c, max_kv);
    for (uint32_t i = 0; i < n; i++) {
        const wf_binding *b;
        wf_call call;
        wf_command_like(to, c, rows, max_kv[i], &call);
        WF_TRY(wf_command_kernels(to, c, &call, &b));
        wf_note_us(to, c, i, rows, &call, b);
    }
    return WEFT_OK;
}

/* For one context class after another: the same kernels for both numbers of rows? */
static bool same_kernels(const wf_kernels *k, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < WF_N_CONTEXTS; i++) {
        const uint32_t *of = k->of + i * (k->max_rows + 1);
        if (of[a] != of[b]) return false;
    }
    return true;
}

/* If two numbers of rows have the same kernels, all between them get these, too: a kernel that runs more rows runs
 * fewer, and at such numbers the choice hardly changes. */
static weft_status bind_between(const wf_bind_to *to, const wf_command *c, uint32_t low, uint32_t high)
{
    if (high - low < 2) return WEFT_OK;
    if (same_kernels(c->kernels, low, high)) {
        for (size_t i = 0; i < WF_N_CONTEXTS; i++) {
            uint32_t *of = c->kernels->of + i * (c->kernels->max_rows + 1);
            for (uint32_t rows = low + 1; rows < high; rows++) of[rows] = of[low];
        }
        return WEFT_OK;
    }
    uint32_t middle = low + (high - low) / 2;
    WF_TRY(bind_rows(to, c, middle));
    WF_TRY(bind_between(to, c, low, middle));
    return bind_between(to, c, middle, high);
}

/* ---- what choosing will build ------------------------------------------------------------------------------------ */

typedef struct call_list {
    wf_call *list;
    size_t n, cap;
} call_list;

static void add_calls(const wf_bind_to *to, const wf_command *c, uint32_t rows, call_list *out)
{
    uint32_t max_kv[WF_N_CONTEXTS], n = contexts_of(to, c, max_kv);
    for (uint32_t i = 0; i < n && wf_grow(&out->list, out->n, &out->cap, sizeof *out->list); i++) {
        wf_call call;
        wf_command_like(to, c, rows, max_kv[i], &call);
        out->list[out->n++] = call_to_bind(to, &call);
    }
}

/* Of programs that are bound: whether what they will build was asked for. */
typedef struct ahead {
    const wf_program *list;
    size_t n;
    uint32_t built; /* by the device before */
    bool asked;
} ahead;

/* Once a kernel had to be built, the others are, too, side by side. Where a cache has all of them none is looked for.
 */
static void build_ahead(const wf_bind_to *to, ahead *a)
{
    call_list calls = {0};
    if (a->asked || !to->dev->fns->prebuild || to->dev->kernel_work.built == a->built) return;
    a->asked = true;
    for (size_t p = 0; p < a->n; p++)
        for (wf_command *c = a->list[p].commands; c < a->list[p].commands + a->list[p].n; c++) {
            if (c->node->kind != WF_NODE_KERNEL || c->kernels->foreseen) continue;
            c->kernels->foreseen = true;
            /* A kernel hardly ever serves so few numbers of rows that none of them is met in steps of an eighth. */
            for (uint32_t rows = 1; rows < c->kernels->max_rows; rows += WF_MAX(rows / 8, 1u))
                add_calls(to, c, rows, &calls);
            add_calls(to, c, c->kernels->max_rows, &calls);
        }
    wf_bind_ahead(to->dev, calls.list, calls.n);
    free(calls.list);
}

/* Tiles have 16 rows or more, so that the choice for many rows changes where one begins (`unit cl_pick`). */
static weft_status bind_runs(const wf_bind_to *to, const wf_command *c, uint32_t from, uint32_t limit, ahead *a)
{
    enum { RUN = 16 };
    for (uint32_t low = from; low <= limit; low += RUN) {
        uint32_t high = WF_MIN(low + RUN - 1, limit);
        WF_TRY(bind_rows(to, c, low));
        WF_TRY(bind_rows(to, c, high));
        build_ahead(to, a);
        WF_TRY(bind_between(to, c, low, high));
    }
    return WEFT_OK;
}

static weft_status bind_all_rows(const wf_bind_to *to, const wf_command *c, ahead *a)
{
    enum { ONE_BY_ONE = 64, IN_RUNS = 4096 };
    uint32_t limit = c->kernels->max_rows, few = WF_MIN(limit, (uint32_t)ONE_BY_ONE),
             most = WF_MIN(limit, (uint32_t)IN_RUNS);
    weft_status s = WEFT_OK;
    for (uint32_t rows = 1; !s && rows <= few; rows++)
        if (!(s = bind_rows(to, c, rows))) build_ahead(to, a); /* not for what is given up; its error is the last */
    if (!s) s = bind_runs(to, c, few + 1, most, a);
    for (uint32_t rows = 2 * most; !s && rows < limit; rows *= 2) s = bind_rows(to, c, rows); /* for their times */
    if (!s && limit > most) s = bind_rows(to, c, limit);
    if (!s) s = bind_between(to, c, most, limit);
    return s ? wf_fail_context(s, "%s", c->node->name) : WEFT_OK;
}

weft_status wf_programs_bind(wf_bind_to *to, wf_program *list, size_t n, bool *can_sample, weft_progress_fn progress,
                             void *user)
{
    size_t done = 0;
    ahead a = {list, n, to->dev->kernel_work.built, false};
    *can_sample = true;
    for (size_t p = 0; p < n; p++)
        for (wf_command *c = list[p].commands; c < list[p].commands + list[p].n; c++) {
            /* The first command of all programs with these kernels binds them. */
            if (c->node->kind != WF_NODE_KERNEL || c->kernels->n) continue;
            weft_status s = bind_all_rows(to, c, &a);
            bool refused = s != WEFT_OK && c->node->op == WF_OP_SAMPLE && !to->dev->lost;
            if (refused) *can_sample = false;
            else WF_TRY(s);
            done++;
            if (progress) progress(user, "prepare", (double)done / (double)WF_MAX(to->n_kernels, done));
        }
    return wf_check_named(to, list, n);
}
