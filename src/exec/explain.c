/* explain: a program as a table for people, as a database explains a query. See exec.h. */
#include "exec/internal.h"
#include "plan/cost.h"

#include <string.h>

typedef struct row {
    wf_range tokens;
    wf_work work;
    enum wf_class class;
    double expected; /* seconds; 0: unknown */
    char kernels[64];
} row;

typedef struct printer {
    const wf_exec *e;
    const wf_explain *x;
    const wf_program *program;
    wf_step_shape st;
    FILE *f;
    double expected; /* of all printed and skipped */
    wf_work work;
} printer;

/* Names them; in seconds, what the backend expects of them together. 0: it does not know of all. */
static double read_kernels(const wf_exec *e, const wf_command *c, const wf_call *call, char *text, size_t cap)
{
    const wf_binding *b;
    *text = 0;
    if (wf_command_kernels(&e->to, c, call, &b) != WEFT_OK) return 0;
    for (size_t i = 0; i < b->n; i++) {
        enum wf_op op = (enum wf_op)b->part[i].op;
        const wf_variant *v = wf_variant_at(e->dev, op, b->part[i].b.variant);
        size_t len = strlen(text);
        snprintf(text + len, cap - len, "%s%s/%s", len ? " + " : "", wf_ops[op].name, v ? v->name : "?");
    }
    return wf_binding_us(e->dev, call, b) * 1e-6;
}

/* Of the batch's tokens, all of one length: what is no decode is one prompt. */
static double keys_of(const printer *p, const wf_node *n)
{
    return n->rows == WF_ROWS_PREFILL ? p->x->context / 2.0 : p->x->context;
}

static row row_of(const printer *p, const wf_command *c)
{
    row r = {.tokens = wf_command_range(c, &p->st)};
    const wf_node *n = c->node;
    wf_call call;
    r.class = wf_node_class(p->e->g, n, r.tokens.count, keys_of(p, n), wf_ridge(p->e->dev->info.type));
    if (!r.tokens.count) return r;
    r.work = wf_node_work(p->e->g, n, r.tokens.count, keys_of(p, n));
    if (n->kind == WF_NODE_UPLOAD) r.work.bytes = (double)wf_inputs_greedy_bytes(p->e, &p->st);
    if (p->x->flops_rate > 0) r.expected = r.work.flops / p->x->flops_rate;
    if (p->x->byte_rate > 0) r.expected = WF_MAX(r.expected, r.work.bytes / p->x->byte_rate);
    if (n->kind != WF_NODE_KERNEL) return r;
    r.tokens.count = WF_MIN(r.tokens.count, c->max_rows);
    wf_command_call(&p->e->to, c, &p->st, r.tokens, &call);
    double expected = read_kernels(p->e, c, &call, r.kernels, sizeof r.kernels);
    if (r.expected > 0 && expected > 0) r.expected = expected;
    return r;
}

static const char *const conditions[WF_N_WHEN] = {
    [WF_ALWAYS] = "",
    [WF_WHEN_PENDING] = ", if the host does not know all tokens yet",
    [WF_WHEN_GREEDY] = ", if greedy",
    [WF_WHEN_SAMPLED] = ", if sampled",
    [WF_WHEN_IDS] = "",
    [WF_WHEN_LOGITS] = ", if the host wants logits",
    [WF_WHEN_ADAPTED] = ", if a token has an adapter",
    [WF_WHEN_PLAIN] = ", if none has",
};

static void print_row(printer *p, size_t i, const row *r)
{
    const wf_command *c = &p->program->commands[i];
    char name[40], tokens[32], waits[32], share[16];
    if (c->node->layer == WF_ONCE) snprintf(name, sizeof name, "%s", c->node->name);
    else snprintf(name, sizeof name, "%d.%s", c->node->layer, c->node->name);
    if (!r->tokens.count) snprintf(tokens, sizeof tokens, "none");
    else if (c->node->rows == WF_ROWS_WHOLE) snprintf(tokens, sizeof tokens, "all");
    else snprintf(tokens, sizeof tokens, "%u-%u", r->tokens.first, r->tokens.first + r->tokens.count);
    if (c->nano->groups) snprintf(share, sizeof share, "%u", c->nano->groups);
    else snprintf(share, sizeof share, "all");
    size_t len = 0;
    snprintf(waits, sizeof waits, "-");
    for (uint32_t w = 0; w < c->nano->n_waits && len < sizeof waits; w++)
        len += (size_t)snprintf(waits + len, sizeof waits - len, "%s%u", w ? "," : "",
                                p->program->plan->waits[c->nano->wait + w]);
    fprintf(p->f, "%5zu  %-24s %-11s %5u  %-9s %-5s %-8s %9.3f %9.3f  ", i, name, tokens, c->nano->queue,
            waits, share, wf_class_name(r->class), r->work.bytes / 1e6, r->work.flops / 1e9);
    if (r->expected > 0) fprintf(p->f, "%9.1f", r->expected * 1e6);
    else fprintf(p->f, "%9s", "-");
    fprintf(p->f, "  %s%s\n",
            r->kernels[0]                     ? r->kernels
            : c->node->kind == WF_NODE_KERNEL ? "-"
                                              : wf_node_kind_name(c->node->kind),
            conditions[c->node->when]);
}

