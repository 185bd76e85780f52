/* regex: see regex.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* PCRE2's own limits count anew at each place where a match may begin, and not the characters that a repetition passes.
 * So a stranger's pattern calls us before each of its items: that is a step, and so is each byte since the last one.
 * All matches in a text may take so many together; those of real files take 5 a byte. MAX_DEPTH: of the interpreter,
 * which takes its stack from the heap. */
enum { STEPS_A_BYTE = 256, FREE_BYTES = 4096, POLL = 1 << 18, MAX_DEPTH = 1 << 20 };

struct wf_regex {
    pcre2_code *code;
    bool foreign;
};

/* ---- compiling ------------------------------------------------------------------------------- */

static weft_status compile(const char *pattern, uint32_t options, bool foreign, wf_regex **out)
{
    int err;
    size_t at;
    wf_regex *r = wf_calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return WEFT_ERR_NOMEM;
    r->foreign = foreign;
    r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | options, &err, &at,
                            NULL);
    if (!r->code) {
        char why[128];
        pcre2_get_error_message(err, (PCRE2_UCHAR *)why, sizeof why);
        free(r);
        return wf_fail(foreign ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INTERNAL,
                       "pre-tokenizer pattern '%.64s' does not compile: %s at %zu", pattern, why, at);
    }
    pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* where it is not available, pcre2_match interprets */
    *out = r;
    return WEFT_OK;
}

weft_status wf_regex_open(const char *pattern, wf_regex **out)
{
    return compile(pattern, PCRE2_DOLLAR_ENDONLY, false, out);
}

void wf_regex_close(wf_regex *r)
{
    if (r) pcre2_code_free(r->code);
    free(r);
}

/* ---- Oniguruma's syntax ------------------------------------------------------------------------- */

/* Words in Oniguruma have marks, letter numbers and connectors in them; PCRE2's \w changes from version to version. */
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"

typedef struct writer {
    char *v;
    size_t n;
    bool in_class;
} writer;

static void put(writer *w, const char *s, size_t n)
{
    memcpy(w->v + w->n, s, n);
    w->n += n;
}

static weft_status refuse(const char *pattern, const char *what)
{
    return wf_fail(WEFT_ERR_UNSUPPORTED, "pre-tokenizer pattern '%.64s': weft does not know %s", pattern, what);
}

/* The escape at p: a backslash and what follows. */
static weft_status put_escape(writer *w, const char *pattern, const char *p, size_t *used)
{
    *used = p[1] ? 2 : 1;
    if (p[1] && strchr("pPx", p[1]) && p[2] == '{') *used += strcspn(p + 2, "}") + 1;
    *used = strnlen(p, *used);
    if (p[1] == 'h' || p[1] == 'H') return refuse(pattern, "\\h");
    if (p[1] == 'b' || p[1] == 'B' || (p[1] == 'W' && w->in_class)) return refuse(pattern, "\\b and [\\W]");
    if (p[1] == 'w') put(w, w->in_class ? WORD : "[" WORD "]", strlen(WORD) + (w->in_class ? 0 : 2));
    else if (p[1] == 'W') put(w, "[^" WORD "]", strlen(WORD) + 3);
    else put(w, p, *used);
    return WEFT_OK;
}

static weft_status translate(const char *pattern, writer *w)
{
    for (const char *p = pattern; *p;) {
        size_t used = 1;
        if (*p == '\\') {
            WF_TRY(put_escape(w, pattern, p, &used));
            p += used;
            continue;
        }
        if (w->in_class && !strncmp(p, "&&", 2)) return refuse(pattern, "intersections of classes");
        if (w->in_class && *p == '[' && p[1] != ':') return refuse(pattern, "classes within classes");
        if (!w->in_class && !strncmp(p, "}+", 2)) return refuse(pattern, "a repetition of {}");
        if (*p == '[' && w->in_class) used = strcspn(p, "]") + 1; /* [:alpha:] */
        else if (*p == '[') w->in_class = true, used = 1 + (p[1] == '^') + (p[1 + (p[1] == '^')] == ']');
        else if (*p == ']') w->in_class = false;
        used = strnlen(p, used);
        put(w, p, used);
        p += used;
    }
    return WEFT_OK;
}

