/* channels: see the header. Bodies go out as they come, but for calls, which are held back until they are whole and
 * known to be good. */
#include "answers/channels.h"
#include "answers/tool_types.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 512
#define MESSAGE    "<|message|>"

const char *const wf_channel_markers[] = {"<|start|>", "<|channel|>", "<|constrain|>", MESSAGE, "<|end|>", NULL};

static wf_slice held(const wf_channels *c) { return (wf_slice){c->held.data, c->held.len}; }

static void drop(wf_channels *c, size_t n)
{
    c->search = 0;
    wf_held_drop(&c->held, n);
}

/* The first of these markers from c->search on, which moves there; else to where one may begin, or the end. */
static enum wf_found find(wf_channels *c, const char *const *markers, size_t n, size_t *len)
{
    for (; c->search < c->held.len; c->search++)
        for (size_t i = 0; i < n; i++) {
            enum wf_found f = wf_look(held(c), c->search, markers[i]);
            *len = strlen(markers[i]);
            if (f != WF_NO) return f;
        }
    return WF_NO;
}

/* ---- headers --------------------------------------------------------------------------------------------- */

/* The word behind this, up to white space or a marker; n is 0: there is none. */
static wf_slice word_behind(wf_slice text, const char *mark)
{
    for (size_t at = 0; at < text.n; at++) {
        size_t from = at + strlen(mark), end = from;
        if (wf_look(text, at, mark) != WF_YES) continue;
        while (end < text.n && !wf_is_blank(text.p[end]) && text.p[end] != '<') end++;
        return (wf_slice){text.p + from, end - from};
    }
    return (wf_slice){text.p, 0};
}

static void begin(wf_channels *c, wf_slice header)
{
    static const char prefix[] = "functions.";
    wf_slice to = word_behind(header, "to="), channel = word_behind(header, "<|channel|>");
    bool call = c->calls && to.n > sizeof prefix - 1 && to.n < sizeof c->name &&
                !memcmp(to.p, prefix, sizeof prefix - 1);
    bool thought = c->thoughts && wf_slice_is(channel, "analysis");
    if (call) wf_copy(c->name, to.n - sizeof prefix + 2, to.p + sizeof prefix - 1);
    c->sort = call ? WF_CALL_OF : thought ? WF_THOUGHT : WF_TO_USER;
    c->state = WF_BODY;
    c->begun = false;
}

/* May a header begin so? */
static enum wf_found is_header(const wf_channels *c)
{
    static const char *const first[] = {"<|channel|>", "<|start|>", "<|constrain|>", "to="};
    enum wf_found f = WF_NO;
    for (size_t i = 0; i < WF_LEN(first); i++) {
        size_t at = 0;
        enum wf_found one = wf_pass(held(c), &at, first[i]);
        f = WF_MAX(f, one);
    }
    return f;
}

static bool read_header(wf_channels *c)
{
    static const char *const message = MESSAGE;
    size_t len;
    enum wf_found good = c->held.len ? is_header(c) : WF_PARTLY, f = good == WF_YES ? find(c, &message, 1, &len) : good;
    if (f == WF_YES && c->search <= MAX_HEADER) {
        begin(c, (wf_slice){c->held.data, c->search});
        drop(c, c->search + len);
        return true;
    }
    if (good == WF_PARTLY || (good == WF_YES && c->search <= MAX_HEADER)) return false;
    /* none: text for the user, with its first marker, which else would begin this header again */
    begin(c, (wf_slice){"", 0});
    c->search = good == WF_YES ? wf_skip_blanks(held(c), 0) + 1 : 0;
    return true;
}

/* ---- bodies ---------------------------------------------------------------------------------------------- */

/* Messages of a sort are separated by a line end. */
static void say(wf_channels *c, size_t n, const wf_call_out *out)
{
    bool thought = c->sort == WF_THOUGHT;
    void (*to)(void *, const char *, size_t) = thought ? out->thought : out->text;
    if (!n) return;
    if (!c->begun && c->said[thought]) to(out->user, "\n", 1);
    to(out->user, c->held.data, n);
    c->begun = c->said[thought] = true;
}

/* n bytes are the body of a call: text if it is none. */
static void take_call(wf_channels *c, size_t n, const wf_call_out *out)
{
    wf_slice name = {c->name, strlen(c->name)}, body = {c->held.data, n};
    wf_text own = {0};
    bool good = wf_call_arguments(&body, &own) && wf_tool_name_good(name.p, name.n);
    if (good) out->call(out->user, (wf_slice){0}, name, body);
    else c->sort = WF_TO_USER, say(c, n, out);
    c->held.failed |= own.failed;
    free(own.data);
}

static bool read_body(wf_channels *c, const wf_call_out *out)
{
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    size_t len, limit = WF_CALL_MAX;
    enum wf_found f = find(c, ends, WF_LEN(ends), &len);
    if (c->sort == WF_CALL_OF && c->search > limit) c->sort = WF_TO_USER;
    if (c->sort == WF_CALL_OF && f != WF_YES) return false;
    if (c->sort == WF_CALL_OF) take_call(c, c->search, out);
    else say(c, c->search, out);
    bool start = f == WF_YES && c->held.data[c->search + 2] == 's'; /* it belongs to the next header */
    drop(c, c->search + (f == WF_YES && !start ? len : 0));
    if (f == WF_YES) c->state = WF_HEADER;
    return f == WF_YES;
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

bool wf_channels_feed(wf_channels *c, const char *text, size_t len, const wf_call_out *out)
{
    wf_text_add(&c->held, text, len);
    while (!c->held.failed && (c->state == WF_HEADER ? read_header(c) : read_body(c, out))) {}
    return !c->held.failed;
}

void wf_channels_end(wf_channels *c, const wf_call_out *out)
{
    size_t n = c->held.len;
    if (!n) return;
    if (c->state == WF_BODY && c->sort == WF_CALL_OF) take_call(c, n, out);
    else if (c->state == WF_BODY) say(c, n, out);
    else if (is_header(c) != WF_YES) begin(c, (wf_slice){"", 0}), say(c, n, out);
}
