/* thoughts: see the header. What is held back is white space, and what may be the beginning of a marker or of a frame.
 */
#include "answers/channels.h"
#include "answers/thoughts.h"
#include "answers/tool_types.h"

#include <string.h>

#define LAST_TOKENS 16 /* of a prompt, which may have what opens thoughts, and white space */

static void show_marker(wf_shown *s, const struct weft_model *m, const char *marker)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (weft_tokenize(m, marker, strlen(marker), WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n)) n = 0;
    for (size_t i = 0; i < n && s->n < WEFT_MAX_SHOWN; i++) {
        bool hidden = weft_token_text(m, ids[i], WEFT_TEXT_DEFAULT, NULL, 0) &&
                      !weft_token_text(m, ids[i], WEFT_TEXT_HIDE_SPECIAL, NULL, 0), known = false;
        for (size_t k = 0; k < s->n; k++) known |= s->ids[k] == ids[i];
        if (hidden && !known) s->ids[s->n++] = ids[i];
    }
    weft_free(ids);
}

void wf_shown_add(wf_shown *s, const struct weft_model *m, const char *const *markers)
{
    for (size_t i = 0; markers[i]; i++) show_marker(s, m, markers[i]);
}

/* The first row whose sign a template has. */
static const wf_thought_kind kinds[] = {
    {.name = "openai_gptoss", .sign = "<|channel|>analysis", .channels = true},
    {.name = "mistral", .sign = "[THINK]", .open = "[THINK]", .close = "[/THINK]"},
    {.name = "cohere", .sign = "<|START_THINKING|>", .open = "<|START_THINKING|>", .close = "<|END_THINKING|>",
     .frames = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {.name = "apriel", .sign = "[BEGIN FINAL RESPONSE]", .open = "Here are my reasoning steps:",
     .close = "[BEGIN FINAL RESPONSE]"},
    {.name = "apertus", .sign = "<|inner_prefix|>", .open = "<|inner_prefix|>", .close = "<|inner_suffix|>",
     .until = "<|tools_prefix|>"},
    {.name = "gemma4", .sign = "<|channel>thought", .open = "<|channel>thought", .close = "<channel|>"},
    /* its frame also stands before no thoughts */
    {.name = "minimax_m3", .sign = "</mm:think>", .open = "<mm:think>", .close = "</mm:think>",
     .frames = {"</mm:think>"}},
    {.name = "hy_v3", .sign = ":opensource", .open = "<think:opensource>", .close = "</think:opensource>"},
    {.name = "kimi_k3", .sign = "<|open|>", .open = "<|open|>think<|sep|>", .close = "<|close|>think<|sep|>",
     .frames = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}},
    {.name = "muse_glimmer", .sign = "to=self<|message|>", .open = "to=self<|message|>", .close = "<|eom|>",
     .frames = {"<|start|>assistant", " to=*<|message|>", "<|eom|>", "<|eot|>"}},
    {.name = "solar_open", .sign = "<|begin|>assistant<|think|>", .open = "<|think|>", .close = "<|end|>",
     .frames = {"<|begin|>assistant", "<|content|>", "<|end|>"}},
    {.name = "functionary_v3", .sign = ">>>all", .begins = ">>>", .frames = {">>>all\n"}},
    {.name = "deepseek_r1", .sign = "</think>", .open = "<think>", .close = "</think>"},
};

const wf_thought_kind *wf_thought_kind_named(const char *name)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}

void wf_thought_kinds_list(char *out, size_t cap)
{
    *out = 0;
    for (size_t i = 0; i < WF_LEN(kinds); i++) wf_list_name(out, cap, kinds[i].name);
}

const wf_thought_kind *wf_thought_kind_of(const char *chat_template)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (strstr(chat_template, kinds[i].sign)) return &kinds[i];
    return NULL;
}

bool wf_thoughts_opened(const wf_thought_kind *k, const struct weft_model *m, const int32_t *ids, size_t n)
{
    char text[LAST_TOKENS * 64];
    size_t len = 0, from = n > LAST_TOKENS ? n - LAST_TOKENS : 0, n_open = k->open ? strlen(k->open) : 0;
    for (size_t i = from; i < n; i++) {
        size_t more = weft_token_text(m, ids[i], WEFT_TEXT_DEFAULT, text + len, sizeof text - len);
        len = more > sizeof text - len ? 0 : len + more; /* a token that long is none of these */
    }
    while (len && wf_is_blank(text[len - 1])) len--;
    return n_open && len >= n_open && !memcmp(text + len - n_open, k->open, n_open);
}

void wf_thoughts_show(const wf_thought_kind *k, const struct weft_model *m, wf_shown *out)
{
    const char *const markers[] = {k->open, k->close, NULL};
    wf_shown_add(out, m, k->channels ? wf_channel_markers : markers);
    wf_shown_add(out, m, k->frames);
}

/* ---- the reader ------------------------------------------------------------------------------------------ */

static wf_slice held(const wf_thoughts *t) { return (wf_slice){t->held.data, t->held.len}; }

/* n bytes of what is held, to where they belong. */
static void release(wf_thoughts *t, size_t n, const wf_call_out *out)
{
    if (n) (t->state == WF_INSIDE ? out->thought : out->text)(out->user, t->held.data, n);
    wf_held_drop(&t->held, n);
}

