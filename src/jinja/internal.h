/* internal: what the files of this folder share: a run and its memory, values, nodes of a parsed template, rows of
 * builtins.
 *
 * A failure leaves the run by longjmp to jinja.c: an interpreter fails in any of hundreds of places, and all that a run
 * has taken lies in its arena. So no function here returns NULL or an error for want of memory. */
#ifndef WF_JINJA_INTERNAL_H
#define WF_JINJA_INTERNAL_H

#include "jinja/jinja.h"

#include <setjmp.h>
#include <string.h>

typedef struct wf_jrun wf_jrun;
typedef struct wf_jnode wf_jnode;
typedef struct wf_jframe wf_jframe;
typedef struct wf_jvalue wf_jvalue;

/* ---- the run (run.c) ------------------------------------------------------------------------------- */

struct wf_jrun {
    jmp_buf failed;
    weft_status status;
    struct wf_jblock *blocks; /* the arena */
    struct wf_json *json[4];  /* what messages, tools, documents and arguments were read into: values point there */
    unsigned n_json;
    size_t memory, max_memory;
    size_t steps;
    unsigned depth;
    const wf_jinja_input *in;
    const char *src; /* the template, with line ends as \n */
    size_t len;
    size_t at;       /* byte of the template that is being parsed or run, for messages */
    bool in_template;
    struct wf_jname **names; /* hash table */
    size_t n_names, cap_names;
    wf_jframe *globals;
    const char *last; /* n_last bytes that the text ends with, of a conversation that goes on */
    size_t n_last;
    const char **digits; /* of integers that no value holds */
    size_t n_digits, cap_digits;
};

/* Zeroed memory that lasts as long as the run. */
void *wf_jalloc(wf_jrun *r, size_t n, size_t size);
/* The list v of n values, with room for one more: itself, or a larger copy. */
void *wf_jgrow(wf_jrun *r, void *v, size_t n, size_t *cap, size_t size);
void wf_jrun_free(wf_jrun *r);
/* Leaves the run with a message, which gets the place in the template. */
_Noreturn void wf_jfail(wf_jrun *r, weft_status s, const char *fmt, ...) WF_PRINTF(3, 4);
_Noreturn void wf_jfail_plain(wf_jrun *r, weft_status s, const char *fmt, ...) WF_PRINTF(3, 4);
void wf_jstep(wf_jrun *r, size_t n);
/* One level deeper; wf_jleave when it is left, except by failure. */
void wf_jenter(wf_jrun *r);
#define wf_jleave(r) ((void)(r)->depth--)

/* ---- strings (str.c, text.c) -------------------------------------------------------------------------- */

/* Valid UTF-8. Where marks is NULL, all bytes have the origin `data`. */
typedef struct wf_jstr {
    const char *p;
    const uint8_t *marks; /* [len]: 1 came with the data */
    size_t len;
    bool data;
} wf_jstr;

/* A string that grows. */
typedef struct wf_jbuf {
    wf_jrun *r;
    char *p;
    uint8_t *marks;
    size_t len, cap;
    size_t n_data; /* bytes with a mark */
} wf_jbuf;

void wf_jbuf_add(wf_jbuf *b, const char *p, size_t len, bool data);
void wf_jbuf_str(wf_jbuf *b, wf_jstr s);
void wf_jbuf_text(wf_jbuf *b, const char *s); /* the template's own */
wf_jstr wf_jbuf_take(wf_jbuf *b);

