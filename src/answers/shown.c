/* shown: see the header. */
#include "answers/shown.h"

#include <string.h>

static bool has(const wf_shown *s, int32_t id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->ids[i] == id) return true;
    return false;
}

static void add(wf_shown *s, const struct weft_model *m, const char *marker)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (weft_tokenize(m, marker, strlen(marker), WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n)) n = 0;
    for (size_t i = 0; i < n && s->n < WEFT_MAX_SHOWN; i++) {
        bool hidden = weft_token_text(m, ids[i], WEFT_TEXT_DEFAULT, NULL, 0) &&
                      !weft_token_text(m, ids[i], WEFT_TEXT_HIDE_SPECIAL, NULL, 0);
        if (hidden && !has(s, ids[i])) s->ids[s->n++] = ids[i];
    }
    weft_free(ids);
}

void wf_shown_add(wf_shown *s, const struct weft_model *m, const char *const *markers)
{
    for (size_t i = 0; markers[i]; i++) add(s, m, markers[i]);
}
