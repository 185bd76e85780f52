/* filters: those of single values and of JSON, and where all tables of filters are. Names and parameters are jinja2's.
 */
#include "jinja/internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static wf_jvalue filter_default(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    bool absent = self.kind == WF_JUNDEFINED || (wf_jarg_true(a->v[1], false) && !wf_jtrue(self));
    if (!absent) return self;
    return wf_jgiven(a->v[0]) ? a->v[0] : wf_jtext(r, "");
}

static wf_jvalue filter_string(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return self.kind == WF_JSTRING ? self : wf_jstring(r, wf_jto_str(r, self));
}

static wf_jvalue filter_length(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jint((int64_t)wf_jlength(r, self));
}

static wf_jvalue filter_abs(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    wf_jneed(r, self);
    if (!wf_jis_number(self)) wf_jfail(r, WEFT_ERR_ARG, "abs needs a number, not %s", wf_jtype(self));
    if (self.kind == WF_JFLOAT && self.f < 0) self.digits = 0;
    if (self.kind == WF_JFLOAT) return self.f = fabs(self.f), self;
    return wf_jinteger(self) < 0 ? wf_joperate(r, WF_JSUB, wf_jint(0), self)
                                 : wf_joperate(r, WF_JADD, wf_jint(0), self);
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

/* The text without white space around it and underscores between digits; false: it is too long for a number. */
static bool number_text(wf_jstr s, char *out, size_t cap)
{
    size_t n = 0;
    s = wf_jstr_strip(NULL, s, NULL, 3);
    for (size_t i = 0; i < s.len; i++) {
        bool between = i && i + 1 < s.len && s.p[i - 1] != '_' && s.p[i + 1] != '_';
        if (s.p[i] == '_' && between) continue;
        if (n + 1 >= cap || !s.p[i]) return false;
        out[n++] = s.p[i];
    }
    out[n] = 0;
    return n > 0;
}

static bool parse_int(wf_jstr s, int base, int64_t *out)
{
    char text[96], *end;
    if (!number_text(s, text, sizeof text) || wf_jspace((uint8_t)text[0])) return false;
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '-' || *digits == '+') return false;
    if (digits[0] == '0' && base != 16 && (digits[1] == 'x' || digits[1] == 'X')) return false;
    errno = 0;
    *out = strtoll(text, &end, base);
    return !*end && end > text && !errno;
}

static bool parse_float(wf_jstr s, double *out)
{
    char text[400], *end;
    if (!number_text(s, text, sizeof text) || strpbrk(text, "xXpP(")) return false;
    *out = strtod(text, &end);
    return !*end && end > text;
}

static wf_jvalue with_origin(wf_jvalue v, wf_jvalue from)
{
    v.data = from.kind == WF_JSTRING ? wf_jstr_has_data(*from.s) : from.data;
    return v;
}

static wf_jvalue filter_int(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t i, base = wf_jarg_int(r, a->v[1], 10, "base");
    double f;
    wf_jneed(r, self);
    if (self.digits) return self;
    if (wf_jis_integer(self)) return with_origin(wf_jint(wf_jinteger(self)), self);
    if (self.kind == WF_JSTRING && base >= 2 && base <= 36 && parse_int(*self.s, (int)base, &i))
        return with_origin(wf_jint(i), self);
    bool real = self.kind == WF_JFLOAT ? (f = self.f, true) : self.kind == WF_JSTRING && parse_float(*self.s, &f);
    if (real && f > -0x1p63 && f < 0x1p63) return with_origin(wf_jint((int64_t)f), self);
    return wf_jgiven(a->v[0]) ? a->v[0] : wf_jint(0);
}

static wf_jvalue filter_float(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    double f;
    wf_jneed(r, self);
    if (wf_jis_number(self)) return with_origin(wf_jfloat(wf_jreal(self)), self);
    if (self.kind == WF_JSTRING && parse_float(*self.s, &f)) return with_origin(wf_jfloat(f), self);
    return wf_jgiven(a->v[0]) ? a->v[0] : wf_jfloat(0);
}

