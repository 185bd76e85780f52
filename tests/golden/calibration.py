#!/usr/bin/env python3
"""`weft calibrate` against the attention logits of an independent float64 forward pass.

    calibration.py WEFT SOURCES DEVICE

Tiny models with a text of several pieces. Minimum, maximum and quantiles of all logits and of the rows'
maxima must agree to within a bin of the program's histogram. phi must be a best
one: no other leaves fewer rows outside the range of F16 exponentials. Where more than 1 % are outside the
layer must be synchronous.

Then a model without a file: the first start measures by itself, the second takes what it kept, with the same bits, and both agree with the
synchronous softmax.
"""
import os
import re
import subprocess
import sys
import tempfile

from common import build_once, np, resolve, told as run
import reference
import tolerances

weft, sources, device = sys.argv[1:4]
seed = int(sys.argv[4]) if len(sys.argv) > 4 else 12 # of the weights
device = resolve(weft, device)
once = build_once(weft, device)

TEXT = 'Once there was a weaver who threads the warp at night; the wefts crossed it in the day. ' * 7
CONTEXT = 64
EPS = 1 / 32 + 0.011  # a bin, two digits printed
QUANTILES = [(1, 'all', 0.0001), (2, 'all', 0.5), (3, 'all', 0.9999), (6, 'rows', 0.001), (7, 'rows', 0.5), (8, 'rows', 0.999)]
F16, RANGE, MOST_OUTSIDE = (-2.77, 10.39), (-55, 10.39), 1


