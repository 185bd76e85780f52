#!/usr/bin/env python3
"""Writes the trained demo model as GGUF: weights.npz of train.py and vocab.txt of tokenizer.py.

    export.py [--type F16] weights.npz vocab.txt demo.gguf

Norms stay F32. There is no chat template: the model only continues stories.
"""

import argparse
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "model"))
import gguf_write  # noqa: E402

NAME = "weft demo stories"
ABOUT = {
    "general.author": "the weft authors",
    "general.license": "mit",
    "general.languages": ["en"],
    "general.description": "Continues simple English stories; trained on a generated corpus.",
}


def shape_of(weights):
    """The hyperparameters, read off the tensors; head size and context as in train.py."""
    head_dim, (vocab, width) = 32, weights["token_embd.weight"].shape
    return dict(
        width=width,
        vocab=vocab,
        head_dim=head_dim,
        context=512,
        layers=1 + max(int(n.split(".")[1]) for n in weights if n.startswith("blk.")),
        heads=weights["blk.0.attn_q.weight"].shape[0] // head_dim,
        kv_heads=weights["blk.0.attn_k.weight"].shape[0] // head_dim,
        ffn=weights["blk.0.ffn_up.weight"].shape[0],
    )


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--type", choices=["F32", "F16", "BF16", "Q8_0"], default="F16")
    p.add_argument("weights")
    p.add_argument("vocab", type=pathlib.Path)
    p.add_argument("out")
    a = p.parse_args()
    weights, pieces = dict(np.load(a.weights)), a.vocab.read_text(encoding="utf-8").split("\n")[:-1]
    s = shape_of(weights)
    w = gguf_write.Writer()
    gguf_write.add_model(w, "llama", NAME, s, a.type)
    for key, value in ABOUT.items():
        w.add(key, value)
    gguf_write.add_vocab(w, pieces, s["vocab"])
    w.add("tokenizer.ggml.add_space_prefix", True)
    for name, shape, kind in gguf_write.model_tensors(s, a.type, tied=True):
        x = weights.pop(name)
        if x.shape != shape:
            sys.exit(f"{a.weights}: {name} is {x.shape}, not {shape}")
        w.tensor(name, x, kind)
    if weights:
        sys.exit(f"{a.weights}: tensors that GGUF has no name for: {', '.join(weights)}")
    w.write(a.out)


if __name__ == "__main__":
    main()
