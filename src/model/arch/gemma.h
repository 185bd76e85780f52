/* gemma: what the Gemmas have in common. */
#ifndef WF_ARCH_GEMMA_H
#define WF_ARCH_GEMMA_H

#include "model/model.h"

extern const wf_folder_name wf_gemma_names[];
/* Reads them all. Files do not say the scale of attention, which differs in the largest model: it is known by its
 * number of layers. */
weft_status wf_gemma_hparams(const wf_gguf *f, const char *arch, uint32_t layers_27b, wf_hparams *hp);
/* The scale of attention, and which layers have a window. */
weft_status wf_gemma_config(wf_gguf *g, const char *arch, const struct wf_json *config);

#endif