static wf_jvalue filter_round(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    char text[400];
    int64_t precision = wf_jarg_int(r, a->v[0], 0, "precision");
    const char *method = "common";
    if (wf_jgiven(a->v[1])) {
        wf_jstr s = wf_jarg_str(r, a->v[1], "method");
        method = wf_jstr_is(s, "ceil")     ? "ceil"
                 : wf_jstr_is(s, "floor")  ? "floor"
                 : wf_jstr_is(s, "common") ? method
                                           : NULL;
    }
    wf_jneed(r, self);
    if (!wf_jis_number(self) || !method || precision < -300 || precision > 300)
        wf_jfail(r, WEFT_ERR_ARG, "round needs a number, and as method common, ceil or floor");
    double x = wf_jreal(self), scale = pow(10, (double)precision);
    if ((self.digits || self.kind != WF_JFLOAT) && *method == 'c' && method[1] == 'o' && precision >= 0)
        return with_origin(self.digits ? self : wf_jint(wf_jinteger(self)), self);
    if (method[0] == 'f' || method[1] == 'e')
        return with_origin(wf_jfloat((*method == 'f' ? floor(x * scale) : ceil(x * scale)) / scale), self);
    if (precision < 0) {
        double rounded = rint(x * scale) / scale;
        bool whole = self.kind != WF_JFLOAT && fabs(rounded) < 0x1p62;
        return with_origin(whole ? wf_jint((int64_t)rounded) : wf_jfloat(rounded), self);
    }
    snprintf(text, sizeof text, "%.*f", (int)WF_MIN(precision, 60), x);
    return with_origin(wf_jfloat(fabs(x) < 1e300 ? strtod(text, NULL) : x), self);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static wf_jstr spaces(wf_jrun *r, int64_t n)
{
    if (n > 1 << 20) wf_jfail(r, WEFT_ERR_FULL, "an indentation of more than 1048576 characters");
    char *p = wf_jalloc(r, (size_t)WF_MAX(n, 1), 1);
    memset(p, ' ', (size_t)WF_MAX(n, 0));
    return (wf_jstr){.p = p, .len = (size_t)WF_MAX(n, 0)};
}

static wf_jstr separator(wf_jrun *r, wf_jvalue v, size_t i, const char *otherwise)
{
    if (!wf_jgiven(v) || v.kind == WF_JNONE) return wf_jstr_of(otherwise);
    if (!wf_jis_list(v) || v.l->n != 2) wf_jfail(r, WEFT_ERR_ARG, "separators must be two strings");
    return wf_jarg_str(r, v.l->v[i], "a separator");
}

static wf_jvalue filter_tojson(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue indent = a->v[1];
    bool lines = wf_jgiven(indent) && indent.kind != WF_JNONE;
    wf_jstr step = !lines                      ? wf_jstr_of("")
                   : indent.kind == WF_JSTRING ? *indent.s
                                               : spaces(r, wf_jarg_int(r, indent, 0, "indent"));
    wf_jjson_style style = {.indent = lines ? &step : NULL,
                            .ensure_ascii = wf_jarg_true(a->v[0], false),
                            .sort_keys = wf_jarg_true(a->v[3], false)};
    style.comma = separator(r, a->v[2], 0, lines ? "," : ", ");
    style.colon = separator(r, a->v[2], 1, ": ");
    return wf_jjson_write(r, self, &style);
}

static wf_jvalue filter_attr(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr name = wf_jarg_str(r, a->v[0], "name");
    if (self.kind == WF_JDICT && !wf_jmethod_find(self, name))
        return wf_jundefined("an attribute"); /* never an entry */
    return wf_jattr(r, self, name);
}

const wf_jbuiltin wf_jfilters_value[] = {
    {"default", filter_default, {"default_value", "boolean"}},
    {"d", filter_default, {"default_value", "boolean"}},
    {"string", filter_string},
    {"safe", filter_string},
    {"length", filter_length},
    {"count", filter_length},
    {"abs", filter_abs},
    {"int", filter_int, {"default", "base"}},
    {"float", filter_float, {"default"}},
    {"round", filter_round, {"precision", "method"}},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"attr", filter_attr, {"name"}, 1},
};
const size_t wf_jn_filters_value = WF_LEN(wf_jfilters_value);

const wf_jbuiltin *wf_jfilter_find(wf_jstr name)
{
    const wf_jbuiltin *fn = wf_jrow_find(wf_jfilters_value, wf_jn_filters_value, name);
    if (!fn) fn = wf_jrow_find(wf_jfilters_text, wf_jn_filters_text, name);
    return fn ? fn : wf_jrow_find(wf_jfilters_list, wf_jn_filters_list, name);
}
