/* text: growing buffers, and JSON in them. */
#ifndef WF_ANSWERS_TEXT_H
#define WF_ANSWERS_TEXT_H

#include "answers/json_scan.h"

#include <jansson.h>

typedef struct wf_text {
    char *data;
    size_t len, cap;
    bool failed; /* out of memory: the text is truncated */
} wf_text;
void wf_text_add(wf_text *t, const char *data, size_t len);
void wf_text_print(wf_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
#define WF_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9)) /* enough digits for a float */
/* Appends JSON; false, also for NULL: t has failed. json_dumps would not do: without memory jansson 2.14 leaves out names of members. */
bool wf_text_json(wf_text *t, const json_t *json);
bool wf_text_dump(wf_text *t, const json_t *json, size_t flags); /* with flags of jansson */
bool wf_text_exact(wf_text *t, const json_t *json); /* numbers keep all their digits */
/* A JSON string; invalid UTF-8 becomes U+FFFD. */
json_t *wf_json_string(const char *data, size_t len);
void wf_text_string(wf_text *t, wf_slice s); /* appends one */

#endif
