#!/usr/bin/env python3
"""Logits of tiny models in every format and architecture, against an independent float64 forward pass. Files that mix formats are
read in three parts.

    logits.py WEFT SOURCES DEVICE [--force OP=VARIANT] [--f16-residual] [--long] [--only WORDS]

The largest error and the mean square are bounded on every device and in every format, relative to the range of the reference's logits. Where
a GPU's matrix units multiply, whose operands are F16, the bound is another one: MATRIX of src/verify/tolerances.def.
"""
import argparse
import os
import re
import tempfile

from common import build_once, end, np, resolve, say, told as run
import part
import reference
import tiny
import tolerances
from gguf_write import MIXES, TYPES as FORMATS
from tiny import ARCHS, SHAPE

VARIANTS = ['gqa', 'mha', 'tied', 'headdim', 'rope_freqs', 'linear', 'partial-rope', 'bias', 'yarn', 'window,softcap']
WINDOWS = """weft-attention-windows 1
sink 2
layer 0 5 0  # by KV heads
layer 1 0 0  # as without
layer 2 1 9 3 12  # by query heads
"""
CLEAR = 0.02  # between the scores of the last expert that is taken and of the next: rounding must not choose another
AHEAD = {  # seeds past 12 with choices that are clear
    'llama F32 experts': 26, 'llama F16 experts-apart,tied': 2, 'llama Q4_K_M experts': 18, 'llama MXFP4 experts,sigmoid': 11,
    'qwen3moe F32 gqa': 8, 'qwen3moe F16 gqa': 8, 'qwen3moe Q8_0 gqa': 44, 'qwen3moe Q4_K gqa': 24,
}
TOKENS = '1,15,200,77,3,3,290,42,128,64,31,7,99,250,181,12,55,301,222,9'
LONG = ','.join(str(3 + (i * 2654435761 >> 7) % 293) for i in range(4200))


def cases():
    """Architecture, format, variant and whether there are windows."""
    for case in plain_cases():
        yield *case, False
    yield 'llama', 'F16', 'gqa', True


def long_cases():
    for variant in ('yarn', 'rope_freqs,window'):
        yield 'llama', 'F32', variant, False


def plain_cases():
    for arch in ARCHS:  # formats know nothing of architectures: one of them meets all
        for fmt in FORMATS if arch == 'llama' else ['F32', 'F16', 'Q8_0', 'Q4_K']:
            yield arch, fmt, 'gqa'
    for variant in VARIANTS[1:]:
        yield 'llama', 'F32', variant
    yield 'qwen2', 'Q4_0', 'tied'
    yield 'qwen3', 'F16', 'headdim,tied'
    yield 'llama', 'Q4_K_M', 'gqa'
    yield 'qwen2', 'Q5_K_M', 'tied'
    yield 'llama', 'F32', 'experts'
    yield 'llama', 'F16', 'experts-apart,tied'
    yield 'llama', 'Q4_K_M', 'experts'
    yield 'llama', 'MXFP4', 'experts,sigmoid'


def first_tokens(arch, fmt, variant):
    """How many tokens are also run by themselves: steps of few have other kernels for routers."""
    return 7 if fmt == 'F32' and (arch == 'qwen3moe' or variant == 'experts') else 0


def matrix_kernels(args):
    """Kernels for products and attention on matrix units of a GPU. Those of CPUs multiply numbers in two parts, without that loss."""
    return set(re.findall(r'^(?:gemm|grouped_gemm|attention) +(\S+) +matrix .* yes +cl/', run(args.weft, 'kernels', '--device', args.device), re.M))


def is_on_matrix_units(args, model, n):
    if not args.matrix:
        return False
    plan = run(args.weft, 'plan', '-m', model, '--tokens', str(n), '--device', args.device, *args.once)
    return bool(args.matrix & set(re.findall(r'\b(?:gemm|grouped_gemm|attention)/(\S+)', plan)))


def worst_error(args, folder, arch, fmt, variant, windows, seed, tokens):
    model, got, file = (os.path.join(folder, n) for n in ('m.gguf', 'got.npy', 'windows'))
    with open(file, 'w', encoding='utf-8') as f:
        f.write(WINDOWS)
    more = ['--attention-windows', file] if windows else []
    all_tokens = [int(t) for t in tokens.split(',')]
    first = int(seed) + AHEAD.get(f'{arch} {fmt} {variant}', 0)
    for seed in range(first, first + 200):
        make = ['--arch', arch, '--type', fmt, '--variant', variant, '--seed', str(seed), model]
        tiny.main(make)
        truth = reference.Model(model)
        truth.windows = reference.read_windows(file) if windows else None
        want = truth.logits(all_tokens)
        if truth.gap > CLEAR:
            break
    if fmt in MIXES:
        tiny.main([*make, '--split', '3'])
        os.unlink(model)
        model = os.path.join(folder, 'm-00001-of-00003.gguf')
    if args.force:
        os.environ['WEFT_FORCE'] = args.force
    if args.f16_residual:
        os.environ['WEFT_F16_RESIDUAL'] = '1'
    worst = 0
    for n in filter(None, (len(all_tokens), first_tokens(arch, fmt, variant))):
        run(args.weft, 'perplexity', '-m', model, '--tokens', ','.join(map(str, all_tokens[:n])), '--logits', got, '--device', args.device, *args.once, *more)
        a, b = want[:n], np.load(got)
        assert a.shape == b.shape and b.dtype == np.float32, (a.shape, b.shape, b.dtype)
        if is_on_matrix_units(args, model, n):
            error, units = tolerances.matrix_error('logits', b, a, SHAPE['layers']), ' of matrix units'
        else:
            error, units = tolerances.model_error('logits', b, a), ''
        worst = np.maximum(worst, error)  # NaN stays
    return worst, units


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('weft')
    p.add_argument('sources')
    p.add_argument('device')
    p.add_argument('--force', default='')
    p.add_argument('--f16-residual', action='store_true', help='with the residual stream in F16: models of two layers keep to the same bounds')
    p.add_argument('--long', action='store_true', help='positions past 4,096 instead, for what depends on them')
    p.add_argument('--only', default='', metavar='WORDS', help='cases whose names have this regular expression')
    p.add_argument('--seed', default='12', help='of the weights; "random": another one each time')
    args = p.parse_args()
    args.device = resolve(args.weft, args.device)
    args.once = build_once(args.weft, args.device)
    args.matrix = matrix_kernels(args)
    if args.f16_residual:
        SHAPE['layers'] = 2
    seed = str(int.from_bytes(os.urandom(3), 'little')) if args.seed == 'random' else args.seed
    print(f'seed {seed}')
    with tempfile.TemporaryDirectory() as folder:
        chosen = long_cases() if args.long else cases()
        for arch, fmt, variant, windows in part.mine('model', chosen) if args.device != 'cpu' else chosen:
            name = f'{arch} {fmt} {variant}{" windows" if windows else ""}'
            if not re.search(args.only, name):
                continue
            error, units = worst_error(args, folder, arch, fmt, variant, windows, seed, LONG if args.long else TOKENS)
            say(f'{args.device} {args.force} {name}', error <= 1, f'{error:.2f} of its tolerance{units}')  # NaN fails
    end()


if __name__ == '__main__':
    main()
