/* attention_windows: how far each KV head of each layer looks back (sparse attention as in MoA, which FlashDecoding++Next runs): the
 * file that says so, and its use. The file:
 *
 *     weft-attention-windows 1
 *     sink 64                      # the first keys, which every head sees; without this line 0
 *     layer 0 1024 1024 4096 0     # a window for each KV head: so many of the last keys; 0: all
 *     ...                          # and so on, every layer
 *
 * Query heads share the window of their KV head, since its keys are read once for all of them: of a pattern by query
 * heads take the longest of each group. A row's own key is one of its window.
 */
#ifndef WF_ATTENTION_WINDOWS_H
#define WF_ATTENTION_WINDOWS_H

#include "engine/engine.h"

/* Reads windows [n_layers][n_kv_head]. Errors name the line. */
weft_status wf_attention_windows_load(const char *path, uint32_t n_layers, uint32_t n_kv_head, int32_t *out, uint32_t *sink);
/* Gives g's ATTENTION nodes the windows of path as constants in w; layers in which every head sees all keys stay as they are.
 * path NULL: nothing. Before the weights go to the device. */
weft_status wf_attention_windows_use(const struct weft_model *m, const char *path, wf_graph *g, wf_weights *w);

#endif
