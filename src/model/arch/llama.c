/* llama: Llama 1, 2, 3 and 3.1, CodeLlama, Vicuna, Mistral, DeepSeek-LLM and -Coder, TinyLlama. Pre-norm blocks
 * with grouped-query attention, RoPE over adjacent pairs and a SwiGLU feed-forward. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = false;
    return wf_hparams_read(f, "llama", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention);
}

const wf_arch wf_arch_llama = {"llama", hparams, graph};
