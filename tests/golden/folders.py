#!/usr/bin/env python3
"""Models in folders of Hugging Face's layout.

- tests/model/data: tiny models that transformers made and ran (make_folders.py), with their weights as F32, F16 and BF16: logits of the prompt and of what
  follows, greedy ids and log probabilities through the cache.
- Models of tiny.py as folders, in shards and with padded vocabularies, against a float64 pass over the GGUF file that they come from.
- Gemma 3 with a vision tower: its text.
- stories260K as a folder writes what its GGUF file writes.

    folders.py WEFT DECODE SOURCES DEVICE

Logits may be off by what src/verify/tolerances.def says.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from common import build_once, end, np, resolve, run, say
import hf
import part
import reference
import tiny
import tolerances

LIMIT = tolerances.rows('MODEL')['logits'][0]
TYPES = ['F32', 'F16', 'BF16']
TINY = [  # architecture, variant, options of hf.py
    ('llama', 'gqa', ['--shards', '3']),
    ('llama', 'mha', []),
    ('llama', 'tied', ['--pad', '5']),
    ('llama', 'headdim', ['--shards', '2', '--pad', '3']),
    ('llama', 'linear', []),
    ('llama', 'bias', []),
    ('qwen2', 'tied', []),
    ('qwen3', 'headdim,tied', []),
    ('llama', 'experts', ['--shards', '3']),
    ('qwen3moe', 'gqa', []),
]
TOKENS = [1, 15, 200, 77, 3, 3, 290, 42, 128, 64, 31, 7, 99, 250, 181, 12, 55, 301, 222, 9]


class Test:
    def __init__(self, weft, decode, sources, device):
        self.weft, self.decode, self.sources = weft, decode, pathlib.Path(sources)
        self.device = resolve(weft, device)
        self.once = build_once(weft, self.device)

    def logits(self, model, ids, out):
        run(self.weft, 'perplexity', '-m', model, '--tokens', ','.join(map(str, ids)), '--logits', out, '--device', self.device, *self.once)
        return np.load(out)

    def error(self, what, want, got):
        worst = tolerances.model_error('logits', got, want) if want.shape == got.shape else np.inf
        say(what, worst <= 1, f'{worst:.2f} of its tolerance')  # NaN fails

    # ---- of transformers -------------------------------------------------------------------------

    def made(self, folder, top, types):
        facts = json.loads((folder / 'ids.json').read_text())
        want, ids = np.load(folder / 'logits.npy'), facts['prompt'] + facts['generated']
        for kind in types:
            copy = top / f'{folder.name}-{kind}'
            retype(folder, copy, kind)
            self.error(f'{folder.name} {kind}', want, self.logits(copy, ids, top / 'got.npy'))
            self.cached(copy, facts, want)
        if self.device == 'cpu':
            self.experts(folder)

    def experts(self, folder):
        """Of a mixture of experts, how many parameters a token needs."""
        config = json.loads((folder / 'config.json').read_text())
        n, used = config.get('num_local_experts', config.get('num_experts', 0)), config.get('num_experts_per_tok', 0)
        if not n:
            return
        sizes = {name: np.prod(t['shape'], dtype=int) for name, t in header_of((folder / 'model.safetensors').read_bytes())[0].items()}
        active = sum(sizes.values()) - sum(s for name, s in sizes.items() if '.experts.' in name) * (n - used) // n
        text = run(self.weft, 'info', '-m', folder).decode()
        say(f'{folder.name} active parameters', f'{n}, {used} of them for a token' in text and f'active parameters ({active})' in text, str(active))

    def cached(self, folder, facts, want):
        rows = run(self.decode, folder, self.device, ','.join(map(str, facts['prompt'])), str(len(facts['generated']))).decode().split('\n')[:-1]
        ids = [int(row.split()[0]) for row in rows]
        say(f'{folder.name} greedy', ids == facts['generated'], f'{len(ids)} ids through the cache')
        logits = want[len(facts['prompt']) - 1:].astype(np.float64)
        worst, n = 0, 0
        for row, x in zip(rows, logits):
            x = x - np.log(np.exp(x - x.max()).sum()) - x.max()
            for token, p in (pair.split(':') for pair in row.split()[1:]):
                worst, n = max(worst, abs(float(p) - x[int(token)]) / (x.max() - x.min())), n + 1
        say(f'{folder.name} log probabilities', n > len(rows) and worst <= LIMIT, f'{worst:.2e} of the range, over {n}')

    # ---- of tiny.py --------------------------------------------------------------------------------

    def tiny(self, arch, variant, options, top):
        gguf, folder = top / 'm.gguf', top / f'{arch}-{variant}'
        tiny.main(['--arch', arch, '--type', 'BF16', '--variant', variant, str(gguf)])
        want = reference.Model(gguf).logits(TOKENS)
        hf.main([*options, str(gguf), str(folder)])
        got = self.logits(folder, TOKENS, top / 'got.npy')
        self.error(f'{arch} {variant} {" ".join(options)}', want, got[:, :want.shape[1]])

    # ---- a trained one -----------------------------------------------------------------------------

    def stories(self, top):
        data = pathlib.Path(os.environ.get('WEFT_TEST_DATA', self.sources / '..' / 'shared' / 'data')) / 'stories260K.gguf'
        if not data.exists():
            print(f'skipped: {data} is not there')
            return
        hf.main([str(data), str(top / 'stories')])
        for prompt in ('Once upon a time', ' Tom and  Größe 😀\n42', ''):
            a, b = (run(self.weft, 'run', '-m', m, '-p', prompt, '-n', '100', '--greedy', '--device', self.device, *self.once) for m in (data, top / 'stories'))
            ids = [run(self.weft, 'tokenize', '-m', m, '-p', prompt) for m in (data, top / 'stories')]
            say(f'stories260K {prompt!r}', a == b and ids[0] == ids[1] and len(a) > 50, f'{len(a)} bytes')


    # ---- as published models leave it out ------------------------------------------------------------

    def defaults(self, top):
        """Gemma 3 with a vision tower, whose text_config has only what is no default, and whose tensors have transformers' newer names."""
        source, folder = self.sources / 'tests/model/data/gemma3-vision', top / 'defaults'
        shutil.copytree(source, folder)
        config = json.loads((source / 'config.json').read_text())
        for key in ('rms_norm_eps', 'max_position_embeddings', 'rope_parameters', 'layer_types', '_sliding_window_pattern', 'attn_logit_softcapping', 'final_logit_softcapping',
                    'query_pre_attn_scalar', 'tie_word_embeddings'):
            del config['text_config'][key]
        del config['tie_word_embeddings']
        config['text_config']['attn_logit_softcapping'] = 0.5  # transformers reads it and computes no cap
        hf.write_json(folder, 'config.json', config)
        data = (source / 'model.safetensors').read_bytes()
        header, size = header_of(data)
        renamed = json.dumps({re.sub('^model.language_model.model', 'model.language_model', 'model.' + name): t for name, t in header.items()}).encode()
        (folder / 'model.safetensors').write_bytes(len(renamed).to_bytes(8, 'little') + renamed + data[8 + size:])
        facts = json.loads((source / 'ids.json').read_text())
        self.error('gemma3-vision without defaults', np.load(source / 'logits.npy'), self.logits(folder, facts['prompt'] + facts['generated'], top / 'got.npy'))

    def windows(self, top):
        """Which of Llama's classes have a sliding window, and its length where config.json does not say: transformers' configuration classes."""
        for name, kind, window, want in (('mistral-window', 'MistralForCausalLM', 9, 9), ('mistral-window', 'MistralForCausalLM', None, 0), ('mistral-window', 'MistralForCausalLM', '', 4096),
                                         ('mistral-window', 'LlamaForCausalLM', 9, 0), ('mixtral', 'MixtralForCausalLM', 9, 9), ('mixtral', 'MixtralForCausalLM', '', 0)):
            folder, out = top / 'windows', top / 'windows.gguf'
            shutil.copytree(self.sources / 'tests/model/data' / name, folder, dirs_exist_ok=True)
            config = json.loads((folder / 'config.json').read_text()) | {'architectures': [kind], 'sliding_window': window}
            if window == '':
                del config['sliding_window']
            hf.write_json(folder, 'config.json', config)
            run(self.weft, 'convert', '-m', folder, '-o', out, '--type', 'F16')
            got = hf.File(str(out)).meta.get('llama.attention.sliding_window', 0)
            out.unlink()
            say(f'{kind} sliding_window {window!r}', got == want, f'a window of {got}')

    def bases(self, top):
        """How fast positions turn where config.json does not say: transformers' configuration classes; and where rope_scaling says it."""
        for name, more, want in (('gemma3', {}, 1e6), ('gpt-oss', {}, 150000), ('llama', {}, 10000), ('mixtral', {}, 1e6), ('smollm3', {}, 2e6),
                                 ('llama', {'rope_scaling': {'rope_type': 'linear', 'factor': 2, 'rope_theta': 500}, 'rope_parameters': None}, 500)):
            folder = top / 'bases'
            shutil.copytree(self.sources / 'tests/model/data' / name, folder, dirs_exist_ok=True)
            config = json.loads((folder / 'config.json').read_text())
            for rope in (config['rope_parameters'], config['rope_parameters'].get('full_attention', {})):
                rope.pop('rope_theta', None)
            hf.write_json(folder, 'config.json', config | more)
            got = float(re.search(r'rope base ([^,]+)', run(self.weft, 'info', '-m', folder).decode())[1])
            say(f'{name} with {more} and without its own rope_theta', got == want, f'a base of {got}')

    def cut_contexts(self, top):
        """Qwen's windows are not computed: how long a context is without them, also where config.json does not say."""
        folder = top / 'cut'
        shutil.copytree(self.sources / 'tests/model/data/qwen2', folder)
        plain = {k: v for k, v in json.loads((folder / 'config.json').read_text()).items() if k not in ('sliding_window', 'layer_types')}
        for more, want in (({'sliding_window': 1000}, 1000), ({'sliding_window': None}, 32768), ({}, 4096), ({'use_sliding_window': False}, 32768)):
            hf.write_json(folder, 'config.json', plain | {'use_sliding_window': True, 'max_window_layers': 0, 'max_position_embeddings': 32768} | more)
            got = int(re.search(r'^context +(\d+)', run(self.weft, 'info', '-m', folder).decode(), re.M)[1])
            say(f'Qwen 2 with {more}', got == want, f'a context of {got}')

    # ---- files beside the weights ------------------------------------------------------------------

    def beside(self, top):
        chatml, plain = "{{ '<|im_start|>' }}", "{{ '[INST]' }}<<SYS>>"
        configs = [({'chat_template': chatml}, None, f'{len(chatml)} bytes'), ({'chat_template': [{'name': 'x', 'template': plain}, {'name': 'default', 'template': chatml}]}, None, f'{len(chatml)} bytes'),
                   ({'chat_template': chatml}, plain, f'{len(plain)} bytes'), ({}, None, 'none')]
        folder = top / 'beside'
        retype(self.sources / 'tests/model/data/llama', folder, 'BF16')
        for more, file, name in configs:
            hf.write_json(folder, 'tokenizer_config.json', {'bos_token': {'content': '<s>'}, **more})
            if file:
                (folder / 'chat_template.jinja').write_text(file)
            elif (folder / 'chat_template.jinja').exists():
                (folder / 'chat_template.jinja').unlink()
            text = run(self.weft, 'info', '-m', folder).decode()
            say(f'chat template {name}', re.search(rf'chat template +{name}$', text, re.M) and 'BOS 256, EOS 257' in text, 'info')
        facts = json.loads((self.sources / 'tests/model/data/llama/ids.json').read_text())
        (top / 'prompt').write_bytes(run(self.weft, 'detokenize', '-m', folder, ' '.join(map(str, facts['prompt'][1:]))))
        for eos, least, most in ((257, 16, 16), ([257, facts['generated'][2]], 2, 2)):
            hf.write_json(folder, 'generation_config.json', {'eos_token_id': eos})
            done = subprocess.run([self.weft, 'run', '-m', folder, '-f', top / 'prompt', '-n', '16', '--greedy', '--device', self.device, *self.once], capture_output=True)
            n = int(re.search(rb'generated (\d+) tokens', done.stderr).group(1))
            say(f'eos_token_id {eos}', least <= n <= most, f'{n} tokens')