weft_status wf_regex_open_foreign(const char *pattern, wf_regex **out)
{
    *out = NULL;
    writer w = {.v = wf_calloc(strlen(pattern) + 1, strlen("[^" WORD "]"))};
    if (!w.v) return WEFT_ERR_NOMEM;
    weft_status s = translate(pattern, &w);
    if (!s) s = compile(w.v, PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT, true, out);
    free(w.v);
    return s;
}

/* ---- matching ---------------------------------------------------------------------------------- */

static int count_step(pcre2_callout_block *at, void *matcher)
{
    wf_matcher *m = matcher;
    size_t passed = at->current_position > m->at ? at->current_position - m->at : m->at - at->current_position;
    size_t polls = m->steps / POLL;
    m->at = at->current_position;
    m->steps -= WF_MIN(m->steps, passed + 1);
    if (!m->steps) return PCRE2_ERROR_MATCHLIMIT;
    return m->steps / POLL == polls || wf_stop_now() == WEFT_OK ? 0 : PCRE2_ERROR_CALLOUT;
}

weft_status wf_matcher_open(wf_matcher *m, const wf_regex *r, size_t len)
{
    *m = (wf_matcher){.regex = r, .steps = (len + FREE_BYTES) * STEPS_A_BYTE};
    m->ctx = pcre2_match_context_create(NULL);
    m->data = pcre2_match_data_create(1, NULL);
    if (!m->ctx || !m->data) return wf_fail(WEFT_ERR_NOMEM, "out of host memory: a pattern match");
    pcre2_set_match_limit(m->ctx, UINT32_MAX);
    pcre2_set_depth_limit(m->ctx, r->foreign ? MAX_DEPTH : UINT32_MAX);
    return WEFT_OK;
}

void wf_matcher_close(wf_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->ctx);
}

static int match(const wf_matcher *m, const char *text, size_t len, size_t offset)
{
    const pcre2_code *code = m->regex->code;
    int rc = pcre2_match(code, (PCRE2_SPTR)text, len, offset, PCRE2_NO_UTF_CHECK, m->data, m->ctx);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc; /* else the interpreter takes its stack from the heap */
    return pcre2_match(code, (PCRE2_SPTR)text, len, offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->ctx);
}

weft_status wf_regex_next(wf_matcher *m, const char *text, size_t len, size_t offset, bool *found, size_t *start,
                          size_t *end)
{
    m->at = offset;
    if (m->regex->foreign) pcre2_set_callout(m->ctx, count_step, m);
    int rc = match(m, text, len, offset);
    *found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return WEFT_OK;
    if (rc < 0) {
        char why[128];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        if (rc == PCRE2_ERROR_CALLOUT) return WEFT_ERR_CANCELLED; /* the error is set */
        if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "the tokenizer's pattern takes too many steps on this text");
        return wf_fail(rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT ? WEFT_ERR_NOMEM : WEFT_ERR_INTERNAL,
                       "splitting text by pattern: %s", why);
    }
    *start = pcre2_get_ovector_pointer(m->data)[0];
    *end = pcre2_get_ovector_pointer(m->data)[1];
    return WEFT_OK;
}

/* Invalid UTF-8 becomes U+001A, which is neither space, letter, digit nor punctuation, like U+FFFD. U+180E, which
 * PCRE2's \s matches but which is no space since Unicode 6.3, becomes U+2060, a format character as well. */
char *wf_regex_subject(const char *text, size_t len)
{
    char *buf = wf_calloc(len, 1);
    if (!buf) return NULL;
    if (len) memcpy(buf, text, len);
    for (size_t i = 0, n; i < len; i += n) {
        n = wf_utf8_len(text + i, len - i);
        if (n == 3 && !memcmp(text + i, "\xe1\xa0\x8e", 3)) memcpy(buf + i, "\xe2\x81\xa0", 3);
        if (n) continue;
        buf[i] = 0x1a;
        n = 1;
    }
    return buf;
}
