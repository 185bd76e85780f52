/* exec: runs statements, which write to a buffer, and keeps their variables. */
#include "jinja/internal.h"

/* ---- variables: a frame belongs to the template, an iteration of a loop, a macro's call or a block ------------- */

wf_jframe *wf_jframe_new(wf_jrun *r, wf_jframe *parent)
{
    wf_jframe *f = wf_jalloc(r, 1, sizeof *f);
    f->parent = parent;
    return f;
}

void wf_jset(wf_jrun *r, wf_jframe *f, const wf_jname *name, wf_jvalue v)
{
    wf_jstep(r, f->n / 16);
    for (size_t i = 0; i < f->n; i++)
        if (f->vars[i].name == name) {
            f->vars[i].value = v;
            return;
        }
    f->vars = wf_jgrow(r, f->vars, f->n, &f->cap, sizeof *f->vars);
    f->vars[f->n++] = (wf_jvar){.name = name, .value = v};
}

void wf_jset_text(wf_jrun *r, wf_jframe *f, const char *name, wf_jvalue v)
{
    wf_jset(r, f, wf_jintern(r, name, strlen(name)), v);
}

wf_jvalue wf_jget(wf_jrun *r, const wf_jframe *f, const wf_jname *name)
{
    for (; f; f = f->parent) {
        wf_jstep(r, f->n / 16);
        for (size_t i = 0; i < f->n; i++)
            if (f->vars[i].name == name) return f->vars[i].value;
    }
    return wf_jundefined(name->p);
}

/* ---- statements ---------------------------------------------------------------------------------------------- */

static enum wf_jflow exec_if(wf_jrun *r, wf_jframe *f, const wf_jnode *n, wf_jbuf *out)
{
    for (; n && n->kind == WF_JN_IF; n = n->c)
        if (wf_jtrue(wf_jeval(r, f, n->a))) return wf_jexec(r, f, n->b, out);
    return n ? wf_jexec(r, f, n, out) : WF_JGO;
}

/* ---- assignment ---------------------------------------------------------------------------------------------- */

static void assign(wf_jrun *r, wf_jframe *f, const wf_jnode *target, wf_jvalue v)
{
    if (target->kind == WF_JN_NAME) {
        wf_jset(r, f, target->name, v);
        return;
    }
    if (target->kind == WF_JN_ATTR) {
        wf_jvalue ns = wf_jeval(r, f, target->a);
        if (ns.kind != WF_JNAMESPACE) wf_jfail(r, WEFT_ERR_ARG, "only members of a namespace can be set");
        wf_jdict_set(r, ns.d, wf_jstring(r, target->name->text), v);
        return;
    }
    const wf_jlist *l = wf_jiterate(r, v);
    size_t i = 0;
    for (const wf_jnode *t = target->list; t; t = t->next, i++)
        if (i < l->n) assign(r, f, t, l->v[i]);
    if (i != l->n) wf_jfail(r, WEFT_ERR_ARG, "%zu values for %zu names", l->n, i);
}

/* What the body writes, through the filters whose innermost value it is. */
static wf_jvalue filtered(wf_jrun *r, wf_jframe *f, const wf_jnode *filter, wf_jvalue body)
{
    if (!filter) return body;
    wf_jenter(r);
    wf_jvalue self = filtered(r, f, filter->a, body);
    wf_jargs a = wf_jeval_args(r, f, filter);
    r->at = filter->at;
    wf_jvalue v = wf_jcall_filter(r, filter->name->text, self, &a);
    wf_jleave(r);
    return v;
}

static wf_jvalue block_value(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jbuf b = {.r = r};
    wf_jexec(r, wf_jframe_new(r, f), n->b, &b);
    return filtered(r, f, n->c, wf_jstring(r, wf_jbuf_take(&b)));
}

/* ---- loops --------------------------------------------------------------------------------------------------- */

static const wf_jlist *loop_items(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    const wf_jlist *all = wf_jiterate(r, wf_jeval(r, f, n->b));
    if (!n->c) return all;
    wf_jlist *some = wf_jalloc(r, 1, sizeof *some);
    for (size_t i = 0; i < all->n; i++) {
        wf_jframe *inside = wf_jframe_new(r, f);
        assign(r, inside, n->a, all->v[i]);
        if (wf_jtrue(wf_jeval(r, inside, n->c))) wf_jpush(r, some, all->v[i]);
    }
    return some;
}