wf_jstr wf_jstr_of(const char *s); /* the template's own; not copied */
wf_jstr wf_jstr_sub(wf_jstr s, size_t begin, size_t end);
bool wf_jstr_eq(wf_jstr a, wf_jstr b);
bool wf_jstr_is(wf_jstr a, const char *b);
int wf_jstr_cmp(wf_jstr a, wf_jstr b);
bool wf_jstr_has_data(wf_jstr s);
size_t wf_jstr_find(wf_jstr s, wf_jstr what, size_t from); /* SIZE_MAX: nowhere */
/* Characters, as Python counts them. */
size_t wf_jstr_count(wf_jstr s);
size_t wf_jstr_offset(wf_jstr s, size_t character); /* byte offset; the length if there are fewer */
uint32_t wf_jchar(const char *p, size_t *n);        /* the character at p, and its bytes */
size_t wf_jchar_put(uint32_t c, char out[4]);
bool wf_jspace(uint32_t c);                         /* str.isspace() */
/* sides: 1 left, 2 right. chars: NULL: white space, and r is not needed. */
wf_jstr wf_jstr_strip(wf_jrun *r, wf_jstr s, const wf_jstr *chars, unsigned sides);
/* WORDS: what a filter calls the title: words begin behind spaces, brackets and hyphens. */
enum wf_jcase { WF_JUPPER, WF_JLOWER, WF_JCAPITALIZE, WF_JTITLE, WF_JWORDS };
wf_jstr wf_jstr_case(wf_jrun *r, wf_jstr s, enum wf_jcase c);
enum wf_jclass { WF_JLETTER = 1, WF_JDIGIT = 2, WF_JNUMBER = 4, WF_JSPACE = 8 };
bool wf_jchar_is(uint32_t c, int classes); /* enum wf_jclass: of any of these */
/* count < 0: all. */
wf_jstr wf_jstr_replace(wf_jrun *r, wf_jstr s, wf_jstr from, wf_jstr to, int64_t count);
/* The next line of str.splitlines() from *at on; false: there is none. */
bool wf_jstr_line(wf_jstr s, size_t *at, wf_jstr *line, wf_jstr *end);

/* ---- values (value.c, dict.c) --------------------------------------------------------------------------- */

enum wf_jkind {
    WF_JUNDEFINED, WF_JNONE, WF_JBOOL, WF_JINT, WF_JFLOAT, WF_JSTRING, WF_JLIST, WF_JTUPLE, WF_JDICT, WF_JNAMESPACE,
    WF_JLOOP, WF_JMACRO, WF_JFUNCTION, WF_JMETHOD,
    WF_JABSENT /* an argument that was not given */
};

typedef struct wf_jlist {
    wf_jvalue *v;
    size_t n, cap;
    bool group; /* of groupby: its two are also called grouper and list */
} wf_jlist;

struct wf_jvalue {
    uint8_t kind; /* enum wf_jkind */
    bool data;    /* of what is no string: it came with the data */
    uint32_t digits; /* WF_JFLOAT that is an integer of more than 64 bits: r->digits[digits - 1]; else 0 */
    union {
        bool b;
        int64_t i;
        double f;
        const wf_jstr *s;
        wf_jlist *l; /* immutable once it is a value */
        struct wf_jdict *d;
        struct wf_jloop *loop;
        const struct wf_jmacro *macro;
        const struct wf_jbuiltin *fn;
        const struct wf_jmethod *method;
        const char *why; /* WF_JUNDEFINED: what is missing; NULL: unknown */
    };
};

typedef struct wf_jentry {
    wf_jvalue key, value;
} wf_jentry;

/* In the order of insertion. */
typedef struct wf_jdict {
    wf_jentry *e;
    size_t n, cap;
    uint32_t *slots; /* hash table of indexes + 1 */
    size_t n_slots;
} wf_jdict;

typedef struct wf_jmethod {
    wf_jvalue self;
    const struct wf_jbuiltin *fn;
} wf_jmethod;

#define WF_JVALUE(k, member, x) ((wf_jvalue){.kind = (k), .member = (x)})
static inline wf_jvalue wf_jnone(void) { return (wf_jvalue){.kind = WF_JNONE}; }
static inline wf_jvalue wf_jbool(bool b) { return WF_JVALUE(WF_JBOOL, b, b); }
static inline wf_jvalue wf_jint(int64_t i) { return WF_JVALUE(WF_JINT, i, i); }
static inline wf_jvalue wf_jfloat(double f) { return WF_JVALUE(WF_JFLOAT, f, f); }
static inline wf_jvalue wf_jundefined(const char *why) { return WF_JVALUE(WF_JUNDEFINED, why, why); }
wf_jvalue wf_jbig(wf_jrun *r, double f, const char *digits); /* digits: as long as the run */
wf_jvalue wf_jstring(wf_jrun *r, wf_jstr s);
static inline wf_jvalue wf_jtext(wf_jrun *r, const char *s) { return wf_jstring(r, wf_jstr_of(s)); }
/* An empty list or tuple to push to, before it is used as a value. */
wf_jvalue wf_jlist_new(wf_jrun *r, enum wf_jkind kind);
void wf_jpush(wf_jrun *r, wf_jlist *l, wf_jvalue v);
wf_jvalue wf_jpair(wf_jrun *r, wf_jvalue a, wf_jvalue b); /* a tuple */

wf_jvalue wf_jdict_new(wf_jrun *r);
void wf_jdict_set(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value);
const wf_jvalue *wf_jdict_get(wf_jrun *r, const wf_jdict *d, wf_jvalue key);
const wf_jvalue *wf_jdict_find(wf_jrun *r, const wf_jdict *d, wf_jstr key);

