/* tool_calls: the reader of calls. It holds back what may be a call, or the beginning of a marker, and white space
 * before either; all else goes out at once. A call has a head (markers, the name), a body (JSON, whose end its brackets
 * tell, or tags) and what closes it. */
#include "answers/tool_calls.h"
#include "answers/tool_types.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAME  256 /* bytes until behind_name */
#define MAX_TRIES 8   /* times that the end of an answer is looked through again */
#define MAX_ENDS  64  /* what closes a call may stand in its strings so often */

enum state { TEXT, HEAD, BODY, TAIL, TAGS, FORM };

struct wf_calls {
    const wf_call_kind *kind;
    const wf_text *types;
    wf_text held, own; /* own: arguments that are not in held */
    enum state state;
    size_t call;     /* offset in `held`: of its marker; white space is before it */
    size_t body, at; /* of the body; how far its brackets are counted, then its end */
    size_t id, n_id; /* what is between `open` and `behind_name` */
    wf_tag_scan tags;
    wf_json_progress json; /* of the body */
    unsigned n_ends;
    bool named;
    bool begun; /* text has gone out, or a call: a bare one cannot follow */
    bool after; /* a call was the last thing */
};

wf_calls *wf_calls_new(const wf_call_kind *k, const wf_text *types)
{
    wf_calls *c = wf_calloc(1, sizeof *c);
    if (c) c->kind = k, c->types = types;
    return c;
}

void wf_calls_free(wf_calls *c)
{
    if (c) free(c->held.data), free(c->own.data);
    free(c);
}

/* ---- what is held ---------------------------------------------------------------------------------------- */

static wf_slice held(const wf_calls *c) { return (wf_slice){c->held.data, c->held.len}; }

/* Gives out the first n bytes as text. */
static void release(wf_calls *c, size_t n, const wf_call_out *out)
{
    if (n) out->text(out->user, c->held.data, n), c->after = false;
    for (size_t i = 0; i < n && !c->begun; i++) c->begun = !wf_is_blank(c->held.data[i]);
    wf_held_drop(&c->held, n);
}

/* ---- text ------------------------------------------------------------------------------------------------ */

/* Does a call stand there without what opens calls? */
static bool is_bare(const wf_calls *c)
{
    char first = c->held.data[c->call];
    return c->kind->bare && (first == '{' || first == ';');
}

/* What may begin at this place. first: only blanks are before it. */
static enum wf_found begins(const wf_calls *c, size_t at, bool first)
{
    const wf_call_kind *k = c->kind;
    char b = c->held.data[at];
    if (k->bare && first && ((b == '{' && (!c->begun || c->after)) || (b == ';' && c->after)))
        return WF_YES; /* Llama writes ; between calls */
    enum wf_found f = wf_look(held(c), at, k->open);
    if (f == WF_NO && k->wrap[0]) f = wf_look(held(c), at, k->wrap[0]);
    if (f == WF_NO && k->wrap[1] && first && c->after) f = wf_look(held(c), at, k->wrap[1]);
    return f;
}

/* Gives out what is no call. Returns whether there is more to do with what is held. */
static bool read_text(wf_calls *c, const wf_call_out *out)
{
    size_t at = 0, first = wf_skip_blanks(held(c), 0);
    enum wf_found f = WF_NO;
    while (at < c->held.len && (f = begins(c, at, at == first)) == WF_NO) at++;
    size_t from = at; /* of the blanks before it, as far as they count */
    while (from && at - from < WF_MAX_BLANKS && wf_is_blank(c->held.data[from - 1])) from--;
    if (c->after && first > WF_MAX_BLANKS) { /* no more of them wait for what they belong to */
        release(c, WF_MAX_BLANKS + 1, out);
        return true;
    }
    if (!c->after || first < from) release(c, from, out);
    if (f != WF_YES) return false;
    c->call = wf_skip_blanks(held(c), 0);
    c->state = HEAD;
    return true;
}

