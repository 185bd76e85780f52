#!/usr/bin/env python3
"""`weft convert` against llama.cpp's own quantiser: the formats of all tensors, perplexity, and greedy ids.

    convert.py WEFT MODEL.gguf TEXT [--types Q4_K_M,...] [-c 256] [--chunks 32] [-n 48] [--encode ENCODE]

llama.cpp is the Python package llama-cpp-python. Both files of a type are read by llama.cpp, which computes both perplexities (of the second
half of each chunk, as llama-perplexity does) and continues weft's file; weft continues it, too. With --encode (build/tests/golden/encode) files in IQ2 and IQ3, which neither program writes without an
importance matrix, are read by both; the other perplexity is then weft's of the same file. Weft's own perplexity of its file is in the column "by weft".
Prints a table; exits with 1 where formats differ,
weft's perplexity is more than 1 % above llama.cpp's or the two programs' of one file are further apart, or ids differ before two logits of llama.cpp that are closer than 0.05.
"""
import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

try:
    import llama_cpp
except ImportError:
    sys.exit('skipped: the package llama-cpp-python is not installed')

for part in ('golden', 'model', 'support'):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'tests', part))
from formats import GRIDS, write_grids
from gguf_read import File

FILE_TYPES = {'F32': 0, 'F16': 1, 'BF16': 32, 'Q8_0': 7, 'Q4_0': 2, 'Q4_1': 3, 'Q5_0': 8, 'Q5_1': 9, 'Q2_K': 10, 'Q3_K_S': 11, 'Q3_K_M': 12, 'Q3_K_L': 13, 'Q4_K_S': 14,
              'Q4_K_M': 15, 'Q5_K_S': 16, 'Q5_K_M': 17, 'Q6_K': 18, 'IQ4_NL': 25, 'IQ4_XS': 30, 'MXFP4': 38}
NEAR = 0.05  # llama.cpp multiplies quantised weights by int8 activations, weft partly: such a lead may turn


def quantise(src, dst, kind):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = FILE_TYPES[kind], os.cpu_count()
    if llama_cpp.llama_model_quantize(src.encode(), dst.encode(), ctypes.byref(params)):
        sys.exit(f'llama.cpp cannot quantise {src} to {kind}')


def formats(path):
    return {name: number for name, (_, number, _) in File(path).tensors.items()}


def perplexity(llm, text, context, most):
    ids = llm.tokenize(text, add_bos=False)
    sums = []
    for at in range(0, min(len(ids) - context + 1, most * context), context):
        chunk = [llm.token_bos(), *ids[at + 1 : at + context]]
        llm.reset()
        llm.eval(chunk)
        x = llm.scores[: context - 1].astype(np.float64)
        x -= x.max(1, keepdims=True)
        x -= np.log(np.exp(x).sum(1, keepdims=True))
        sums.append(-x[np.arange(context - 1), chunk[1:]][context // 2 :].mean())
    return float(np.exp(np.mean(sums)))


def perplexity_of_weft(weft, path, text, context, most):
    out = subprocess.run([weft, 'perplexity', '-m', path, '-f', '-', '-c', str(context), '--chunks', str(most), '--device', 'cpu'], input=text, capture_output=True, check=True)
    return float(re.search(rb'PPL = ([0-9.]+)', out.stdout).group(1))


def ids_of_weft(weft, model, prompt, n):
    out = subprocess.run([weft, 'run', '-m', model, '-p', prompt, '-n', str(n), '--ignore-eos', '--greedy', '--device', 'cpu', '-q'], capture_output=True, check=True).stdout
    return out.decode()


def same_text(llm, prompt, text, n):
    """llama.cpp's greedy ids give that text, up to a choice that is nearly even. Returns ids compared and whether they agree."""
    ids, done = llm.tokenize(prompt.encode(), add_bos=True), []
    llm.reset()
    llm.eval(ids)
    for _ in range(n):
        x = llm.scores[llm.n_tokens - 1]
        best, second = np.argsort(x)[[-1, -2]]
        done.append(int(best))
        if not text.encode().startswith(llm.detokenize(done, prev_tokens=ids).rstrip(b'\xef\xbf\xbd')):
            return len(done), bool(x[best] - x[second] < NEAR)
        llm.eval([int(best)])
    return len(done), True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('weft')
    p.add_argument('model')
    p.add_argument('text')
    p.add_argument('--types', default='F16,BF16,Q8_0,Q6_K,Q5_K_M,Q5_K_S,Q5_1,Q5_0,Q4_K_M,Q4_K_S,IQ4_XS,IQ4_NL,Q4_1,Q4_0,Q3_K_L,Q3_K_M,Q3_K_S,Q2_K,MXFP4')
    p.add_argument('--encode')
    p.add_argument('--prompt', default='Once upon a time')
    p.add_argument('-c', type=int, default=256)
    p.add_argument('--chunks', type=int, default=32)
    p.add_argument('-n', type=int, default=48)
    a = p.parse_args()
    with open(a.text, 'rb') as f:
        text = f.read(a.c * a.chunks * 8)
    bad = False
    print(f'{"type":8} {"weft":>9} {"llama.cpp":>9} {"ratio":>8} {"by weft":>9}  formats  greedy ids')
    with tempfile.TemporaryDirectory() as top:
        ours, theirs = os.path.join(top, 'weft.gguf'), os.path.join(top, 'llama.gguf')
        for kind in a.types.split(',') + (GRIDS if a.encode else []):
            if kind in GRIDS:
                write_grids(a.encode, a.model, kind, pathlib.Path(ours))
            else:
                subprocess.run([a.weft, 'convert', '-m', a.model, '-o', ours, '--type', kind, '--force', '-q'], check=True)
                quantise(a.model, theirs, kind)
            values = []
            for path in [ours] if kind in GRIDS else [ours, theirs]:
                llm = llama_cpp.Llama(path, n_ctx=max(a.c, a.n + 32), n_batch=a.c, n_threads=os.cpu_count(), logits_all=True, verbose=False)
                if path == ours:
                    n, same_ids = same_text(llm, a.prompt, ids_of_weft(a.weft, ours, a.prompt, a.n), a.n)
                values.append(perplexity(llm, text, a.c, a.chunks))
                llm.close()
            by_weft = perplexity_of_weft(a.weft, ours, text, a.c, a.chunks)
            other = values[1] if values[1:] else by_weft
            same = kind in GRIDS or formats(ours) == formats(theirs)
            ratio = values[0] / other
            bad |= not same or not same_ids or not ratio <= 1.01 or not abs(values[0] / by_weft - 1) <= 0.01
            print(f'{kind:8} {values[0]:9.4f} {other:9.4f} {ratio:8.4f} {by_weft:9.4f}  {"same" if same else "DIFFER":7}  {n} {"same" if same_ids else "DIFFER"}', flush=True)
    sys.exit(bad)


if __name__ == '__main__':
    main()