static inline bool wf_jis_number(wf_jvalue v) { return v.kind == WF_JBOOL || v.kind == WF_JINT || v.kind == WF_JFLOAT; }
static inline bool wf_jis_integer(wf_jvalue v) { return v.kind == WF_JBOOL || v.kind == WF_JINT; }
static inline bool wf_jis_list(wf_jvalue v) { return v.kind == WF_JLIST || v.kind == WF_JTUPLE; }
static inline int64_t wf_jinteger(wf_jvalue v) { return v.kind == WF_JBOOL ? v.b : v.i; }
static inline double wf_jreal(wf_jvalue v) { return v.kind == WF_JFLOAT ? v.f : (double)wf_jinteger(v); }
const char *wf_jtype(wf_jvalue v); /* as Python calls it */
bool wf_jtrue(wf_jvalue v);
bool wf_jequal(wf_jrun *r, wf_jvalue a, wf_jvalue b);
int wf_jcompare(wf_jrun *r, wf_jvalue a, wf_jvalue b); /* fails for what has no order */
bool wf_jcontains(wf_jrun *r, wf_jvalue all, wf_jvalue one);
/* Its elements, keys or characters as a list; fails for what cannot be iterated. */
wf_jlist *wf_jiterate(wf_jrun *r, wf_jvalue v);
size_t wf_jlength(wf_jrun *r, wf_jvalue v);
/* By key, stable also in reverse. */
void wf_jsort(wf_jrun *r, wf_jentry *e, size_t n, bool reverse);
/* Fails where a value is undefined and what is done with it needs one. */
void wf_jneed(wf_jrun *r, wf_jvalue v);

/* print.c: str() and repr() of Python, and JSON. */
wf_jstr wf_jto_str(wf_jrun *r, wf_jvalue v);
void wf_jprint(wf_jbuf *b, wf_jvalue v);
void wf_jrepr(wf_jbuf *b, wf_jvalue v);
typedef struct wf_jjson_style {
    const wf_jstr *indent;       /* NULL: all in one line */
    wf_jstr comma, colon;
    bool ensure_ascii, sort_keys;
} wf_jjson_style;
wf_jvalue wf_jjson_write(wf_jrun *r, wf_jvalue v, const wf_jjson_style *style);
/* format.c: "%s" % args, and str.format. */
wf_jvalue wf_jpercent(wf_jrun *r, wf_jstr format, wf_jvalue args);
struct wf_jargs;
wf_jvalue wf_jformat(wf_jrun *r, wf_jvalue self, const struct wf_jargs *a);

/* ---- the parsed template (lexer.c, expression.c, parser.c) ------------------------------------------------ */

typedef struct wf_jname { /* one for each name, so that names are compared by address */
    wf_jstr text;
    const char *p; /* NUL-terminated */
} wf_jname;
const wf_jname *wf_jintern(wf_jrun *r, const char *p, size_t len);

enum wf_jtoken_kind {
    WF_JT_END, WF_JT_TEXT, WF_JT_PRINT, WF_JT_BLOCK, WF_JT_CLOSE, WF_JT_NAME, WF_JT_STRING, WF_JT_INT, WF_JT_FLOAT,
    WF_JT_OP
};
typedef struct wf_jtoken {
    enum wf_jtoken_kind kind;
    size_t at;
    wf_jstr text; /* TEXT, STRING; NAME and OP: as written */
    int64_t i;
    double f;
} wf_jtoken;
typedef struct wf_jlexer {
    wf_jrun *r;
    size_t at;
    enum { WF_JIN_TEXT, WF_JIN_PRINT, WF_JIN_BLOCK } state;
    unsigned brackets;
    bool line_starts;  /* the text begins a line */
    bool strip;        /* white space that follows is stripped */
} wf_jlexer;
wf_jtoken wf_jlex(wf_jlexer *l);

