/* parser: statements, and the tokens and nodes for expression.c too. */
#include "jinja/internal.h"

#include <stdio.h>

/* ---- names ------------------------------------------------------------------------------------------------- */

const wf_jname *wf_jintern(wf_jrun *r, const char *p, size_t len)
{
    if (r->n_names * 2 >= r->cap_names) {
        size_t cap = r->cap_names ? r->cap_names * 2 : 256;
        wf_jname **names = wf_jalloc(r, cap, sizeof *names);
        for (size_t i = 0; i < r->cap_names; i++) {
            if (!r->names[i]) continue;
            size_t place = wf_hash(r->names[i]->p, r->names[i]->text.len) & (cap - 1);
            while (names[place]) place = (place + 1) & (cap - 1);
            names[place] = r->names[i];
        }
        r->names = names, r->cap_names = cap;
    }
    size_t at = wf_hash(p, len) & (r->cap_names - 1);
    wf_jstr text = {.p = p, .len = len};
    for (; r->names[at]; at = (at + 1) & (r->cap_names - 1))
        if (wf_jstr_eq(r->names[at]->text, text)) return r->names[at];
    wf_jname *n = wf_jalloc(r, 1, sizeof *n);
    char *copy = wf_jalloc(r, len + 1, 1);
    memcpy(copy, p, len);
    *n = (wf_jname){{.p = copy, .len = len}, copy};
    r->n_names++;
    return r->names[at] = n;
}

/* ---- tokens --------------------------------------------------------------------------------------------------- */

void wf_jnext(wf_jparser *p)
{
    p->tok = p->has_ahead ? p->ahead : wf_jlex(&p->lex);
    p->has_ahead = false;
    p->r->at = p->tok.at;
}

wf_jtoken *wf_jpeek(wf_jparser *p)
{
    if (!p->has_ahead) p->ahead = wf_jlex(&p->lex);
    p->has_ahead = true;
    return &p->ahead;
}

bool wf_jat_op(const wf_jparser *p, const char *op) { return p->tok.kind == WF_JT_OP && wf_jstr_is(p->tok.text, op); }

bool wf_jat_name(const wf_jparser *p, const char *name)
{
    return p->tok.kind == WF_JT_NAME && wf_jstr_is(p->tok.text, name);
}

bool wf_jskip_op(wf_jparser *p, const char *op)
{
    bool there = wf_jat_op(p, op);
    if (there) wf_jnext(p);
    return there;
}

bool wf_jskip_name(wf_jparser *p, const char *name)
{
    bool there = wf_jat_name(p, name);
    if (there) wf_jnext(p);
    return there;
}

void wf_junexpected(wf_jparser *p, const char *wanted)
{
    static const char *const kinds[] = {"the end of the template", "text", "{{", "{%", "the end of the tag", "",
                                        "a string", "a number", "a number", ""};
    char what[80];
    if (p->tok.kind == WF_JT_NAME || p->tok.kind == WF_JT_OP)
        snprintf(what, sizeof what, "'%.*s'", (int)WF_MIN(p->tok.text.len, 60u), p->tok.text.p);
    else snprintf(what, sizeof what, "%s", kinds[p->tok.kind]);
    p->r->at = p->tok.at;
    wf_jfail(p->r, WEFT_ERR_UNSUPPORTED, "expected %s, found %s", wanted, what);
}

void wf_jexpect_op(wf_jparser *p, const char *op)
{
    char wanted[16];
    snprintf(wanted, sizeof wanted, "'%s'", op);
    if (!wf_jskip_op(p, op)) wf_junexpected(p, wanted);
}

bool wf_jnext_element(wf_jparser *p, const wf_jnode *list, const char *close)
{
    if (list->list && !wf_jat_op(p, close)) wf_jexpect_op(p, ",");
    return !wf_jskip_op(p, close);
}