/* ---- a call ---------------------------------------------------------------------------------------------- */

/* It is none: n bytes of what is held are text. */
static bool give_up(wf_calls *c, size_t n, const wf_call_out *out)
{
    c->state = TEXT;
    release(c, n, out);
    return true;
}

/* From `open` or '{' on. */
static enum wf_found pass_name(wf_calls *c, size_t *at)
{
    size_t from = wf_skip_blanks(held(c), *at), p = from;
    if (from - *at > WF_MAX_BLANKS) return WF_NO;
    if (from == c->held.len) return WF_PARTLY;
    char first = c->held.data[from];
    c->named = !c->kind->behind_name || first == '[' || first == '{';
    *at = from;
    if (c->named) return first == '[' || first == '{' ? WF_YES : WF_NO;
    enum wf_found f = WF_NO;
    while (p < c->held.len && p - from <= MAX_NAME && (f = wf_look(held(c), p, c->kind->behind_name)) == WF_NO) p++;
    if (p - from > MAX_NAME) return WF_NO;
    if (f != WF_YES) return WF_PARTLY;
    c->id = from, c->n_id = p - from;
    p += strlen(c->kind->behind_name);
    *at = wf_skip_blanks(held(c), p);
    if (*at - p > WF_MAX_BLANKS) return WF_NO;
    return *at == c->held.len ? WF_PARTLY : c->held.data[*at] == '{' || c->held.data[*at] == '"' ? WF_YES : WF_NO;
}

/* Of a call in tags, from `open` on. */
static enum wf_found pass_tag_name(wf_calls *c, size_t *at)
{
    size_t from = wf_skip_blanks(held(c), *at), p = from;
    if (from - *at > WF_MAX_BLANKS) return WF_NO;
    while (p < c->held.len && wf_tool_name_good(c->held.data + from, p + 1 - from)) p++;
    if (p == c->held.len) return WF_PARTLY;
    c->id = from, c->n_id = p - from;
    *at = p;
    return p == from ? WF_NO : c->kind->behind_name ? wf_pass(held(c), at, c->kind->behind_name) : WF_YES;
}

static enum wf_found pass_open(wf_calls *c, size_t *at)
{
    const wf_call_kind *k = c->kind;
    size_t inside = *at + 1;
    if (k->bare && c->held.data[*at] == '{') return wf_pass(held(c), &inside, k->bare);
    if (k->bare && c->after && c->held.data[*at] == ';') return ++*at, WF_YES;
    if (k->wrap[0] && wf_look(held(c), *at, k->wrap[0]) == WF_YES) *at += strlen(k->wrap[0]);
    enum wf_found f = wf_pass(held(c), at, k->open);
    return f == WF_YES && k->behind_open ? wf_pass(held(c), at, k->behind_open) : f;
}

static bool read_head(wf_calls *c, const wf_call_out *out)
{
    size_t at = c->call;
    if (c->after && c->kind->wrap[1] && wf_look(held(c), at, c->kind->wrap[1]) == WF_YES) { /* behind all calls */
        wf_held_drop(&c->held, at + strlen(c->kind->wrap[1]));
        c->state = TEXT;
        return true;
    }
    enum wf_found f = pass_open(c, &at);
    if (f == WF_YES && !c->kind->form) f = c->kind->tags.key ? pass_tag_name(c, &at) : pass_name(c, &at);
    if (f == WF_NO) return give_up(c, c->call + 1, out); /* behind it there may be calls */
    if (f == WF_PARTLY) return false;
    c->body = c->at = at;
    c->json = (wf_json_progress){0};
    c->tags.at = at, c->tags.search = c->tags.n = c->tags.n_cut = 0;
    c->n_ends = 0;
    c->state = c->kind->form ? FORM : c->kind->tags.key ? TAGS : BODY;
    return true;
}

