/* expression: the parser of expressions, from the loosest to the tightest operator, as jinja2's. */
#include "jinja/internal.h"

static wf_jnode *parse_unary(wf_jparser *p, bool filters);

static const struct {
    const char *ops[5];
    enum wf_jop kinds[4];
} levels[] = {
    {{"+", "-"}, {WF_JADD, WF_JSUB}},
    {{"~"}, {WF_JCONCAT}},
    {{"*", "/", "//", "%"}, {WF_JMUL, WF_JDIV, WF_JFLOORDIV, WF_JMOD}},
    {{"**"}, {WF_JPOW}},
};

/* All levels associate to the left, in jinja2 also **. */
static wf_jnode *parse_level(wf_jparser *p, size_t i)
{
    if (i == WF_LEN(levels)) return parse_unary(p, true);
    wf_jnode *left = parse_level(p, i + 1);
    for (size_t k = 0; levels[i].ops[k];) {
        if (!wf_jat_op(p, levels[i].ops[k])) {
            k++;
            continue;
        }
        wf_jnode *n = wf_jnode_new(p, WF_JN_BINARY);
        wf_jnext(p);
        n->op = (uint8_t)levels[i].kinds[k], n->a = left, n->b = parse_level(p, i + 1);
        left = n;
        k = 0;
    }
    return left;
}

static bool skip_comparison(wf_jparser *p, enum wf_jop *op)
{
    static const struct {
        const char *text;
        enum wf_jop op;
    } ops[] = {{"==", WF_JEQ}, {"!=", WF_JNE}, {"<=", WF_JLE}, {">=", WF_JGE}, {"<", WF_JLT}, {">", WF_JGT}};
    for (size_t i = 0; i < WF_LEN(ops); i++)
        if (wf_jskip_op(p, ops[i].text)) return *op = ops[i].op, true;
    *op = WF_JIN;
    if (wf_jskip_name(p, "in")) return true;
    const wf_jtoken *next = wf_jat_name(p, "not") ? wf_jpeek(p) : NULL;
    if (!next || next->kind != WF_JT_NAME || !wf_jstr_is(next->text, "in")) return false;
    wf_jnext(p);
    wf_jnext(p);
    return *op = WF_JNOT_IN, true;
}

static wf_jnode *parse_not(wf_jparser *p)
{
    if (!wf_jat_name(p, "not")) {
        enum wf_jop op;
        wf_jnode *left = parse_level(p, 0), *all = NULL;
        while (skip_comparison(p, &op)) {
            wf_jnode *right = wf_jnode_new(p, WF_JN_ARG);
            right->op = (uint8_t)op;
            right->a = parse_level(p, 0);
            if (!all) all = wf_jnode_new(p, WF_JN_COMPARE), all->a = left;
            wf_jnode_add(all, right);
        }
        return all ? all : left;
    }
    wf_jenter(p->r);
    wf_jnode *n = wf_jnode_new(p, WF_JN_NOT);
    wf_jnext(p);
    n->a = parse_not(p);
    wf_jleave(p->r);
    return n;
}

/* Operands with a word between them, from the left. */
static wf_jnode *parse_logic(wf_jparser *p, const char *word, enum wf_jnode_kind kind,
                             wf_jnode *(*operand)(wf_jparser *))
{
    wf_jnode *left = operand(p);
    while (wf_jat_name(p, word)) {
        wf_jnode *n = wf_jnode_new(p, kind);
        wf_jnext(p);
        n->a = left, n->b = operand(p);
        left = n;
    }
    return left;
}

static wf_jnode *parse_and(wf_jparser *p) { return parse_logic(p, "and", WF_JN_AND, parse_not); }

wf_jnode *wf_jparse_or(wf_jparser *p)
{
    wf_jenter(p->r);
    wf_jnode *n = parse_logic(p, "or", WF_JN_OR, parse_and);
    wf_jleave(p->r);
    return n;
}

wf_jnode *wf_jparse_expression(wf_jparser *p)
{
    wf_jenter(p->r);
    wf_jnode *one = wf_jparse_or(p);
    while (wf_jat_name(p, "if")) {
        wf_jnode *n = wf_jnode_new(p, WF_JN_COND); /* b if a else c */
        wf_jnext(p);
        n->b = one;
        n->a = wf_jparse_or(p);
        n->c = wf_jskip_name(p, "else") ? wf_jparse_expression(p) : NULL;
        one = n;
    }
    wf_jleave(p->r);
    return one;
}

bool wf_jends_tuple(const wf_jparser *p)
{
    return p->tok.kind == WF_JT_CLOSE || wf_jat_op(p, ")") || wf_jat_op(p, "=") || wf_jat_name(p, "in");
}

