/* shown: see the header. */
#include "answers/shown.h"

#include <string.h>

static void add(wf_shown *s, const struct weft_model *m, const char *marker)
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
    for (size_t i = 0; markers[i]; i++) add(s, m, markers[i]);
}