static bool read_body(wf_calls *c, const wf_call_out *out)
{
    bool ends = false;
    while (!ends && c->at < c->held.len && c->at < WF_CALL_MAX) ends = wf_json_closes(&c->json, c->held.data[c->at++]);
    bool good = ends && wf_json_whole(c->held.data + c->body, c->at - c->body);
    if (good) c->state = TAIL;
    else if (ends || c->at == WF_CALL_MAX) give_up(c, c->at, out);
    return c->state != BODY;
}

/* ---- a whole call ---------------------------------------------------------------------------------------- */

bool wf_call_arguments(wf_slice *a, wf_text *own)
{
    *a = wf_trim(*a);
    if (a->n && *a->p == '"') {
        wf_json *text = wf_json_read(a->p, a->n, NULL, NULL);
        if (!text) return false;
        own->len = 0;
        wf_text_add(own, wf_json_text(text), wf_json_bytes(text));
        wf_json_free(text);
        *a = wf_trim((wf_slice){own->data, own->len});
    }
    if (!a->n || wf_slice_is(*a, "null")) *a = (wf_slice){"{}", 2};
    return *a->p == '{' && wf_json_whole(a->p, a->n);
}

static bool check_call(wf_calls *c, wf_slice name, wf_slice *arguments)
{
    bool good = wf_call_arguments(arguments, &c->own);
    c->held.failed |= c->own.failed;
    return good && wf_tool_name_good(name.p, name.n) &&
           (!(c->kind->only_tools || is_bare(c)) || wf_tool_strings(c->types, name));
}

/* {"f": {...}} */
static bool read_keyed(wf_calls *c, wf_slice object, wf_slice *name, wf_slice *arguments)
{
    wf_slice key, value;
    const char *at = object.p + 1, *end = object.p + object.n;
    if (object.p[0] != '{' || !wf_json_next(&at, end, name, arguments) || wf_json_next(&at, end, &key, &value))
        return false;
    return check_call(c, *name, arguments);
}

/* {"name": "f", "arguments": {...}}, with the names of members that models use. */
static bool read_object(wf_calls *c, wf_slice object, wf_slice *name, wf_slice *arguments)
{
    wf_slice key, value;
    *name = *arguments = (wf_slice){0};
    if (object.p[0] != '{') return false;
    for (const char *at = object.p + 1; wf_json_next(&at, object.p + object.n, &key, &value);) {
        bool names = wf_slice_is(key, "name") || wf_slice_is(key, "tool_name");
        if (names && value.p[0] == '"') *name = (wf_slice){value.p + 1, value.n - 2};
        if (wf_slice_is(key, "arguments") || wf_slice_is(key, "parameters")) *arguments = value;
    }
    return check_call(c, *name, arguments);
}

/* All of a list are calls, or none is. out: NULL: only checks. false: there are none. */
static bool read_json(wf_calls *c, wf_slice all, const wf_call_out *out)
{
    wf_slice one = all, name, arguments;
    const char *at = all.p + 1, *end = all.p + all.n;
    bool list = all.p[0] == '[';
    unsigned n = 0;
    while (list ? wf_json_next(&at, end, NULL, &one) : !n) {
        if (n == WF_MAX_CALLS || !(c->kind->keyed ? read_keyed : read_object)(c, one, &name, &arguments)) return false;
        if (out) out->call(out->user, (wf_slice){0}, name, arguments);
        n++;
    }
    return n;
}

/* Takes the id away from the front of a name; false: there is none. */
static bool split_id(const wf_calls *c, wf_slice *id, wf_slice *name)
{
    for (size_t at = 0; at < name->n; at++) {
        if (wf_look(*name, at, c->kind->behind_id) != WF_YES) continue;
        size_t behind = at + strlen(c->kind->behind_id);
        *id = wf_trim((wf_slice){name->p, at});
        *name = (wf_slice){name->p + behind, name->n - behind};
        return true;
    }
    return false;
}

