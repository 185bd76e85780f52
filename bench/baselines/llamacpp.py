#!/usr/bin/env python3
"""weft against llama.cpp (Python package llama-cpp-python) on the CPU: prompt and decode, in turns in one run.

    llamacpp.py WEFT MODEL.gguf [-p 512] [-n 64] [-r 5] [-t 2] [--peer FILE]

Prints each round's tokens/s and the median of the pairwise ratios weft / llama.cpp. OPENBLAS_CORETYPE and
OPENBLAS_L2_SIZE are unset for both. FILE gets llama.cpp's medians as `weft bench --peer FILE --results FOLDER` takes
them: run that at once, for a row of results is of one run.
"""
import argparse
import csv
import os
import statistics
import subprocess
import time

for name in ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE'):
    os.environ.pop(name, None)


def peer(model, prompt, gen, threads):
    import llama_cpp
    llm = llama_cpp.Llama(model, n_ctx=max(prompt, gen) + 8, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    ids = [(7919 * i) % llm.n_vocab() for i in range(1, prompt + 1)]

    def rate(n, tokens):
        llm.reset()
        start = time.perf_counter()
        if n == 1:
            llm.eval(tokens)
        for i in range(n if n > 1 else 0):
            llm.eval([(31 * i + 1) % llm.n_vocab()])
        return (len(tokens) if n == 1 else n) / (time.perf_counter() - start)

    return (lambda: rate(1, ids)) if prompt else None, (lambda: rate(gen, [])) if gen else None


def weft(binary, model, prompt, gen, threads):
    done = subprocess.run([binary, 'bench', '-m', model, '--device', 'cpu', '-t', str(threads), '-p', str(prompt), '-n', str(gen),
                           '-r', '1', '-o', 'csv'], capture_output=True, text=True, check=True)
    row, = csv.DictReader(done.stdout.splitlines())
    return float(row['avg_ts']), row['model_type'].split()[-1]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('weft')
    p.add_argument('model')
    p.add_argument('-p', type=int, default=512)
    p.add_argument('-n', type=int, default=64)
    p.add_argument('-r', type=int, default=5)
    p.add_argument('-t', type=int, default=os.cpu_count())
    p.add_argument('--peer', type=argparse.FileType('w'), help='write lines op,dtype,shape,peer,rate,unit here')
    a = p.parse_args()
    for what, prompt, gen in (('prompt', a.p, 0), ('decode', 0, a.n)):
        if not prompt + gen:
            continue
        other = [f for f in peer(a.model, prompt, gen, a.t) if f][0]
        other()
        pairs = []
        for _ in range(a.r):
            (ours, dtype), theirs = weft(a.weft, a.model, prompt, gen, a.t), other()
            pairs.append((ours, theirs))
            print(f'{what} {prompt or gen}: weft {ours:.1f}, llama.cpp {theirs:.1f} tokens/s, ratio {ours / theirs:.2f}', flush=True)
        print(f'{what}: median ratio {statistics.median(x / y for x, y in pairs):.2f}', flush=True)
        if a.peer:
            shape = f'P={prompt}' if prompt else f'N={gen}'
            rate = statistics.median(y for _, y in pairs)
            a.peer.write(f'model_{what},{dtype},{shape},llama.cpp,{rate:.3f},tokens/s\n')


if __name__ == '__main__':
    main()
