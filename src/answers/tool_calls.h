/* tool_calls: calls of functions in the text of an answer. Models write them in the way that their chat template shows
 * them; a kind is one such way, a row of a table. The reader takes the text in pieces of any length, and what it makes
 * of it does not depend on where they are cut.
 *
 * A call is given out once it is whole and known to be good: then it has a name, and arguments that are a JSON object,
 * byte for byte as the model wrote it, or made of what it wrote in a string, in tags or in words of a programming
 * language. What is
 * no call after all is given out as the text that it is; nothing is lost, and nothing fails. */
#ifndef WF_TOOL_CALLS_H
#define WF_TOOL_CALLS_H

#include "answers/tool_forms.h"
#include "answers/tool_tags.h"

#define WF_CALL_MAX (256u << 10) /* bytes of one call, or of one list of them; longer ones are text */
#define WF_MAX_CALLS 128 /* in one list; a longer one is text */

enum wf_call_id {
    WF_ID_ANY,
    WF_ID_NINE,
    WF_ID_OWN
}; /* what templates want as the id: anything, 9 letters, or what the model wrote */

typedef struct wf_call_kind {
    const char *name;        /* as --tool-call-parser has it: vLLM's name, if it has one */
    const char *signs[2];    /* a template that has all of these shows calls so */
    bool channels;           /* channels.h says how; there are no markers */
    const char *open;        /* stands before a call */
    const char *behind_open; /* stands behind `open`; NULL: nothing does */
    const char *behind_id;   /* an id and this stand before the name; NULL: there is none */
    /* The name and this, then the arguments; NULL, or if a bracket follows `open`: JSON that has the name in it. */
    const char *behind_name;
    bool keyed;              /* ... as the name of its only member: {"f": {...}} */
    wf_tags tags;            /* behind the name, and behind_name if there is one, instead of JSON */
    wf_call_form form;       /* makes JSON of what stands between `open` and `close`; NULL: it is JSON, or tags */
    bool may_lack;           /* ... which may lack parameters if the answer was cut before `close` */
    const char *quote;       /* a further marker, within calls */
    const char *close;       /* stands behind a call; NULL: nothing */
    const char *wrap[2];     /* may stand around all calls together */
    bool only_tools;         /* what names none of the tools is no call */
    const char *bare; /* an answer that begins with JSON that begins so, and names a tool, is a call without `open` */
    enum wf_call_id id;
} wf_call_kind;

/* Of these markers: NULL behind the last one. */
#define WF_CALL_MARKERS 12
void wf_call_markers(const wf_call_kind *k, const char *out[WF_CALL_MARKERS + 1]);
/* What the first call begins with; NULL: nothing that tells it from other text. */
const char *wf_call_begin(const wf_call_kind *k);
/* NULL: there is none of this name. */
const wf_call_kind *wf_call_kind_named(const char *name);
/* Their names, as they stand in the table, with commas. */
void wf_call_kinds_list(char *out, size_t cap);
/* By the text of the chat template; NULL: none. */
const wf_call_kind *wf_call_kind_of(const char *chat_template);

/* Where calls, thoughts (only of answer.h and what it has) and all else go, in order. What slices point to is valid
 * during the call only. */
typedef struct wf_call_out {
    void (*text)(void *user, const char *text, size_t len);
    void (*thought)(void *user, const char *text, size_t len);
    void (*call)(void *user, wf_slice id, wf_slice name, wf_slice arguments); /* id: n is 0 if the model wrote none */
    void *user;
} wf_call_out;

/* Arguments as the text of a JSON object: as an object, as a string that has one in it (then *a is in `own`), or as
 * nothing. false: they are none. */
bool wf_call_arguments(wf_slice *a, wf_text *own);

typedef struct wf_calls wf_calls;
/* types: of tool_types.h; they stay the caller's. NULL: no memory. */
wf_calls *wf_calls_new(const wf_call_kind *k, const wf_text *types);
void wf_calls_free(wf_calls *c); /* NULL is allowed */
/* false: no memory, and the text is incomplete from here on. */
bool wf_calls_feed(wf_calls *c, const char *text, size_t len, const wf_call_out *out);
/* The answer has ended; cut: though the model would have gone on. false: no memory. */
bool wf_calls_end(wf_calls *c, bool cut, const wf_call_out *out);

#endif
