/* json_read: JSON as values. jansson's reader would not do: it may end the process where it gets no memory, takes many times the memory of
 * the text, and all that is needed here is to fill the run's own values. */
#include "jinja/internal.h"

#include <errno.h>
#include <stdlib.h>

typedef struct reader {
    wf_jrun *r;
    const char *begin, *p, *what;
} reader;

static wf_jvalue read_value(reader *d);

static _Noreturn void bad(reader *d, const char *wanted)
{
    size_t line = 1, column = 1;
    for (const char *p = d->begin; p < d->p; p++, column++)
        if (*p == '\n') line++, column = 0;
    wf_jfail_plain(d->r, WEFT_ERR_ARG, "%s: bad JSON in line %zu, column %zu: expected %s", d->what, line, column, wanted);
}

static void skip(reader *d)
{
    d->p += strspn(d->p, " \t\r\n");
}

static void expect(reader *d, char c, const char *wanted)
{
    skip(d);
    if (*d->p != c) bad(d, wanted);
    d->p++;
}

/* ---- strings --------------------------------------------------------------------------------------------- */

static uint32_t hex4(reader *d)
{
    uint32_t c = 0;
    for (int i = 0; i < 4; i++, d->p++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *at = *d->p ? strchr(digits, *d->p) : NULL;
        if (!at) bad(d, "four hexadecimal digits");
        c = c << 4 | (uint32_t)((at - digits) & 15);
    }
    return c;
}

/* A surrogate without its other half becomes U+FFFD. */
static uint32_t read_unicode(reader *d)
{
    uint32_t c = hex4(d);
    if (c >= 0xD800 && c < 0xDC00 && d->p[0] == '\\' && d->p[1] == 'u') {
        const char *back = d->p;
        d->p += 2;
        uint32_t low = hex4(d);
        if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        d->p = back;
    }
    return c >= 0xD800 && c < 0xE000 ? 0xFFFD : c;
}

static void read_escape(reader *d, wf_jbuf *b)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char text[4];
    const char *at = *d->p ? strchr(names, *d->p) : NULL;
    if (at) {
        d->p++;
        wf_jbuf_add(b, &meant[at - names], 1, true);
        return;
    }
    if (*d->p != 'u') bad(d, "an escape");
    d->p++;
    wf_jbuf_add(b, text, wf_jchar_put(read_unicode(d), text), true);
}

static wf_jstr read_string(reader *d)
{
    wf_jbuf b = {.r = d->r};
    expect(d, '"', "a string");
    while (*d->p != '"') {
        size_t n = 0;
        const char *from = d->p;
        while ((uint8_t)*d->p >= 0x20 && *d->p != '"' && *d->p != '\\' && (n = wf_utf8_len(d->p, strnlen(d->p, 4)))) d->p += n;
        wf_jbuf_add(&b, from, (size_t)(d->p - from), true);
        if (*d->p == '"') break;
        if (*d->p != '\\') bad(d, "\"");
        d->p++;
        read_escape(d, &b);
    }
    d->p++;
    return wf_jbuf_take(&b);
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static wf_jvalue read_number(reader *d)
{
    const char *end = d->p + (*d->p == '-');
    size_t digits = strspn(end, "0123456789");
    if (!digits || (*end == '0' && digits > 1)) bad(d, "a value");
    end += digits;
    bool real = *end == '.' || *end == 'e' || *end == 'E';
    if (*end == '.') {
        if (!(digits = strspn(++end, "0123456789"))) d->p = end, bad(d, "digits");
        end += digits;
    }
    if (*end == 'e' || *end == 'E') {
        end += 1 + (end[1] == '+' || end[1] == '-');
        if (!(digits = strspn(end, "0123456789"))) d->p = end, bad(d, "digits");
        end += digits;
    }
    errno = 0;
    int64_t i = real ? 0 : strtoll(d->p, NULL, 10);
    wf_jvalue v = real || errno ? wf_jfloat(strtod(d->p, NULL)) : wf_jint(i); /* an integer that needs more than 64 bits is a float */
    d->p = end;
    return v;
}

static wf_jvalue read_list(reader *d)
{
    wf_jvalue v = wf_jlist_new(d->r, WF_JLIST);
    expect(d, '[', "[");
    for (skip(d); *d->p != ']'; skip(d)) {
        if (v.l->n) expect(d, ',', ", or ]");
        wf_jpush(d->r, v.l, read_value(d));
    }
    d->p++;
    return v;
}

static wf_jvalue read_dict(reader *d)
{
    wf_jvalue v = wf_jdict_new(d->r);
    expect(d, '{', "{");
    for (skip(d); *d->p != '}'; skip(d)) {
        if (v.d->n) expect(d, ',', ", or }");
        skip(d);
        wf_jvalue key = wf_jstring(d->r, read_string(d));
        expect(d, ':', ":");
        wf_jdict_set(d->r, v.d, key, read_value(d));
    }
    d->p++;
    return v;
}

static bool word(reader *d, const char *w)
{
    size_t n = strlen(w);
    if (strncmp(d->p, w, n)) return false;
    d->p += n;
    return true;
}

static wf_jvalue read_value(reader *d)
{
    wf_jvalue v;
    wf_jstep(d->r, 0);
    wf_jenter(d->r);
    skip(d);
    if (*d->p == '"') v = wf_jstring(d->r, read_string(d));
    else if (*d->p == '{') v = read_dict(d);
    else if (*d->p == '[') v = read_list(d);
    else if (word(d, "true")) v = wf_jbool(true);
    else if (word(d, "false")) v = wf_jbool(false);
    else if (word(d, "null")) v = wf_jnone();
    else v = read_number(d);
    v.data = true;
    wf_jleave(d->r);
    return v;
}

wf_jvalue wf_jjson_read(wf_jrun *r, const char *text, const char *what)
{
    reader d = {r, text, text, what};
    wf_jvalue v = read_value(&d);
    skip(&d);
    if (*d.p) bad(&d, "nothing more");
    return v;
}