/* Layers between the first and the last run like the first. */
static bool is_shown(const printer *p, const wf_command *c)
{
    return c->node->layer <= 0 || c->node->layer == p->e->g->n_layers - 1;
}

/* One for each decode, and one for the prompt. */
static uint32_t seqs_of(const wf_explain *x)
{
    return x->decodes + (x->tokens > x->decodes);
}

static wf_step_shape step_of(const wf_exec *e, const wf_explain *x)
{
    uint32_t page = 1, seqs = seqs_of(x);
    for (const wf_node *n = e->g->nodes; n < e->g->nodes + e->g->n_nodes; n++)
        if (n->op == WF_OP_ATTENTION) page = n->p.page_tokens;
    return (wf_step_shape){.n_tokens = x->tokens,
                           .n_decodes = x->decodes,
                           .n_seqs = seqs,
                           .n_pages = seqs * ((x->context + page - 1) / page),
                           .n_logits = WF_MIN(seqs, e->limits.logit_rows),
                           .max_kv = x->context,
                           .max_q = WF_MAX(1u, x->tokens - x->decodes)};
}

static weft_status check_batch(const wf_exec *e, const wf_explain *x)
{
    if (!x->tokens || x->tokens > e->limits.step_tokens || x->decodes > x->tokens || seqs_of(x) > e->limits.seqs)
        return wf_fail(WEFT_ERR_ARG,
                       "a batch of %u tokens, %u of them decodes: this engine takes 1 to %u tokens of at most %u "
                       "sequences, one for each decode and one for a prompt",
                       x->tokens, x->decodes, e->limits.step_tokens, e->limits.seqs);
    return WEFT_OK;
}

weft_status wf_exec_expected(const wf_exec *e, const wf_explain *x, size_t plan, double *out)
{
    WF_TRY(check_batch(e, x));
    printer p = {.e = e, .x = x, .program = &e->programs[plan], .st = step_of(e, x)};
    for (size_t i = 0; i < p.program->n; i++) out[i] = row_of(&p, &p.program->commands[i]).expected;
    return WEFT_OK;
}

double wf_exec_step_seconds(const wf_exec *e, const wf_explain *x)
{
    double sum = 0;
    printer p = {.e = e,
                 .x = x,
                 .program = &e->programs[wf_plans_choose(e->plans, x->tokens, x->decodes, x->context)],
                 .st = step_of(e, x)};
    for (const wf_command *c = p.program->commands; c < p.program->commands + p.program->n; c++)
        if (wf_node_is_usual(c->node)) sum += row_of(&p, c).expected;
    return sum;
}

weft_status wf_exec_explain(const wf_exec *e, const wf_explain *x, FILE *f)
{
    WF_TRY(check_batch(e, x));
    size_t choice = wf_plans_choose(e->plans, x->tokens, x->decodes, x->context);
    printer p = {.e = e, .x = x, .program = &e->programs[choice], .st = step_of(e, x), .f = f};
    fprintf(f, "plan %zu of %zu for %u tokens, %u of them decodes, context %u, on %s (%s)\n", choice + 1, e->plans->n,
            x->tokens, x->decodes, x->context, e->dev->info.name, e->dev->info.id);
    /* Totals are of a greedy step whose tokens the host knows. */
    size_t hidden = 0;
    fprintf(p.f, "%5s  %-24s %-11s %5s  %-9s %-5s %-8s %9s %9s  %9s  %s\n", "#", "command", "tokens", "queue",
            "waits for", "share", "class", "MB", "Gflop", "est. us", "kernels");
    for (size_t i = 0; i < p.program->n; i++) {
        const wf_command *c = &p.program->commands[i];
        row r = row_of(&p, c);
        if (wf_node_is_usual(c->node))
            p.expected += r.expected, p.work.bytes += r.work.bytes, p.work.flops += r.work.flops;
        if (hidden && is_shown(&p, c))
            fprintf(p.f, "%5s  ... %zu commands of the layers between\n", "", hidden), hidden = 0;
        if (is_shown(&p, c)) print_row(&p, i, &r);
        else hidden++;
    }
    fprintf(f, "%zu commands on %u queue%s, %.3f MB, %.3f Gflop", p.program->n, p.program->plan->n_queues,
            p.program->plan->n_queues == 1 ? "" : "s", p.work.bytes / 1e6, p.work.flops / 1e9);
    if (p.expected > 0)
        fprintf(f, "; estimated %.3f ms one after another, %.1f tokens/s", p.expected * 1e3, x->tokens / p.expected);
    fputc('\n', f);
    return WEFT_OK;
}
