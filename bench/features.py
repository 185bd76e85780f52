#!/usr/bin/env python3
"""What features of `weft serve` cost: the same requests with and without, in turns, by servers of one model.

    features.py WEFT MODEL [WHAT...]      WHAT: grammar, lora, hit (all of them)

- grammar: sequences whose answers follow a schema, all of them or every second one, and the others beside them.
- lora: sequences of the model alone by a server that has adapters, and with an adapter each, against one that has none.
- hit: the time to the first token of a prompt whose KV is in host memory (--kv-host), against a new one.

It prints a ratio of medians with the smallest and the largest round; above 1: faster with the feature.
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'tests' / 'model'))

# No answer ends early: it has more items than tokens.
SCHEMA = {'type': 'array', 'minItems': 2000, 'items': {'anyOf': [{'type': 'integer'}, {'type': 'string', 'maxLength': 20}, {
    'type': 'object', 'properties': {'name': {'type': 'string'}, 'size': {'type': 'number'}}, 'required': ['name', 'size'], 'additionalProperties': False}]}}


class Server:
    def __init__(self, weft, model, *args):
        self.process = subprocess.Popen([weft, 'serve', '-m', model, '--port', '0', '--calibration', 'none', *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if found := re.search(r'http://[\d.]+:(\d+)', line):
                self.port = int(found[1])
                break
        else:
            sys.exit(''.join(lines))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while self.ask('GET', '/health')[0] != 200:
            time.sleep(0.1)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body else None, {'Content-Type': 'application/json'})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or 'null')

    def complete(self, prompt, tokens, **more):
        """Seconds, and usage."""
        start = time.monotonic()
        status, body = self.ask('POST', '/v1/completions', {'prompt': prompt, 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True, **more})
        if status != 200:
            sys.exit(f'features.py: {status} {body}')
        return time.monotonic() - start, body['usage']

    def batch(self, prompts, tokens, mores):
        """All at once: the seconds of each, and tokens a second."""
        done = [None] * len(prompts)

        def one(i):
            done[i] = self.complete(prompts[i], tokens, **mores[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
        start = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wall = time.monotonic() - start
        return [seconds for seconds, _ in done], sum(u['completion_tokens'] for _, u in done) / wall

    def end(self):
        self.process.terminate()
        self.process.wait()


def ids(rng, n):
    return [rng.randrange(3, 250) for _ in range(n)]


def say(what, new, old):
    """Two lists of values of which more is better, a pair a round."""
    ratios = [a / b for a, b in zip(new, old)]
    print(f'{what}: {statistics.median(new) / statistics.median(old):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); '
          f'{statistics.median(new):.4g} against {statistics.median(old):.4g}', flush=True)


def grammar(a):
    s, rng = Server(a.weft, a.model, *a.on, '--max-num-seqs', a.seqs, '--no-prefix-cache', '-c', 1024), random.Random(1)
    bound = {'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'strict': True, 'schema': SCHEMA}}}
    kinds = {'none': lambda i: {}, 'all': lambda i: bound, 'half': lambda i: bound if i % 2 else {}}
    rate, others = {k: [] for k in kinds}, {k: [] for k in kinds}
    for r in range(a.rounds + 1):
        for kind, more in kinds.items():
            prompts = [ids(rng, 64) for _ in range(a.seqs)]
            seconds, tokens = s.batch(prompts, a.tokens, [more(i) for i in range(a.seqs)])
            if r:  # the first warms up
                rate[kind].append(tokens)
                others[kind].append(1 / statistics.mean(seconds[::2]))
    s.end()
    say(f'{a.seqs} sequences with a schema, tokens/s', rate['all'], rate['none'])
    say('those without beside as many with, answers/s of each', others['half'], others['none'])


def adapters(a, folder):
    import lora
    import numpy as np

    from gguf_read import File
    file, paths = File(a.model), []
    for n in range(a.adapters):
        rng, pairs = np.random.default_rng(n), {}
        for name, (dims, *_) in file.tensors.items():
            if found := re.fullmatch(r'blk\.(\d+)\.(attn_q|attn_k|attn_v|attn_output|ffn_gate|ffn_up|ffn_down)\.weight', name):
                part = next(k for k, v in lora.OURS.items() if v == found[2] and k not in ('self_attn.qkv_proj', 'mlp.gate_up_proj'))
                pairs[f'model.layers.{found[1]}.{part}'] = (rng.standard_normal((16, dims[0]), np.float32) * np.float32(0.01),
                                                            rng.standard_normal((dims[1], 16), np.float32) * np.float32(0.01))
        paths.append(f'{folder}/{n}.gguf')
        lora.write_gguf(paths[-1], pairs, 16, kind='F16')
    return paths


def with_adapters(a):
    rng = random.Random(2)
    args = [*a.on, '--max-num-seqs', a.seqs, '--no-prefix-cache', '-c', 1024, '--kv-memory', a.kv]
    with tempfile.TemporaryDirectory() as folder:
        flags = [w for n, path in enumerate(adapters(a, folder)) for w in ('--lora', f'a{n}={path}')]
        plain, s = Server(a.weft, a.model, *args), Server(a.weft, a.model, *args, *flags)
        rate = {'plain': [], 'base': [], 'adapted': []}
        for r in range(a.rounds + 1):
            for kind in rate:
                prompts = [ids(rng, 64) for _ in range(a.seqs)]
                mores = [{'model': f'a{i % a.adapters}'} if kind == 'adapted' else {} for i in range(a.seqs)]
                _, tokens = (plain if kind == 'plain' else s).batch(prompts, a.tokens, mores)
                if r:
                    rate[kind].append(tokens)
        plain.end()
        s.end()
    say(f'{a.seqs} sequences of the model alone, {a.adapters} adapters loaded, tokens/s', rate['base'], rate['plain'])
    say(f'{a.seqs} sequences with {a.adapters} adapters, tokens/s', rate['adapted'], rate['plain'])


def hit(a):
    """Prompts are stored at their second sighting, and go when others have filled the KV cache."""
    s, rng = Server(a.weft, a.model, *a.on, '--max-num-seqs', 1, '-c', a.prompt + 64, '--kv-memory', a.kv, '--kv-host', a.host), random.Random(3)
    prompts = [ids(rng, a.prompt) for _ in range(a.rounds + 1)]
    for _ in range(2):
        for p in prompts:
            s.complete(p, 1)
    new = [s.complete(ids(rng, a.prompt), 1)[0] for _ in range(a.fill)]
    found = [s.complete(p, 1) for p in prompts]
    s.end()
    cached = [u['prompt_tokens_details']['cached_tokens'] for _, u in found]
    print(f'cached tokens of {a.prompt}: {min(cached)} to {max(cached)}')
    say(f'first tokens a second of prompts of {a.prompt} in host memory', [1 / t for t, _ in found][1:], [1 / t for t in new][-a.rounds:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('weft')
    p.add_argument('model')
    p.add_argument('what', nargs='*', default=['grammar', 'lora', 'hit'])
    p.add_argument('--device', default='gpu')
    p.add_argument('--seqs', type=int, default=64)
    p.add_argument('--tokens', type=int, default=128, help='of each answer')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--adapters', type=int, default=8)
    p.add_argument('--prompt', type=int, default=8192, help='tokens of a prompt of `hit`')
    p.add_argument('--kv', default='20G', help='KV cache of `lora` and of `hit`')
    p.add_argument('--host', default='40G', help='host memory of `hit`')
    p.add_argument('--fill', type=int, default=20, help='prompts that fill the KV cache of `hit`')
    a = p.parse_args()
    a.on = ['--device', a.device]
    for what in a.what:
        {'grammar': grammar, 'lora': with_adapters, 'hit': hit}[what](a)


if __name__ == '__main__':
    main()
