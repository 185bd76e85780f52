#!/usr/bin/env python3
"""weft against llama.cpp on the CPU: prompt, decode, and decode of several sequences, in turns in one run.

    llamacpp.py WEFT MODEL.gguf [-p 512] [-n 64] [-s 16] [-r 5] [-t N] [--tools DIR] [--results FOLDER] [--peer FILE]

llama.cpp is the Python package llama-cpp-python, or with --tools its own llama-bench and
llama-batched-bench in DIR. Prints each round's tokens/s and the median of the pairwise ratios weft /
llama.cpp. OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE are unset for both. FOLDER/<device>.csv gets
rows of results, of the medians of these rounds. FILE gets llama.cpp's medians as `WEFT_PEER=FILE weft bench` takes them.
"""
import argparse
import csv
import datetime
import json
import os
import re
import statistics
import subprocess
import time

for name in ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE'):
    os.environ.pop(name, None)


def output_of(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


class Package:
    """llama-cpp-python in this process."""

    def __init__(self, args):
        import llama_cpp
        self.api, self.args = llama_cpp, args
        self.llm = llama_cpp.Llama(args.model, n_ctx=max(args.p, args.n) + 8, n_batch=512, n_threads=args.t, n_threads_batch=args.t,
                                   verbose=False)

    def rate(self, calls):
        self.llm.reset()
        start = time.perf_counter()
        for tokens in calls:
            self.llm.eval(tokens)
        return sum(map(len, calls)) / (time.perf_counter() - start)

    def prompt(self, n):
        return self.rate([[(7919 * i) % self.llm.n_vocab() for i in range(1, n + 1)]])

    def decode(self, n):
        return self.rate([[(31 * i + 1) % self.llm.n_vocab()] for i in range(n)])

    def context(self, n, count):
        p = self.api.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_seq_max = count * (n + 256) // 256 * 256, max(count, 32), count
        p.n_threads = p.n_threads_batch = self.args.t
        return self.api.llama_init_from_model(self.llm.model, p)

    def step(self, context, batch, position):
        """One token of each sequence, all with logits."""
        for s in range(batch.n_tokens):
            batch.token[s] = (31 * position + 7 * s + 1) % self.llm.n_vocab()
            batch.pos[s], batch.n_seq_id[s], batch.seq_id[s][0], batch.logits[s] = position, 1, s, 1
        if self.api.llama_decode(context, batch):
            raise RuntimeError('llama_decode failed')

    def sequences(self, n, count):
        context, batch = self.context(n, count), self.api.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        self.step(context, batch, 0)
        start = time.perf_counter()
        for i in range(1, n + 1):
            self.step(context, batch, i)
        seconds = time.perf_counter() - start
        self.api.llama_batch_free(batch)
        self.api.llama_free(context)
        return n * count / seconds


class Tools:
    """llama.cpp's own programs."""

    def __init__(self, args):
        self.args = args

    def bench(self, *what):
        a = self.args
        rows = json.loads(output_of(f'{a.tools}/llama-bench', '-m', a.model, '-t', a.t, '-r', 1, '-o', 'json', *what))
        return float(rows[0]['avg_ts'])

    def prompt(self, n):
        return self.bench('-p', n, '-n', 0)

    def decode(self, n):
        return self.bench('-p', 0, '-n', n)

    def sequences(self, n, count):
        a = self.args
        text = output_of(f'{a.tools}/llama-batched-bench', '-m', a.model, '-t', a.t, '-npp', 1, '-ntg', n, '-npl', count, '-c', count * (n + 16),
                         '--output-format', 'jsonl')
        return float(next(json.loads(line) for line in text.splitlines() if line.startswith('{'))['speed_tg'])


def weft(args, prompt, gen, sequences=1):
    text = output_of(args.weft, 'bench', '-m', args.model, '--device', 'cpu', *args.own, '-p', prompt, '-n', gen, '-s', sequences,
                     '-r', 1, '-o', 'csv')
    row, = csv.DictReader(text.splitlines())
    return float(row['avg_ts']), row


def file_of_results(folder, device):
    """Named as weft does."""
    return f'{folder}/weft-cpu-{re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")}-{os.cpu_count()}.csv'


def add_result(folder, row, what, shape, tokens, ours, theirs, ratio):
    """As weft writes them; the ratio is the median of the pairs'."""
    path = file_of_results(folder, row['device_name'])
    is_new = not os.path.exists(path)
    with open(path, 'a', newline='') as f:
        out = csv.writer(f, lineterminator='\n')
        if is_new:
            out.writerow('date device driver commit op dtype shape variant median_us rate unit ceiling_pct peer peer_rate ratio'.split())
        out.writerow([datetime.date.today(), row['device_name'], row['driver'], row['build_commit'], f'model_{what}', row['model_type'].split()[-1],
                      shape, '', f'{tokens / ours * 1e6:.2f}', f'{ours:.6g}', 'tokens/s', '', 'llama.cpp', f'{theirs:.6g}', f'{ratio:.3f}'])


def compare(args, what, shape, tokens, ours, theirs):
    rates = []
    for _ in range(args.r):
        (x, row), y = ours(), theirs()
        rates.append((x, y, x / y))
        print(f'{what} {shape}: weft {x:.1f}, llama.cpp {y:.1f} tokens/s, ratio {x / y:.2f}, load {os.getloadavg()[0]:.1f}', flush=True)
    medians = [statistics.median(v) for v in zip(*rates)]
    print(f'{what} {shape}: median ratio {medians[2]:.2f}', flush=True)
    if args.results:
        add_result(args.results, row, what, shape, tokens, *medians)
    if args.peer:
        quoted = f'"{shape}"' if ',' in shape else shape
        args.peer.write(f'model_{what},{row["model_type"].split()[-1]},{quoted},llama.cpp,{medians[1]:.3f},tokens/s\n')


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('weft')
    p.add_argument('model')
    p.add_argument('-p', type=int, default=512, help='tokens of the prompt; 0: skip')
    p.add_argument('-n', type=int, default=64, help='tokens to generate; 0: skip')
    p.add_argument('-s', type=int, default=0, help='sequences that decode together; 0: skip')
    p.add_argument('-r', type=int, default=5)
    p.add_argument('-t', type=int, help='threads of both (default: what weft takes by itself, and one a core for llama.cpp)')
    p.add_argument('--results', help='folder to whose file of this device to append rows of results')
    p.add_argument('--peer', type=argparse.FileType('w'), help='write lines op,dtype,shape,peer,rate,unit here')
    p.add_argument('--tools', help="folder of llama.cpp's programs")
    a = p.parse_args()
    a.own, a.t = ['-t', a.t] if a.t else [], a.t or os.cpu_count()
    peer = Tools(a) if a.tools else Package(a)
    threads = f',T={a.t}' if a.own else ''
    if a.p:
        compare(a, 'prompt', f'P={a.p}{threads}', a.p, lambda: weft(a, a.p, 0), lambda: peer.prompt(a.p))
    if a.n:
        compare(a, 'decode', f'N={a.n}{threads}', a.n, lambda: weft(a, 0, a.n), lambda: peer.decode(a.n))
    if a.s:
        n = a.n or 32
        compare(a, 'decode', f'N={n},B={a.s}{threads}', n * a.s, lambda: weft(a, 0, n, a.s), lambda: peer.sequences(n, a.s))


if __name__ == '__main__':
    main()