const wf_jname *wf_jparse_name(wf_jparser *p)
{
    if (p->tok.kind != WF_JT_NAME) wf_junexpected(p, "a name");
    const wf_jname *n = wf_jintern(p->r, p->tok.text.p, p->tok.text.len);
    wf_jnext(p);
    return n;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

wf_jnode *wf_jnode_new(wf_jparser *p, enum wf_jnode_kind kind)
{
    wf_jnode *n = wf_jalloc(p->r, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->at = p->tok.at;
    return n;
}

void wf_jnode_add(wf_jnode *list, wf_jnode *one)
{
    *(list->last ? &list->last->next : &list->list) = one;
    list->last = one;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static wf_jnode *parse_statements(wf_jparser *p, const char *const *ends);

static void close_block(wf_jparser *p)
{
    if (p->tok.kind != WF_JT_CLOSE) wf_junexpected(p, "the end of the tag");
    wf_jnext(p);
}

/* Statements up to {% end %}, which is passed. */
static wf_jnode *parse_body(wf_jparser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    wf_jnode *body = parse_statements(p, ends);
    if (!wf_jskip_name(p, end)) {
        char wanted[48];
        snprintf(wanted, sizeof wanted, "{%% %s %%}", end);
        wf_junexpected(p, wanted);
    }
    return body;
}

/* if, elif: a is the condition, b the statements, c what else: statements or another if. */
static wf_jnode *parse_if(wf_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    wf_jnode *first = wf_jnode_new(p, WF_JN_IF), *n = first;
    for (;;) {
        n->a = wf_jparse_tuple(p, false);
        n->b = parse_statements(p, ends);
        if (!wf_jat_name(p, "elif")) break;
        n->c = wf_jnode_new(p, WF_JN_IF);
        n = n->c;
        wf_jnext(p);
    }
    if (wf_jskip_name(p, "else")) n->c = parse_body(p, "endif");
    else if (!wf_jskip_name(p, "endif")) wf_junexpected(p, "{% endif %}");
    return first;
}

/* Names, members of namespaces, and tuples of them. */
static wf_jnode *parse_target(wf_jparser *p, bool members)
{
    wf_jnode *one, *all = NULL;
    do {
        if (wf_jat_op(p, "(")) {
            wf_jenter(p->r);
            wf_jnext(p);
            one = parse_target(p, members);
            wf_jexpect_op(p, ")");
            wf_jleave(p->r);
        } else {
            one = wf_jnode_new(p, WF_JN_NAME);
            one->name = wf_jparse_name(p);
        }
        if (members && wf_jskip_op(p, ".")) {
            wf_jnode *m = wf_jnode_new(p, WF_JN_ATTR);
            m->a = one, m->name = wf_jparse_name(p);
            one = m;
        }
        if (!all && !wf_jat_op(p, ",")) return one;
        if (!all) all = wf_jnode_new(p, WF_JN_TUPLE);
        wf_jnode_add(all, one);
    } while (wf_jskip_op(p, ",") && !wf_jends_tuple(p));
    return all;
}

/* for: a is the target, b what is iterated, c a condition, list the body and, if there is one, the statements of else.
 */
static wf_jnode *parse_for(wf_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    wf_jnode *n = wf_jnode_new(p, WF_JN_FOR);
    n->a = parse_target(p, false);
    if (!wf_jskip_name(p, "in")) wf_junexpected(p, "'in'");
    n->b = wf_jparse_tuple(p, false);
    if (wf_jskip_name(p, "if")) n->c = wf_jparse_expression(p);
    if (wf_jat_name(p, "recursive")) wf_junexpected(p, "no 'recursive', which chat templates have no use for");
    p->loops++;
    wf_jnode_add(n, parse_statements(p, ends));
    p->loops--;
    if (wf_jskip_name(p, "else")) wf_jnode_add(n, parse_body(p, "endfor"));
    else if (!wf_jskip_name(p, "endfor")) wf_junexpected(p, "{% endfor %}");
    return n;
}

/* set: a is the target, b the value; of a block b is the body and c filters, whose innermost value is missing. */
static wf_jnode *parse_set(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_SET);
    n->a = parse_target(p, true);
    if (wf_jskip_op(p, "=")) return n->b = wf_jparse_tuple(p, true), n;
    n->kind = WF_JN_SET_BLOCK;
    if (wf_jskip_op(p, "|")) n->c = wf_jparse_filters(p, NULL);
    n->b = parse_body(p, "endset");
    return n;
}

/* Parameters of a macro: arguments with names, and their defaults. */
static void parse_params(wf_jparser *p, wf_jnode *macro)
{
    wf_jexpect_op(p, "(");
    while (wf_jnext_element(p, macro, ")")) {
        wf_jnode *param = wf_jnode_new(p, WF_JN_ARG);
        param->name = wf_jparse_name(p);
        if (wf_jskip_op(p, "=")) param->a = wf_jparse_expression(p);
        wf_jnode_add(macro, param);
    }
}

/* macro: list are the parameters, b is the body. No loop around goes on in it. */
static void parse_macro_body(wf_jparser *p, wf_jnode *n, const char *end)
{
    unsigned loops = p->loops;
    p->loops = 0;
    n->b = parse_body(p, end);
    p->loops = loops;
}

static wf_jnode *parse_macro(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_MACRO);
    n->name = wf_jparse_name(p);
    parse_params(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

/* call: a is the call, c a macro of the body. */
static wf_jnode *parse_call_block(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CALL_BLOCK);
    n->c = wf_jnode_new(p, WF_JN_MACRO);
    n->c->name = wf_jintern(p->r, "caller", 6);
    if (wf_jat_op(p, "(")) parse_params(p, n->c);
    n->a = wf_jparse_expression(p);
    if (n->a->kind != WF_JN_CALL) wf_junexpected(p, "a call in {% call %}");
    parse_macro_body(p, n->c, "endcall");
    return n;
}

static wf_jnode *parse_filter_block(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_FILTER_BLOCK);
    n->c = wf_jparse_filters(p, NULL);
    n->b = parse_body(p, "endfilter");
    return n;
}

/* with: list are arguments with names, b is the body. */
static wf_jnode *parse_with(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_WITH);
    while (p->tok.kind != WF_JT_CLOSE) {
        if (n->list) wf_jexpect_op(p, ",");
        wf_jnode *one = wf_jnode_new(p, WF_JN_ARG);
        one->name = wf_jparse_name(p);
        wf_jexpect_op(p, "=");
        one->a = wf_jparse_expression(p);
        wf_jnode_add(n, one);
    }
    n->b = parse_body(p, "endwith");
    return n;
}

