/* json_scan: JSON text walked through where it stands. */
#ifndef WF_JSON_SCAN_H
#define WF_JSON_SCAN_H

#include "base/base.h"

typedef struct wf_slice {
    const char *p;
    size_t n;
} wf_slice;
/* Behind the value that begins at p or behind white space there; NULL: it is not valid, not whole, or deeper than 64 levels. */
const char *wf_json_end(const char *p, const char *end);
/* Is all of it one value? */
bool wf_json_whole(const char *p, size_t len);
/* The next member of a valid object or list. *at: behind its bracket, then behind the last one. name: without quotes, escapes as they are;
 * NULL for lists. false: there is none. */
bool wf_json_next(const char **at, const char *end, wf_slice *name, wf_slice *value);

#endif