/* "f", "functions.f:0", "f[CALL_ID]x": the id is all of it. */
static bool read_named(wf_calls *c, wf_slice body, const wf_call_out *out)
{
    static const char prefix[] = "functions.";
    wf_slice id = wf_trim((wf_slice){c->held.data + c->id, c->n_id}), name = id;
    if (c->kind->behind_id && !split_id(c, &id, &name)) return false;
    if (name.n > sizeof prefix - 1 && !memcmp(name.p, prefix, sizeof prefix - 1))
        name.p += sizeof prefix - 1, name.n -= sizeof prefix - 1;
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] == ':' || name.p[i] == '[') name.n = i;
    if (!check_call(c, name, &body)) return false;
    if (c->kind->id != WF_ID_OWN) id.n = 0;
    if (out) out->call(out->user, id, name, body);
    return true;
}

/* The blanks between text and calls, which are given out next, are of the text. Before or behind everything, and
 * between calls, they are of nothing. */
static void end_text(wf_calls *c, const wf_call_out *out)
{
    if (c->begun && !c->after && c->call) out->text(out->user, c->held.data, c->call);
}

/* Calls are given out. end: behind what closes them. */
static bool taken(wf_calls *c, size_t end)
{
    c->begun = c->after = true;
    c->state = TEXT;
    wf_held_drop(&c->held, end);
    return true;
}

static bool take_call(wf_calls *c, size_t end, const wf_call_out *out)
{
    wf_slice body = {c->held.data + c->body, c->at - c->body};
    bool (*read)(wf_calls *, wf_slice, const wf_call_out *) = c->named ? read_json : read_named;
    if (!read(c, body, NULL)) return give_up(c, c->at, out);
    end_text(c, out);
    read(c, body, out);
    return taken(c, end);
}

static bool read_tail(wf_calls *c, const wf_call_out *out)
{
    size_t end = c->at;
    enum wf_found f = c->kind->close ? wf_pass(held(c), &end, c->kind->close) : WF_YES;
    if (f == WF_NO && is_bare(c)) f = WF_YES;
    if (f == WF_NO) return give_up(c, c->at, out);
    return f == WF_YES && take_call(c, end, out);
}

/* ---- a call in tags -------------------------------------------------------------------------------------- */

/* As far as what is held may be one call. */
static wf_slice one_call(const wf_calls *c)
{
    return (wf_slice){c->held.data, WF_MIN(c->held.len, (size_t)WF_CALL_MAX)};
}

static enum wf_found scan_tags(wf_calls *c, wf_tag_call *call)
{
    const wf_call_kind *k = c->kind;
    *call = (wf_tag_call){k->open, k->behind_name, k->close, k->wrap, c->types, {c->held.data + c->id, c->n_id}};
    return wf_tags_scan(&k->tags, call, one_call(c), &c->tags);
}

static bool take_tags(wf_calls *c, const wf_tag_call *call, const wf_call_out *out)
{
    wf_text arguments = {0};
    size_t end = c->tags.end;
    wf_tags_json(&c->kind->tags, call, one_call(c), &c->tags, &arguments);
    c->held.failed |= arguments.failed;
    bool good = !arguments.failed && wf_json_whole(arguments.data, arguments.len); /* it may have become too deep */
    if (good) end_text(c, out);
    if (good) out->call(out->user, (wf_slice){0}, call->tool, (wf_slice){arguments.data, arguments.len});
    free(arguments.data);
    return good ? taken(c, end) : give_up(c, end, out);
}

static bool read_tags(wf_calls *c, const wf_call_out *out)
{
    wf_tag_call call;
    enum wf_found f = scan_tags(c, &call);
    if (f == WF_YES) return take_tags(c, &call, out);
    if (f == WF_NO) return give_up(c, c->tags.at, out);
    return c->held.len >= WF_CALL_MAX && give_up(c, WF_CALL_MAX, out);
}

/* ---- a call in a form of its own -------------------------------------------------------------------------- */

