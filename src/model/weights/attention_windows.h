/* attention_windows: sparse attention with a window for each query head of each layer (as MoA has it, which
 * FlashDecoding++Next runs): the file, and its use. The file:
 *
 *     weft-attention-windows 1
 *     sink 64                      # the first keys, which every head attends to; 0 without this line
 *     layer 0 1024 1024 4096 0     # for each query head: how many of the last keys it attends to; 0: all
 *     layer 1 512 0                # or for each KV head: its query heads share it
 *     ...                          # and so on, every layer
 *
 * A window includes the token's own key. Keys are read once for all query heads of a KV head, as far back as one of
 * them attends.
 */
#ifndef WF_ATTENTION_WINDOWS_H
#define WF_ATTENTION_WINDOWS_H

#include "model/model.h"

/* Reads windows [n_layers][n_head], of query heads. Errors name the line. */
weft_status wf_attention_windows_load(const char *path, uint32_t n_layers, uint32_t n_head, uint32_t n_kv_head,
                                      int32_t *out, uint32_t *sink);
/* Gives layers of different windows page tables of their own, where that saves memory. */
weft_status wf_attention_windows_lay_out(wf_graph *g, const wf_weights *w, const wf_kv_growth *growth);
/* Gives g's ATTENTION nodes the windows of the file at path, as constants in w. Layers with dense attention do not
 * change. path NULL: does nothing. shard: that of g. Call it before the weights are uploaded. */
weft_status wf_attention_windows_use(const struct weft_model *m, const char *path, wf_shard shard, wf_graph *g,
                                     wf_weights *w);

#endif