def header_of(data):
    """Tensors of a safetensors file by name, and the size of their list."""
    size = int.from_bytes(data[:8], 'little')
    return {name: t for name, t in json.loads(data[8:8 + size]).items() if name != '__metadata__'}, size


def tensors_of(folder):
    """Names and float32 arrays of a folder whose weights are BF16."""
    data = (folder / 'model.safetensors').read_bytes()
    header, size = header_of(data)
    for name, t in header.items():
        assert t['dtype'] == 'BF16', t
        begin, end = t['data_offsets']
        bits = np.frombuffer(data[8 + size + begin:8 + size + end], '<u2').astype('<u4') << 16
        yield name, bits.view('<f4').reshape(t['shape'])


def retype(folder, copy, kind):
    """The folder with its weights in another type."""
    copy.mkdir()
    for name in ('config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json'):
        (copy / name).write_bytes((folder / name).read_bytes())
    hf.write_safetensors(copy / 'model.safetensors', list(tensors_of(folder)), kind)


def main():
    test = Test(*sys.argv[1:5])
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        folders = sorted(p for p in (test.sources / 'tests/model/data').iterdir() if (p / 'ids.json').exists())
        assert len(folders) >= 13, folders
        chosen, here = [(folder, kind) for folder in folders for kind in TYPES], TINY
        # On OpenCL a type of weights is other kernels, each built for seconds, which know nothing of architectures: one of them meets all types, the
        # others take turns. What reads a folder knows nothing of devices: those with rows of no token have shapes of their own.
        if test.device != 'cpu':
            chosen = part.mine('model', [(f, kind) for f, kind in chosen if f.name == 'llama' or kind == TYPES[folders.index(f) % 3]])
            here = [case for case in TINY if '--pad' in case[2]]
        for folder in folders:
            test.made(folder, top, [kind for f, kind in chosen if f == folder])
        for case in here:
            test.tiny(*case, top)
        test.stories(top)
        if test.device == 'cpu':
            test.defaults(top)
            test.windows(top)
            test.bases(top)
            test.cut_contexts(top)
            test.beside(top)
    end()


if __name__ == '__main__':
    main()