class Observed(reference.Model):
    """Keeps the logits of each layer: what the softmax sees. Keys and values are those of the cache, in F16: a softmax over large
    logits makes of their rounding a difference in the layers behind that has no bound."""

    def __init__(self, path):
        super().__init__(path)
        self.all = [[] for _ in range(self.layers)]
        self.rows = [[] for _ in range(self.layers)]
        self.layer = 0

    def block(self, x, b):
        self.layer = next(i for i, have in enumerate(self.blocks) if have is b)
        return super().block(x, b)

    def attention(self, q, k, v, *more):
        k, v = (x.astype(np.float16).astype(np.float64) for x in (k, v))
        rep, t = self.heads // self.kv_heads, len(q)
        for h in range(self.heads):
            s = q[:, h] @ k[:, h // rep].T / np.sqrt(self.head_dim)
            seen = np.tril(np.ones((t, t), bool))
            self.all[self.layer].append(s[seen])
            self.rows[self.layer].append(np.where(seen, s, -np.inf).max(1))
        return super().attention(q, k, v, *more)


def pieces(model):
    ids = [int(i) for i in run(weft, 'tokenize', '-m', model, '-p', TEXT).split()]
    assert ids[0] == 1 and len(ids) > 3 * CONTEXT, ids
    rest = ids[1:]
    return [[1] + rest[i : i + CONTEXT - 1] for i in range(0, len(rest), CONTEXT - 1)]


def table(text):
    """The numbers of each layer's line."""
    rows = [line.split() for line in text.splitlines() if re.match(r' +\d+ +-?\d', line) and ' to ' not in line]
    return [[float(v.rstrip('%')) for v in row[1:15]] for row in rows]


def part_below(x, value):
    return np.searchsorted(x, value) / len(x)


def most_inside(rows, width):
    """The largest share of sorted rows that any window of that width holds."""
    return (np.searchsorted(rows, rows + width, 'right') - np.arange(len(rows))).max() / len(rows)


def complaints(got, x, rows):
    # A key may be rounded the other way, by a part of its size.
    eps = EPS + 2**-10 * max(abs(x[0]), abs(x[-1]))
    for column, want in ((0, x[0]), (4, x[-1]), (5, rows[0]), (9, rows[-1])):
        if abs(got[column] - want) > eps:
            yield f'column {column}: {got[column]}, not {want:.3f}'
    for column, which, part in QUANTILES:
        of = x if which == 'all' else rows
        if not part_below(of, got[column] - eps) - 1 / len(of) <= part <= part_below(of, got[column] + eps) + 1 / len(of):
            yield f'column {column}: {got[column]} is not the quantile {part}'
    phi, a, b, out = got[10:]

    def inside(limits, grow):
        return part_below(rows, phi + limits[1] + grow) - part_below(rows, phi + limits[0] - grow)

    if not 1 - inside(F16, eps) - 1e-4 <= out / 100 <= 1 - inside(F16, -eps) + 1e-4:
        yield f'{out} % of the rows outside of F16, not {100 - 100 * inside(F16, 0):.2f}'
    if inside(F16, eps) < most_inside(rows, F16[1] - F16[0] - 2 * eps):
        yield f'phi {phi} is not the best'
    if (a, b) != (RANGE if out <= MOST_OUTSIDE else (0, 0)) and abs(out - MOST_OUTSIDE) > 0.006:
        yield f'a {a}, b {b} with {out} % of the rows outside'


def check(folder, arch, variant, seed, scale):
    model, out = os.path.join(folder, 'm.gguf'), os.path.join(folder, 'out')
    tiny = os.path.join(sources, 'tests', 'model', 'tiny.py')
    run(sys.executable, tiny, '--arch', arch, '--variant', variant, '--seed', str(seed), '--scale', str(scale), model)
    got = table(run(weft, 'calibrate', '-q', '-m', model, '-p', TEXT, '-c', str(CONTEXT), '--device', device, *once, '-o', out))
    m = Observed(model)
    for piece in pieces(model):
        m.logits(piece)
    with open(out, encoding='utf-8') as f:
        file = re.findall(r'(?m)^layer (\d+) phi (\S+) a (\S+) b (\S+) ', f.read())
    failed = len(got) != m.layers or len(file) != m.layers
    for layer, row in enumerate(got):
        x, rows = (np.sort(np.concatenate(v[layer])) for v in (m.all, m.rows))
        wrong = list(complaints(row, x, rows))
        wrong += [f'file: {text}' for i, text in enumerate(file[layer][1:]) if abs(float(text) - row[10 + i]) > 0.0051]
        failed |= bool(wrong)
        print(f'{"FAILED" if wrong else "ok":6} {device} {arch} {variant} x{scale} layer {layer}: {len(x)} logits, {x[0]:.2f} to {x[-1]:.2f}, '
              f'rows {rows[0]:.2f} to {rows[-1]:.2f}, phi {row[10]}, {row[13]} % outside {"; ".join(wrong)}', flush=True)
    return failed, [row[11] == row[12] for row in got]


def start(model, folder, calibration):
    """The logits of a prompt that fills the context, and what the start says of calibration."""
    ids = run(weft, 'tokenize', '-m', model, '-p', TEXT).split()[:CONTEXT]
    out = os.path.join(folder, 'logits')
    done = subprocess.run([weft, 'perplexity', '-m', model, '-v', '--tokens', ','.join(ids), '--logits', out, '--device', device, '--calibration', calibration],
                          capture_output=True, text=True, env={**{k: v for k, v in os.environ.items() if k not in ('WEFT_CLBUILD', 'WEFT_NO_KERNEL_CACHE')}, 'XDG_CACHE_HOME': os.path.join(folder, 'cache')})
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return np.fromfile(out, np.float32), re.findall('calibration: (.*)', done.stderr)


def check_first_start(folder):
    model = os.path.join(folder, 'm.gguf')
    run(sys.executable, os.path.join(sources, 'tests', 'model', 'tiny.py'), '--arch', 'llama', '--variant', 'gqa', '--seed', str(seed), model)
    os.mkdir(os.path.join(folder, 'cache'))
    (first, measured), (second, kept), (plain, none) = (start(model, folder, how) for how in ('auto', 'auto', 'none'))
    unused = measured == kept == ['none, the softmax is synchronous: no kernel that would run here uses it']  # of so small a model on GPUs, and on OpenCL's processors
    error = tolerances.model_error('logits', first, plain)
    wrong = [text for text, bad in ((f'first start: {measured}', not unused and 'measured on' not in ' '.join(measured)), (f'second: {kept}', not unused and 'earlier start' not in ' '.join(kept)),
                                    (f'none: {none}', none), (f'on a processor: {measured}', unused and device == 'cpu'), ('starts differ', first.tobytes() != second.tobytes()), (f'{error} of the tolerance', not error <= 1)) if bad]
    print(f'{"FAILED" if wrong else "ok":6} {device} first start: {measured}, {error:.2g} of the tolerance of logits {"; ".join(wrong)}', flush=True)
    return bool(wrong)


failed = False
with tempfile.TemporaryDirectory() as folder:
    wide = []
    for arch, variant, scale in (('llama', 'gqa', 1), ('qwen2', 'bias', 1), ('llama', 'mha,partial-rope', 1), ('llama', 'gqa', 4)):
        bad, too_wide = check(folder, arch, variant, seed, scale)
        failed |= bad
        wide.append(too_wide)
    # Random weights fit; with queries and keys four times as large no layer does.
    if all(map(all, wide[:3])) or not all(wide[3]):
        print('FAILED: too wide', wide)
        failed = True
    failed |= check_first_start(folder)
sys.exit(failed)
