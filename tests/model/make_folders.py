#!/usr/bin/env python3
"""Makes tests/model/data/NAME: tiny models with random weights, made, saved and run by Hugging Face's transformers, each with a vocabulary of
bytes. Beside each folder's own files lie

    logits.npy   of the prompt, and of each token that follows greedily through transformers' cache: float32 [tokens, vocabulary]
    ids.json     the prompt, those tokens, and the versions of the libraries

Needs the packages torch, transformers and tokenizers. Weights are stored in BF16 and computed with in float64.

    make_folders.py [NAME]...
"""
import json
import pathlib
import sys

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import tolerances

torch.set_num_threads(1)
DATA = pathlib.Path(__file__).resolve().parent / 'data'
N_VOCAB = 264  # bytes, special tokens and rows without a token
SMALL = dict(vocab_size=N_VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
             bos_token_id=256, eos_token_id=257)
LLAMA3 = dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32, rope_theta=10000.0)
GRANITE = dict(embedding_multiplier=2.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=8.0)
NO_KV = {k: v for k, v in SMALL.items() if k != 'num_key_value_heads'}
GPT2 = dict(vocab_size=N_VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=512, bos_token_id=256, eos_token_id=257)
OPT = {k: v for k, v in NO_KV.items() if k != 'intermediate_size'} | dict(ffn_dim=96, word_embed_proj_dim=64)
FALCON = {k: v for k, v in NO_KV.items() if k != 'intermediate_size'} | dict(ffn_hidden_size=96)
YARN = dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=128, beta_fast=8.0, rope_theta=10000.0)
GPT_OSS_ROPE = dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=64, beta_fast=8.0, truncate=False, rope_theta=1000.0)
LONGROPE = dict(rope_type='longrope', rope_theta=10000.0, short_factor=[1.0] * 8, long_factor=[1 + 0.4 * i for i in range(8)], original_max_position_embeddings=16)
PHI4_ROPE = dict(LONGROPE, partial_rotary_factor=0.75, short_factor=[1 + 0.1 * i for i in range(6)], long_factor=[1 + 0.4 * i for i in range(6)])
GEMMA = dict(SMALL, head_dim=32, num_hidden_layers=3, tie_word_embeddings=True)
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
LOCAL = ['sliding_attention', 'sliding_attention', 'full_attention']
GEMMA3_ROPE = dict(full_attention=dict(rope_type='linear', factor=8.0, rope_theta=1e6), sliding_attention=dict(rope_type='default', rope_theta=1e4))
MODELS = {
    'llama': (transformers.LlamaConfig, SMALL),
    'llama3': (transformers.LlamaConfig, dict(SMALL, rope_parameters=LLAMA3, tie_word_embeddings=True, attention_bias=True, head_dim=32)),
    'mistral': (transformers.MistralConfig, dict(SMALL, sliding_window=None, num_hidden_layers=3)),
    'mistral-window': (transformers.MistralConfig, dict(SMALL, sliding_window=9)),
    'mixtral': (transformers.MixtralConfig, dict(SMALL, sliding_window=None, num_local_experts=4, num_experts_per_tok=2)),
    'qwen2': (transformers.Qwen2Config, dict(SMALL, num_key_value_heads=1)),
    'qwen3': (transformers.Qwen3Config, dict(SMALL, head_dim=32, tie_word_embeddings=True)),
    'smollm3': (transformers.SmolLM3Config, dict(SMALL, num_hidden_layers=4, pad_token_id=None)),
    'granite': (transformers.GraniteConfig, dict(SMALL, **GRANITE)),
    'starcoder2': (transformers.Starcoder2Config, SMALL),
    'starcoder2-window': (transformers.Starcoder2Config, dict(SMALL, sliding_window=9)),
    'gpt2': (transformers.GPT2Config, GPT2),
    'opt': (transformers.OPTConfig, OPT),
    'falcon': (transformers.FalconConfig, FALCON),
    'falcon40b': (transformers.FalconConfig, dict(FALCON, new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    'olmo2': (transformers.Olmo2Config, SMALL),
    'command-r': (transformers.CohereConfig, dict(SMALL, logit_scale=0.25)),
    'gemma2': (transformers.Gemma2Config, dict(GEMMA, sliding_window=8, attn_logit_softcapping=2.0, final_logit_softcapping=5.0, query_pre_attn_scalar=40)),
    'gemma3': (transformers.Gemma3TextConfig, dict(GEMMA, sliding_window=64, layer_types=LOCAL, rope_parameters=GEMMA3_ROPE, query_pre_attn_scalar=16)),
    'gemma3-vision': (transformers.Gemma3Config, dict(text_config=dict(GEMMA, num_hidden_layers=6, sliding_window=8), vision_config=VISION, mm_tokens_per_image=4,
                                                      image_token_index=262, boi_token_index=260, eoi_token_index=261)),
    'phi3': (transformers.Phi3Config, dict(SMALL, pad_token_id=None, sliding_window=12)),
    'phi3-long': (transformers.Phi3Config, dict(SMALL, pad_token_id=None, original_max_position_embeddings=16, rope_parameters=LONGROPE)),
    'phi4': (transformers.Phi3Config, dict(SMALL, pad_token_id=None, sliding_window=None, original_max_position_embeddings=16, rope_parameters=PHI4_ROPE)),
    'yarn': (transformers.LlamaConfig, dict(SMALL, rope_parameters=YARN)),
    'gemma3-short': (transformers.Gemma3TextConfig, dict(GEMMA, sliding_window=5, layer_types=LOCAL, query_pre_attn_scalar=16)),
    'qwen2moe': (transformers.Qwen2MoeConfig, dict(SMALL, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48)),
    'qwen3moe': (transformers.Qwen3MoeConfig, dict(SMALL, head_dim=32, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)),
    'gpt-oss': (transformers.GptOssConfig, dict(SMALL, head_dim=32, num_hidden_layers=3, sliding_window=8, num_local_experts=5, num_experts_per_tok=2, intermediate_size=32,
                                                rope_parameters=GPT_OSS_ROPE)),
}
CLEAR = 0.02  # between the scores of the last expert that is taken and of the next: rounding must not choose another
PROMPT, GENERATED = 20, 16


def tokenizer():
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([AddedToken('<s>', special=True, normalized=False), AddedToken('</s>', special=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single='<s> $A', special_tokens=[('<s>', 256)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token='<s>', eos_token='</s>')


def scale(model):
    """Random weights so that attention, norms and logits differ from token to token."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, dtype=torch.float64)
        if name.endswith('bias'):
            value = 0.3 * noise
        elif name.endswith('sinks'):
            value = noise
        elif 'gate_up_proj' in name:
            value = 3 * noise / p.shape[1] ** 0.5  # some are clamped
        elif p.ndim == 1:
            value = ('gemma' not in model.config.model_type) + 0.1 * noise  # Gemma adds the 1
        elif 'wpe' in name or 'embed_positions' in name:
            value = 0.3 * noise
        elif 'embed' in name or 'wte' in name or 'lm_head' in name:
            value = noise * (2 / p.shape[-1] ** 0.5 if 'head' in name or model.config.tie_word_embeddings else 0.5)
        else:
            value = (1.5 if any(s in name for s in ('q_proj', 'k_proj', 'c_attn', 'query_key_value')) else 1) * noise / p.shape[-1] ** 0.5
        p.data = value.to(torch.bfloat16).to(p.dtype)


def run(model, prompt):
    """Logits of the prompt, then of one token after another through the cache."""
    with torch.no_grad():
        done = model(torch.tensor([prompt]), use_cache=True)
        logits, ids = [done.logits[0]], []
        while len(ids) < GENERATED:
            ids.append(int(logits[-1][-1].argmax()))
            done = model(torch.tensor([[ids[-1]]]), past_key_values=done.past_key_values, use_cache=True)
            logits.append(done.logits[0])
    return ids, torch.cat(logits).numpy()


def watch_routers(model, gaps):
    """Appends to gaps how close each choice of experts is."""
    def hook(module, inputs, _):
        scores = torch.nn.functional.linear(inputs[0].reshape(-1, inputs[0].shape[-1]), module.weight, getattr(module, 'bias', None)).sort(dim=-1, descending=True).values
        used = model.config.num_experts_per_tok
        gaps.append(float((scores[:, used - 1] - scores[:, used]).min()))
    for module in model.modules():
        if 'Router' in type(module).__name__:
            module.register_forward_hook(hook)


def make(name, seed):
    config_class, options = MODELS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config_class(**options), attn_implementation='eager', experts_implementation='eager').double().eval()
    scale(model)
    prompt = [256] + list(np.random.default_rng(seed).integers(0, 256, PROMPT - 1))
    prompt = [int(i) for i in prompt]
    gaps = []
    watch_routers(model, gaps)
    ids, logits = run(model, prompt)
    assert bool(gaps) == ('experts' in str(options)), 'the routers of this model are called otherwise'
    if min(gaps, default=CLEAR) < CLEAR:
        return False
    best = np.sort(logits[PROMPT - 1:], axis=1)
    if (best[:, -1] - best[:, -2]).min() < 4 * tolerances.rows('MODEL')['logits'][0] * (logits.max() - logits.min()):
        return False  # too close for an exact comparison of ids
    folder = DATA / name
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    np.save(folder / 'logits.npy', logits.astype(np.float32))
    versions = {m.__name__: m.__version__ for m in (torch, transformers, tokenizers, np)}
    (folder / 'ids.json').write_text(json.dumps({'prompt': prompt, 'generated': ids, 'seed': seed, 'versions': versions}, indent=1) + '\n')
    return True


def main():
    for name in sys.argv[1:] or MODELS:
        seed = next(s for s in range(1000) if make(name, s))
        print(name, 'seed', seed)


if __name__ == '__main__':
    main()
