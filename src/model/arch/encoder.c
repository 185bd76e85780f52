/* encoder: graphs of BERT and its kin, which attend in both directions and whose norms follow what they add to. */
#include "model/arch/build.h"

/* x + rows of a table that the file has. */
static int32_t add_rows(wf_builder *b, const char *name, const char *tensor, uint32_t rows, enum wf_input ids,
                        int32_t x)
{
    const wf_linear table = {name, tensor, rows};
    int32_t w = wf_build_stacked_matrix(b, &table, 1, b->hp->hidden_size);
    if (w < 0) return -1;
    b->weights->list[b->graph->values[w].id].matrix = false;
    return wf_build_gather(b, name, w, ids, 0, x, WF_F32);
}

int32_t wf_build_encoder_embed(wf_builder *b)
{
    const wf_hparams *hp = b->hp;
    b->layer = WF_ONCE;
    b->residual = b->act; /* what a norm gives is both the residual stream and the input of products */
    int32_t x = add_rows(b, "embed", "token_embd", hp->n_vocab, WF_INPUT_TOKEN, -1);
    if (hp->n_types) x = add_rows(b, "types", "token_types", hp->n_types, WF_INPUT_TYPE, x);
    if (hp->learned_positions) x = add_rows(b, "positions", "position_embd", hp->context, WF_INPUT_POS, x);
    return wf_build_norm(b, "embed_norm", "token_embd_norm", x);
}

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
    int32_t x = wf_build_encoder_embed(b);
    for (b->layer = 0; b->layer < (int32_t)b->hp->n_layer && b->status == WEFT_OK; b->layer++) {
        x = wf_build_norm(b, "attn_out_norm", "attn_output_norm", attention(b, x));
        x = wf_build_norm(b, "layer_norm", "layer_output_norm", feed_forward(b, x));
    }
    wf_build_logits(b, x);
}
