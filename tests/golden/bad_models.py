#!/usr/bin/env python3
"""Models whose numbers, vocabulary or tensors make no sense: each ends in exit code 3 and a message that names
the key or tensor, never in a crash.

    bad_models.py WEFT SOURCES
"""
import os
import subprocess
import sys
import tempfile

L = 'llama.'
# what to change with tiny.py, and what the message must name
CASES = [
    (['--set', L + 'attention.head_count=0'], 'head_count'),
    (['--set', L + 'attention.head_count=str:four'], 'head_count'),
    (['--set', L + 'attention.head_count_kv=0'], 'head_count_kv'),
    (['--set', L + 'attention.head_count_kv=8'], 'head_count_kv'),
    (['--set', L + 'attention.head_count_kv=3'], 'head_count'),
    (['--set', L + 'block_count=0'], 'block_count'),
    (['--set', L + 'block_count=1000000000'], 'block_count'),
    (['--set', L + 'block_count=4'], 'blk.3'),
    (['--set', L + 'block_count=2'], 'blk.2'),
    (['--set', L + 'embedding_length=255'], 'embedding'),
    (['--set', L + 'embedding_length=4294967295'], 'embedding_length'),
    (['--set', L + 'feed_forward_length=0'], 'feed_forward_length'),
    (['--set', L + 'feed_forward_length=511'], 'ffn'),
    (['--set', L + 'context_length=0'], 'context_length'),
    (['--unset', L + 'context_length'], 'context_length'),
    (['--unset', L + 'attention.layer_norm_rms_epsilon'], 'layer_norm_rms_epsilon'),
    (['--set', L + 'attention.layer_norm_rms_epsilon=nan'], 'layer_norm_rms_epsilon'),
    (['--set', L + 'rope.dimension_count=63'], 'rope.dimension_count'),
    (['--set', L + 'rope.dimension_count=128'], 'rope.dimension_count'),
    (['--set', L + 'rope.freq_base=-1'], 'rope.freq_base'),
    (['--set', L + 'rope.scaling.type=str:dynamic'], 'dynamic'),
    (['--set', L + 'rope.scaling.type=str:yarn'], 'rope.scaling.factor'),
    (['--set', L + 'attention.sliding_window=4294967295'], 'attention.sliding_window'),
    (['--set', L + 'attn_logit_softcapping=f32:-1'], 'attn_logit_softcapping'),
    (['--set', L + 'expert_count=8'], 'expert_used_count'),
    (['--set', L + 'expert_count=8', '--set', L + 'expert_used_count=9'], 'expert_used_count'),
    (['--set', L + 'expert_count=4000000000'], 'expert_count'),
    (['--set', L + 'expert_count=8', '--set', L + 'expert_used_count=2'], 'blk.0.ffn_gate_inp.weight'),
    (['--variant', 'experts', '--set', L + 'expert_count=5'], 'blk.0.ffn_gate_inp.weight'),
    (['--variant', 'experts', '--shape', 'blk.0.ffn_up_exps.weight=5,256,256'], 'blk.0.ffn_up_exps.weight'),
    (['--variant', 'experts', '--set', L + 'expert_gating_func=3'], 'expert_gating_func'),
    (['--variant', 'experts-apart', '--drop', 'blk.1.ffn_down.3.weight'], 'blk.1.ffn_down.3.weight'),
    (['--variant', 'experts', '--set', L + 'expert_weights_scale=f32:nan'], 'expert_weights_scale'),
    (['--set', 'general.architecture=str:mamba'], 'mamba'),
    (['--set', 'split.count=2'], 'split'),
    (['--unset', 'general.architecture'], 'general.architecture'),
    (['--resize', 'tokenizer.ggml.scores=5'], 'scores'),
    (['--resize', 'tokenizer.ggml.token_type=5'], 'token_type'),
    (['--resize', 'tokenizer.ggml.tokens=0'], 'tokens'),
    (['--set', 'tokenizer.ggml.bos_token_id=307'], 'bos_token_id'),
    (['--set', 'tokenizer.ggml.eos_token_id=4000000000'], 'eos_token_id'),
    (['--set', 'tokenizer.ggml.model=str:bert'], 'bert'),
    (['--drop', 'blk.1.ffn_up.weight'], 'blk.1.ffn_up.weight'),
    (['--drop', 'output_norm.weight'], 'output_norm.weight'),
    (['--drop', 'token_embd.weight'], 'token_embd.weight'),
    (['--shape', 'output.weight=307,128'], 'output.weight'),
    (['--shape', 'blk.0.attn_q.weight=256,64'], 'blk.0.attn_q.weight'),
    (['--shape', 'token_embd.weight=300,256'], 'token_embd.weight'),
    (['--shape', 'blk.0.ffn_up.weight=384,256'], 'blk.0.ffn_up.weight'),
    (['--shape', 'blk.0.attn_output.weight=2,256,256'], 'dimensions'),
    (['--fill', 'output_norm.weight=nan'], 'output_norm.weight'),
    (['--fill', 'blk.0.attn_norm.weight=inf'], 'blk.0.attn_norm.weight'),
]


def try_model(weft, path, name):
    done = subprocess.run([weft, 'run', '-m', path, '-p', 'a', '-n', '2', '--device', 'cpu'], capture_output=True, text=True, timeout=120)
    if done.returncode != 3 or name not in done.stderr or done.stdout:
        return f'exit {done.returncode}, stdout {done.stdout[:80]!r}, stderr {done.stderr[-400:]!r}'
    return None


def broken_weights(weft, make, path):
    """NaN inside a matrix is found when the logits show it: the request fails, by name, with exit code 3."""
    make(['--fill', 'blk.1.ffn_down.weight=nan'])
    done = subprocess.run([weft, 'run', '-m', path, '-p', 'a', '-n', '2', '--device', 'cpu'], capture_output=True, text=True, timeout=120)
    return None if done.returncode == 3 and "finite" in done.stderr else f'exit {done.returncode}, {done.stderr[-300:]!r}'


def main():
    weft, sources = sys.argv[1:3]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'bad.gguf')

        def make(changes):
            subprocess.run([sys.executable, os.path.join(sources, 'tests/model/tiny.py'), *changes, path], check=True)

        results = []
        for changes, name in CASES:
            make(changes)
            results.append((' '.join(changes), try_model(weft, path, name)))
        results.append(('NaN in a matrix', broken_weights(weft, make, path)))
        for what, problem in results:
            failed += problem is not None
            print(f'{"FAILED" if problem else "ok":6} {what}{": " + problem if problem else ""}')
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