/* What transformers marks for training is written as it is. */
static wf_jnode *parse_generation(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_SCOPE);
    n->b = parse_body(p, "endgeneration");
    return n;
}

static wf_jnode *parse_leave(wf_jparser *p, enum wf_jnode_kind kind)
{
    wf_jnode *n = wf_jnode_new(p, kind);
    if (!p->loops) wf_junexpected(p, "a loop around break or continue, before this");
    return n;
}

static wf_jnode *parse_break(wf_jparser *p) { return parse_leave(p, WF_JN_BREAK); }
static wf_jnode *parse_continue(wf_jparser *p) { return parse_leave(p, WF_JN_CONTINUE); }

static wf_jnode *parse_block(wf_jparser *p)
{
    static const struct { const char *name; wf_jnode *(*parse)(wf_jparser *);
    } rows[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    size_t i = 0;
    while (i < WF_LEN(rows) && !wf_jat_name(p, rows[i].name)) i++;
    if (i == WF_LEN(rows))
        wf_junexpected(p, "a statement that chat templates may have (if, for, set, macro, call, filter, with, "
                          "generation, break, continue)");
    wf_jnext(p);
    wf_jenter(p->r);
    wf_jnode *n = rows[i].parse(p);
    wf_jleave(p->r);
    close_block(p);
    return n;
}

static wf_jnode *parse_one(wf_jparser *p)
{
    wf_jnode *n;
    if (p->tok.kind == WF_JT_TEXT) {
        n = wf_jnode_new(p, WF_JN_TEXT);
        n->value = wf_jstring(p->r, p->tok.text);
        wf_jnext(p);
        return n;
    }
    wf_jnext(p);
    n = wf_jnode_new(p, WF_JN_PRINT);
    n->a = wf_jparse_tuple(p, true);
    close_block(p);
    return n;
}

static bool at_end(const wf_jparser *p, const char *const *ends)
{
    while (*ends && !wf_jat_name(p, *ends)) ends++;
    return *ends;
}

/* The last tag's end is the present token, or there is none yet. Stops at one of the names. ends: NULL: at the end of
 * the template. */
static wf_jnode *parse_statements(wf_jparser *p, const char *const *ends)
{
    if (ends) close_block(p);
    wf_jnode *all = wf_jnode_new(p, WF_JN_SCOPE);
    while (p->tok.kind != WF_JT_END) {
        if (p->tok.kind != WF_JT_BLOCK) {
            wf_jnode_add(all, parse_one(p));
            continue;
        }
        wf_jnext(p);
        if (ends && at_end(p, ends)) return all;
        wf_jnode_add(all, parse_block(p));
    }
    return all;
}

wf_jnode *wf_jparse(wf_jrun *r)
{
    wf_jparser p = {.r = r, .lex = {.r = r, .line_starts = true}};
    wf_jnext(&p);
    return parse_statements(&p, NULL);
}
