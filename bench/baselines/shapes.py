"""What the peers measure and how they say it: the shapes, units and counts of `weft bench ops` (src/lab/shape.c).

A peer prints lines op,dtype,shape,peer,rate,unit, which `WEFT_PEER=FILE weft bench ops` puts beside its own rates of the
same run.
"""
import argparse
import csv
import statistics
import sys

LLAMA = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]  # N, K of QKV, O, gate and up, down
ROWS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
DECODE = [(1, 8192), (8, 4096), (64, 1024), (64, 4096), (256, 1024)]  # sequences, keys
PREFILL = [(1, 512), (1, 2048), (1, 8192), (4, 2048)]
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
SAMPLES, SAMPLE_S = 5, 0.05


def text(**sizes):
    return ','.join(f'{k}={v}' for k, v in sizes.items())


def gemm_rate(m, n, k, weight_bytes, seconds):
    """GB/s of W, X and Y (as F16) below 128 rows, else TFLOP/s."""
    if m < 128:
        return (weight_bytes + 2 * m * k + 2 * m * n) / seconds / 1e9, 'GB/s'
    return 2 * m * n * k / seconds / 1e12, 'TFLOP/s'


def decode_rate(b, length, seconds):
    return 4 * b * length * KV_HEADS * HEAD_DIM / seconds / 1e9, 'GB/s'


def prefill_rate(b, length, seconds):
    return 4 * HEADS * HEAD_DIM * b * length * (length + 1) / 2 / seconds / 1e12, 'TFLOP/s'


def median(run, seconds_of_one):
    """run(n) gives the seconds of one of n launches; samples last at least SAMPLE_S, and one goes before them."""
    n = max(1, int(SAMPLE_S / seconds_of_one))
    run(n)
    return statistics.median(run(n) for _ in range(SAMPLES))


def copies(size, rotate):
    """How many operands of that size lie beyond the caches together."""
    return max(2, -(-rotate // size) + 1)


class Report:
    def __init__(self, peer):
        self.peer, self.out = peer, csv.writer(sys.stdout, lineterminator='\n')

    def row(self, op, dtype, shape, rate, unit):
        self.out.writerow([op, dtype, shape, self.peer, f'{rate:.6g}', unit])
        sys.stdout.flush()


def numbers(words):
    return [int(w) for w in words.split(',')]


def options(doc, rotate):
    """Options that every peer takes; shapes as `weft bench ops --shape` writes them, rotate its default."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--shape', action='append', default=[], help='M=8,N=6144,K=4096 or B=64,L=4096; several times')
    p.add_argument('--rows', type=numbers, default=ROWS, help='M of the default shapes, with commas')
    p.add_argument('--rotate', type=int, default=rotate, help='bytes to go over in turn')
    return p


def chosen(a):
    """gemm shapes (m, n, k), sorted by weights, and attention shapes (b, l); None: the default ones."""
    if not a.shape:
        return [(m, n, k) for n, k in LLAMA for m in a.rows], None
    gemm, attention = [], []
    for s in a.shape:
        d = dict(part.split('=') for part in s.split(','))
        d = {k: int(v) for k, v in d.items()}
        if 'N' in d:
            gemm += [(m, d['N'], d['K']) for m in ([d['M']] if 'M' in d else a.rows)]
        else:
            attention.append((d['B'], d['L']))
    return gemm, attention
