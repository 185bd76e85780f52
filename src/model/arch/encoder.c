/* encoder: hyperparameters of encoders, which attend in both directions, and the graph of those whose norms follow what
 * they add to, as BERT's. */
#include "model/model.h"

weft_status wf_encoder_hparams(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    const wf_gguf_tensor *types = wf_gguf_tensor_find(f, "token_types.weight"),
                         *positions = wf_gguf_tensor_find(f, "position_embd.weight");
    hp->bidirectional = true;
    hp->pooling = WF_POOLING_MEAN;
    WF_TRY(wf_hparams_read(f, arch, hp));
    if (types) hp->n_types = (uint32_t)WF_MIN(types->dims[1], 1u << 20);
    if (hp->learned_positions && positions && positions->dims[1] < hp->context)
        hp->context = (uint32_t)positions->dims[1]; /* RoBERTa counts those of its padding */
    return WEFT_OK;
}

void wf_build_encoder(wf_builder *b, wf_build_part *attention, wf_build_part *feed_forward)
{
    b->residual = b->act; /* what a norm gives is both the residual stream and the input of products */
    b->normed = true;
    int32_t x = wf_build_norm(b, "embed_norm", "token_embd_norm", wf_build_embed(b));
    for (b->layer = 0; b->layer < (int32_t)b->hp->n_layer && b->status == WEFT_OK; b->layer++) {
        x = wf_build_norm(b, "attn_out_norm", "attn_output_norm", attention(b, x));
        x = wf_build_norm(b, "layer_norm", "layer_output_norm", feed_forward(b, x));
    }
    wf_build_logits(b, x);
}
