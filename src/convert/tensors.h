/* tensors: the tensors of the file that is written, and which rows of the model each of them comes from.
 *
 * Two things change besides the format. A GGUF file stacks the matrices of a layer's experts ("ffn_up_exps"), where
 * folders, and old files, have one tensor an expert ("ffn_up.3"). And the rows of q and k of a folder stand in halves;
 * where the architecture's files interleave them, they move. */
#ifndef WF_TENSORS_H
#define WF_TENSORS_H

#include "convert/encode.h"
#include "model/files/recipe.h"

/* Adds the tensors to `out`, places them, and lists what is written where: *list, of in->n_tensors entries, which the
 * caller frees. Counts tensors into the result. *bytes: of all tensors in the file. */
weft_status wf_convert_tensors(const wf_gguf *in, const wf_recipe *r, wf_gguf *out, struct weft_convert_result *result,
                               wf_encode_tensor **list, uint64_t *bytes);

#endif