wf_jnode *wf_jparse_tuple(wf_jparser *p, bool cond)
{
    wf_jnode *first = cond ? wf_jparse_expression(p) : wf_jparse_or(p);
    if (!wf_jat_op(p, ",")) return first;
    wf_jnode *t = wf_jnode_new(p, WF_JN_TUPLE);
    wf_jnode_add(t, first);
    while (wf_jskip_op(p, ",") && !wf_jends_tuple(p)) wf_jnode_add(t, cond ? wf_jparse_expression(p) : wf_jparse_or(p));
    return t;
}

/* ---- literals --------------------------------------------------------------------------------------------------- */

static wf_jnode *constant(wf_jparser *p, wf_jvalue v)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CONST);
    n->value = v;
    wf_jnext(p);
    return n;
}

/* Strings that follow each other are one. */
static wf_jnode *parse_strings(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CONST);
    wf_jbuf b = {.r = p->r};
    for (; p->tok.kind == WF_JT_STRING; wf_jnext(p)) wf_jbuf_str(&b, p->tok.text);
    n->value = wf_jstring(p->r, wf_jbuf_take(&b));
    return n;
}

static wf_jnode *parse_name_or_word(wf_jparser *p)
{
    static const struct { const char *text; uint8_t kind; bool b;
    } words[] = {
        {"true", WF_JBOOL, true},   {"True", WF_JBOOL, true},  {"false", WF_JBOOL, false},
        {"False", WF_JBOOL, false}, {"none", WF_JNONE, false}, {"None", WF_JNONE, false},
    };
    for (size_t i = 0; i < WF_LEN(words); i++)
        if (wf_jat_name(p, words[i].text)) return constant(p, (wf_jvalue){.kind = words[i].kind, .b = words[i].b});
    wf_jnode *n = wf_jnode_new(p, WF_JN_NAME);
    n->name = wf_jparse_name(p);
    return n;
}

static wf_jnode *parse_primary(wf_jparser *p)
{
    switch (p->tok.kind) {
    case WF_JT_NAME: return parse_name_or_word(p);
    case WF_JT_STRING: return parse_strings(p);
    case WF_JT_INT: return constant(p, wf_jint(p->tok.i));
    case WF_JT_FLOAT: return constant(p, wf_jfloat(p->tok.f));
    default: break;
    }
    if (wf_jat_op(p, "(")) {
        wf_jexpect_op(p, "(");
        wf_jnode *n = wf_jat_op(p, ")") ? wf_jnode_new(p, WF_JN_TUPLE) : wf_jparse_tuple(p, true);
        wf_jexpect_op(p, ")");
        return n;
    }
    if (wf_jat_op(p, "[")) {
        wf_jnode *n = wf_jnode_new(p, WF_JN_LIST);
        wf_jexpect_op(p, "[");
        while (wf_jnext_element(p, n, "]")) wf_jnode_add(n, wf_jparse_expression(p));
        return n;
    }
    if (wf_jat_op(p, "{")) {
        wf_jnode *n = wf_jnode_new(p, WF_JN_DICT);
        wf_jexpect_op(p, "{");
        while (wf_jnext_element(p, n, "}")) {
            wf_jnode *pair = wf_jnode_new(p, WF_JN_PAIR);
            pair->a = wf_jparse_expression(p);
            wf_jexpect_op(p, ":");
            pair->b = wf_jparse_expression(p);
            wf_jnode_add(n, pair);
        }
        return n;
    }
    wf_junexpected(p, "an expression");
}

/* ---- what follows a value ---------------------------------------------------------------------------------------- */

static wf_jnode *parse_dot(wf_jparser *p, wf_jnode *a)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_ATTR);
    wf_jexpect_op(p, ".");
    n->a = a;
    if (p->tok.kind == WF_JT_NAME) return n->name = wf_jparse_name(p), n;
    if (p->tok.kind != WF_JT_INT) wf_junexpected(p, "a name");
    n->kind = WF_JN_ITEM;
    n->b = constant(p, wf_jint(p->tok.i));
    return n;
}

/* [x] or [a:b:c], of which each may be missing. */
static wf_jnode *parse_subscript(wf_jparser *p, wf_jnode *a)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_ITEM), **parts[] = {&n->b, &n->c, &n->list};
    wf_jexpect_op(p, "[");
    n->a = a;
    for (size_t i = 0; !wf_jat_op(p, "]"); ) {
        if (wf_jat_op(p, ":") && i < 2) {
            wf_jnext(p);
            n->kind = WF_JN_SLICE;
            i++;
        } else if (*parts[i]) {
            wf_junexpected(p, "]");
        } else {
            *parts[i] = i || n->kind == WF_JN_SLICE ? wf_jparse_expression(p) : wf_jparse_tuple(p, true);
        }
    }
    wf_jexpect_op(p, "]");
    if (n->kind == WF_JN_ITEM && !n->b) wf_junexpected(p, "an expression in the brackets before");
    return n;
}

