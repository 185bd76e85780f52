/* shown: control tokens that mark parts of answers. They are else not in the text, so requests have to ask for them. */
#ifndef WF_SHOWN_H
#define WF_SHOWN_H

#include "base/base.h"

typedef struct wf_shown { /* as show_ids of requests has them */
    int32_t ids[WEFT_MAX_SHOWN];
    size_t n;
} wf_shown;
/* Those of these markers: NULL behind the last one. */
void wf_shown_add(wf_shown *s, const struct weft_model *m, const char *const *markers);

#endif
