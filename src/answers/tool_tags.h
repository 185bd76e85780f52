/* tool_tags: the parameters of a call that stand in tags, each with a name and a value, and what they are as a JSON
 * object. */
#ifndef WF_TOOL_TAGS_H
#define WF_TOOL_TAGS_H

#include "answers/markers.h"
#include "base/json.h"

#define WF_MAX_PARAMETERS 128 /* of a call; one with more in tags or elements is text */

/* How a kind of calls writes them: key NAME behind_key [TYPE] [value] VALUE end. */
typedef struct wf_tags {
    const char *key;        /* NULL: not in tags */
    const char *behind_key;
    /* The TYPE of strings: a word, and all others are for JSON; NULL: there are no types, and schemas tell. */
    const char *string;
    const char *value;      /* NULL: the value follows behind_key at once */
    const char *end;
    const char *raw[2]; /* may stand around a value; it then ends at the second of them. NULL: there is no such thing */
    bool lines;             /* a line end before and one behind a value belong to the tags */
} wf_tags;

typedef struct wf_tag_parameter { /* offsets in the text */
    size_t name, n_name, value, n_value;
    bool raw;
    enum wf_tag_type { WF_TAG_UNTYPED, WF_TAG_STRING, WF_TAG_JSON } type;
} wf_tag_parameter;

typedef struct wf_tag_call { /* what stands around the parameters */
    const char *open, *behind_name, *close, *const *wrap; /* as kinds of calls have them */
    const wf_text *types; /* as tool_types.h has them */
    wf_slice tool;
} wf_tag_call;

typedef struct wf_tag_scan {
    size_t at;     /* behind what is known to be good: there the next parameter stands, or what closes the call */
    size_t end;    /* of a call: behind what closes it */
    size_t search; /* behind `at`: in its value no end is before this */
    bool ended;    /* no more text will come, and what closes the call may be missing... */
    bool cut;      /* ...but not if the answer was cut: then parameters may be missing, too */
    unsigned n, n_cut; /* n_cut: values that lacked their end */
    wf_tag_parameter of[WF_MAX_PARAMETERS];
} wf_tag_scan;

/* Reads on from s->at. YES: what closes the call stands there, or enough of it at the end, or another call though it is
 * missing. NO: it is no call. */
enum wf_found wf_tags_scan(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s);
/* A value is a string if its tool says so, or if it is no JSON. Of parameters with the same name the last one counts.
 * out may fail, and may be deeper than JSON may be. */
void wf_tags_json(const wf_tags *t, const wf_tag_call *c, wf_slice text, const wf_tag_scan *s, wf_text *out);
/* A value as JSON; string: else only if it is none. */
void wf_tag_value(wf_slice value, bool string, wf_text *out);

#endif