void wf_jparse_args(wf_jparser *p, wf_jnode *call)
{
    bool keywords = false;
    wf_jexpect_op(p, "(");
    while (wf_jnext_element(p, call, ")")) {
        wf_jnode *arg = wf_jnode_new(p, WF_JN_ARG);
        arg->op = WF_JPOSITIONAL;
        if (wf_jskip_op(p, "**")) arg->op = WF_JSTARS;
        else if (wf_jskip_op(p, "*")) arg->op = WF_JSTAR;
        else if (p->tok.kind == WF_JT_NAME && wf_jpeek(p)->kind == WF_JT_OP && wf_jstr_is(p->ahead.text, "=")) {
            arg->op = WF_JKEYWORD;
            arg->name = wf_jparse_name(p);
            wf_jnext(p);
        }
        arg->a = wf_jparse_expression(p);
        if (arg->op == WF_JPOSITIONAL && keywords) wf_junexpected(p, "no further argument without a name");
        keywords |= arg->op == WF_JKEYWORD || arg->op == WF_JSTARS;
        wf_jnode_add(call, arg);
    }
}

static wf_jnode *parse_call(wf_jparser *p, wf_jnode *a)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CALL);
    n->a = a;
    wf_jparse_args(p, n);
    return n;
}

static wf_jnode *parse_postfix(wf_jparser *p, wf_jnode *n)
{
    size_t chain = 0;
    for (;; chain++) {
        if (chain > WF_JINJA_MAX_DEPTH) wf_junexpected(p, "a shorter chain of calls and members");
        if (wf_jat_op(p, ".")) n = parse_dot(p, n);
        else if (wf_jat_op(p, "[")) n = parse_subscript(p, n);
        else if (wf_jat_op(p, "(")) n = parse_call(p, n);
        else return n;
    }
}

static bool starts_argument(const wf_jparser *p)
{
    if (p->tok.kind == WF_JT_NAME) return !wf_jat_name(p, "else") && !wf_jat_name(p, "or") && !wf_jat_name(p, "and");
    return p->tok.kind == WF_JT_STRING || p->tok.kind == WF_JT_INT || p->tok.kind == WF_JT_FLOAT || wf_jat_op(p, "[") ||
           wf_jat_op(p, "{");
}

static wf_jnode *parse_test(wf_jparser *p, wf_jnode *a)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_TEST);
    wf_jnext(p);
    bool negated = wf_jskip_name(p, "not");
    n->a = a;
    n->name = wf_jparse_name(p);
    if (wf_jat_op(p, "(")) {
        wf_jparse_args(p, n);
    } else if (starts_argument(p)) {
        wf_jnode *arg = wf_jnode_new(p, WF_JN_ARG);
        if (wf_jat_name(p, "is")) wf_junexpected(p, "no test behind a test");
        arg->a = parse_postfix(p, parse_primary(p));
        wf_jnode_add(n, arg);
    }
    if (!negated) return n;
    wf_jnode *not_it = wf_jnode_new(p, WF_JN_NOT);
    not_it->a = n;
    return not_it;
}

wf_jnode *wf_jparse_filters(wf_jparser *p, wf_jnode *a)
{
    bool first = !a;
    while (first || wf_jskip_op(p, "|")) {
        wf_jnode *n = wf_jnode_new(p, WF_JN_FILTER);
        n->a = a;
        n->name = wf_jparse_name(p);
        if (wf_jat_op(p, "(")) wf_jparse_args(p, n);
        a = n;
        first = false;
    }
    return a;
}

static wf_jnode *parse_unary(wf_jparser *p, bool filters)
{
    wf_jnode *n;
    wf_jenter(p->r);
    if (wf_jat_op(p, "-") || wf_jat_op(p, "+")) {
        n = wf_jnode_new(p, WF_JN_UNARY);
        n->op = wf_jat_op(p, "-") ? WF_JSUB : WF_JADD;
        wf_jnext(p);
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    for (size_t chain = 0; filters; chain++) {
        if (chain > WF_JINJA_MAX_DEPTH) wf_junexpected(p, "a shorter chain of filters and tests");
        if (wf_jat_op(p, "|")) n = wf_jparse_filters(p, n);
        else if (wf_jat_name(p, "is")) n = parse_test(p, n);
        else if (wf_jat_op(p, "(")) n = parse_call(p, n);
        else break;
    }
    wf_jleave(p->r);
    return n;
}
