/* thoughts: see the header. What is held back is white space, and what may be the beginning of a marker. */
#include "answers/channels.h"
#include "answers/thoughts.h"

#include <string.h>

#define LAST_TOKENS 16 /* of a prompt, which may have what opens thoughts, and white space */

static const wf_thought_kind kinds[] = {
    {"openai_gptoss", "<|channel|>analysis", NULL, NULL},
    {"mistral", "[THINK]", "[THINK]", "[/THINK]"},
    {"cohere", "<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"deepseek_r1", "</think>", "<think>", "</think>"},
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
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        size_t n = strlen(out);
        wf_copy(out + n, cap - n, i ? ", " : "");
        n = strlen(out);
        wf_copy(out + n, cap - n, kinds[i].name);
    }
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
    wf_shown_add(out, m, k->open ? markers : wf_channel_markers);
}

/* ---- the reader ------------------------------------------------------------------------------------------ */

static wf_slice held(const wf_thoughts *t)
{
    return (wf_slice){t->held.data, t->held.len};
}

static void drop(wf_thoughts *t, size_t n)
{
    t->held.len -= n;
    memmove(t->held.data, t->held.data + n, t->held.len);
}

/* n bytes of what is held, to where they belong. */
static void release(wf_thoughts *t, size_t n, const wf_call_out *out)
{
    if (n) (t->state == WF_INSIDE ? out->thought : out->text)(out->user, t->held.data, n);
    if (n) drop(t, n);
}

/* Each step returns whether the next one has something to do. */
static bool before(wf_thoughts *t)
{
    size_t at = 0;
    enum wf_found f = wf_pass(held(t), &at, t->kind->open);
    if (f == WF_PARTLY) return false;
    t->state = f == WF_YES || t->inside ? WF_INSIDE : WF_ANSWER;
    drop(t, at);
    return true;
}

static bool inside(wf_thoughts *t, const wf_call_out *out)
{
    size_t at = 0, end;
    enum wf_found f = WF_NO;
    if (!t->any) drop(t, wf_skip_blanks(held(t), 0));
    while (at < t->held.len && (f = wf_look(held(t), at, t->kind->close)) == WF_NO) at++;
    for (end = at; end && at - end < WF_MAX_BLANKS && wf_is_blank(t->held.data[end - 1]);) end--;
    t->any |= end > 0;
    release(t, end, out);
    if (f != WF_YES) return false;
    drop(t, at - end + strlen(t->kind->close));
    t->state = WF_BEHIND;
    return true;
}

static bool behind(wf_thoughts *t)
{
    drop(t, wf_skip_blanks(held(t), 0));
    if (t->held.len) t->state = WF_ANSWER;
    return t->held.len;
}

bool wf_thoughts_feed(wf_thoughts *t, const char *text, size_t len, const wf_call_out *out)
{
    wf_text_add(&t->held, text, len);
    if (t->held.failed) return false;
    if (t->state == WF_BEFORE && !before(t)) return true;
    if (t->state == WF_INSIDE && !inside(t, out)) return true;
    if (t->state == WF_BEHIND && !behind(t)) return true;
    release(t, t->held.len, out);
    return true;
}

void wf_thoughts_end(wf_thoughts *t, const wf_call_out *out)
{
    size_t n = t->held.len;
    if (t->state == WF_BEFORE && t->inside) t->state = WF_INSIDE;
    while (t->state == WF_INSIDE && n && wf_is_blank(t->held.data[n - 1])) n--;
    if (t->state != WF_BEHIND) release(t, n, out);
}
