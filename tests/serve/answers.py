"""A model that gives the answers that a test wants: each of its tokens has one that follows it. The last letter of a prompt says which answer
begins, and each answer ends with EOS. Only embeddings and output do anything: token i is the i-th unit vector, and the row of what follows it
has a one there."""
import os
import sys

import numpy as np

import serve

sys.path.insert(0, os.path.join(serve.cli.ROOT, "tests", "model"))
import gguf_write  # noqa: E402

BYTES, WIDTH, EOS = 3, 1024, 2
SHAPE = {"width": WIDTH, "layers": 1, "heads": 8, "kv_heads": 1, "head_dim": 128, "ffn": 128, "vocab": WIDTH, "context": 2048}


def pieces(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


def write(path, answers, control=(), size=3, meta={}, likely={}, kind=3):
    """meta: more metadata. answers: by letter, a list of texts, each in tokens of its own, or of those of `control`, where it is one of them. likely:
    by letter, tokens that may follow, the likeliest first."""
    texts, output, types = list(control), np.zeros((WIDTH, WIDTH), np.float32), [kind] * len(control)
    first = BYTES + 256
    for letter, parts in answers.items():
        last = BYTES + ord(letter)
        for part in parts:
            for piece in [part] if part in control else pieces(part, size):
                token = first + (control.index(part) if part in control else len(texts))
                if part not in control:
                    texts.append(piece.replace(" ", "\u2581"))
                    types.append(1)
                output[token, last] = 1
                last = token
        output[EOS, last] = 1
    for letter, tokens in likely.items():
        output[tokens, BYTES + ord(letter)] = np.linspace(2, 1, len(tokens))
    assert first + len(texts) <= WIDTH, len(texts)
    w = gguf_write.Writer()
    gguf_write.add_model(w, "llama", "answers", SHAPE, "F16")
    gguf_write.add_vocab(w, texts, WIDTH)
    w.add("tokenizer.ggml.add_space_prefix", False)
    for key, value in meta.items():
        w.add(key, value)
    for row in w.meta:
        if row[0] == "tokenizer.ggml.token_type":
            row[2][first:first + len(types)] = types
    for name, shape, kind in gguf_write.model_tensors(SHAPE, "F16"):
        x = np.ones(shape, np.float32) if "norm" in name else np.zeros(shape, np.float32)
        x = {"token_embd.weight": np.eye(WIDTH, dtype=np.float32), "output.weight": output}.get(name, x)
        w.tensor(name, x, kind)
    w.write(path)
