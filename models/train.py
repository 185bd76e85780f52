#!/usr/bin/env python3
"""Trains the demo model: a Llama-shaped decoder of 3.5 million weights, in minutes on one GPU.

    train.py --vocab vocab.txt stories.txt OUT_DIR        writes weights.npz, log.txt, samples.txt

The weights are float32 under GGUF's names, ready for export.py. RoPE turns neighbouring pairs, as
llama.cpp does for this architecture, so no row is permuted on the way out.
"""

import argparse
import math
import multiprocessing
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import corpus
import tokenizer

SHAPE = dict(width=256, layers=5, heads=8, kv_heads=4, head_dim=32, ffn=512, context=512)
EPS, ROPE_BASE = 1e-5, 10000.0
PROMPTS = [
    "One day",
    "Once upon a time",
    "In a small village",
    "Mia",
    "There was a little dragon",
    "It was raining",
    "The old king",
    "Tom and Anna",
]


def rope(x, cos, sin):
    """x [batch, heads, tokens, head size]; element 2i turns with element 2i+1."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        width, q, kv = s["width"], s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
        self.heads = (s["heads"], s["kv_heads"], s["kv_heads"])
        self.attn_norm, self.ffn_norm = nn.RMSNorm(width, EPS), nn.RMSNorm(width, EPS)
        for name, rows, cols in (
            ("attn_q", q, width),
            ("attn_k", kv, width),
            ("attn_v", kv, width),
            ("attn_output", width, q),
            ("ffn_gate", s["ffn"], width),
            ("ffn_up", s["ffn"], width),
            ("ffn_down", width, s["ffn"]),
        ):
            self.add_module(name, nn.Linear(cols, rows, bias=False))

    def forward(self, x, cos, sin):
        y = self.attn_norm(x)
        q, k, v = (
            f(y).unflatten(-1, (n, -1)).transpose(1, 2)
            for f, n in zip((self.attn_q, self.attn_k, self.attn_v), self.heads)
        )
        q, k = rope(q, cos, sin).to(v.dtype), rope(k, cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.attn_output(y.transpose(1, 2).flatten(-2))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Model(nn.Module):
    """Logits of every position; the output matrix is the embedding."""

    def __init__(self, s, vocab):
        super().__init__()
        self.token_embd = nn.Embedding(vocab, s["width"])
        self.blk = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.output_norm = nn.RMSNorm(s["width"], EPS)
        angle = torch.outer(
            torch.arange(s["context"]).float(),
            ROPE_BASE ** (-torch.arange(0, s["head_dim"], 2).float() / s["head_dim"]),
        )
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_stream = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(
                    p,
                    std=(
                        0.02
                        if "embd" in name
                        else p.shape[1] ** -0.5 / (math.sqrt(2 * s["layers"]) if into_stream else 1)
                    ),
                )

    def forward(self, ids):
        x = self.token_embd(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blk:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd.weight)


TOK = None


def encode(text):
    return np.array([tokenizer.BOS, *TOK.encode(text), tokenizer.EOS], np.uint16)


def load(path, vocab, jobs):
    """All stories as one row of ids, and where each begins."""
    global TOK
    TOK = tokenizer.Tokenizer.load(vocab)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        stories = pool.map(encode, corpus.read(path), 512)
    starts = np.cumsum([0] + [len(s) for s in stories])
    return np.concatenate(stories), starts[:-1]


class Batches:
    """Rows of context + 1 ids; each begins where a story begins, so position 0 is always <s>."""

    def __init__(self, ids, starts, s, batch, device, seed):
        self.ids = torch.from_numpy(ids.astype(np.int32)).to(device)
        self.starts = torch.from_numpy(starts[starts + s["context"] + 1 < len(ids)]).to(device)
        self.offsets = torch.arange(s["context"] + 1, device=device)
        self.batch, self.random = batch, torch.Generator(device).manual_seed(seed)

    def next(self):
        pick = torch.randint(
            len(self.starts), (self.batch,), generator=self.random, device=self.ids.device
        )
        return self.ids[self.starts[pick][:, None] + self.offsets].long()


def loss_of(model, rows):
    return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, batches, n, cast):
    with cast():
        return sum(loss_of(model, batches.next()).item() for _ in range(n)) / n


@torch.no_grad()
def greedy(model, tok, prompt, limit):
    ids = [tokenizer.BOS, *tok.encode(prompt)]
    while len(ids) < limit:
        ids.append(int(model(torch.tensor([ids], device=model.cos.device))[0, -1].argmax()))
        if ids[-1] == tokenizer.EOS:
            break
    return ids


def optimizer_for(model, lr):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=lr,
        betas=(0.9, 0.95),
        fused=torch.cuda.is_available(),
    )


def train(model, batches, held, a, say, cast):
    """Warm-up, then a cosine to a hundredth; steps or time end it, whichever comes first."""
    run = torch.compile(model) if a.compile else model
    opt, begin, step, progress = optimizer_for(model, a.lr), time.time(), 0, 0.0
    while progress < 1:
        rate = (
            a.lr
            * min(1, (step + 1) / a.warmup)
            * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)
        )
        for group in opt.param_groups:
            group["lr"] = rate
        with cast():
            loss = loss_of(run, batches.next())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if step % a.every == 0 or step == 10:
            loss.item()  # waits for the device, so that the clock is right
            say(f"step {step} loss {loss.item():.4f} rate {rate:.2e} {time.time() - begin:.1f} s")
        progress = max(step / a.steps, (time.time() - begin) / a.seconds)
    seconds = time.time() - begin
    tokens = step * batches.batch * (batches.offsets.numel() - 1)
    say(
        f"{step} steps, {tokens / 1e6:.0f} million tokens, {seconds:.0f} s, "
        f"{tokens / seconds / 1e6:.2f} million tokens/s; "
        f"loss on stories held back {evaluate(model, held, 8, cast):.4f}"
    )


def save(model, path):
    state = {k: v.float().cpu().numpy() for k, v in model.state_dict().items()}
    np.savez(path, **state)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--vocab", required=True)
    p.add_argument("--steps", type=int, default=10000)
    p.add_argument("--seconds", type=float, default=1e9, help="ends the schedule after this time")
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--every", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--held", type=int, default=1000, help="stories that training never sees")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("corpus")
    p.add_argument("out", type=pathlib.Path)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    log = open(a.out / "log.txt", "w")

    def say(text):
        print(text, flush=True)
        print(text, file=log, flush=True)

    def cast():
        return torch.autocast(a.device, torch.bfloat16, enabled=a.device == "cuda")

    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    ids, starts = load(a.corpus, a.vocab, multiprocessing.cpu_count())
    tok, cut = tokenizer.Tokenizer.load(a.vocab), starts[-a.held]
    model = Model(SHAPE, tok.size).to(a.device)
    say(
        f"torch {torch.__version__} on "
        f"{torch.cuda.get_device_name() if a.device == 'cuda' else 'cpu'}; {len(starts)} stories, "
        f"{len(ids) / 1e6:.1f} million tokens; "
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million weights; {vars(a)}"
    )
    train(
        model,
        Batches(ids[:cut], starts[: -a.held], SHAPE, a.batch, a.device, a.seed),
        Batches(ids[cut:], starts[-a.held :] - cut, SHAPE, a.batch, a.device, a.seed + 1),
        a,
        say,
        cast,
    )
    save(model, a.out / "weights.npz")
    torch.set_float32_matmul_precision("highest")
    with open(a.out / "samples.txt", "w") as f:
        for prompt in PROMPTS:
            f.write(tok.decode(greedy(model, tok, prompt, SHAPE["context"])) + "\n===\n")


if __name__ == "__main__":
    main()
