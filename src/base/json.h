/* json: JSON (RFC 8259) read into a tree, walked through where it stands, and written.
 *
 * A tree lives in one piece of memory, which wf_json_free gives back. Its size is limited, and deep nesting costs no
 * stack. Whole numbers are exact. Members keep the order of the text; where a key comes twice the last value
 * counts, in the place of the first, or the text is refused. Strings are valid UTF-8, NUL-terminated, and know their
 * length. Looking up a key in a large object takes constant time.
 *
 * Functions that take a value also take NULL, which is nothing: neither null nor of any other kind.
 */
#ifndef WF_BASE_JSON_H
#define WF_BASE_JSON_H

#include "base/text.h"

#define WF_JSON_MAX_DEPTH 256

enum wf_json_kind {
    WF_JSON_NULL,
    WF_JSON_BOOL,
    WF_JSON_INT,  /* whole, of 64 bits with a sign */
    WF_JSON_UINT, /* whole, larger than these, of 64 bits */
    WF_JSON_BIG,  /* whole, of more than 64 bits: as its text, of n bytes */
    WF_JSON_REAL, /* all other numbers */
    WF_JSON_STRING,
    WF_JSON_LIST,
    WF_JSON_OBJECT,
};

typedef struct wf_json {
    uint32_t kind; /* enum wf_json_kind */
    uint32_t n;    /* bytes of a string or BIG, values of a list, members of an object */
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double real;
        const char *text;
        const struct wf_json *list;
        const struct wf_json_member *members;
    };
} wf_json;
typedef struct wf_json_member {
    wf_json name, value;
} wf_json_member;

/* ---- reading ------------------------------------------------------------------------------------- */

enum {
    WF_JSON_UNIQUE = 1,    /* a key that comes twice is an error */
    /* As Python reads: \u0000 in strings, numbers beyond doubles are infinite; half a surrogate pair becomes U+FFFD. */
    WF_JSON_LOOSE = 2,
    WF_JSON_AN_OBJECT = 4, /* of wf_json_load: anything else is an error */
};
typedef struct wf_json_rules {
    unsigned flags;
    unsigned depth; /* of nesting; 0: WF_JSON_MAX_DEPTH, which is the most */
    size_t values;  /* names and values; 0: any number */
} wf_json_rules;

typedef struct wf_json_error {
    enum {
        WF_JSON_SYNTAX,
        WF_JSON_ZERO, /* \u0000 in a string */
        WF_JSON_TOO_DEEP,
        WF_JSON_TOO_MANY,
        WF_JSON_TOO_LARGE,
        WF_JSON_NO_MEMORY
    } fault;             /* TOO_LARGE: a number */
    size_t line, column; /* from 1 on; columns are bytes */
    char text[96];       /* such as "expected a value" */
    char name[48];       /* of the member of the outermost object, as far as it fits; "": it is not in one */
} wf_json_error;

/* NULL: e says why. rules NULL: none. Sets no message. */
wf_json *wf_json_read(const char *text, size_t len, const wf_json_rules *rules, wf_json_error *e);
void wf_json_free(wf_json *root);
/* Reads with flags; a message begins with name. */
weft_status wf_json_load(const char *text, size_t len, const char *name, unsigned flags, wf_json **out);
/* An object in a regular file of at most max bytes, in which no key comes twice. */
weft_status wf_json_load_file(const char *path, size_t max, wf_json **out);
/* The same of a file of a folder, with flags beside WF_JSON_UNIQUE; *out NULL: there is no such file. */
weft_status wf_json_load_of(const char *folder, const char *name, size_t max, unsigned flags, wf_json **out);

/* ---- values -------------------------------------------------------------------------------------- */

