/* output: what graphs end in: logits, or rows that the host makes embeddings or scores of. */
#include "model/arch/build.h"

#define MOST_LABELS 4096

static int32_t logits(wf_builder *b, int32_t x)
{
    bool tied = !wf_build_find(b, "output", "weight");
    uint32_t rows = wf_shard_cuts_vocabulary(b) ? b->hp->n_vocab / b->shard.ranks : b->hp->n_vocab;
    const wf_linear out = {"logits", tied ? "token_embd" : "output", rows};
    int32_t gathered = wf_build_gather(b, "gather_logits", x, WF_INPUT_LOGIT_ROWS, 0, -1, WF_F32);
    b->norm_gain = b->hp->logit_gain; /* products are linear: the norm in front takes the factor */
    int32_t h = wf_build_norm(b, "final_norm", "output_norm", gathered);
    /* a part of the table, or one that is elsewhere, is a matrix of its own */
    bool apart = !tied || wf_shard_cuts_vocabulary(b) || b->embedding < 0;
    if (apart) return wf_build_linears(b, "logits", &out, 1, h, -1, WF_F32);
    if (b->status != WEFT_OK) return -1;
    wf_node n = wf_build_node_of(b, WF_OP_GEMM, "logits", WF_ROWS_LOGITS);
    n.in[WF_GEMM_X] = WF_ALL(h);
    n.in[WF_GEMM_W] = WF_ALL(b->embedding); /* the embedding table itself, which is stored once */
    n.out[WF_GEMM_Y] = WF_ALL(wf_build_activation(b, WF_ROWS_LOGITS, WF_F32, rows));
    wf_build_node(b, &n);
    return n.out[WF_GEMM_Y].value;
}

/* A number for each label: of a product, its tanh, and another product; or of the last of these alone. */
static int32_t scores(wf_builder *b, int32_t x)
{
    const wf_gguf_tensor *last = wf_build_find(b, "cls.output", "weight");
    const wf_linear dense = {"score_dense", "cls", b->hp->hidden_size};
    if (last) {
        x = wf_build_linears(b, dense.name, &dense, 1, x, -1, WF_F32);
        x = wf_build_activate(b, "score_tanh", WF_SOFTCAP, 1, x, WF_F32); /* a cap of 1 is tanh */
    } else last = wf_build_find(b, "cls", "weight");
    uint64_t labels = last ? last->dims[1] : 0;
    if (labels < 1 || labels > MOST_LABELS)
        return wf_build_fail(b, wf_fail(WEFT_ERR_FORMAT, "%s: the head that scores (tensors 'cls') has %llu labels, "
                                        "want 1 to %d", b->file->path, (unsigned long long)labels, MOST_LABELS));
    const wf_linear out = {"scores", wf_build_has(b, "cls.output") ? "cls.output" : "cls", (uint32_t)labels};
    return wf_build_linears(b, out.name, &out, 1, x, -1, WF_F32);
}

/* What the host makes embeddings or scores of; the output matrix, if there is one, is not needed. */
static int32_t pooled_rows(wf_builder *b, int32_t x)
{
    const wf_gguf_tensor *output = wf_build_find(b, "output", "weight");
    if (output) b->used[output - b->file->tensors] = 1;
    x = wf_build_gather(b, "gather_pooled", x, WF_INPUT_LOGIT_ROWS, 0, -1, WF_F32);
    if (!b->normed) x = wf_build_norm_as(b, "final_norm", "output_norm", x, WF_F32);
    return b->pooling == WF_POOLING_RANK ? scores(b, x) : x;
}

void wf_build_logits(wf_builder *b, int32_t x)
{
    b->layer = WF_ONCE;
    if (b->status != WEFT_OK) return;
    if (b->pooling) {
        b->graph->logits = pooled_rows(b, x);
        b->graph->pooled = true;
        return;
    }
    float cap = b->hp->logit_softcap;
    x = logits(b, x);
    if (cap > 0) x = wf_build_activate(b, "logit_softcap", WF_SOFTCAP, cap, x, WF_F32);
    b->graph->logits = wf_shard_gather(b, x);
}
