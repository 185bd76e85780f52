/* sampling: how a model wants to be sampled, as its file says: llama.cpp's keys general.sampling.*. A folder says so in
 * generation_config.json, which becomes the same keys, so that a converted file keeps it. */
#ifndef WF_MODEL_SAMPLING_H
#define WF_MODEL_SAMPLING_H

#include "model/files/gguf.h"

/* Fills *out with what the file states and weft's defaults for the rest; g NULL: with these alone. Returns the bits
 * (enum weft_sampling_field) of what it states. Values that make no sense are left out with a warning. */
unsigned wf_sampling_stated(const wf_gguf *g, struct weft_sampling *out);
/* Adds the keys of the folder's generation_config.json, if there is one. */
weft_status wf_sampling_of_folder(wf_gguf *g);

#endif