/* ---- frames ---------------------------------------------------------------------------------------------- */

/* Does the frame stand there, and how long is it? */
static enum wf_found look_frame(wf_slice text, size_t at, const char *frame, size_t *len)
{
    const char *star = strchr(frame, '*');
    size_t n = star ? (size_t)(star - frame) : strlen(frame), left = text.n - at, p = at + n;
    if (memcmp(text.p + at, frame, WF_MIN(n, left))) return WF_NO;
    if (left < n) return WF_PARTLY;
    while (star && p < text.n && wf_tool_name_good(text.p + at + n, p + 1 - at - n)) p++;
    enum wf_found f = star ? wf_look(text, p, star + 1) : WF_YES;
    *len = p - at + (star ? strlen(star + 1) : 0);
    return f;
}

/* What is no text, there: a frame, or what opens thoughts again. */
static enum wf_found begins(const wf_thoughts *t, size_t at, size_t *len, bool *thoughts)
{
    const char *const *frames = t->kind->frames;
    size_t end = at;
    enum wf_found f = t->kind->open ? wf_pass(held(t), &end, t->kind->open) : WF_NO;
    *thoughts = f == WF_YES;
    *len = end - at;
    for (size_t i = 0; f == WF_NO && frames[i]; i++) f = look_frame(held(t), at, frames[i], len);
    return f;
}

/* The answer, without frames. Returns whether thoughts follow. */
static bool answer(wf_thoughts *t, const wf_call_out *out)
{
    size_t from = 0, at = 0, len = 0;
    bool thoughts = false;
    enum wf_found f = WF_NO;
    if (!t->kind->frames[0]) release(t, t->held.len, out);
    for (; at < t->held.len && !thoughts; at += f == WF_NO ? 1 : len) {
        f = begins(t, at, &len, &thoughts);
        if (f != WF_NO && at > from) out->text(out->user, t->held.data + from, at - from);
        if (f != WF_NO) from = at + (f == WF_YES ? len : 0);
        if (f == WF_YES) t->put_in = 0;
        if (f == WF_PARTLY) break;
    }
    if (f == WF_NO && at > from) out->text(out->user, t->held.data + from, at - from), from = at;
    wf_held_drop(&t->held, from);
    if (thoughts) t->state = WF_INSIDE, t->any = false;
    return thoughts;
}

/* ---- thoughts -------------------------------------------------------------------------------------------- */

/* Each step returns whether the next one has something to do. */
static bool before(wf_thoughts *t, const wf_call_out *out)
{
    size_t at = 0;
    enum wf_found f = t->kind->open ? wf_pass(held(t), &at, t->kind->open) : WF_NO;
    (void)out;
    if (f == WF_PARTLY) return false;
    t->state = f == WF_YES || t->inside ? WF_INSIDE : WF_ANSWER;
    wf_held_drop(&t->held, at);
    return true;
}

/* Do thoughts end there? len: of what closes them. */
static enum wf_found ends(const wf_thoughts *t, size_t at, size_t *len)
{
    enum wf_found f = wf_look(held(t), at, t->kind->close);
    *len = f == WF_YES ? strlen(t->kind->close) : 0;
    return f == WF_NO && t->kind->until ? wf_look(held(t), at, t->kind->until) : f;
}

static bool inside(wf_thoughts *t, const wf_call_out *out)
{
    size_t at = 0, end, len = 0;
    enum wf_found f = WF_NO;
    if (!t->any) wf_held_drop(&t->held, wf_skip_blanks(held(t), 0));
    while (at < t->held.len && (f = ends(t, at, &len)) == WF_NO) at++;
    for (end = at; end && at - end < WF_MAX_BLANKS && wf_is_blank(t->held.data[end - 1]);) end--;
    t->any |= end > 0;
    release(t, end, out);
    if (f != WF_YES) return false;
    wf_held_drop(&t->held, at - end + len);
    t->state = WF_BEHIND;
    return true;
}

static bool behind(wf_thoughts *t, const wf_call_out *out)
{
    (void)out;
    wf_held_drop(&t->held, wf_skip_blanks(held(t), 0));
    if (t->held.len) t->state = WF_ANSWER;
    return t->held.len;
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

bool wf_thoughts_feed(wf_thoughts *t, const char *text, size_t len, const wf_call_out *out)
{
    static bool (*const steps[])(wf_thoughts *, const wf_call_out *) = {
        [WF_BEFORE] = before, [WF_INSIDE] = inside, [WF_BEHIND] = behind, [WF_ANSWER] = answer};
    if (!t->begun && t->kind->begins) wf_text_add(&t->held, t->kind->begins, t->put_in = strlen(t->kind->begins));
    t->begun = true;
    while (wf_held_add(&t->held, &text, &len)) {
        while (steps[t->state](t, out)) {}
    }
    return !t->held.failed;
}

void wf_thoughts_end(wf_thoughts *t, const wf_call_out *out)
{
    size_t n = t->held.len;
    if (t->state == WF_BEFORE && t->inside) t->state = WF_INSIDE;
    while (t->state == WF_INSIDE && n && wf_is_blank(t->held.data[n - 1])) n--;
    if (t->state != WF_BEHIND) release(t, n, out);
}