enum wf_jnode_kind {
    /* expressions */
    WF_JN_CONST, WF_JN_NAME, WF_JN_LIST, WF_JN_TUPLE, WF_JN_DICT, WF_JN_PAIR, WF_JN_ATTR, WF_JN_ITEM, WF_JN_SLICE,
    WF_JN_CALL, WF_JN_FILTER, WF_JN_TEST, WF_JN_UNARY, WF_JN_BINARY, WF_JN_AND, WF_JN_OR, WF_JN_NOT, WF_JN_COMPARE,
    WF_JN_COND, WF_JN_ARG,
    /* statements */
    WF_JN_TEXT, WF_JN_PRINT, WF_JN_IF, WF_JN_FOR, WF_JN_SET, WF_JN_SET_BLOCK, WF_JN_MACRO, WF_JN_CALL_BLOCK,
    WF_JN_FILTER_BLOCK, WF_JN_WITH, WF_JN_BREAK, WF_JN_CONTINUE, WF_JN_SCOPE
};
enum wf_jop {
    WF_JADD, WF_JSUB, WF_JMUL, WF_JDIV, WF_JFLOORDIV, WF_JMOD, WF_JPOW, WF_JCONCAT,
    WF_JEQ, WF_JNE, WF_JLT, WF_JLE, WF_JGT, WF_JGE, WF_JIN, WF_JNOT_IN
};
enum wf_jarg_kind { WF_JPOSITIONAL, WF_JKEYWORD, WF_JSTAR, WF_JSTARS };

/* What a, b, c and list are is said where eval.c and exec.c use them. */
struct wf_jnode {
    uint8_t kind, op;
    size_t at;
    wf_jnode *a, *b, *c, *list, *last; /* last: of the list */
    wf_jnode *next;
    const wf_jname *name;
    wf_jvalue value;
};

typedef struct wf_jparser {
    wf_jrun *r;
    wf_jlexer lex;
    wf_jtoken tok, ahead;
    bool has_ahead;
    unsigned loops; /* loops around, for break and continue */
} wf_jparser;

wf_jnode *wf_jparse(wf_jrun *r); /* the statements of the template */
void wf_jnext(wf_jparser *p);
wf_jtoken *wf_jpeek(wf_jparser *p); /* the token behind the present one */
bool wf_jat_op(const wf_jparser *p, const char *op);
bool wf_jat_name(const wf_jparser *p, const char *name);
bool wf_jskip_op(wf_jparser *p, const char *op);
bool wf_jskip_name(wf_jparser *p, const char *name);
void wf_jexpect_op(wf_jparser *p, const char *op);
_Noreturn void wf_junexpected(wf_jparser *p, const char *wanted);
/* Is there another element of a list behind its bracket? Else the closing one is passed. */
bool wf_jnext_element(wf_jparser *p, const wf_jnode *list, const char *close);
wf_jnode *wf_jnode_new(wf_jparser *p, enum wf_jnode_kind kind);
void wf_jnode_add(wf_jnode *list, wf_jnode *one);
const wf_jname *wf_jparse_name(wf_jparser *p);
wf_jnode *wf_jparse_expression(wf_jparser *p);       /* with inline if */
wf_jnode *wf_jparse_or(wf_jparser *p);               /* without */
wf_jnode *wf_jparse_tuple(wf_jparser *p, bool cond); /* a, b without brackets */
bool wf_jends_tuple(const wf_jparser *p);             /* is there no element behind its last comma? */
void wf_jparse_args(wf_jparser *p, wf_jnode *call);  /* at "(" */
/* Filters behind an expression; a NULL: the first one needs no "|", as in {% filter %}. */
wf_jnode *wf_jparse_filters(wf_jparser *p, wf_jnode *a);

/* ---- running it (eval.c, call.c, exec.c) --------------------------------------------------------------------- */

typedef struct wf_jvar {
    const wf_jname *name;
    wf_jvalue value;
    const wf_jstr *key; /* of an argument: the name as it came, by **; NULL: the template's own */
} wf_jvar;
struct wf_jframe {
    wf_jframe *parent;
    wf_jvar *vars;
    size_t n, cap;
};
wf_jframe *wf_jframe_new(wf_jrun *r, wf_jframe *parent);
void wf_jset(wf_jrun *r, wf_jframe *f, const wf_jname *name, wf_jvalue v);
void wf_jset_text(wf_jrun *r, wf_jframe *f, const char *name, wf_jvalue v);
wf_jvalue wf_jget(wf_jrun *r, const wf_jframe *f, const wf_jname *name);

typedef struct wf_jloop {
    const wf_jlist *items;
    size_t index;
    wf_jvalue changed; /* what loop.changed() got last */
    unsigned depth;
} wf_jloop;

typedef struct wf_jmacro {
    const wf_jnode *node;
    wf_jframe *frame; /* where it was defined */
} wf_jmacro;

