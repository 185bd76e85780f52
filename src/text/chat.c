/* chat: a conversation as text, which a chat template writes. */
#include "text/text.h"

#include <string.h>

weft_status wf_chat_render(const wf_jinja_input *in, wf_chat_text *out)
{
    *out = (wf_chat_text){0};
    WF_TRY(wf_jinja_render(in, &out->rendered));
    const wf_jinja_output *o = &out->rendered;
    size_t bos = in->bos ? strlen(in->bos) : 0;
    bool own = !o->n_data || o->data[0].begin >= bos;
    out->has_bos = bos && own && o->len >= bos && !memcmp(o->text, in->bos, bos);
    return WEFT_OK;
}

void wf_chat_text_free(wf_chat_text *t) { wf_jinja_output_free(&t->rendered); }