/* What stands up to c->at, if it is a call. end: behind what closes it. */
static enum wf_found take_form(wf_calls *c, size_t end, const wf_call_out *out)
{
    wf_text json = {0};
    enum wf_found f = c->kind->form((wf_slice){c->held.data + c->body, c->at - c->body}, c->types, &json);
    wf_slice all = {json.data, json.len};
    bool good = f == WF_YES && !json.failed && wf_json_whole(all.p, all.n) && read_json(c, all, NULL);
    if (good) end_text(c, out), read_json(c, all, out), taken(c, end);
    c->held.failed |= json.failed;
    free(json.data);
    return f == WF_YES && !good ? WF_NO : f;
}

/* What closes it may also stand in its strings: then what is before may be the beginning of a call, and the next one is
 * looked for. */
static bool read_form(wf_calls *c, const wf_call_out *out)
{
    for (; c->at < c->held.len && c->at <= WF_CALL_MAX && c->n_ends < MAX_ENDS; c->at++) {
        enum wf_found f = wf_look(held(c), c->at, c->kind->close);
        if (f == WF_PARTLY) return false;
        if (f == WF_NO) continue;
        f = take_form(c, c->at + strlen(c->kind->close), out);
        if (f == WF_YES) return true;
        if (f == WF_NO) {
            /* It is none up to c->at. But another one may begin in there. */
            size_t at = c->at;
            while (at > c->call && wf_look(held(c), at, c->kind->open) != WF_YES) at--;
            return give_up(c, at > c->call ? at : c->at, out);
        }
        c->n_ends++;
    }
    return (c->n_ends == MAX_ENDS || c->at > WF_CALL_MAX) && give_up(c, c->at, out);
}

/* The answer has ended: what closes it, or a part of that, may be missing. */
static bool end_form(wf_calls *c, const wf_call_out *out)
{
    size_t len = WF_MIN(c->held.len, (size_t)WF_CALL_MAX);
    if (c->tags.cut && c->kind->may_lack) return false;
    for (c->at = WF_MIN(c->at, len); c->at < len && wf_look(held(c), c->at, c->kind->close) == WF_NO;) c->at++;
    return take_form(c, c->held.len, out) == WF_YES;
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

static void run(wf_calls *c, const wf_call_out *out)
{
    static bool (*const steps[])(wf_calls *, const wf_call_out *) = {
        [TEXT] = read_text, [HEAD] = read_head, [BODY] = read_body,
        [TAIL] = read_tail, [TAGS] = read_tags, [FORM] = read_form};
    while (steps[c->state](c, out)) {}
}

bool wf_calls_feed(wf_calls *c, const char *text, size_t len, const wf_call_out *out)
{
    while (wf_held_add(&c->held, &text, &len)) run(c, out);
    return !c->held.failed;
}

bool wf_calls_end(wf_calls *c, bool cut, const wf_call_out *out)
{
    for (unsigned tries = 0; c->held.len && c->state != TEXT && !c->held.failed; tries++) {
        /* What a call that is not whole becomes at the end of the answer: one that lacks only what closes it, or a
         * part of that, is taken. */
        size_t text = tries < MAX_TRIES ? c->call + 1 : c->held.len;
        wf_tag_call call;
        c->tags.ended = true, c->tags.cut = cut;
        if (c->state == TAIL) take_call(c, c->held.len, out);
        else if (c->state == TAGS && scan_tags(c, &call) == WF_YES) take_tags(c, &call, out);
        else if (c->state != FORM || !end_form(c, out)) give_up(c, text, out);
        run(c, out);
    }
    size_t first = c->held.len ? wf_skip_blanks(held(c), 0) : 0;
    bool wrap = c->after && c->kind->wrap[1] && first < c->held.len &&
                wf_look(held(c), first, c->kind->wrap[1]) == WF_PARTLY;
    if (c->held.len && !wrap && !(c->after && first == c->held.len)) release(c, c->held.len, out);
    return !c->held.failed;
}