/* Arguments of a call. Bound: v has one value for each parameter, WF_JABSENT where it was not given. */
typedef struct wf_jargs {
    wf_jvalue *v;
    size_t n;
    wf_jvar *kw;
    size_t n_kw;
    int option; /* of the builtin's row */
} wf_jargs;

#define WF_JMAX_PARAMS 4
typedef struct wf_jbuiltin {
    const char *name;
    wf_jvalue (*fn)(wf_jrun *r, wf_jvalue self, const wf_jargs *a);
    const char *params[WF_JMAX_PARAMS];
    uint8_t required; /* of these */
    bool any;         /* gets all arguments as they are */
    int option;       /* what tells it from other rows of the same function */
} wf_jbuiltin;

/* Builtins that several tables have. */
wf_jvalue wf_jbuiltin_strip(wf_jrun *r, wf_jvalue self, const wf_jargs *a);   /* option: sides */
wf_jvalue wf_jbuiltin_case(wf_jrun *r, wf_jvalue self, const wf_jargs *a);    /* enum wf_jcase */
wf_jvalue wf_jbuiltin_justify(wf_jrun *r, wf_jvalue self, const wf_jargs *a); /* side */
wf_jvalue wf_jbuiltin_is_case(wf_jrun *r, wf_jvalue self, const wf_jargs *a); /* WF_JUPPER or WF_JLOWER */
wf_jvalue wf_jbuiltin_items(wf_jrun *r, wf_jvalue self, const wf_jargs *a); /* of a dict; true: its values alone */
wf_jvalue wf_jbuiltin_list(wf_jrun *r, wf_jvalue self, const wf_jargs *a);

const wf_jbuiltin *wf_jfilter_find(wf_jstr name);
const wf_jbuiltin *wf_jtest_find(wf_jstr name);
const wf_jbuiltin *wf_jmethod_find(wf_jvalue self, wf_jstr name);
void wf_jfunctions(wf_jrun *r, wf_jframe *f);
const wf_jbuiltin *wf_jrow_find(const wf_jbuiltin *rows, size_t n, wf_jstr name);
/* tables of filters */
extern const wf_jbuiltin wf_jfilters_text[], wf_jfilters_list[], wf_jfilters_value[];
extern const size_t wf_jn_filters_text, wf_jn_filters_list, wf_jn_filters_value;

wf_jvalue wf_jeval(wf_jrun *r, wf_jframe *f, const wf_jnode *n);
wf_jargs wf_jeval_args(wf_jrun *r, wf_jframe *f, const wf_jnode *call);
wf_jvalue wf_joperate(wf_jrun *r, enum wf_jop op, wf_jvalue a, wf_jvalue b);
wf_jvalue wf_jattr(wf_jrun *r, wf_jvalue v, wf_jstr name);   /* v.name */
wf_jvalue wf_jitem(wf_jrun *r, wf_jvalue v, wf_jvalue key);  /* v[key] */
wf_jvalue wf_jslice(wf_jrun *r, wf_jvalue v, const wf_jvalue bounds[3]);
wf_jvalue wf_jcall_builtin(wf_jrun *r, const wf_jbuiltin *fn, const char *what, wf_jvalue self, const wf_jargs *a);
wf_jvalue wf_jcall(wf_jrun *r, wf_jvalue callee, const wf_jargs *a);
wf_jvalue wf_jcall_filter(wf_jrun *r, wf_jstr name, wf_jvalue self, const wf_jargs *a);
bool wf_jcall_test(wf_jrun *r, wf_jstr name, wf_jvalue self, const wf_jargs *a);
wf_jvalue wf_jcall_macro(wf_jrun *r, const wf_jmacro *m, const wf_jargs *a, const wf_jvalue *caller);
enum wf_jflow { WF_JGO, WF_JBREAK, WF_JCONTINUE };
enum wf_jflow wf_jexec(wf_jrun *r, wf_jframe *f, const wf_jnode *statements, wf_jbuf *out);

/* Arguments of builtins. */
static inline bool wf_jgiven(wf_jvalue v) { return v.kind != WF_JABSENT; }
wf_jvalue wf_jkeyword(const wf_jargs *a, const char *name); /* WF_JABSENT: it is not given */
wf_jstr wf_jarg_str(wf_jrun *r, wf_jvalue v, const char *what);      /* fails if it is no string */
int64_t wf_jarg_int(wf_jrun *r, wf_jvalue v, int64_t absent, const char *what);
bool wf_jarg_true(wf_jvalue v, bool absent);
wf_jvalue wf_jarg_name(wf_jrun *r, const wf_jvar *kw); /* with the origin that it came with */

#endif
