#!/usr/bin/env python3
"""cuBLAS and PyTorch's attention on an NVIDIA GPU, for `WEFT_PEER` of `weft bench ops`.

    torch_peer.py [--op gemm,decode_attention,prefill_attention] [--shape SHAPE]... >peers.csv

gemm is torch.nn.functional.linear on f16, decode and prefill scaled_dot_product_attention with 32 query and 8 KV heads
of 128. All under a CUDA graph, so without launch gaps, and over operands that lie beyond the L2 cache in turn.
"""
import torch
import torch.nn.functional as F

import shapes


def timed_graph(calls):
    """Seconds of one of the calls, which are captured as one graph."""
    for c in calls[:2]:
        c()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for c in calls:
            c()

    def run(n):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        replays = max(1, n // len(calls))
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / replays / len(calls)

    return shapes.median(run, run(1))


def random(*size):
    return torch.rand(*size, device='cuda', dtype=torch.float16) * 2 - 1


def gemms(report, wanted, rotate):
    held = None
    for m, n, k in wanted:
        if held != (n, k):
            weights = None  # free the old ones first
            weights = [random(n, k) * k ** -0.5 for _ in range(shapes.copies(2 * n * k, rotate))]
            held = (n, k)
        x = random(m, k)
        seconds = timed_graph([lambda w=w: F.linear(x, w) for w in weights])
        rate, unit = shapes.gemm_rate(m, n, k, 2 * n * k, seconds)
        report.row('gemm', 'F16', shapes.text(M=m, N=n, K=k), rate, unit)


def attention(report, op, wanted, rotate):
    decode = op == 'decode_attention'
    for b, length in wanted:
        kv = (b, shapes.KV_HEADS, length, shapes.HEAD_DIM)
        size = 4 * b * shapes.KV_HEADS * length * shapes.HEAD_DIM
        pairs = [(random(*kv), random(*kv)) for _ in range(shapes.copies(size, rotate))]
        q = random(b, shapes.HEADS, 1 if decode else length, shapes.HEAD_DIM)
        seconds = timed_graph([lambda k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=not decode, enable_gqa=True)
                               for k, v in pairs])
        rate, unit = (shapes.decode_rate if decode else shapes.prefill_rate)(b, length, seconds)
        report.row(op, 'F16', shapes.text(B=b, L=length), rate, unit)
        del pairs, q


def main():
    p = shapes.options(__doc__, 4 << 30)
    p.add_argument('--op', default='gemm,decode_attention,prefill_attention')
    a = p.parse_args()
    gemm, given = shapes.chosen(a)
    print(f'# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}', flush=True)
    if 'gemm' in a.op.split(','):
        gemms(shapes.Report('cublas'), gemm, a.rotate)
    for op, default in (('decode_attention', shapes.DECODE), ('prefill_attention', shapes.PREFILL)):
        if op in a.op.split(','):
            attention(shapes.Report('sdpa'), op, default if given is None else given, a.rotate)


with torch.inference_mode():
    main()
