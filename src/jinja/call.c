/* call: builtins, whose arguments are bound to parameters, and macros. */
#include "jinja/internal.h"

const wf_jbuiltin *wf_jrow_find(const wf_jbuiltin *rows, size_t n, wf_jstr name)
{
    for (size_t i = 0; i < n; i++)
        if (wf_jstr_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

wf_jstr wf_jarg_str(wf_jrun *r, wf_jvalue v, const char *what)
{
    wf_jneed(r, v);
    if (v.kind != WF_JSTRING) wf_jfail(r, WEFT_ERR_ARG, "%s must be a string, not %s", what, wf_jtype(v));
    return *v.s;
}

int64_t wf_jarg_int(wf_jrun *r, wf_jvalue v, int64_t absent, const char *what)
{
    if (!wf_jgiven(v)) return absent;
    wf_jneed(r, v);
    if (!wf_jis_integer(v)) wf_jfail(r, WEFT_ERR_ARG, "%s must be an integer, not %s", what, wf_jtype(v));
    return wf_jinteger(v);
}

wf_jvalue wf_jkeyword(const wf_jargs *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (wf_jstr_is(a->kw[i].name->text, name)) return a->kw[i].value;
    return (wf_jvalue){.kind = WF_JABSENT};
}

wf_jvalue wf_jarg_name(wf_jrun *r, const wf_jvar *kw) { return wf_jstring(r, kw->key ? *kw->key : kw->name->text); }

bool wf_jarg_true(wf_jvalue v, bool absent) { return wf_jgiven(v) ? wf_jtrue(v) : absent; }

/* ---- builtins ---------------------------------------------------------------------------------------------- */

/* In steps: a builtin may look at all of a text once. */
static size_t size_of(wf_jvalue v) { return v.kind == WF_JSTRING ? v.s->len / 64 : 0; }

wf_jvalue wf_jcall_builtin(wf_jrun *r, const wf_jbuiltin *fn, const char *what, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue v[WF_JMAX_PARAMS];
    wf_jargs bound = *a;
    wf_jstep(r, size_of(self));
    for (size_t i = 0; i < a->n; i++) wf_jstep(r, size_of(a->v[i]));
    wf_jenter(r);
    if (!fn->any) {
        size_t n = 0;
        while (n < WF_JMAX_PARAMS && fn->params[n]) n++;
        if (a->n > n)
            wf_jfail(r, WEFT_ERR_ARG, "%s '%s' takes at most %zu arguments, not %zu", what, fn->name, n, a->n);
        for (size_t i = 0; i < WF_JMAX_PARAMS; i++) v[i] = i < a->n ? a->v[i] : (wf_jvalue){.kind = WF_JABSENT};
        for (size_t i = 0; i < a->n_kw; i++) {
            const wf_jname *name = a->kw[i].name;
            size_t k = 0;
            while (k < n && !wf_jstr_is(name->text, fn->params[k])) k++;
            if (k == n) wf_jfail(r, WEFT_ERR_ARG, "%s '%s' has no argument '%.80s'", what, fn->name, name->p);
            v[k] = a->kw[i].value;
        }
        for (size_t i = 0; i < fn->required; i++)
            if (!wf_jgiven(v[i]))
                wf_jfail(r, WEFT_ERR_ARG, "%s '%s' needs the argument '%s'", what, fn->name, fn->params[i]);
        bound = (wf_jargs){.v = v, .n = WF_JMAX_PARAMS};
    }
    bound.option = fn->option;
    wf_jvalue out = fn->fn(r, self, &bound);
    wf_jleave(r);
    return out;
}

static wf_jvalue call_named(wf_jrun *r, const wf_jbuiltin *fn, const char *what, wf_jstr name, wf_jvalue self,
                            const wf_jargs *a)
{
    if (fn) return wf_jcall_builtin(r, fn, what, self, a);
    wf_jfail(r, WEFT_ERR_UNSUPPORTED, "there is no %s '%.*s': use another template (weft_chat_params.chat_template)",
             what, (int)WF_MIN(name.len, 80u), name.p);
}

wf_jvalue wf_jcall_filter(wf_jrun *r, wf_jstr name, wf_jvalue self, const wf_jargs *a)
{
    return call_named(r, wf_jfilter_find(name), "filter", name, self, a);
}

bool wf_jcall_test(wf_jrun *r, wf_jstr name, wf_jvalue self, const wf_jargs *a)
{
    return wf_jtrue(call_named(r, wf_jtest_find(name), "test", name, self, a));
}

/* ---- macros ---------------------------------------------------------------------------------------------------- */

/* What has no parameter: varargs and kwargs. */
static void bind_rest(wf_jrun *r, wf_jframe *f, const wf_jmacro *m, const wf_jargs *a, size_t taken)
{
    wf_jvalue rest = wf_jlist_new(r, WF_JTUPLE), named = wf_jdict_new(r);
    for (size_t i = taken; i < a->n; i++) wf_jpush(r, rest.l, a->v[i]);
    for (size_t i = 0; i < a->n_kw; i++) {
        const wf_jnode *p = m->node->list;
        while (p && p->name != a->kw[i].name) p = p->next;
        if (!p && !wf_jstr_is(a->kw[i].name->text, "caller"))
            wf_jdict_set(r, named.d, wf_jarg_name(r, &a->kw[i]), a->kw[i].value);
    }
    wf_jset_text(r, f, "varargs", rest);
    wf_jset_text(r, f, "kwargs", named);
}

wf_jvalue wf_jcall_macro(wf_jrun *r, const wf_jmacro *m, const wf_jargs *a, const wf_jvalue *caller)
{
    wf_jframe *f = wf_jframe_new(r, m->frame);
    wf_jbuf out = {.r = r};
    wf_jenter(r);
    size_t i = 0;
    for (const wf_jnode *p = m->node->list; p; p = p->next, i++) {
        const wf_jvalue *named = NULL;
        for (size_t k = 0; k < a->n_kw; k++)
            if (a->kw[k].name == p->name) named = &a->kw[k].value;
        wf_jvalue v = i < a->n ? a->v[i] : named ? *named : p->a ? wf_jeval(r, f, p->a) : wf_jundefined(p->name->p);
        if (i < a->n && named)
            wf_jfail(r, WEFT_ERR_ARG, "macro '%.80s' got '%.80s' twice", m->node->name->p, p->name->p);
        wf_jset(r, f, p->name, v);
    }
    bind_rest(r, f, m, a, i);
    if (caller) wf_jset_text(r, f, "caller", *caller);
    wf_jexec(r, f, m->node->b, &out);
    wf_jleave(r);
    return wf_jstring(r, wf_jbuf_take(&out));
}

wf_jvalue wf_jcall(wf_jrun *r, wf_jvalue callee, const wf_jargs *a)
{
    wf_jneed(r, callee);
    switch (callee.kind) {
    case WF_JMACRO: return wf_jcall_macro(r, callee.macro, a, NULL);
    case WF_JFUNCTION: return wf_jcall_builtin(r, callee.fn, "function", wf_jnone(), a);
    case WF_JMETHOD: return wf_jcall_builtin(r, callee.method->fn, "method", callee.method->self, a);
    default: wf_jfail(r, WEFT_ERR_ARG, "%s cannot be called", wf_jtype(callee));
    }
}
