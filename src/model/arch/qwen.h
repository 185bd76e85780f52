/* qwen: what the Qwens with experts have in common. */
#ifndef WF_ARCH_QWEN_H
#define WF_ARCH_QWEN_H

#include "model/model.h"

/* Refuses models some of whose layers have no experts. */
weft_status wf_qwen_moe_config(wf_gguf *g, const struct wf_json *config);

#endif
