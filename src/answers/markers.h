/* markers: what stands around calls and thoughts in an answer, looked for in text that is not all there yet. Nothing
 * here depends on where its pieces end: what may be a marker once more text comes is PARTLY one. */
#ifndef WF_MARKERS_H
#define WF_MARKERS_H

#include "base/json.h"

#define WF_MAX_BLANKS 64 /* in a row, around and inside markers */

enum wf_found { WF_NO, WF_PARTLY, WF_YES };

bool wf_slice_is(wf_slice s, const char *word);
/* Drops the first n bytes. */
void wf_held_drop(wf_text *held, size_t n);
/* Moves some of a text to what is held: not all at once, since what is held is moved often. false: nothing is left, or
 * held has failed. */
bool wf_held_add(wf_text *held, const char **text, size_t *len);
/* Adds a name to a list of them with commas. */
void wf_list_name(char *list, size_t cap, const char *name);
bool wf_is_blank(char c);
wf_slice wf_trim(wf_slice s); /* without the white space around it */
/* The first place from `at` on that is not white space, or the end. */
size_t wf_skip_blanks(wf_slice text, size_t at);
/* Does the marker stand there, or as much of it as there is text? */
enum wf_found wf_look(wf_slice text, size_t at, const char *marker);
/* Behind blanks, too; *at moves behind the marker. */
enum wf_found wf_pass(wf_slice text, size_t *at, const char *marker);

#endif
