/* limit: how long a text can be that fits a context, known before it is turned into tokens. */
#ifndef WF_ANSWERS_LIMIT_H
#define WF_ANSWERS_LIMIT_H

#include "base/base.h"

#include <weft/weft.h>

/* Does a text of len bytes have more tokens than the context, however it is cut? *most: the bytes that may fit; 0: a
 * token may be of any length. */
static inline bool wf_exceeds_context(const struct weft_model *m, uint32_t context, size_t len, uint64_t *most)
{
    *most = (uint64_t)context * weft_model_info(m)->longest_token;
    return *most && len > *most;
}

#endif
