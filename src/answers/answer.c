/* answer: see the header. Thoughts are taken first, and calls are in the text that is left; in channels both are seen
 * at once. */
#include "answers/answer.h"

#include <stdlib.h>
#include <string.h>

#define LIST_KIND "firefunction" /* a marker and a JSON list: so a list alone is read, with the marker put before it */

struct wf_answer {
    bool by_channel, has_thoughts;
    wf_channels channels;
    wf_thoughts thoughts;
    wf_calls *calls; /* NULL: none are recognised */
    const wf_call_out *out; /* while something is fed */
    bool failed;
};

wf_answer *wf_answer_new(const wf_answer_style *s)
{
    wf_answer *a = wf_calloc(1, sizeof *a);
    if (!a) return NULL;
    a->has_thoughts = s->thoughts;
    a->by_channel = (s->thoughts && s->thoughts->channels) || (s->calls && s->calls->channels);
    a->channels = (wf_channels){.thoughts = s->thoughts, .calls = s->calls};
    a->thoughts = (wf_thoughts){.kind = s->thoughts, .inside = s->thinking, .begun = s->continues};
    const wf_call_kind *calls = s->required ? wf_call_kind_named(LIST_KIND) : s->calls;
    if (!calls || a->by_channel) return a;
    a->calls = wf_calls_new(calls, s->tool_types);
    const wf_call_out none = {0}; /* a marker alone is held back */
    if (a->calls && (!s->required || wf_calls_feed(a->calls, calls->open, strlen(calls->open), &none))) {
        a->thoughts.put_in = s->required ? strlen(calls->open) : a->thoughts.put_in;
        return a;
    }
    wf_answer_free(a);
    return NULL;
}

void wf_answer_free(wf_answer *a)
{
    if (!a) return;
    free(a->channels.held.data);
    free(a->thoughts.held.data);
    wf_calls_free(a->calls);
    free(a);
}

/* Text that is for the user, without what was put before the answer. */
static void give_text(void *user, const char *text, size_t len)
{
    wf_answer *a = user;
    size_t skip = WF_MIN(len, a->thoughts.put_in);
    a->thoughts.put_in -= skip;
    if (len > skip) a->out->text(a->out->user, text + skip, len - skip);
}

static void give_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    wf_answer *a = user;
    a->thoughts.put_in = 0; /* it was of the call */
    a->out->call(a->out->user, id, name, arguments);
}

static wf_call_out given(wf_answer *a) { return (wf_call_out){.text = give_text, .call = give_call, .user = a}; }

static void on_text(void *user, const char *text, size_t len)
{
    wf_answer *a = user;
    const wf_call_out out = given(a);
    if (!a->calls) give_text(a, text, len);
    else if (!wf_calls_feed(a->calls, text, len, &out)) a->failed = true;
}

static void on_thought(void *user, const char *text, size_t len)
{
    const wf_answer *a = user;
    a->out->thought(a->out->user, text, len);
}

bool wf_answer_feed(wf_answer *a, const char *text, size_t len, const wf_call_out *out)
{
    const wf_call_out inner = {.text = on_text, .thought = on_thought, .user = a};
    a->out = out;
    if (!len) return !a->failed;
    if (a->by_channel) a->failed |= !wf_channels_feed(&a->channels, text, len, out);
    else if (a->has_thoughts) a->failed |= !wf_thoughts_feed(&a->thoughts, text, len, &inner);
    else on_text(a, text, len);
    return !a->failed;
}

bool wf_answer_end(wf_answer *a, bool cut, const wf_call_out *out)
{
    const wf_call_out inner = {.text = on_text, .thought = on_thought, .user = a}, last = given(a);
    a->out = out;
    if (a->by_channel) wf_channels_end(&a->channels, out);
    else if (a->has_thoughts) wf_thoughts_end(&a->thoughts, &inner);
    if (a->calls) a->failed |= !wf_calls_end(a->calls, cut, &last);
    return !a->failed;
}

bool wf_answer_thinks(const wf_answer *a)
{
    const wf_thoughts *t = &a->thoughts;
    if (a->by_channel) return a->channels.state == WF_BODY && a->channels.sort == WF_THOUGHT;
    return a->has_thoughts && (t->state == WF_INSIDE || (t->state == WF_BEFORE && t->inside));
}
