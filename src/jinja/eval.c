/* eval: the value of an expression. */
#include "jinja/internal.h"

static wf_jvalue eval_list(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue v = wf_jlist_new(r, n->kind == WF_JN_LIST ? WF_JLIST : WF_JTUPLE);
    for (const wf_jnode *x = n->list; x; x = x->next) wf_jpush(r, v.l, wf_jeval(r, f, x));
    return v;
}

static wf_jvalue eval_dict(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue v = wf_jdict_new(r);
    for (const wf_jnode *x = n->list; x; x = x->next) {
        wf_jvalue key = wf_jeval(r, f, x->a);
        wf_jdict_set(r, v.d, key, wf_jeval(r, f, x->b));
    }
    return v;
}

static wf_jvalue eval_slice(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue v = wf_jeval(r, f, n->a);
    const wf_jnode *parts[3] = {n->b, n->c, n->list};
    wf_jvalue bounds[3];
    for (size_t i = 0; i < 3; i++) bounds[i] = parts[i] ? wf_jeval(r, f, parts[i]) : wf_jnone();
    return wf_jslice(r, v, bounds);
}

static wf_jvalue eval_unary(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue v = wf_jeval(r, f, n->a);
    wf_jneed(r, v);
    if (!wf_jis_number(v)) wf_jfail(r, WEFT_ERR_ARG, "%s has no sign", wf_jtype(v));
    if (v.kind == WF_JFLOAT) return n->op == WF_JSUB ? v.f = -v.f, v.digits = 0, v : v;
    return wf_joperate(r, n->op == WF_JSUB ? WF_JSUB : WF_JADD, wf_jint(0), v);
}

/* a < b < c: each neighbours pair, up to the first that is false. */
static wf_jvalue eval_compare(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue left = wf_jeval(r, f, n->a), v = wf_jbool(true);
    for (const wf_jnode *x = n->list; x && wf_jtrue(v); x = x->next) {
        wf_jvalue right = wf_jeval(r, f, x->a);
        v = wf_joperate(r, x->op, left, right);
        left = right;
    }
    return v;
}

/* Names are not looked up of what is called, so that the message says what is missing. */
static wf_jvalue eval_call(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue callee = wf_jeval(r, f, n->a);
    wf_jargs a = wf_jeval_args(r, f, n);
    r->at = n->a->at;
    return wf_jcall(r, callee, &a);
}

static wf_jvalue eval_filter_or_test(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue self = wf_jeval(r, f, n->a);
    wf_jargs a = wf_jeval_args(r, f, n);
    r->at = n->at;
    if (n->kind == WF_JN_FILTER) return wf_jcall_filter(r, n->name->text, self, &a);
    return wf_jbool(wf_jcall_test(r, n->name->text, self, &a));
}

static wf_jvalue eval_logic(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue a = wf_jeval(r, f, n->a);
    if (n->kind == WF_JN_NOT) return wf_jbool(!wf_jtrue(a));
    if (n->kind == WF_JN_COND)
        return wf_jtrue(a) ? wf_jeval(r, f, n->b)
               : n->c      ? wf_jeval(r, f, n->c)
                           : wf_jundefined("the value of an 'if' without 'else'");
    return wf_jtrue(a) == (n->kind == WF_JN_AND) ? wf_jeval(r, f, n->b) : a;
}

static wf_jvalue eval(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jvalue a;
    switch (n->kind) {
    case WF_JN_CONST: return n->value;
    case WF_JN_NAME: return wf_jget(r, f, n->name);
    case WF_JN_LIST: case WF_JN_TUPLE: return eval_list(r, f, n);
    case WF_JN_DICT: return eval_dict(r, f, n);
    case WF_JN_ATTR: return a = wf_jeval(r, f, n->a), r->at = n->at, wf_jattr(r, a, n->name->text);
    case WF_JN_ITEM: return a = wf_jeval(r, f, n->a), wf_jitem(r, a, wf_jeval(r, f, n->b));
    case WF_JN_SLICE: return eval_slice(r, f, n);
    case WF_JN_CALL: return eval_call(r, f, n);
    case WF_JN_FILTER: case WF_JN_TEST: return eval_filter_or_test(r, f, n);
    case WF_JN_UNARY: return eval_unary(r, f, n);
    case WF_JN_COMPARE: return eval_compare(r, f, n);
    case WF_JN_BINARY: return a = wf_jeval(r, f, n->a), wf_joperate(r, n->op, a, wf_jeval(r, f, n->b));
    default: return eval_logic(r, f, n);
    }
}

wf_jvalue wf_jeval(wf_jrun *r, wf_jframe *f, const wf_jnode *n)
{
    wf_jstep(r, 0);
    wf_jenter(r);
    r->at = n->at;
    wf_jvalue v = eval(r, f, n);
    wf_jleave(r);
    return v;
}

static void add_keyword(wf_jrun *r, wf_jargs *a, size_t *cap, wf_jvar kw)
{
    wf_jstep(r, a->n_kw / 4);
    for (size_t i = 0; i < a->n_kw; i++)
        if (a->kw[i].name == kw.name)
            wf_jfail(r, WEFT_ERR_ARG, "the argument '%.80s' is given twice", kw.name->p);
    a->kw = wf_jgrow(r, a->kw, a->n_kw, cap, sizeof *a->kw);
    a->kw[a->n_kw++] = kw;
}

wf_jargs wf_jeval_args(wf_jrun *r, wf_jframe *f, const wf_jnode *call)
{
    wf_jlist l = {0};
    wf_jargs a = {0};
    size_t cap = 0;
    for (const wf_jnode *x = call->list; x; x = x->next) {
        wf_jvalue v = wf_jeval(r, f, x->a);
        if (x->op == WF_JPOSITIONAL) wf_jpush(r, &l, v);
        else if (x->op == WF_JKEYWORD) add_keyword(r, &a, &cap, (wf_jvar){x->name, v, NULL});
        else if (x->op == WF_JSTARS) {
            if (v.kind != WF_JDICT) wf_jfail(r, WEFT_ERR_ARG, "** needs a dict, not %s", wf_jtype(v));
            for (size_t i = 0; i < v.d->n; i++) {
                const wf_jentry *e = &v.d->e[i];
                if (e->key.kind != WF_JSTRING) wf_jfail(r, WEFT_ERR_ARG, "** needs strings as keys");
                add_keyword(r, &a, &cap, (wf_jvar){wf_jintern(r, e->key.s->p, e->key.s->len), e->value, e->key.s});
            }
        } else {
            const wf_jlist *more = wf_jiterate(r, v);
            for (size_t i = 0; i < more->n; i++) wf_jpush(r, &l, more->v[i]);
        }
    }
    a.v = l.v, a.n = l.n;
    return a;
}