static inline bool wf_json_is(const wf_json *v, enum wf_json_kind kind) { return v && v->kind == kind; }
static inline bool wf_json_is_number(const wf_json *v)
{
    return v && v->kind >= WF_JSON_INT && v->kind <= WF_JSON_REAL;
}
/* Is it nothing, or null? */
static inline bool wf_json_absent(const wf_json *v) { return !v || v->kind == WF_JSON_NULL; }
static inline bool wf_json_is_true(const wf_json *v) { return wf_json_is(v, WF_JSON_BOOL) && v->b; }
double wf_json_number(const wf_json *v); /* 0 if it is none */
/* 0 unless it is WF_JSON_INT. */
static inline int64_t wf_json_int(const wf_json *v) { return wf_json_is(v, WF_JSON_INT) ? v->i : 0; }
/* NULL if it is no string. */
static inline const char *wf_json_text(const wf_json *v) { return wf_json_is(v, WF_JSON_STRING) ? v->text : NULL; }
/* Bytes of a string, values of a list, members of an object; 0 if it is none. */
static inline size_t wf_json_bytes(const wf_json *v) { return wf_json_is(v, WF_JSON_STRING) ? v->n : 0; }
static inline size_t wf_json_count(const wf_json *v) { return wf_json_is(v, WF_JSON_LIST) ? v->n : 0; }
static inline size_t wf_json_size(const wf_json *v) { return wf_json_is(v, WF_JSON_OBJECT) ? v->n : 0; }
/* NULL: it is no list, or not as long. */
static inline const wf_json *wf_json_at(const wf_json *v, size_t i)
{
    return wf_json_is(v, WF_JSON_LIST) && i < v->n ? &v->list[i] : NULL;
}
/* NULL: it is no object, or has no such member. */
const wf_json *wf_json_find(const wf_json *v, const char *name, size_t len);
const wf_json *wf_json_get(const wf_json *v, const char *name); /* name NULL: there is none */

/* Loops over a list, or over the members of an object; over nothing else. */
#define WF_JSON_EACH(one, v)                                                                                           \
    for (const wf_json *one = wf_json_at(v, 0), *one##_end = one ? one + (v)->n : NULL; one < one##_end; one++)
#define WF_JSON_EACH_MEMBER(m, v)                                                                                      \
    for (const wf_json_member *m = wf_json_is(v, WF_JSON_OBJECT) ? (v)->members : NULL,                                \
                              *m##_end = m ? m + (v)->n : NULL;                                                        \
         m < m##_end; m++)

/* Typed access to a member of an object. Absent or null: *out does not change. Errors name the key, not the file. */
weft_status wf_json_u32(const wf_json *o, const char *key, uint32_t *out);
weft_status wf_json_float(const wf_json *o, const char *key, float *out);
weft_status wf_json_bool(const wf_json *o, const char *key, bool *out);
weft_status wf_json_str(const wf_json *o, const char *key, const char **out);
/* NULL where it is absent or null. */
weft_status wf_json_object(const wf_json *o, const char *key, const wf_json **out);
weft_status wf_json_array(const wf_json *o, const char *key, const wf_json **out);

/* ---- text that stays where it is ----------------------------------------------------------------- */

/* Behind the value that begins at p or behind white space there; NULL: it is not valid, not whole, or deeper than 64
 * levels. Strings are as strict as those of a tree but for surrogates, which stay as they are. */
const char *wf_json_end(const char *p, const char *end);
/* Is all of it one value? */
bool wf_json_whole(const char *p, size_t len);
/* The next member of a valid object or list. *at: behind its bracket, then behind the last one. name: without quotes,
 * escapes as they are; NULL for lists. false: there is none. */
bool wf_json_next(const char **at, const char *end, wf_slice *name, wf_slice *value);
/* JSON that arrives byte by byte: where its outermost bracket closes, or a string outside any, good or bad. */
typedef struct wf_json_progress {
    unsigned depth;
    bool in_string, escaped;
} wf_json_progress;
bool wf_json_closes(wf_json_progress *s, char byte);

/* ---- writing: json_write.c ----------------------------------------------------------------------- */

/* printf into JSON. A ' of the format becomes ". What it takes becomes a value:
 *   %s, %.*s  a string, with quotes and escapes, in which invalid UTF-8 becomes U+FFFD; NULL: null
 *   %hhd      true or false
 *   %d %i %u, with l, ll, z or none    whole numbers
 *   %g        a real with as many digits as tell it from all others; %.9g: with at most 9. What is not finite is null
 * and nothing else. */
void wf_json_print(wf_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_json_put_string(wf_text *t, const char *data, size_t len);
void wf_json_put(wf_text *t, const wf_json *v); /* NULL: null */
/* A comma, unless a list or an object has just begun. */
void wf_json_comma(wf_text *t);
/* The same, then the name of a member, whose value has to follow; or the whole member. v NULL: null. */
void wf_json_put_name(wf_text *t, const char *name);
void wf_json_put_member(wf_text *t, const char *name, const wf_json *v);

#endif
