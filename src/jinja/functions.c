/* functions: what a template can call by name. */
#include "jinja/internal.h"

#include <time.h>

static wf_jvalue raise_exception(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, a->v[0]);
    (void)self;
    wf_jfail_plain(r, WEFT_ERR_ARG, "the chat template refuses the conversation: %.*s", (int)WF_MIN(s.len, 400u), s.p);
}

/* The text counts as data where the format does. */
static wf_jvalue strftime_now(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr format = wf_jarg_str(r, a->v[0], "format");
    time_t now = (time_t)r->in->now;
    struct tm tm = {0};
    wf_jbuf b = {.r = r};
    char *c = wf_jalloc(r, format.len + 2, 1), out[1024];
    (void)self;
    if (format.len > 128) wf_jfail(r, WEFT_ERR_ARG, "the format of a date has more than 128 bytes");
    memcpy(c, format.p, format.len);
    c[format.len] = ' '; /* so that no result is empty but a failure */
    localtime_r(&now, &tm);
    size_t n = strftime(out, sizeof out, c, &tm);
    if (!n) wf_jfail(r, WEFT_ERR_ARG, "a date has more than 1024 bytes");
    wf_jbuf_add(&b, out, n - 1, wf_jstr_has_data(format));
    return wf_jstring(r, wf_jbuf_take(&b));
}

static wf_jvalue range(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t first = wf_jarg_int(r, a->v[0], 0, "start"), last = wf_jarg_int(r, a->v[1], first, "stop"),
            step = wf_jarg_int(r, a->v[2], 1, "step");
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    (void)self;
    if (!wf_jgiven(a->v[1])) first = 0;
    if (!step) wf_jfail(r, WEFT_ERR_ARG, "the step of a range is 0");
    for (int64_t i = first; step > 0 ? i < last : i > last;) {
        if (out.l->n == WF_JINJA_MAX_RANGE)
            wf_jfail(r, WEFT_ERR_FULL, "a range has at most %d numbers", WF_JINJA_MAX_RANGE);
        wf_jpush(r, out.l, wf_jint(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
}

static void add_pairs(wf_jrun *r, wf_jdict *d, wf_jvalue from)
{
    if (from.kind == WF_JDICT || from.kind == WF_JNAMESPACE) {
        for (size_t i = 0; i < from.d->n; i++) wf_jdict_set(r, d, from.d->e[i].key, from.d->e[i].value);
        return;
    }
    const wf_jlist *l = wf_jiterate(r, from);
    for (size_t i = 0; i < l->n; i++) {
        const wf_jlist *pair = wf_jiterate(r, l->v[i]);
        if (pair->n != 2) wf_jfail(r, WEFT_ERR_ARG, "a dict needs pairs");
        wf_jdict_set(r, d, pair->v[0], pair->v[1]);
    }
}

/* option: its kind */
static wf_jvalue dict(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue v = wf_jdict_new(r);
    (void)self;
    v.kind = (uint8_t)a->option;
    if (a->n > 1) wf_jfail(r, WEFT_ERR_ARG, "a dict is made of one value and of names");
    if (a->n) wf_jneed(r, a->v[0]), add_pairs(r, v.d, a->v[0]);
    for (size_t i = 0; i < a->n_kw; i++) wf_jdict_set(r, v.d, wf_jarg_name(r, &a->kw[i]), a->kw[i].value);
    return v;
}

void wf_jfunctions(wf_jrun *r, wf_jframe *f)
{
    static const wf_jbuiltin rows[] = {
        {"raise_exception", raise_exception, {"message"}, 1},
        {"strftime_now", strftime_now, {"format"}, 1},
        {"range", range, {"start", "stop", "step"}, 1},
        {"dict", dict, .any = true, .option = WF_JDICT},
        {"namespace", dict, .any = true, .option = WF_JNAMESPACE},
    };
    for (size_t i = 0; i < WF_LEN(rows); i++) wf_jset_text(r, f, rows[i].name, WF_JVALUE(WF_JFUNCTION, fn, &rows[i]));
}
