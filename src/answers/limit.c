/* limit: see the header. */
#include "answers/limit.h"

bool wf_exceeds_context(const struct weft_model *m, uint32_t context, size_t len, uint64_t *most)
{
    *most = (uint64_t)context * weft_model_info(m)->longest_token; /* 0: there is no longest one */
    return *most && len > *most;
}