static enum wf_jflow exec_for(wf_jrun *r, wf_jframe *f, const wf_jnode *n, wf_jbuf *out)
{
    const wf_jlist *items = loop_items(r, f, n);
    const wf_jname *name = wf_jintern(r, "loop", 4);
    const wf_jnode *otherwise = n->list->next;
    if (!items->n) return otherwise ? wf_jexec(r, wf_jframe_new(r, f), otherwise, out) : WF_JGO;
    wf_jloop *loop = wf_jalloc(r, 1, sizeof *loop);
    wf_jvalue outer = wf_jget(r, f, name);
    *loop = (wf_jloop){.items = items, .changed = {.kind = WF_JABSENT},
                       .depth = outer.kind == WF_JLOOP ? outer.loop->depth + 1 : 1};
    enum wf_jflow flow = WF_JGO;
    for (; loop->index < items->n && flow != WF_JBREAK; loop->index++) {
        wf_jframe *inside = wf_jframe_new(r, f);
        wf_jset(r, inside, name, WF_JVALUE(WF_JLOOP, loop, loop));
        assign(r, inside, n->a, items->v[loop->index]);
        flow = wf_jexec(r, inside, n->list, out);
    }
    return WF_JGO;
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

static wf_jvalue macro(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jmacro *m = wf_jalloc(r, 1, sizeof *m);
    *m = (wf_jmacro){n, f};
    return WF_JVALUE(WF_JMACRO, macro, m);
}

static void exec_call_block(wf_jrun *r, wf_jframe *f, const wf_jnode *n, wf_jbuf *out)
{
    wf_jvalue callee = wf_jeval(r, f, n->a->a), caller = macro(r, f, n->c);
    wf_jargs a = wf_jeval_args(r, f, n->a);
    if (callee.kind != WF_JMACRO) wf_jfail(r, WEFT_ERR_ARG, "{%% call %%} needs a macro, not %s", wf_jtype(callee));
    wf_jprint(out, wf_jcall_macro(r, callee.macro, &a, &caller));
}

static enum wf_jflow exec_with(wf_jrun *r, wf_jframe *f, const wf_jnode *n, wf_jbuf *out)
{
    wf_jframe *inside = wf_jframe_new(r, f);
    for (const wf_jnode *x = n->list; x; x = x->next) wf_jset(r, inside, x->name, wf_jeval(r, f, x->a));
    return wf_jexec(r, inside, n->b, out);
}

static enum wf_jflow exec_one(wf_jrun *r, wf_jframe *f, const wf_jnode *n, wf_jbuf *out)
{
    switch (n->kind) {
    case WF_JN_TEXT: return wf_jbuf_str(out, *n->value.s), WF_JGO;
    case WF_JN_PRINT: return wf_jprint(out, wf_jeval(r, f, n->a)), WF_JGO;
    case WF_JN_IF: return exec_if(r, f, n, out);
    case WF_JN_FOR: return exec_for(r, f, n, out);
    case WF_JN_SET: return assign(r, f, n->a, wf_jeval(r, f, n->b)), WF_JGO;
    case WF_JN_SET_BLOCK: return assign(r, f, n->a, block_value(r, f, n)), WF_JGO;
    case WF_JN_FILTER_BLOCK: return wf_jprint(out, block_value(r, f, n)), WF_JGO;
    case WF_JN_MACRO: return wf_jset(r, f, n->name, macro(r, f, n)), WF_JGO;
    case WF_JN_CALL_BLOCK: return exec_call_block(r, f, n, out), WF_JGO;
    case WF_JN_WITH: return exec_with(r, f, n, out);
    case WF_JN_SCOPE: return wf_jexec(r, n->b ? wf_jframe_new(r, f) : f, n->b ? n->b : n, out);
    default: return n->kind == WF_JN_BREAK ? WF_JBREAK : WF_JCONTINUE;
    }
}

enum wf_jflow wf_jexec(wf_jrun *r, wf_jframe *f, const wf_jnode *statements, wf_jbuf *out)
{
    enum wf_jflow flow = WF_JGO;
    wf_jenter(r);
    for (const wf_jnode *n = statements->list; n && flow == WF_JGO; n = n->next) {
        wf_jstep(r, 0);
        r->at = n->at;
        flow = exec_one(r, f, n, out);
    }
    wf_jleave(r);
    return flow;
}
